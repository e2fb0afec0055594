/* See servers.h. */
#include "dataset/servers.h"

#include <xxhash.h>

uint64_t servers_both(uint64_t a, uint64_t b)
{
	uint64_t both[2] = { a < b ? a : b, a < b ? b : a };

	if (!both[0] || a == b)
		return both[1];
	return XXH3_64bits(both, sizeof(both)) | SERVERS_SEVERAL;
}
