/* A simulated machine: files of /proc and /sys below a temporary folder. */
#ifndef BATCHD_TESTS_MACHINES_H
#define BATCHD_TESTS_MACHINES_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64];

/* path: within it, with a leading slash; its folders are made. */
static inline void put(const char *path, const char *text)
{
	char full[512];
	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(full, 0755);
		*at = '/';
	}
	FILE *f = fopen(full, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static inline void make_root(void)
{
	strcpy(root, "/tmp/batchd-machine-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
}

static inline void remove_root(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	ck_assert_int_eq(system(command), 0);
}

#endif
