/* The members of a zip archive that are wanted, checked, with the places of their data. */
#ifndef BATCHD_ZIP_DIRECTORY_H
#define BATCHD_ZIP_DIRECTORY_H

#include "dataset/shards/members.h"

enum { ZIP_DEFLATED = 8 /* a method; stored is 0 */ };

struct zip_entry {
	bool is_of_windows, has_backslashes; /* in its own header, where the name here has slashes */
	uint64_t at;                         /* of its header, then of its data */
	uint64_t n_stored, n_bytes, name;
	uint32_t crc;
	uint16_t n_name, method, flags;
};

struct zip_directory {
	struct members *m;                                      /* borrowed */
	uint64_t directory, directory_bytes, n_declared, shift; /* shift: bytes before the archive proper */
	struct zip_entry *entries;                              /* owned */
	size_t n, capacity;
	struct text names;
};

/* Reads the directory and the members' own headers. Entries are in the order of their places in the archive. 0 or negative
 * errno with the reader's err; the caller finishes *z in either case. */
int zip_directory_read(struct members *m, struct zip_directory *z);
void zip_directory_finish(struct zip_directory *z);

/* Sorts by a rule; zip_by_directory: as the archive's directory has them. */
void zip_sort(struct zip_directory *z, int (*compare)(const void *a, const void *b));
int zip_by_directory(const void *a, const void *b);
/* Returns -EDQUOT or another error with the reader's err. */
int zip_no_room(const struct zip_directory *z, int error);

static inline const char *zip_name(const struct zip_directory *z, const struct zip_entry *e)
{
	return z->names.bytes + e->name;
}

#endif
