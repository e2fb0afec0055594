/* Data sets in a temporary folder that the case fills; helpers that open them, as this user or on another user's
 * behalf. Descriptors are counted before and after. */
#ifndef BATCHD_TESTS_DATASETS_H
#define BATCHD_TESTS_DATASETS_H

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/dataset.h"
#include "suite.h"

static struct {
	char root[64];
	unsigned n_fds;
	struct data_access trusted, other;
	struct dataset_error err;
} f;

#define ROWS(...) ((void *const[]){ __VA_ARGS__ }) /* for dataset_gather */

static inline unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d)) {
		n++;
	}
	closedir(d);
	return n;
}

static inline void set_up(void)
{
	f.n_fds = count_fds();
	strcpy(f.root, "/tmp/test_dataset.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(f.root));
	ck_assert_int_eq(chmod(f.root, 0755), 0);
	f.trusted = (struct data_access){ .trusted = true, .uid = getuid() };
	f.other = (struct data_access){ .uid = getuid() + 1, .gids = { getgid() + 1 }, .n_gids = 1 };
}

static inline void tear_down(void)
{
	char command[256];

	snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf %s", f.root, f.root);
	ck_assert_int_eq(system(command), 0);
	ck_assert_uint_eq(count_fds(), f.n_fds);
}

static inline const char *in_root(const char *name)
{
	static char path[4][256];
	static unsigned turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[0]), "%s/%s", f.root, name);
	return path[turn];
}

static inline void make_dir(const char *name, mode_t mode)
{
	ck_assert_int_eq(mkdir(in_root(name), 0700), 0);
	ck_assert_int_eq(chmod(in_root(name), mode), 0);
}

static inline void put_bytes(const char *name, const void *bytes, size_t n, mode_t mode)
{
	int fd = open(in_root(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_msg(fd >= 0, "%s: %s", name, strerror(errno));
	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static inline void put(const char *name, const char *text)
{
	put_bytes(name, text, strlen(text), 0644);
}

static inline int open_as(const struct data_access *access, const char *kind, const char *names, const char *cache,
			  const int *fds, unsigned n_fds, struct dataset **out)
{
	char spec[1024];
	struct dataset_source source = {
		.spec = spec, .access = access, .cache_dir = cache, .fds = fds, .n_fds = n_fds
	};

	snprintf(spec, sizeof(spec), "%s:%s", kind, names);
	return dataset_open(&source, out, &f.err);
}

static inline struct dataset *open_trusted(const char *kind, const char *names)
{
	struct dataset *ds = NULL;

	ck_assert_msg(open_as(&f.trusted, kind, names, NULL, NULL, 0, &ds) == 0, "%s", f.err.text);
	return ds;
}

static inline int open_dir(const char *name)
{
	int fd = open(in_root(name), O_RDONLY | O_DIRECTORY);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Opens root/name for the other user with a folder descriptor. */
static inline int open_folder_for_other(const char *name, struct dataset **out)
{
	int fd = open_dir(name), r = open_as(&f.other, "imagefolder", in_root(name), NULL, &fd, 1, out);

	close(fd);
	return r;
}

static inline void make_pets(void)
{
	make_dir("pets", 0755);
	make_dir("pets/cat", 0755);
	make_dir("pets/dog", 0755);
	put("pets/cat/a.jpg", "cat a");
	put("pets/cat/b.JPEG", "cat b");
	put("pets/dog/c.png", "dog c");
}

static inline void settle(void)
{
	usleep(40000); /* an index of folders that changed a moment ago is not kept */
}

static unsigned n_reports;
static uint64_t last_done;

static inline void on_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	(void)arg;
	(void)total;
	n_reports += !strcmp(phase, "index");
	last_done = done;
}

/* Opens root/pets with root/cache; whether the folder was listed again. */
static inline bool lists_again(uint64_t expected_n)
{
	char spec[1024];
	struct dataset_source source = {
		.spec = spec, .access = &f.trusted, .cache_dir = in_root("cache"), .on_progress = on_progress
	};
	struct dataset *ds;

	snprintf(spec, sizeof(spec), "imagefolder:%s", in_root("pets"));
	n_reports = 0;
	ck_assert_msg(dataset_open(&source, &ds, &f.err) == 0, "%s", f.err.text);
	ck_assert_uint_eq(dataset_n(ds), expected_n);
	ck_assert(!n_reports || last_done == expected_n);
	dataset_unref(ds);
	return n_reports > 0;
}

static inline void put_npy(const char *name, const char *descr, const char *shape, const void *data, size_t n_data)
{
	unsigned char bytes[1 << 16] = "\x93NUMPY\1\0";
	int n = snprintf((char *)bytes + 10, 200, "{'descr': '%s', 'fortran_order': False, 'shape': %s}", descr, shape);

	while ((10 + n) % 64 != 63) {
		bytes[10 + n++] = ' ';
	}
	bytes[10 + n++] = '\n';
	bytes[8] = (unsigned char)n;
	memcpy(bytes + 10 + n, data, n_data);
	put_bytes(name, bytes, 10 + (size_t)n + n_data, 0644);
}

#endif
