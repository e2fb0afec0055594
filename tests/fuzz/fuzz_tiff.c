/* Arbitrary bytes as a TIFF. */
#include "fuzz/regions.h"

enum { MAX_BYTES = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static uint8_t file[MAX_BYTES];

	if (n < 8 || n > MAX_BYTES)
		return 0;
	memcpy(file, bytes, n);
	memcpy(file, bytes[0] & 1 ? "II*" : "MM\0*", 4);
	return regions_agree(file, n);
}
