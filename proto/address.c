/* The rule for the socket's place; see address.h. Both sides link this file, so it knows nothing of either. The
 * environment is not believed in programs that run with somebody else's rights (secure_getenv). */
#include "address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fit(int written)
{
	return written < 0 || written >= ADDRESS_MAX_BYTES ? -ENAMETOOLONG : 0;
}

int address_own(char buf[ADDRESS_MAX_BYTES])
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");

	if (geteuid() == 0)
		return fit(snprintf(buf, ADDRESS_MAX_BYTES, "%s", ADDRESS_SYSTEM));
	if (runtime && runtime[0] == '/') /* the specification has relative ones ignored */
		return fit(snprintf(buf, ADDRESS_MAX_BYTES, "%s/batchd/socket", runtime));
	return fit(snprintf(buf, ADDRESS_MAX_BYTES, "/tmp/batchd-%u/socket", (unsigned)geteuid()));
}

int address_candidate(unsigned i, char buf[ADDRESS_MAX_BYTES])
{
	const char *given = secure_getenv(ADDRESS_VARIABLE);

	if (given && given[0])
		return i == 0 ? fit(snprintf(buf, ADDRESS_MAX_BYTES, "%s", given)) : -ENOENT;
	if (i == 0)
		return address_own(buf);
	if (i == 1 && geteuid() != 0) /* root's own is the system's */
		return fit(snprintf(buf, ADDRESS_MAX_BYTES, "%s", ADDRESS_SYSTEM));
	return -ENOENT;
}

int address_check(const char *path)
{
	char dir[ADDRESS_MAX_BYTES];
	struct stat st;
	int r = fit(snprintf(dir, sizeof dir, "%s", path));

	if (r < 0)
		return r;

	char *slash = strrchr(dir, '/');

	if (!slash)
		return -EPERM; /* the current directory can be anybody's */
	slash[slash == dir] = '\0'; /* keep the root's own slash */
	if (lstat(dir, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	return 0;
}
