/* The entropy decoder with BMI2's shifts, which need neither flags nor a fixed register and so give shorter dependency
 * chains for the same loops. */
#if defined(__x86_64__)
#include <immintrin.h>

#define ENTROPY_TARGET __attribute__((target("bmi,bmi2")))
#define BITS_LOW(v, n) _bzhi_u32(v, n)
#include "image/jpeg/entropy-core.h"

ENTROPY_TARGET static int decode(struct entropy_state *s, const struct mcu_layout *l, uint32_t wanted,
				 int16_t *const coef[ENTROPY_MAX_BLOCKS], uint8_t last[ENTROPY_MAX_BLOCKS])
{
	return mcu_decode(s, l, wanted, coef, last);
}

ENTROPY_TARGET static int skip(struct entropy_state *s, const struct mcu_layout *l, uint32_t n, const uint8_t *end)
{
	return mcu_skip(s, l, n, end);
}

const struct entropy_ops entropy_bmi2 = { "bmi2", decode, skip };
#else
typedef int entropy_bmi2_is_empty; /* ISO C requires a declaration in every file */
#endif
