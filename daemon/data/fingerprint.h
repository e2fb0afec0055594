/* The fingerprint of an image data set: about 1.5 KB from which a later state of the same data set can tell what has
 * changed.
 *
 * It is a small invertible table (an "IBLT"): every sample, as a hash of its name and its label, is added into three of
 * its cells. Subtracting the fingerprints of two states cancels the samples of both. Up to about 20 differences that
 * remain can be read back one by one. A second, coarser table holds one sample in 64; it gives the size of larger
 * changes and some of their names. The byte order is fixed, for tokens. */
#ifndef BATCHD_FINGERPRINT_H
#define BATCHD_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

struct manifest;
struct dataset;

enum {
	FINGERPRINT_FINE = 48,
	FINGERPRINT_COARSE = 24,
	FINGERPRINT_CELL_BYTES = 20,
	FINGERPRINT_BYTES = 4 + (FINGERPRINT_FINE + FINGERPRINT_COARSE) * FINGERPRINT_CELL_BYTES
};

/* One sample, as hashes of its name and its label. */
struct fingerprint_sample {
	uint64_t name;
	uint32_t label;
};

struct fingerprint_samples {
	uint64_t n;
	const void *arg;
	struct fingerprint_sample (*sample)(const void *arg, uint64_t i);
	void (*name)(const void *arg, uint64_t i, char *buf, size_t size); /* for messages */
};
void fingerprint_make_samples(const struct fingerprint_samples *all, uint8_t out[FINGERPRINT_BYTES]);
void fingerprint_make(const struct manifest *ix, uint8_t out[FINGERPRINT_BYTES]);
/* Describes the change from the older state to the newer: "12 files more than before (108 instead of 96): 12 new, the
 * first dog/9.jpg". old_n: samples of the older state; 0: not known. Invalid bytes are ignored as a fingerprint. Takes
 * as long as making a fingerprint: not for the loop thread. */
void fingerprint_compare(const struct manifest *ix, const uint8_t *old, size_t n_old_bytes, uint64_t old_n, char *text,
			 size_t size);
void fingerprint_compare_samples(const struct fingerprint_samples *all, const uint8_t *old, size_t n_old_bytes,
				 uint64_t old_n, char *text, size_t size);

#endif
