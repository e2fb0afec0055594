/* Mixing of a batch's rows: MixUp, CutMix, a choice of them, and timm's Mixup.
 *
 * A mix belongs to a trainer, not to its job. The rows in the slot stay as the daemon made them; this side draws a table
 * with one record for each row and applies it while it makes numbers of the pixels (finish.h on the CPU,
 * loader/mix-launch.h on a GPU). So another trainer of the group sees clean pixels, and so does a trainer with raw
 * batches.
 *
 * The table depends on the seed, the epoch and the batch's place among the epoch's samples, and on nothing else. */
#ifndef BATCHD_CLIENT_MIX_H
#define BATCHD_CLIENT_MIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "batchd.h"

enum { MIX_MAX_STEPS = 16, MIX_MAX_TEXT = 2048, MIX_MAX_CLASSES = 1 << 24 };
/* The most that the soft targets of one batch may take. */
#define MIX_MAX_TARGET_BYTES ((uint64_t)1 << 30)

enum mix_kind { MIX_STEP_NONE, MIX_STEP_MIXUP, MIX_STEP_CUTMIX, MIX_STEP_TIMM };
enum mix_mode { MIX_BATCH, MIX_PAIR, MIX_ELEM };

/* timm's Mixup: the names are those of its arguments. */
struct mix_timm {
	double mixup_alpha, cutmix_alpha, minmax[2], prob, switch_prob;
	bool has_minmax, correct_lam;
	enum mix_mode mode;
};

/* One of the things that a batch may be mixed by. */
struct mix_step {
	enum mix_kind kind;
	double alpha, weight; /* weight: of the choice; of all steps together above 0 */
	struct mix_timm timm;
};

struct mix {
	uint32_t n_classes; /* columns of the soft targets; 0: the trainer makes targets of the table itself */
	double smoothing;
	uint64_t off_epoch; /* from this epoch on nothing is mixed; 0: never */
	uint32_t n_steps;
	struct mix_step step[MIX_MAX_STEPS];
};

/* Reads a description (batchd.h: options.mix). False: `why` says which part is wrong, and what it may be. */
bool mix_parse(const char *text, struct mix *out, char *why, size_t why_size);
/* Whether a batch must have an even number of rows, as timm asserts. */
bool mix_wants_even(const struct mix *m);
/* Whether a row may get a box of another. */
bool mix_may_cut(const struct mix *m);

/* The place of a batch among all batches that one seed makes. */
struct mix_place {
	uint64_t seed, epoch;
	uint64_t
		position; /* of its first row among the epoch's samples of all ranks, in the order in which they come */
	bool is_off;      /* nothing is mixed, whatever the epoch */
};

/* The table of a batch of n_rows images of height x width. */
void mix_draw(const struct mix *m, const struct mix_place *place, uint32_t n_rows, uint32_t height, uint32_t width,
	      struct batchd_mix_row *rows);
/* Targets of a class that a row has, and has not. */
void mix_target_values(const struct mix *m, float *on, float *off);
/* Soft targets, [n_rows, n_classes]. A label that is no class, which only data of the wrong kind has, counts for none. */
void mix_targets(const struct mix *m, const struct batchd_mix_row *rows, uint32_t n_rows, const int64_t *labels,
		 float *to);

#endif
