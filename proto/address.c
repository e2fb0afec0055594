/* The rule for the socket's place; see address.h. The daemon and clients link this file, so it knows nothing of either.
 * Programs that run with another user's rights do not trust the environment (secure_getenv). */
#include "address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int address_fit(int written)
{
	return written < 0 || written >= ADDRESS_MAX_BYTES ? -ENAMETOOLONG : 0;
}

/* The XDG specification says that relative paths are ignored and that the directory belongs to the user. With `sudo -E`
 * or `su` the variable may name another user's directory: a directory that root made there would lock its owner out. */
static const char *runtime_directory(void)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	struct stat st;

	if (!runtime || runtime[0] != '/')
		return NULL;
	return stat(runtime, &st) < 0 || st.st_uid == geteuid() || st.st_uid == 0 ? runtime : NULL;
}

int address_own(char buf[ADDRESS_MAX_BYTES])
{
	const char *runtime = runtime_directory();

	if (runtime)
		return address_fit(snprintf(buf, ADDRESS_MAX_BYTES, "%s/batchd/socket", runtime));
	return address_fit(snprintf(buf, ADDRESS_MAX_BYTES, "/tmp/batchd-%u/socket", (unsigned)geteuid()));
}

int address_own_beside(int version, char buf[ADDRESS_MAX_BYTES])
{
	char own[ADDRESS_MAX_BYTES];
	int r = address_own(own);

	return r < 0 ? r : address_fit(snprintf(buf, ADDRESS_MAX_BYTES, "%s.%d", own, version));
}

int address_candidate(unsigned i, char buf[ADDRESS_MAX_BYTES])
{
	const char *given = secure_getenv(ADDRESS_VARIABLE);

	if (given && given[0])
		return i == 0 ? address_fit(snprintf(buf, ADDRESS_MAX_BYTES, "%s", given)) : -ENOENT;
	if (i == 0)
		return address_own(buf);
	if (i == 1)
		return address_fit(snprintf(buf, ADDRESS_MAX_BYTES, "%s", ADDRESS_SYSTEM));
	return -ENOENT;
}

int address_check(const char *path)
{
	char dir[ADDRESS_MAX_BYTES];
	struct stat st;
	int r = address_fit(snprintf(dir, sizeof dir, "%s", path));

	if (r < 0)
		return r;

	char *slash = strrchr(dir, '/');

	if (!slash)
		return -EPERM;      /* the current directory may belong to any user */
	slash[slash == dir] = '\0'; /* keep the slash of the root directory */
	if (lstat(dir, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	return 0;
}
