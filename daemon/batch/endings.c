/* What a list names has its number, even if this decoder cannot read it. A data set with only such files would fail at
 * its first batch; in a data set with some of them they would be replaced. So the opening reports them. For a large data set only a part is checked, at equal distances. */
#include "batch/endings.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "image/formats/decode.h"

enum { MOST_LOOKED_AT = 65536, NAME_BYTES = 4096 };

/* Image formats that are not decoded. For any other ending the content decides. */
static const char *const unread[] = { ".avif", ".heic", ".heif", ".jxl", ".jp2", ".svg", ".tga" };
enum { N_UNREAD = sizeof unread / sizeof *unread };

static unsigned endings_find(const char *name)
{
	const char *dot = strrchr(name, '.');
	unsigned i = 0;

	while (i < N_UNREAD && (!dot || strcasecmp(dot, unread[i]) != 0))
		i++;
	return i;
}

enum endings endings_look(const struct dataset *ds, char *text, size_t size)
{
	uint64_t n = dataset_n(ds), stride = n / MOST_LOOKED_AT + 1, n_seen = 0, n_unread = 0;
	bool found[N_UNREAD] = { false };
	char name[NAME_BYTES];
	size_t used;

	text[0] = '\0';
	for (uint64_t i = 0; i < n; i += stride, n_seen++) {
		unsigned kind;

		dataset_name(ds, i, name, sizeof name);
		kind = endings_find(name);
		n_unread += kind < N_UNREAD;
		if (kind < N_UNREAD)
			found[kind] = true;
	}
	if (!n_unread)
		return ENDINGS_READ;
	used = (size_t)snprintf(text, size, "%llu of %llu files%s are ", (unsigned long long)n_unread,
				(unsigned long long)n_seen, stride > 1 ? " that were looked at" : "");
	for (unsigned i = 0, k = 0; i < N_UNREAD && used < size; i++)
		if (found[i])
			used += (size_t)snprintf(text + used, size - used, "%s%s", k++ ? ", " : "", unread[i]);
	if (used < size)
		snprintf(text + used, size - used,
			 " files, which batchd does not decode: " DECODE_FORMATS
			 " are read; convert them, or share a DataLoader "
			 "of yours that reads them (batchd.serve)");
	return n_unread == n_seen ? ENDINGS_ALL_UNREAD : ENDINGS_SOME_UNREAD;
}
