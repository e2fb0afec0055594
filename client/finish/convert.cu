/* The finishing kernels. convert-plan.h has the arithmetic; this file is about moving bytes.
 *
 * A thread makes 16 bytes of output at a time, and the 16 bytes of neighbouring threads are adjacent, so stores are
 * whole cache lines. A thread issues all its loads before it needs the first result. For planes (NCHW) the input of a
 * block goes through shared memory, because a thread's pixels are n_channels times as far apart as its outputs; each of
 * the n_channels loads takes as many bytes as a thread has pixels. Images whose planes are no multiple of a thread's
 * output, memory that is not aligned, and the rare mean and std that need true divisions are handled number by number.
 * Every loop is grid-stride: any grid gives the same result.
 *
 * The plan is indexed only with constants: otherwise each thread would copy all of it to its local memory. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "finish/convert-plan.h"

/* ---- numbers ---- */

struct to_uint8 {
	typedef uint8_t type;
};
struct to_float16 {
	typedef uint16_t type;
};
struct to_bfloat16 {
	typedef uint16_t type;
};
struct to_float32 {
	typedef float type;
};

static __device__ __forceinline__ uint16_t rounded(to_float16, float v)
{
	return __half_as_ushort(__float2half_rn(v));
}
static __device__ __forceinline__ uint16_t rounded(to_bfloat16, float v)
{
	return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}
static __device__ __forceinline__ float rounded(to_float32, float v)
{
	return v;
}

/* Two numbers in a word, the first one in the lower half. */
static __device__ __forceinline__ uint32_t pair(to_float16, float first, float second)
{
	union {
		__half2 pair;
		uint32_t word;
	} r = { __floats2half2_rn(first, second) };

	return r.word;
}

static __device__ __forceinline__ uint32_t pair(to_bfloat16, float first, float second)
{
	union {
		__nv_bfloat162 pair;
		uint32_t word;
	} r = { __floats2bfloat162_rn(first, second) };

	return r.word;
}

/* The output of one thread: 16 bytes. */
static __device__ __forceinline__ uint4 sixteen(to_float32, const float (&v)[4])
{
	return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
}

template <class To> static __device__ __forceinline__ uint4 sixteen(To to, const float (&v)[8])
{
	return make_uint4(pair(to, v[0], v[1]), pair(to, v[2], v[3]), pair(to, v[4], v[5]), pair(to, v[6], v[7]));
}

struct constants {
	float mean, std, high, low;
};

static __device__ __forceinline__ constants constants_of(const convert_plan &p, int c)
{
	return { p.mean[c], p.std[c], p.std_high[c], p.std_low[c] };
}

/* The same for a channel that is known only at run time. */
template <int C> static __device__ __forceinline__ constants constants_at(const convert_plan &p, uint32_t c)
{
	constants k = constants_of(p, 0);

#pragma unroll
	for (int i = 1; i < C; i++)
		if (c == i)
			k = constants_of(p, i);
	return k;
}

static __device__ __forceinline__ float quick(const convert_plan &p, const constants &k, uint32_t v)
{
	return convert_by_reciprocal((float)v, p.scale_high, p.scale_low, k.mean, k.high, k.low);
}

static __device__ __forceinline__ uint8_t single(to_uint8, const convert_plan &, const constants &, uint32_t v)
{
	return (uint8_t)v;
}

template <class To>
static __device__ __forceinline__ typename To::type single(To to, const convert_plan &p, const constants &k, uint32_t v)
{
	return rounded(to, p.divides ? convert_by_division((float)v, k.mean, k.std) : quick(p, k, v));
}

/* ---- bytes ---- */

template <int N> static __device__ __forceinline__ bool aligned(const void *a)
{
	return (uintptr_t)a % N == 0;
}

/* N bytes (a multiple of 4), moved in the largest units that N allows. In memory they are aligned for those units. */
template <int N> union bytes_of {
	typedef std::conditional_t<N % 16 == 0, uint4, std::conditional_t<N % 8 == 0, uint2, uint32_t>> unit;

	unit units[N / sizeof(unit)];
	uint32_t words[N / 4];
	uint8_t each[N];
};

template <int N> static __device__ __forceinline__ void move(bytes_of<N> &to, const bytes_of<N> &from)
{
#pragma unroll
	for (int i = 0; i < (int)(sizeof to.units / sizeof to.units[0]); i++)
		to.units[i] = from.units[i];
}

/* A word of four bytes, the first at `first`, each further one a step later. Not by shifts and masks: for compute_100
 * and newer, nvcc 13.0 mistakes such an expression, when one instruction loaded several of its words, for a reversal of
 * the bytes of the first word. */
template <int N> static __device__ __forceinline__ uint32_t every(const bytes_of<N> &v, int first, int step)
{
	int second = first + step, third = second + step, fourth = third + step;
	uint32_t low = __byte_perm(v.words[first / 4], v.words[second / 4], first % 4 | (4 + second % 4) << 4);
	uint32_t high = __byte_perm(v.words[third / 4], v.words[fourth / 4], third % 4 | (4 + fourth % 4) << 4);

	return __byte_perm(low, high, 0x5410);
}

/* ---- NHWC, or one channel: number i of the input is number i of the output ---- */

template <class To, int C> static __device__ __forceinline__ void flat(const convert_plan &p)
{
	typedef typename To::type T;
	/* numbers from one of a thread's groups to its next */
	constexpr int V = 16 / sizeof(T), BETWEEN = CONVERT_THREADS * V;
	const uint8_t *in = reinterpret_cast<const uint8_t *>(p.in);
	T *out = reinterpret_cast<T *>(p.out);
	uint32_t n = p.n_px * C, n_groups = !p.divides && aligned<V>(in) && aligned<16>(out) ? n / V : 0;

	for (uint32_t g = blockIdx.x * CONVERT_THREADS * CONVERT_GROUPS + threadIdx.x; g < n_groups;
	     g += gridDim.x * CONVERT_THREADS * CONVERT_GROUPS) {
		bytes_of<V> v[CONVERT_GROUPS];
		constants k[C];

#pragma unroll
		for (int j = 0; j < CONVERT_GROUPS; j++)
			if (g + j * CONVERT_THREADS < n_groups)
				move(v[j], reinterpret_cast<const bytes_of<V> *>(in)[g + j * CONVERT_THREADS]);
		/* Counted from the channel of the thread's first number; always 0 unless C is 3. */
#pragma unroll
		for (int c = 0; c < C; c++)
			k[c] = V % C ? constants_at<C>(p, (g * V + c) % C) : constants_of(p, c);
#pragma unroll
		for (int j = 0; j < CONVERT_GROUPS; j++) {
			uint4 *to = reinterpret_cast<uint4 *>(out) + g + j * CONVERT_THREADS;

			if (g + j * CONVERT_THREADS >= n_groups)
				break;
			if constexpr (sizeof(T) == 1) {
				*to = v[j].units[0];
			} else {
				float made[V];

#pragma unroll
				for (int i = 0; i < V; i++)
					made[i] = quick(p, k[(j * BETWEEN + i) % C], v[j].each[i]);
				*to = sixteen(To(), made);
			}
		}
	}
	for (uint32_t i = n_groups * V + blockIdx.x * CONVERT_THREADS + threadIdx.x; i < n;
	     i += gridDim.x * CONVERT_THREADS)
		out[i] = single(To(), p, constants_at<C>(p, i % C), in[i]);
}

/* ---- NCHW ---- */

/* Loads the block's n bytes of input into shared memory, V at a time. Neighbouring threads load neighbouring bytes,
 * whatever pixels the bytes belong to. */
template <int V, int C> static __device__ __forceinline__ void stage(uint8_t *shared, const uint8_t *from, uint32_t n)
{
	uint32_t n_whole = aligned<V>(from) ? n / V : 0;
	bytes_of<V> v[C];

#pragma unroll
	for (int j = 0; j < C; j++)
		if (threadIdx.x + j * CONVERT_THREADS < n_whole)
			move(v[j], reinterpret_cast<const bytes_of<V> *>(from)[threadIdx.x + j * CONVERT_THREADS]);
#pragma unroll
	for (int j = 0; j < C; j++)
		if (threadIdx.x + j * CONVERT_THREADS < n_whole)
			move(reinterpret_cast<bytes_of<V> *>(shared)[threadIdx.x + j * CONVERT_THREADS], v[j]);
	for (uint32_t i = n_whole * V + threadIdx.x; i < n; i += CONVERT_THREADS)
		shared[i] = from[i];
}

/* Index of a pixel's number of the first channel; those of the other channels follow a plane apart. */
template <int C> static __device__ __forceinline__ size_t place(const convert_plan &p, uint32_t px)
{
	uint32_t image = convert_image_of(&p, px);

	return (size_t)image * C * p.plane + (px - image * p.plane);
}

template <class To, int C> static __device__ __forceinline__ void planar(const convert_plan &p, uint8_t *shared)
{
	typedef typename To::type T;
	constexpr uint32_t V = 16 / sizeof(T), TILE = CONVERT_THREADS * V;
	const uint8_t *in = reinterpret_cast<const uint8_t *>(p.in);
	T *out = reinterpret_cast<T *>(p.out);
	/* Then a thread's V pixels belong to one image, and so does every 16-byte store. */
	bool whole = !p.divides && p.plane % V == 0 && aligned<16>(out);

	for (uint64_t from = (uint64_t)blockIdx.x * TILE; from < p.n_px; from += (uint64_t)gridDim.x * TILE) {
		uint32_t first = (uint32_t)from, n = min(TILE, p.n_px - first);

		stage<V, C>(shared, in + (size_t)first * C, n * C);
		__syncthreads();
		if (whole && threadIdx.x * V < n) {
			T *to = out + place<C>(p, first + threadIdx.x * V);
			bytes_of<V * C> v;

			move(v, reinterpret_cast<const bytes_of<V * C> *>(shared)[threadIdx.x]);
#pragma unroll
			for (int c = 0; c < C; c++) {
				uint4 *plane = reinterpret_cast<uint4 *>(to + (size_t)c * p.plane);

				if constexpr (sizeof(T) == 1) {
					*plane = make_uint4(every(v, c, C), every(v, c + 4 * C, C),
							    every(v, c + 8 * C, C), every(v, c + 12 * C, C));
				} else {
					constants k = constants_of(p, c);
					float made[V];

#pragma unroll
					for (int i = 0; i < (int)V; i++)
						made[i] = quick(p, k, v.each[i * C + c]);
					*plane = sixteen(To(), made);
				}
			}
		}
		for (uint32_t i = threadIdx.x; !whole && i < n; i += CONVERT_THREADS) {
			T *to = out + place<C>(p, first + i);

#pragma unroll
			for (int c = 0; c < C; c++)
				to[(size_t)c * p.plane] = single(To(), p, constants_of(p, c), shared[i * C + c]);
		}
		__syncthreads();
	}
}

/* ---- the kernels, by name ---- */

#define FLAT(To, C) \
	extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) convert_flat_##To##_##C(const convert_plan p) \
	{ \
		flat<to_##To, C>(p); \
	}
#define PLANAR(To, C) \
	extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) convert_planar_##To##_##C(const convert_plan p) \
	{ \
		__shared__ uint4 shared[CONVERT_THREADS * C / sizeof(to_##To::type)]; \
\
		planar<to_##To, C>(p, reinterpret_cast<uint8_t *>(shared)); \
	}
#define ALL(To) FLAT(To, 1) FLAT(To, 2) FLAT(To, 3) FLAT(To, 4) PLANAR(To, 2) PLANAR(To, 3) PLANAR(To, 4)
ALL(uint8)
ALL(float16)
ALL(bfloat16)
ALL(float32)

#include "finish/mix.cuh"
