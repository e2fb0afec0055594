/* The index of a tar shard: a text beside it, as NVIDIA DALI's wds2idx writes it, from which samples are found without
 * reading the shard's headers.
 *
 *     v1.2 N
 *     EXTENSION OFFSET BYTES NAME [EXTENSION OFFSET BYTES NAME]...      one line a sample
 *
 * The text may come from anyone, or belong to another shard: what it says is checked against the shard. */
#ifndef BATCHD_TAR_INDEX_H
#define BATCHD_TAR_INDEX_H

#include <stdio.h>

#include "dataset/shards/tar.h"

#define TAR_INDEX_ENDING ".idx"

enum { TAR_INDEX_WHY_BYTES = 200 };

/* Checks that the members of the text follow each other in the shard without gap or overlap, from its begin to its end,
 * and compares some of them with their headers. False: `why` says what does not fit, or that the shard cannot be read. */
bool tar_index_fits(struct shard_reader *r, const char *text, size_t n, char why[TAR_INDEX_WHY_BYTES]);

/* As tar_scan, from a text that was checked. */
int tar_index_scan(struct members *m, const char *text, size_t n);

/* Writes the shard's index. 0; 1: the format has no place for a member, `why` names it; negative errno with the reader's
 * err, or when out of memory. *n_samples: the lines written. */
int tar_index_write(struct shard_reader *r, FILE *out, uint64_t *n_samples, char why[TAR_INDEX_WHY_BYTES]);

#endif
