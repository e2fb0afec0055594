/* See dir.h. Time stamps record the last use of a file. A daemon that writes a file holds its lock
 * (file.c), so the lock shows which files are in use, in this process or another. */
#include "dataset/cache/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"

enum { ABANDONED_S = 3600 }; /* longer than writing a file list takes */

struct kept {
	char name[64];
	struct timespec used;
	uint64_t n_bytes; /* of the disk */
};

struct listing {
	struct kept *files;
	size_t n, capacity;
	uint64_t n_bytes;
};

/* The part after the sixteen digits of a kept index's name; NULL for any other name. */
static const char *suffix_of(const char *name)
{
	static const struct {
		const char *prefix, *suffix;
	} kinds[] = { { "imagefolder-", ".index" }, { "packed-", ".index" }, { "index-", ".cache" } };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t n = strlen(kinds[i].prefix), n_suffix = strlen(kinds[i].suffix);

		if (!strncmp(name, kinds[i].prefix, n) && strspn(name + n, "0123456789abcdef") == 16 &&
		    !strncmp(name + n + 16, kinds[i].suffix, n_suffix))
			return name + n + 16 + n_suffix;
	}
	return NULL;
}

static bool cache_dir_is_in_use(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool free_to_go = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;

	if (fd >= 0)
		close(fd);
	return !free_to_go;
}

static bool is_abandoned(int dir_fd, const char *name, const char *suffix, const struct stat *st)
{
	return *suffix && (!strcmp(suffix, ".new") ? !cache_dir_is_in_use(dir_fd, name)
						   : st->st_mtim.tv_sec + ABANDONED_S < time(NULL));
}

static int cache_dir_add(struct listing *l, const char *name, const struct stat *st)
{
	uint64_t on_disk = (uint64_t)st->st_blocks * 512;
	struct kept *k;

	if (strlen(name) >= sizeof(k->name))
		return 0;
	if (l->n == l->capacity) {
		size_t capacity = l->capacity ? l->capacity * 2 : 64;
		struct kept *larger = reallocarray(l->files, capacity, sizeof(*larger));

		if (!larger)
			return -ENOMEM;
		l->files = larger;
		l->capacity = capacity;
	}
	k = &l->files[l->n++];
	strcpy(k->name, name);
	k->used = st->st_mtim;
	k->n_bytes = on_disk;
	l->n_bytes += on_disk;
	return 0;
}

static int cache_dir_list(DIR *d, struct listing *l)
{
	int r = 0;

	for (struct dirent *e; !r && (e = readdir(d));) {
		const char *suffix = suffix_of(e->d_name);
		struct stat st;

		if (!suffix || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
			continue;
		if (is_abandoned(dirfd(d), e->d_name, suffix, &st))
			unlinkat(dirfd(d), e->d_name, 0);
		else
			r = cache_dir_add(l, e->d_name, &st);
	}
	return r;
}

static int compare_use(const void *a, const void *b)
{
	const struct timespec *p = &((const struct kept *)a)->used, *q = &((const struct kept *)b)->used;

	return p->tv_sec != q->tv_sec ? (p->tv_sec > q->tv_sec) - (p->tv_sec < q->tv_sec)
				      : (p->tv_nsec > q->tv_nsec) - (p->tv_nsec < q->tv_nsec);
}

static void remove_oldest(int dir_fd, struct listing *l, const char *dir, uint64_t limit_bytes)
{
	size_t left = l->n, n_removed = 0;
	char limit[32];

	if (l->n_bytes <= limit_bytes && left <= CACHE_DIR_MOST_FILES)
		return;
	qsort(l->files, l->n, sizeof(*l->files), compare_use);
	for (size_t i = 0; i < l->n && (l->n_bytes > limit_bytes || left > CACHE_DIR_MOST_FILES); i++) {
		const struct kept *k = &l->files[i];

		if (cache_dir_is_in_use(dir_fd, k->name) || (unlinkat(dir_fd, k->name, 0) < 0 && errno != ENOENT))
			continue;
		l->n_bytes -= k->n_bytes;
		left--;
		n_removed++;
	}
	if (n_removed) {
		size_format(limit_bytes, limit, sizeof(limit));
		log_record(LOG_LEVEL_INFO, "cache-trimmed",
			   "%s: removed the %zu indexes that were unused for longest; %s (cache.disk) may be kept", dir,
			   n_removed, limit);
	}
}

int cache_dir_trim(const char *dir, uint64_t limit_bytes)
{
	struct listing l = { 0 };
	DIR *d = opendir(dir);
	int r;

	if (!d)
		return -errno;
	r = cache_dir_list(d, &l);
	if (!r)
		remove_oldest(dirfd(d), &l, dir, limit_bytes);
	free(l.files);
	closedir(d);
	return r;
}
