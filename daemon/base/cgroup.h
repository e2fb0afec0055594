/* The control group of this process, and the limits of it and its ancestors. Reads files only; nothing is kept. */
#ifndef BATCHD_CGROUP_H
#define BATCHD_CGROUP_H

#include <stdint.h>

/* Calls fn with the text of `file` (e.g. "memory.max") in each group from the process's own to the root, where it
 * exists. controller: v1's name ("memory"), tried when there is no unified hierarchy; file_v1: the file's name there.
 * root: "" or a directory that replaces / (tests). */
void cgroup_each(const char *root, const char *file, const char *controller, const char *file_v1,
		 void (*fn)(void *arg, const char *text, const char *directory), void *arg);

#endif
