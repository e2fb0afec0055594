/* When a worker may spend time on the decoded cache, or on packs of baseline pictures' blocks
 * (image/jpeg/block-pack.h).
 *
 * To keep a picture it must be decoded as a whole, where its crop alone would do for the row. While trainers wait for
 * rows, each worker limits that: with all it spends on filling, an epoch takes at most 1.25 times what it would take
 * without the cache; or 1.05 times, for packs, which save less. What hits save counts, so a second epoch fills what the
 * first one left. While no trainer waits, every row may fill.
 *
 * Each worker keeps its own account for each cache that it fills, so that workers share nothing. */
#ifndef BATCHD_FILLING_H
#define BATCHD_FILLING_H

#include <stdbool.h>
#include <stdint.h>

enum filling_row {
	FILLING_PLAIN, /* only what the row needed was decoded */
	FILLING_KEPT,  /* the whole picture was, for the cache */
	FILLING_HIT,   /* it came from the cache */
	FILLING_N_ROWS
};

enum { FILLING_ACCOUNTS = 8 };

/* What a row usually takes: the median, because a worker that has to share its processor may be interrupted in any
 * row. */
struct filling_time {
	uint64_t ns;
	unsigned n; /* rows, counted up to the number after which the median is followed */
};

struct filling_account {
	const void *cache; /* whose; NULL: no cache's yet */
	struct filling_time usual[FILLING_N_ROWS];
	int64_t credit_ns; /* to spend on filling */
};

/* A worker's. All zero at first. */
struct filling {
	struct filling_account accounts[FILLING_ACCOUNTS];
	unsigned next; /* the account that gives way to that of another cache */
};

/* Whether the next row that is not in the cache should fill it. hurried: a trainer waits for rows. */
bool filling_may(struct filling *f, const void *cache, bool hurried);
enum { FILLING_PART_DECODED = 5, FILLING_PART_PACKS = 20 };
/* What became of a row. ns: how long it took; 0: not measured, so the usual time counts. part: filling may make an
 * epoch longer by 1/part. */
void filling_note(struct filling *f, const void *cache, enum filling_row row, uint64_t ns, unsigned part);

#endif
