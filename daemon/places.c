/* See places.h. */
#include "places.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/log.h"

static int make_path(char *path)
{
	for (char *at = path + 1; *at; at++) {
		if (*at != '/')
			continue;
		*at = '\0';
		int r = mkdir(path, 0700);
		*at = '/';
		if (r && errno != EEXIST)
			return -errno;
	}
	return mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

static int choose(const char *configured, char *buf, unsigned long size)
{
	const char *systemd = getenv("CACHE_DIRECTORY"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n;
	if (configured)
		n = snprintf(buf, size, "%s", configured);
	else if (systemd && systemd[0] == '/') /* the first of several, separated by colons */
		n = snprintf(buf, size, "%.*s", (int)strcspn(systemd, ":"), systemd);
	else if (xdg && xdg[0] == '/')
		n = snprintf(buf, size, "%s/batchd", xdg);
	else if (home && home[0] == '/')
		n = snprintf(buf, size, "%s/.cache/batchd", home);
	else
		return -ENOENT;
	return n > 0 && (unsigned long)n < size ? 0 : -ENAMETOOLONG;
}

const char *places_index(const char *configured, char *buf, unsigned long size)
{
	int r = choose(configured, buf, size);
	if (r == 0)
		r = make_path(buf);
	if (r == 0)
		return buf;
	log_record(LOG_LEVEL_WARNING, "index-not-kept", "indexes of data sets are not kept: %s: %s", r == -ENOENT ? "no directory for them (index_cache)" : buf,
		   strerror(-r));
	return NULL;
}
