/* Asks the compiler's runtime, which has asked the processor. */
#include "image/kernels/processor.h"

static _Thread_local enum processor_path limit = PROCESSOR_AVX512;

enum processor_path processor_path(void)
{
#if defined(__x86_64__)
	if (limit < PROCESSOR_AVX2 || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
		return PROCESSOR_PLAIN;
	if (limit < PROCESSOR_AVX512 || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
	    !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vbmi") ||
	    !__builtin_cpu_supports("avx512vnni"))
		return PROCESSOR_AVX2;
	return PROCESSOR_AVX512;
#else
	return PROCESSOR_PLAIN;
#endif
}

void processor_limit(enum processor_path widest)
{
	limit = widest;
}
