/* See blocks.h: the choice between the paths. */
#include "image/jpeg/blocks.h"

#include <stddef.h>

const struct blocks_ops *const *blocks_paths(void)
{
#if defined(__x86_64__)
	static const struct blocks_ops *const with_avx512[] = { &blocks_avx512, &blocks_avx2, &blocks_c, NULL };
	static const struct blocks_ops *const *const with_avx2 = with_avx512 + 1;

	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
	    __builtin_cpu_supports("avx512vnni"))
		return with_avx512;
	if (__builtin_cpu_supports("avx2"))
		return with_avx2;
#endif
	static const struct blocks_ops *const plain[] = { &blocks_c, NULL };
	return plain;
}
