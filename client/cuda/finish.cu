/* The finishing kernels. finish-plan.h has what they calculate; this file is about moving bytes.
 *
 * A thread makes 16 bytes of output at a time, and the 16 bytes of neighbouring threads lie side by side, so stores are whole cache lines.
 * To planes (NCHW) the input of a block goes through shared memory in 16-byte loads, because a thread's pixels are n_channels times as far apart as
 * its outputs. Images whose planes are no multiple of what a thread makes, memory that is not aligned, and the rare mean and std that need true
 * divisions go number by number.
 * Every loop is grid-stride: any grid gives the same result. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "finish-plan.h"

/* ---- numbers ---- */

struct to_uint8 { typedef uint8_t type; static constexpr bool pixel = true; };
struct to_float16 { typedef uint16_t type; static constexpr bool pixel = false; };
struct to_bfloat16 { typedef uint16_t type; static constexpr bool pixel = false; };
struct to_float32 { typedef float type; static constexpr bool pixel = false; };

static __device__ __forceinline__ uint16_t rounded(to_float16, float v) { return __half_as_ushort(__float2half_rn(v)); }
static __device__ __forceinline__ uint16_t rounded(to_bfloat16, float v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); }
static __device__ __forceinline__ float rounded(to_float32, float v) { return v; }

struct constants { float mean, std, high, low; };

static __device__ __forceinline__ constants constants_of(const finish_plan &p, int c)
{
	return { p.mean[c], p.std[c], p.std_high[c], p.std_low[c] };
}

template <class To, bool DIVIDES>
static __device__ __forceinline__ typename To::type number(const finish_plan &p, const constants &k, uint32_t v)
{
	if constexpr (To::pixel)
		return (uint8_t)v;
	else if constexpr (DIVIDES)
		return rounded(To(), finish_by_division((float)v, k.mean, k.std));
	else
		return rounded(To(), finish_by_reciprocal((float)v, p.scale_high, p.scale_low, k.mean, k.high, k.low));
}

static __device__ __forceinline__ bool aligned(const void *a)
{
	return ((uintptr_t)a & 15) == 0;
}

/* What one thread makes: 16 bytes. */
template <class T> union sixteen {
	uint4 all;
	T each[16 / sizeof(T)];
};

/* N bytes (a multiple of 4) in the largest loads that they allow. */
template <int N> union bytes_of {
	uint8_t each[N];
	uint32_t words[N / 4];
};
template <int N> static __device__ __forceinline__ void load(bytes_of<N> &out, const uint8_t *from)
{
	if constexpr (N % 16 == 0) {
#pragma unroll
		for (int i = 0; i < N / 16; i++) {
			uint4 v = reinterpret_cast<const uint4 *>(from)[i];
			out.words[4 * i] = v.x, out.words[4 * i + 1] = v.y, out.words[4 * i + 2] = v.z, out.words[4 * i + 3] = v.w;
		}
	} else if constexpr (N % 8 == 0) {
#pragma unroll
		for (int i = 0; i < N / 8; i++) {
			uint2 v = reinterpret_cast<const uint2 *>(from)[i];
			out.words[2 * i] = v.x, out.words[2 * i + 1] = v.y;
		}
	} else {
#pragma unroll
		for (int i = 0; i < N / 4; i++)
			out.words[i] = reinterpret_cast<const uint32_t *>(from)[i];
	}
}

/* ---- NHWC, or one channel: number i of the input is number i of the output ---- */

template <class To, int C, bool DIVIDES> static __device__ __forceinline__ void flat(const finish_plan &p)
{
	typedef typename To::type T;
	constexpr int V = 16 / sizeof(T);
	const uint8_t *in = reinterpret_cast<const uint8_t *>(p.in);
	T *out = reinterpret_cast<T *>(p.out);
	uint32_t n = p.n_px * C, n_whole = !DIVIDES && aligned(in) && aligned(out) ? n / V : 0;
	uint32_t first = blockIdx.x * FINISH_THREADS + threadIdx.x, step = gridDim.x * FINISH_THREADS;

	for (uint32_t g = first; g < n_whole; g += step) {
		uint32_t at = g * V, phase = at % C; /* always 0 unless C is 3 */
		constants k[C];
		bytes_of<V> v;
		sixteen<T> made;

#pragma unroll
		for (int c = 0; c < C; c++) {
			k[c] = constants_of(p, c);
			if constexpr (V % C != 0) {
				if (phase == 1)
					k[c] = constants_of(p, (c + 1) % C);
				else if (phase == 2)
					k[c] = constants_of(p, (c + 2) % C);
			}
		}
		load(v, in + at);
#pragma unroll
		for (int i = 0; i < V; i++)
			made.each[i] = number<To, DIVIDES>(p, k[i % C], v.each[i]);
		reinterpret_cast<uint4 *>(out)[g] = made.all;
	}
	for (uint32_t i = n_whole * V + first; i < n; i += step) {
		uint32_t c = i % C;
		constants k = { p.mean[c], p.std[c], p.std_high[c], p.std_low[c] };

		out[i] = number<To, DIVIDES>(p, k, in[i]);
	}
}

/* ---- NCHW ---- */

/* The block's n_bytes of input to shared memory. Thread by thread side by side, whatever pixels the bytes belong to. */
static __device__ __forceinline__ void stage(uint8_t *shared, const uint8_t *from, uint32_t n_bytes)
{
	uint32_t n_whole = aligned(from) ? n_bytes / 16 : 0;

	for (uint32_t i = threadIdx.x; i < n_whole; i += FINISH_THREADS)
		reinterpret_cast<uint4 *>(shared)[i] = __ldg(reinterpret_cast<const uint4 *>(from) + i);
	for (uint32_t i = n_whole * 16 + threadIdx.x; i < n_bytes; i += FINISH_THREADS)
		shared[i] = __ldg(from + i);
}

template <class To, int C, bool DIVIDES> static __device__ __forceinline__ void planar(const finish_plan &p, uint8_t *shared)
{
	typedef typename To::type T;
	constexpr uint32_t V = 16 / sizeof(T), TILE = FINISH_THREADS * V;
	const uint8_t *in = reinterpret_cast<const uint8_t *>(p.in);
	T *out = reinterpret_cast<T *>(p.out);
	/* Then the V pixels of a thread are of one image, and so is every 16-byte store. */
	bool whole = !DIVIDES && p.plane % V == 0 && aligned(out);

	for (uint64_t from = (uint64_t)blockIdx.x * TILE; from < p.n_px; from += (uint64_t)gridDim.x * TILE) {
		uint32_t first = (uint32_t)from, n = min(TILE, p.n_px - first);

		stage(shared, in + (size_t)first * C, n * C);
		__syncthreads();
		if (whole && threadIdx.x * V < n) {
			uint32_t px = first + threadIdx.x * V, image = px / p.plane;
			T *to = out + (size_t)image * C * p.plane + (px - image * p.plane);
			bytes_of<V * C> v;

			load(v, shared + threadIdx.x * (V * C));
#pragma unroll
			for (int c = 0; c < C; c++) {
				constants k = constants_of(p, c);
				sixteen<T> made;

#pragma unroll
				for (uint32_t i = 0; i < V; i++)
					made.each[i] = number<To, DIVIDES>(p, k, v.each[i * C + c]);
				*reinterpret_cast<uint4 *>(to + (size_t)c * p.plane) = made.all;
			}
		}
		for (uint32_t i = threadIdx.x; !whole && i < n; i += FINISH_THREADS) {
			uint32_t px = first + i, image = px / p.plane;
			T *to = out + (size_t)image * C * p.plane + (px - image * p.plane);

#pragma unroll
			for (int c = 0; c < C; c++)
				to[(size_t)c * p.plane] = number<To, DIVIDES>(p, constants_of(p, c), shared[i * C + c]);
		}
		__syncthreads();
	}
}

/* ---- the kernels, by name ---- */

#define FLAT(To, C) \
	extern "C" __global__ void __launch_bounds__(FINISH_THREADS) finish_flat_##To##_##C(const finish_plan p) \
	{ \
		if (p.divides) \
			flat<to_##To, C, true>(p); \
		else \
			flat<to_##To, C, false>(p); \
	}
#define PLANAR(To, C) \
	extern "C" __global__ void __launch_bounds__(FINISH_THREADS) finish_planar_##To##_##C(const finish_plan p) \
	{ \
		__shared__ uint4 shared[FINISH_THREADS * C / sizeof(to_##To::type)]; \
		if (p.divides) \
			planar<to_##To, C, true>(p, reinterpret_cast<uint8_t *>(shared)); \
		else \
			planar<to_##To, C, false>(p, reinterpret_cast<uint8_t *>(shared)); \
	}
#define ALL(To) FLAT(To, 1) FLAT(To, 2) FLAT(To, 3) FLAT(To, 4) PLANAR(To, 2) PLANAR(To, 3) PLANAR(To, 4)
ALL(uint8)
ALL(float16)
ALL(bfloat16)
ALL(float32)
