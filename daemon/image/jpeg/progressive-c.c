/* Progressive scans for every processor. */
#include "image/jpeg/progressive-core.h"

int progressive_scan_c(struct scan_run *r, uint32_t columns, uint32_t needed)
{
	return scan_decode(r, columns, needed);
}
