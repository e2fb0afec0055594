/* The index of a scan, see checkpoints.h. A state is one 64-bit word: 28 bits of position plus one, three predictors of
 * 12 bits. */
#include <string.h>

#include "image/jpeg/checkpoints.h"

enum { BIT_BITS = 28, DC_BITS = 12, DC_BIAS = 1 << (DC_BITS - 1), MAX_MCUS = 8192 /* in a row: 65535 pixels */ };

static uint32_t step_for(uint32_t mcus_per_row, uint32_t mcu_rows, uint64_t n_scan_bytes)
{
	uint64_t affordable = n_scan_bytes * CHECKPOINTS_PER_MILLE / 1000 / sizeof(uint64_t);
	uint64_t per_row = affordable / mcu_rows;

	if (per_row <= 1)
		return mcus_per_row;
	return per_row >= mcus_per_row ? 1 : (uint32_t)((mcus_per_row + per_row - 1) / per_row);
}

static uint64_t n_states(const struct checkpoints *x)
{
	return (uint64_t)checkpoints_states_per_row(x) * x->mcu_rows;
}

size_t checkpoints_bytes(uint32_t mcus_per_row, uint32_t mcu_rows, uint64_t n_scan_bytes)
{
	uint32_t step = step_for(mcus_per_row, mcu_rows, n_scan_bytes);

	return sizeof(struct checkpoints) + (size_t)mcu_rows * ((mcus_per_row + step - 1) / step) * sizeof(uint64_t);
}

void checkpoints_clear(struct checkpoints *x, uint32_t mcus_per_row, uint32_t mcu_rows, uint64_t n_scan_bytes,
		       uint64_t scan_id)
{
	*x = (struct checkpoints){
		.magic = CHECKPOINTS_MAGIC,
		.mcu_step = (uint16_t)step_for(mcus_per_row, mcu_rows, n_scan_bytes),
		.mcus_per_row = mcus_per_row,
		.mcu_rows = mcu_rows,
		.scan_id = scan_id,
	};
	memset(x->states, 0, n_states(x) * sizeof(uint64_t));
}

bool checkpoints_valid(const struct checkpoints *x, size_t size_bytes)
{
	return size_bytes >= sizeof(*x) && x->magic == CHECKPOINTS_MAGIC && x->mcus_per_row &&
	       x->mcus_per_row <= MAX_MCUS && x->mcu_rows && x->mcu_rows <= MAX_MCUS && x->mcu_step &&
	       x->mcu_step <= x->mcus_per_row && x->no_pack <= 1 &&
	       n_states(x) == (size_bytes - sizeof(*x)) / sizeof(uint64_t) && size_bytes % sizeof(uint64_t) == 0;
}

uint32_t checkpoints_rows_known(const struct checkpoints *x)
{
	uint64_t n = n_states(x), i = 0;

	while (i < n && x->states[i])
		i++;
	return (uint32_t)(i / checkpoints_states_per_row(x));
}

void checkpoints_put(struct checkpoints *x, uint32_t state, uint64_t bit, const int32_t dc[3])
{
	uint64_t word = bit + 1;

	if (word >> BIT_BITS)
		return;
	for (unsigned i = 0; i < 3; i++) {
		uint32_t biased = (uint32_t)(dc[i] + DC_BIAS);

		if (biased >> DC_BITS)
			return;
		word |= (uint64_t)biased << (BIT_BITS + i * DC_BITS);
	}
	x->states[state] = word;
}

bool checkpoints_get(const struct checkpoints *x, uint32_t state, uint64_t *bit, int32_t dc[3])
{
	uint64_t word = x->states[state];

	*bit = (word & ((1u << BIT_BITS) - 1)) - 1;
	for (unsigned i = 0; i < 3; i++)
		dc[i] = (int32_t)(word >> (BIT_BITS + i * DC_BITS) & ((1u << DC_BITS) - 1)) - DC_BIAS;
	return (word & ((1u << BIT_BITS) - 1)) != 0;
}
