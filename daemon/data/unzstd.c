/* See unzstd.h. */
#include "data/unzstd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

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

int unzstd_all(const uint8_t *from, size_t n, uint64_t most, struct meter *meter, uint8_t **out, size_t *n_out,
	       const char **why)
{
	uint64_t sum;
	size_t got;
	int r = sum_lengths(from, n, most, &sum, why);

	r = r ? r : meter_take(meter, sum);
	if (r) {
		return r;
	}
	*out = malloc(sum ? sum : 1);
	got = *out ? ZSTD_decompress(*out, sum, from, n) : 0;
	if (*out && got == sum) {
		*n_out = sum;
		return 0;
	}
	*why = ZSTD_isError(got) ? ZSTD_getErrorName(got) : "shorter than its header says";
	r = *out ? -EINVAL : -ENOMEM;
	free(*out);
	*out = NULL;
	meter_give(meter, sum);
	return r;
}
