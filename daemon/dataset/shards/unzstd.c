/* See unzstd.h. */
#include "dataset/shards/unzstd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define ZSTD_STATIC_LINKING_ONLY /* for ZSTD_d_stableOutBuffer, which spares a second copy of what is unpacked */
#include <zstd.h>

/* A block of 4 bytes may unpack to 128 KiB, so a step makes 256 MiB at most, and mostly some 30 KiB. */
enum { STEP_BYTES = 8 << 10 };

bool unzstd_is_compressed(const uint8_t *bytes, size_t n)
{
	return n >= 4 && memcmp(bytes, "\x28\xb5\x2f\xfd", 4) == 0;
}

/* The length of what the frames hold together. Their headers are read, not their blocks. */
static int sum_lengths(const uint8_t *from, size_t n, uint64_t most, uint64_t *sum, const char **why)
{
	*sum = 0;
	while (n) {
		unsigned long long length = ZSTD_getFrameContentSize(from, n);
		size_t frame = ZSTD_findFrameCompressedSize(from, n);

		if (length == ZSTD_CONTENTSIZE_ERROR || ZSTD_isError(frame)) {
			*why = "damaged, or cut short: zstd finds no whole frame";
			return -EINVAL;
		}
		if (length == ZSTD_CONTENTSIZE_UNKNOWN) {
			*why = "compressed by zstd as a stream, without its length: unpack it (unzstd)";
			return -EINVAL;
		}
		if (length > most - *sum) {
			*why = "it unpacks to more bytes than a shard may have (4 GiB)";
			return -EINVAL;
		}
		*sum += length;
		from += frame;
		n -= frame;
	}
	return 0;
}

static ZSTD_DCtx *unzstd_create(void)
{
	ZSTD_DCtx *z = ZSTD_createDCtx();

	if (z && (ZSTD_isError(ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, ZSTD_WINDOWLOG_MAX)) ||
		  ZSTD_isError(ZSTD_DCtx_setParameter(z, ZSTD_d_stableOutBuffer, 1)))) {
		ZSTD_freeDCtx(z);
		z = NULL;
	}
	return z;
}

/* Fills all of out. 0, -EINVAL with *why, or the watch's error. */
static int unpack_in_steps(ZSTD_DCtx *z, ZSTD_inBuffer in, size_t n, ZSTD_outBuffer out,
			   const struct unzstd_watch *watch, const char **why)
{
	size_t left = 0;
	int r = 0;

	while (!r && !ZSTD_isError(left) && in.pos < n) {
		in.size = n - in.pos > STEP_BYTES ? in.pos + STEP_BYTES : n;
		left = ZSTD_decompressStream(z, &out, &in);
		r = watch->step ? watch->step(watch->arg, in.pos) : 0;
	}
	if (r || (!left && out.pos == out.size))
		return r;
	*why = ZSTD_isError(left) ? ZSTD_getErrorName(left) : "shorter than its header says";
	return -EINVAL;
}

int unzstd_all(const uint8_t *from, size_t n, uint64_t most, struct meter *meter, const struct unzstd_watch *watch,
	       uint8_t **out, size_t *n_out, const char **why)
{
	ZSTD_DCtx *z;
	uint64_t sum;
	int r = sum_lengths(from, n, most, &sum, why);

	r = r ? r : meter_take(meter, sum);
	if (r)
		return r;
	*out = malloc(sum ? sum : 1);
	z = *out ? unzstd_create() : NULL;
	r = z ? unpack_in_steps(z, (ZSTD_inBuffer){ .src = from }, n, (ZSTD_outBuffer){ .dst = *out, .size = sum },
				watch, why)
	      : -ENOMEM;
	ZSTD_freeDCtx(z);
	if (r == 0) {
		*n_out = sum;
		return 0;
	}
	free(*out);
	*out = NULL;
	meter_give(meter, sum);
	return r;
}
