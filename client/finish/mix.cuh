/* The mixing kernels, after the finishing kernels in convert.cu. mix-plan.h has the arithmetic.
 *
 * A thread makes the 16 bytes of each channel, or in NHWC 16 bytes times the channels, of neighbouring pixels of one image,
 * from its pixels and those of the partner, which both lie in the L2 cache of a GPU when a batch is finished. A block stays
 * within one image, so that all of its threads have one record. Every loop is grid-stride. */
#include "finish/mix-plan.h"

static __device__ __forceinline__ float number_of(const convert_plan &p, const constants &k, uint32_t v)
{
	return p.divides ? convert_by_division((float)v, k.mean, k.std) : quick(p, k, v);
}

/* V pixels from px on, all of one image, aligned for whole loads and stores. */
template <class To, int C, bool PLANAR>
static __device__ __forceinline__ void mix_whole(const mix_plan &m, const batchd_mix_row &r, const uint8_t *own,
						 const uint8_t *partner, uint32_t px, typename To::type *image)
{
	constexpr int V = 16 / sizeof(typename To::type);
	const convert_plan &p = m.convert;
	bool blends = r.kind == BATCHD_MIX_BLEND;
	bytes_of<V * C> a, b;

	move(a, *reinterpret_cast<const bytes_of<V * C> *>(own + (size_t)px * C));
	move(b, *reinterpret_cast<const bytes_of<V * C> *>(partner + (size_t)px * C));
	if (r.kind == BATCHD_MIX_BOX) {
#pragma unroll
		for (int i = 0; i < V; i++) {
			uint32_t mask = mix_is_inside(&m, &r, px + i) ? 0xff : 0;

#pragma unroll
			for (int j = i * C; j < (i + 1) * C; j++)
				a.words[j / 4] ^= ((a.words[j / 4] ^ b.words[j / 4]) & mask << 8 * (j % 4));
		}
	}
#pragma unroll
	for (int g = 0; g < C; g++) {
		float group[V];

#pragma unroll
		for (int i = 0; i < V; i++) {
			int at = PLANAR ? i : (g * V + i) / C, c = PLANAR ? g : (g * V + i) % C;

			group[i] = quick(p, constants_of(p, c), a.each[at * C + c]);
			if (blends)
				group[i] = mix_blend(group[i], quick(p, constants_of(p, c), b.each[at * C + c]),
						     r.weight, r.partner_weight);
		}
		*reinterpret_cast<uint4 *>(image + (PLANAR ? (size_t)g * p.plane + px : (size_t)px * C + g * V)) =
			sixteen(To(), group);
	}
}

template <class To, int C, bool PLANAR>
static __device__ __forceinline__ void mix_pixel(const mix_plan &m, const batchd_mix_row &r, const uint8_t *own,
						 const uint8_t *partner, uint32_t px, typename To::type *image)
{
	const convert_plan &p = m.convert;
	bool inside = r.kind == BATCHD_MIX_BOX && mix_is_inside(&m, &r, px);

#pragma unroll 1
	for (int c = 0; c < C; c++) {
		size_t at = (size_t)px * C + c;
		constants k = constants_at<C>(p, c);
		float v = number_of(p, k, inside ? partner[at] : own[at]);

		if (r.kind == BATCHD_MIX_BLEND)
			v = mix_blend(v, number_of(p, k, partner[at]), r.weight, r.partner_weight);

		image[PLANAR ? (size_t)c * p.plane + px : at] = rounded(To(), v);
	}
}

template <class To, int C, bool PLANAR> static __device__ __forceinline__ void mix_rows(const mix_plan &m)
{
	typedef typename To::type T;
	constexpr uint32_t V = 16 / sizeof(T), TILE = CONVERT_THREADS * V;
	typedef typename bytes_of<V * C>::unit unit;
	const convert_plan &p = m.convert;
	const uint8_t *in = reinterpret_cast<const uint8_t *>(p.in);
	T *out = reinterpret_cast<T *>(p.out);
	size_t n = (size_t)p.plane * C;
	/* Four channels have so many constants that some GPUs spill a register. */
	bool whole = C < 4 && !p.divides && p.plane % V == 0 && n % sizeof(unit) == 0 && aligned<sizeof(unit)>(in) &&
		     aligned<16>(out);

	for (uint32_t work = blockIdx.x; work < m.n_rows * m.n_tiles; work += gridDim.x) {
		uint32_t i = work / m.n_tiles, from = (work - i * m.n_tiles) * TILE;
		const batchd_mix_row &r = m.row[i];
		const uint8_t *own = in + (m.first + i) * n, *partner = in + r.partner * n;
		T *image = out + (m.first + i) * n;

		if constexpr (C < 4) {
			if (whole && from + threadIdx.x * V < p.plane)
				mix_whole<To, C, PLANAR>(m, r, own, partner, from + threadIdx.x * V, image);
		}
		for (uint32_t px = from + threadIdx.x; !whole && px < p.plane && px < from + TILE;
		     px += CONVERT_THREADS)
			mix_pixel<To, C, PLANAR>(m, r, own, partner, px, image);
	}
}

#define MIX(To, layout, planar, C) \
	extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) \
		mix_##layout##_##To##_##C(const __grid_constant__ mix_plan m) \
	{ \
		mix_rows<to_##To, C, planar>(m); \
	}
#define MIX_ALL(To) \
	MIX(To, flat, false, 1) \
	MIX(To, flat, false, 2) MIX(To, flat, false, 3) MIX(To, flat, false, 4) MIX(To, planar, true, 2) \
		MIX(To, planar, true, 3) MIX(To, planar, true, 4)
MIX_ALL(float16)
MIX_ALL(bfloat16)
MIX_ALL(float32)

/* Slots that have numbers already, in the layout of the result. A pipeline that erases writes some that no pixel has. */

static __device__ __forceinline__ float taken(to_float16, uint16_t v)
{
	return __half2float(__ushort_as_half(v));
}
static __device__ __forceinline__ float taken(to_float32, float v)
{
	return v;
}

template <class From, class To> static __device__ __forceinline__ void mix_numbers(const mix_plan &m)
{
	constexpr uint32_t TILE = CONVERT_THREADS * (16 / sizeof(typename To::type));
	const convert_plan &p = m.convert;
	const typename From::type *in = reinterpret_cast<const typename From::type *>(p.in);
	typename To::type *out = reinterpret_cast<typename To::type *>(p.out);
	size_t n = (size_t)p.plane * p.n_channels, step = p.planar ? p.plane : 1, pitch = p.planar ? 1 : p.n_channels;

	for (uint32_t work = blockIdx.x; work < m.n_rows * m.n_tiles; work += gridDim.x) {
		uint32_t i = work / m.n_tiles, from = (work - i * m.n_tiles) * TILE;
		const batchd_mix_row &r = m.row[i];
		const typename From::type *own = in + (m.first + i) * n, *partner = in + r.partner * n;
		typename To::type *image = out + (m.first + i) * n;

		for (uint32_t px = from + threadIdx.x; px < p.plane && px < from + TILE; px += CONVERT_THREADS) {
			bool inside = r.kind == BATCHD_MIX_BOX && mix_is_inside(&m, &r, px);
			size_t at = px * pitch;

#pragma unroll 1
			for (uint32_t c = 0; c < p.n_channels; c++, at += step) {
				float v = taken(From(), inside ? partner[at] : own[at]);

				if (r.kind == BATCHD_MIX_BLEND)
					v = mix_blend(v, taken(From(), partner[at]), r.weight, r.partner_weight);
				image[at] = rounded(To(), v);
			}
		}
	}
}

#define MIX_NUMBERS(From, To) \
	extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) \
		mix_numbers_##To(const __grid_constant__ mix_plan m) \
	{ \
		mix_numbers<to_##From, to_##To>(m); \
	}
MIX_NUMBERS(float16, float16)
MIX_NUMBERS(float32, bfloat16)
MIX_NUMBERS(float32, float32)

extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) mix_targets(const __grid_constant__ mix_target_plan p)
{
	const int64_t *labels = reinterpret_cast<const int64_t *>(p.labels);
	float *out = reinterpret_cast<float *>(p.out) + (size_t)p.first * p.n_classes;
	uint32_t n = p.n_rows * p.n_classes;

	for (uint32_t at = blockIdx.x * CONVERT_THREADS + threadIdx.x; at < n; at += gridDim.x * CONVERT_THREADS) {
		uint32_t i = at / p.n_classes, c = at - i * p.n_classes;
		const batchd_mix_row &r = p.row[i];

		out[at] = mix_target(&p, &r, labels[p.first + i] == c, labels[r.partner] == c);
	}
}
