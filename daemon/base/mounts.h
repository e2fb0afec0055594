/* The mounts of this process's namespace, from the kernel's own list. To look up a path or a descriptor here asks no file
 * system, so it does not wait for a server that hangs. Any thread. */
#ifndef BATCHD_MOUNTS_H
#define BATCHD_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mount {
	uint64_t id, dev;        /* dev: the device number that files there have, but for subvolumes */
	const char *type, *path; /* "nfs4", "/mnt/data"; owned by the list */
};

struct mounts {
	char *text;
	struct mount *list;
	size_t n;
};

/* 0 or negative errno. */
int mounts_read(struct mounts *m);
void mounts_finish(struct mounts *m);
/* The file system belongs to this machine: it waits for disks, and for no server. */
bool mount_is_local(const struct mount *mount);
/* The mount of an absolute path, n bytes long. Links are followed as far as the way is local; a way that leaves local
 * disks ends at the mount where it does. NULL: the list has none. */
const struct mount *mounts_of_path(const struct mounts *m, const char *path, size_t n);
/* NULL: it is of another namespace, or of none, as memfds are. */
const struct mount *mounts_of_fd(const struct mounts *m, int fd);
const struct mount *mounts_of_dev(const struct mounts *m, uint64_t dev);

#endif
