/* The entropy decoder in plain C, and the choice between it and the others. */
#include "image/jpeg/entropy-core.h"

static int entropy_c_decode(struct entropy_state *s, const struct mcu_layout *l, uint32_t wanted,
			    int16_t *const coef[ENTROPY_MAX_BLOCKS], uint8_t last[ENTROPY_MAX_BLOCKS])
{
	return mcu_decode(s, l, wanted, coef, last);
}

static int entropy_c_skip(struct entropy_state *s, const struct mcu_layout *l, uint32_t n, const uint8_t *end)
{
	return mcu_skip(s, l, n, end);
}

const struct entropy_ops entropy_c = { "c", entropy_c_decode, entropy_c_skip };

const struct entropy_ops *entropy_best(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
		return &entropy_bmi2;
#endif
	return &entropy_c;
}
