/* An index of entropy-decoder states: places inside a JPEG scan where decoding can start.
 *
 * A state is kept for every `mcu_step`-th MCU of each MCU row. An index starts empty; decoding fills in the places that
 * it passes. It is flat memory without pointers, in the machine's byte order. Any caller may copy, cache and store it
 * (with a checksum: a forged state leads to wrong pixels or to SCAN_E_UNSURE, though never out of bounds). It names the
 * bytes that it was made from (scan_id), and is used for no others. No locking: one writer, or many readers. */
#ifndef BATCHD_CHECKPOINTS_H
#define BATCHD_CHECKPOINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct checkpoints {
	uint32_t magic;    /* CHECKPOINTS_MAGIC: version and byte order */
	uint16_t mcu_step; /* MCUs from state to state in a row */
	uint16_t no_pack;  /* 1: a pack (block-pack.h) of this scan was tried and is not worth keeping; else 0 */
	uint32_t mcus_per_row, mcu_rows;
	uint64_t scan_id;  /* of the data it was made from, see scan.h */
	uint64_t states[]; /* row by row; 0: not known yet */
};

enum {
	CHECKPOINTS_MAGIC = 0x33585342,
	CHECKPOINTS_PER_MILLE = 20, /* size of an index relative to its scan's, approximately; at least one state a
	                             * row */
};

static inline uint32_t checkpoints_states_per_row(const struct checkpoints *x)
{
	return (x->mcus_per_row + x->mcu_step - 1) / x->mcu_step;
}

/* Whether these bytes are a complete index: header, sizes. For bytes from a file. They must be 8-byte aligned. */
bool checkpoints_valid(const struct checkpoints *x, size_t size_bytes);
/* Number of MCU rows, from the top, with all their states. */
uint32_t checkpoints_rows_known(const struct checkpoints *x);

/* The size of an index for such a scan; and initialization of that many bytes to an empty index. */
size_t checkpoints_bytes(uint32_t mcus_per_row, uint32_t mcu_rows, uint64_t n_scan_bytes);
void checkpoints_clear(struct checkpoints *x, uint32_t mcus_per_row, uint32_t mcu_rows, uint64_t n_scan_bytes,
		       uint64_t scan_id);

/* A state: bit position in the un-stuffed data and predictors. States that do not fit (after 32 MiB, or with predictors
 * that only damaged data has) are not stored. checkpoints_get returns false for an unknown state. */
void checkpoints_put(struct checkpoints *x, uint32_t state, uint64_t bit, const int32_t dc[3]);
bool checkpoints_get(const struct checkpoints *x, uint32_t state, uint64_t *bit, int32_t dc[3]);

#endif
