/* Arbitrary bytes as an image of any format. */
#include "fuzz/regions.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	return regions_agree(bytes, n);
}
