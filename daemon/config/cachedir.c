/* The folder for indexes: see cachedir.h. An index only makes a start faster, so a machine without such a folder is not
 * an error. */
#include "config/cachedir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *absolute(const char *variable)
{
	const char *value = secure_getenv(variable);

	return value && value[0] == '/' ? value : NULL;
}

int cachedir_default(char *buf, size_t size)
{
	const char *unit = absolute("CACHE_DIRECTORY"), *user = absolute("XDG_CACHE_HOME"), *home = absolute("HOME");
	int n;

	if (unit)
		n = snprintf(buf, size, "%.*s", (int)strcspn(unit, ":"), unit); /* a unit may name several */
	else if (user)
		n = snprintf(buf, size, "%s/batchd", user);
	else if (home)
		n = snprintf(buf, size, "%s/.cache/batchd", home);
	else
		return -ENOENT;
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

int cachedir_make(const char *path)
{
	char parent[PATH_MAX];
	struct stat st;
	int n = snprintf(parent, sizeof parent, "%s", path);

	if (n < 0 || (size_t)n >= sizeof parent)
		return -ENAMETOOLONG;

	char *slash = strrchr(parent, '/');

	if (mkdir(path, 0700) < 0 && errno == ENOENT && slash && slash != parent) {
		*slash = '\0';
		if (mkdir(parent, 0700) < 0 || mkdir(path, 0700) < 0)
			return -errno;
	}
	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}
