/* Why a trainer that waits for its next batch does not have it. */
#ifndef BATCHD_SHORTAGE_H
#define BATCHD_SHORTAGE_H

#include "batch/stream.h"

enum shortage {
	SHORTAGE_NONE,     /* nothing that is known */
	SHORTAGE_ROWS,     /* rows: workers make them, or read their files */
	SHORTAGE_COPY,     /* its copy on the GPU */
	SHORTAGE_ORDER,    /* its indices */
	SHORTAGE_PRODUCER, /* a producer's answer */
	SHORTAGE_PEER,     /* a slot, which other trainers keep; or their coming */
	SHORTAGE_MEMORY,   /* a slot, which no other trainer keeps */
};

/* What the batch at the cursor of a consumer that has no other batch lacks now, or has lacked until the last moment. Loop
 * thread only. */
enum shortage shortage_of(const struct consumer *c);

#endif
