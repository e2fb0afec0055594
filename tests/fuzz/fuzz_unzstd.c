/* Bytes that zstd has compressed: refused with a text, or as long as their frames say, and never more than is paid for. */
#include <errno.h>
#include <stdlib.h>

#include "dataset/shards/unzstd.h"

enum { MOST_BYTES = 1 << 20 };

static int fuzz_take(void *arg, uint64_t bytes)
{
	uint64_t *left = arg;

	if (bytes > *left) {
		return -EDQUOT;
	}
	*left -= bytes;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t left = MOST_BYTES;
	struct meter meter = { .more = fuzz_take, .arg = &left };
	const char *why = NULL;
	uint8_t *out = NULL;
	size_t n = 0;
	int r = unzstd_all(data, size, 1 << 30, &meter, &(struct unzstd_watch){ NULL, NULL }, &out, &n, &why);

	if (r == -EINVAL ? !why : r == 0 && n > MOST_BYTES) {
		abort();
	}
	if (r == 0 && n) {
		(void)*(volatile uint8_t *)&out[n - 1];
	}
	free(out);
	return 0;
}
