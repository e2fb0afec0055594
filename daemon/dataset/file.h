/* Opening and reading one file on a peer's behalf.
 *
 * Trusted data sets follow all symbolic links, as torchvision does. For any other peer a path must stay beneath the
 * folder that the peer sent and cross no link, and the mode bits of the file and of each folder on the way must grant
 * the peer access. Only regular files are read, and no call blocks on a FIFO or a device.
 *
 * READ_NOWAIT never waits for another machine or process: it works in folders on local file systems. */
#ifndef BATCHD_FILE_H
#define BATCHD_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "dataset/dataset.h"

#define FILE_MAX_BYTES (256ull << 20)

enum { ACCESS_READ = 4, ACCESS_SEARCH = 1 }; /* mode bits of one class */

/* Whether the peer has all the rights in `need` on the file of fd. fd must not be O_PATH unless the access is
 * trusted. */
bool access_allows(const struct data_access *access, int fd, const struct stat *st, unsigned need);
/* Checks a descriptor that a peer sent: it must be readable and regular, so that reading it gives the peer no new
 * right. 0 or negative errno, err filled in. */
int access_check_file_fd(int fd, const char *name, struct stat *st, struct dataset_error *err);

/* Folders. `path` is relative to root_fd; each step of it is checked through its own descriptor. All return a
 * descriptor or negative errno; ELOOP: a link that may not be followed; EXDEV: outside the root, or (for access that is
 * not trusted, without any_mount) across a mount point. */
int dir_open(int root_fd, const char *path, const struct data_access *access, bool any_mount); /* O_PATH */
/* The same for a first visit, when mount points are not known yet: sets *crosses if there is one on the way. */
int dir_open_first(int root_fd, const char *path, const struct data_access *access, bool *crosses);
/* The same without waiting, or -EAGAIN; the opened folder is on root_fd's file system, which must be DIR_LOCAL. */
int dir_open_nowait(int root_fd, const char *path, const struct data_access *access);
/* For reading its entries; the peer must have the right to. */
int dir_open_to_list(int root_fd, const char *path, const struct data_access *access, struct stat *st, bool *crosses);

enum {
	DIR_LOCAL = 1,     /* known to be a local file system: reading data in memory never waits */
	DIR_NODEV = 2,     /* device nodes cannot be opened there */
	DIR_ANY_MOUNT = 4, /* not set by dir_traits: names in it may be mount points, also for access that is not
	                    * trusted */
};
/* The traits of the file system of an open folder (or file). May wait, like any first look at a folder. */
unsigned dir_traits(int fd, const struct data_access *access);

/* Opens a regular file by a trusted path. Returns a descriptor or negative errno; EINVAL: not a regular file, and not
 * opened. */
int file_open(const char *path, struct stat *st);

/* Reads a file whole. `dir_fd`, `name`: its folder and its path from there; more than one step only for trusted access.
 * `traits`: dir_fd's, 0 for unknown. 0, -EAGAIN (READ_NOWAIT), or another negative errno without text: EACCES, EFBIG
 * (over FILE_MAX_BYTES), EINVAL (not a regular file), EBUSY (another process keeps its lease on the file), ... */
int file_read(int dir_fd, unsigned traits, const char *name, const struct data_access *access, enum read_how how,
	      struct file_bytes *out);
/* The same in two steps, for a file that stays open: opens it for reading with file_read's checks, waiting (a descriptor
 * or negative errno), and reads n bytes from `at` on, fewer only if the file ends before. READ_NOWAIT only where the
 * descriptor's own traits are DIR_LOCAL. file_identify fills in the identity. */
int file_open_at(int dir_fd, unsigned traits, const char *name, const struct data_access *access, struct stat *st);
/* The state of a regular file that the peer may read, with the same checks, without opening it. 0 or negative errno. */
int file_stat_at(int dir_fd, unsigned traits, const char *name, const struct data_access *access, struct stat *st);
int file_read_at(int fd, enum read_how how, uint64_t at, size_t n, struct file_bytes *out);
void file_identify(struct file_bytes *b, const struct stat *st);
/* Whether the file is still the one that `b` was read from, and the peer may read it: 1 or 0, or -EAGAIN
 * (READ_NOWAIT). */
int file_is_current(int dir_fd, unsigned traits, const char *name, const struct data_access *access, enum read_how how,
		    const struct file_bytes *b);

/* A whole file from a descriptor that is already open, NUL-terminated, malloc'ed. At most max_bytes, else -EFBIG. */
int file_slurp(int fd, uint64_t max_bytes, char **bytes, size_t *n_bytes);

#endif
