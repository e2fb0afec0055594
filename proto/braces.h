/* Braces in paths, as a shell expands them: ranges {000..127}, {0..9..3} and lists {a,b}. */
#ifndef BATCHD_BRACES_H
#define BATCHD_BRACES_H

#include <stddef.h>

enum { BRACES_MAX_PATHS = 1 << 20 };

/* Calls fn with each path that a pattern's braces give, in order, until it returns other than 0, which is then the result.
 * -EINVAL with `why`, which is empty otherwise: braces that cannot be expanded, or give more than BRACES_MAX_PATHS. */
int braces_expand(const char *pattern, int (*fn)(void *arg, const char *path), void *arg, char *why, size_t size);

#endif
