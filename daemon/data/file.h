/* Opening and reading one file on a peer's behalf.
 *
 * Trusted data sets follow symbolic links wherever they lead, as torchvision does. For anybody else a path must stay
 * beneath the folder that the peer sent, cross no link, and its mode bits must let the peer read it. Nothing but
 * regular files is ever read, and nothing blocks on a FIFO or a device. */
#ifndef BATCHD_FILE_H
#define BATCHD_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "data/dataset.h"

#define FILE_MAX_BYTES (256ull << 20)

enum { ACCESS_READ = 4, ACCESS_SEARCH = 1 }; /* mode bits of one class */

/* Whether the peer may do all of `need` with the thing fd refers to. fd must not be O_PATH unless the access is
 * trusted. */
bool access_allows(const struct data_access *access, int fd, const struct stat *st, unsigned need);
/* The descriptors a peer sends must be such that reading them proves nothing new: readable, regular, and not on a file
 * system the peer itself implements. 0 or negative errno, err filled in. */
int access_check_file_fd(const struct data_access *access, int fd, const char *name, struct stat *st,
			 struct dataset_error *err);

/* Opens `path` relative to the folder dir_fd. `flags` as open's, without modes. Returns an fd or negative errno. ELOOP:
 * a link that may not be followed. With READ_NOWAIT -EAGAIN when the kernel would have to wait. */
int file_open(int dir_fd, const char *path, int flags, bool trusted, enum read_how how);

/* Reads a file whole. `dir_fd`, `name`: where it is. 0, -EAGAIN (READ_NOWAIT), or another negative errno without text:
 * EACCES, EFBIG (over FILE_MAX_BYTES), EINVAL (not a regular file), ... */
int file_read(int dir_fd, const char *name, const struct data_access *access, enum read_how how,
	      struct file_bytes *out);
/* Whether the file is still what `b` was read from, and the peer may read it. */
bool file_is_current(int dir_fd, const char *name, const struct data_access *access, const struct file_bytes *b);

/* A whole file from a descriptor that is already open, NUL-terminated, malloc'ed. At most max_bytes, else -EFBIG. */
int file_slurp(int fd, uint64_t max_bytes, char **bytes, size_t *n_bytes);

#endif
