/* Arbitrary bytes as a GIF. */
#include "fuzz/regions.h"

enum { MAX_BYTES = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static uint8_t file[MAX_BYTES];

	if (n < 6 || n > MAX_BYTES)
		return 0;
	memcpy(file, bytes, n);
	memcpy(file, "GIF89a", 6);
	return regions_agree(file, n);
}
