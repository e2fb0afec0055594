/* Progressive scans with BMI2 and AVX2: shifts as in entropy-bmi2.c; the place after a run of zeros, and correction
 * bits for many coefficients, without loops. */
#if defined(__x86_64__)
#include <immintrin.h>

#define ENTROPY_TARGET __attribute__((target("bmi,bmi2,popcnt,avx2")))
#define BITS_LOW(v, n) _bzhi_u32(v, n)
#define BIT_DEPOSIT(source, mask) _pdep_u64(source, mask)
#include "image/jpeg/progressive-core.h"

ENTROPY_TARGET int progressive_scan_bmi2(struct scan_run *r, uint32_t columns, uint32_t needed)
{
	return scan_decode(r, columns, needed);
}
#else
typedef int progressive_bmi2_is_empty; /* ISO C requires a declaration in every file */
#endif
