/* Arbitrary bytes as a PNM: P1 to P6 or Pf. */
#include "fuzz/regions.h"

enum { MAX_BYTES = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static uint8_t file[MAX_BYTES];

	if (n < 3 || n > MAX_BYTES)
		return 0;
	memcpy(file, bytes, n);
	file[0] = 'P';
	file[2] = '\n';
	return regions_agree(file, n);
}
