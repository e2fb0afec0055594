#include "base/namespace.h"

#include <stdio.h>
#include <sys/stat.h>

uint64_t namespace_own(const char *kind)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
	return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}
