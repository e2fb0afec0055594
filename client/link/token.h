/* Tokens: the position of a training run, as one line of text. See batchd.h. */
#ifndef BATCHD_CLIENT_TOKEN_H
#define BATCHD_CLIENT_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "link/error.h"
#include "wire.h"

enum { TOKEN_SOURCE_BYTES = 256 };

struct token {
	/* consumers: trainers that an epoch is divided among */
	uint64_t content_id, n_samples, pipeline_id, seed, batch_size, consumers;
	uint64_t repeats, epoch_rows; /* as in batchd_options; 1 or more, and 0: all */
	uint64_t shuffle;             /* as in batchd_options */
	bool own_batches;
	uint64_t epoch, base, next;      /* the first step that was not given out yet */
	bool last;                       /* there is no such step: the epoch is over */
	uint64_t n_given, order;         /* batches given out so far; own_batches: hash of those of this epoch */
	char source[TOKEN_SOURCE_BYTES]; /* for messages; cut short */
};

/* 0, or BATCHD_E_INVALID: size is too small. */
int token_write(const struct token *t, char *buf, size_t size);
/* 0, or BATCHD_E_INVALID with f: no token, damaged, or of another version. */
int token_read(const char *text, struct token *t, struct fault *f);

/* Says how the data set's number of samples, or its name, differs from the token's. */
void token_explain(const struct token *t, const char *dataset, uint64_t n_samples, char *text, size_t size);

/* Adds a batch of indices to the hash of those before it. */
uint64_t token_order(uint64_t order, const uint64_t *indices, uint32_t n);

#endif
