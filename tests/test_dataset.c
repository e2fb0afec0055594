/* Data sets as the rest of the daemon sees them: opened by spec, read, gathered, and on whose behalf. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "data/dataset.h"
#include "suite.h"

/* A folder of our own with what the case puts there; descriptors are counted before and after. */
static struct {
	char root[64];
	unsigned n_fds;
	struct data_access trusted, other;
	struct dataset_error err;
} f;

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d)) {
		n++;
	}
	closedir(d);
	return n;
}

static void set_up(void)
{
	f.n_fds = count_fds();
	strcpy(f.root, "/tmp/test_dataset.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(f.root));
	ck_assert_int_eq(chmod(f.root, 0755), 0);
	f.trusted = (struct data_access){ .trusted = true, .uid = getuid() };
	f.other = (struct data_access){ .uid = getuid() + 1, .gids = { getgid() + 1 }, .n_gids = 1 };
}

static void tear_down(void)
{
	char command[256];

	snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf %s", f.root, f.root);
	ck_assert_int_eq(system(command), 0);
	ck_assert_uint_eq(count_fds(), f.n_fds);
}

static const char *in_root(const char *name)
{
	static char path[4][256];
	static unsigned turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[0]), "%s/%s", f.root, name);
	return path[turn];
}

static void make_dir(const char *name, mode_t mode)
{
	ck_assert_int_eq(mkdir(in_root(name), 0700), 0);
	ck_assert_int_eq(chmod(in_root(name), mode), 0);
}

static void put_bytes(const char *name, const void *bytes, size_t n, mode_t mode)
{
	int fd = open(in_root(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_msg(fd >= 0, "%s: %s", name, strerror(errno));
	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static void put(const char *name, const char *text)
{
	put_bytes(name, text, strlen(text), 0644);
}

static int open_as(const struct data_access *access, const char *kind, const char *names, const char *cache, const int *fds, unsigned n_fds,
		   struct dataset **out)
{
	char spec[1024];
	struct dataset_source source = { .spec = spec, .access = access, .cache_dir = cache, .fds = fds, .n_fds = n_fds };

	snprintf(spec, sizeof(spec), "%s:%s", kind, names);
	return dataset_open(&source, out, &f.err);
}

static struct dataset *open_trusted(const char *kind, const char *names)
{
	struct dataset *ds = NULL;

	ck_assert_msg(open_as(&f.trusted, kind, names, NULL, NULL, 0, &ds) == 0, "%s", f.err.text);
	return ds;
}

static int open_dir(const char *name)
{
	int fd = open(in_root(name), O_RDONLY | O_DIRECTORY);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Opens root/name for the other user with a folder descriptor. */
static int open_folder_for_other(const char *name, struct dataset **out)
{
	int fd = open_dir(name), r = open_as(&f.other, "imagefolder", in_root(name), NULL, &fd, 1, out);

	close(fd);
	return r;
}

static void make_pets(void)
{
	make_dir("pets", 0755);
	make_dir("pets/cat", 0755);
	make_dir("pets/dog", 0755);
	put("pets/cat/a.jpg", "cat a");
	put("pets/cat/b.JPEG", "cat b");
	put("pets/dog/c.png", "dog c");
}

static void settle(void)
{
	usleep(40000); /* an index of folders that changed this very moment is not kept */
}

/* ---- specs ---- */

START_TEST(test_unknown_specs_are_refused_with_what_is_expected)
{
	/* Proves the errors of specs that name no data set. */
	static const struct { const char *kind, *rest, *words; } bad[] = {
		{ "imagenet", "/x", "expected imagefolder:DIR" }, { "imagefolder", "", "nothing stands behind the colon" },
		{ "imagefolder", "/no/such/folder", "No such file" }, { "imagefolder", "/dev/null", "not a folder" },
		{ "files", "/no/such/list", "No such file" }, { "npy", "/no/such.npy", "No such file" },
		{ "npy", "/dev/zero", "not a regular file" }, { "random", "length=5", "shape is missing" },
		{ "random", "length=0,shape=3", "at least 1" }, { "random", "length=5,shape=3,shape=3", "expected it once" },
		{ "random", "length=5,shape=3x", "like 3x224x224" }, { "random", "length=5,shape=x3", "like 3x224x224" },
		{ "random", "length=5,shape=1x1x1x1x1x1x1x1x1", "like 3x224x224" }, { "random", "length=5,shape=0", "like 3x224x224" },
		{ "random", "length=5,shape=3,dtype=complex64", "expected uint8, float16" }, { "random", "length=5,shape=3,size=2", "unknown option 'size'" },
		{ "random", "length=5,shape=3,seed", "expected a value behind '='" }, { "random", "length=5,shape=3,seed=18446744073709551616", "64 bits" },
		{ "random", "length=5,shape=4294967295x4294967295", "larger than 1 GiB" }, { "random", "length=5,shape=3,classes=1000001", "1 to 1000000" },
		{ "random", "length=-5,shape=3", "at least 1" }, { "random", "length=5,shape=3,", "unknown option ''" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct dataset *ds;

		ck_assert_msg(open_as(&f.trusted, bad[i].kind, bad[i].rest, NULL, NULL, 0, &ds) < 0, "accepted %s:%s", bad[i].kind, bad[i].rest);
		ck_assert_msg(strstr(f.err.text, bad[i].words) != NULL, "%s:%s: %s", bad[i].kind, bad[i].rest, f.err.text);
	}
}
END_TEST

/* ---- image folders ---- */

START_TEST(test_an_image_folder_is_numbered_and_read)
{
	/* Proves classes, labels, names and bytes, and the zero bytes behind them. */
	struct file_bytes b = { 0 };
	struct dataset *ds;
	char name[64];

	make_pets();
	ds = open_trusted("imagefolder", in_root("pets/"));
	ck_assert(dataset_is_image(ds));
	ck_assert_uint_eq(dataset_n(ds), 3);
	ck_assert_uint_eq(dataset_n_classes(ds), 2);
	ck_assert_str_eq(dataset_class(ds, 1), "dog");
	ck_assert_ptr_null(dataset_class(ds, 2));
	dataset_name(ds, 1, name, sizeof(name));
	ck_assert_str_eq(name, "cat/b.JPEG");
	ck_assert_int_eq(dataset_label(ds, 2), 1);
	for (int turn = 0; turn < 3; turn++) {
		ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), 0);
		ck_assert_uint_eq(b.n_bytes, 5);
		ck_assert_int_eq(memcmp(b.data, "dog c", 5), 0);
		for (int i = 0; i < 64; i++) {
			ck_assert_uint_eq(b.data[5 + i], 0);
		}
	}
	ck_assert_int_eq(dataset_read(ds, 3, READ_WAIT, &b, &f.err), -ERANGE);
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_reading_without_waiting_gives_the_same_or_asks_for_more)
{
	/* Proves that READ_NOWAIT either reads the file whole or says -EAGAIN, and that a file just read is usually at hand. */
	struct file_bytes b = { 0 };
	struct dataset *ds;
	int r;

	make_pets();
	ds = open_trusted("imagefolder", in_root("pets"));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	r = dataset_read(ds, 0, READ_NOWAIT, &b, &f.err);
	ck_assert(r == 0 || r == -EAGAIN);
	ck_assert(r || (b.n_bytes == 5 && !memcmp(b.data, "cat a", 5)));
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_a_changed_file_is_not_current)
{
	/* Proves that rewriting, replacing and removing a file are all noticed. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	ds = open_trusted("imagefolder", in_root("pets"));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert(dataset_is_current(ds, 0, &b));
	ck_assert(!dataset_is_current(ds, 1, &b));
	put("pets/cat/a.jpg", "longer than before");
	ck_assert(!dataset_is_current(ds, 0, &b));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_uint_eq(b.n_bytes, 18);
	put("pets/new", "longer than before");
	ck_assert_int_eq(rename(in_root("pets/new"), in_root("pets/cat/a.jpg")), 0);
	ck_assert(!dataset_is_current(ds, 0, &b));
	ck_assert_int_eq(unlink(in_root("pets/cat/a.jpg")), 0);
	ck_assert(!dataset_is_current(ds, 0, &b));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -ENOENT);
	ck_assert_str_eq(f.err.text, "cat/a.jpg: No such file or directory");
	ck_assert_int_eq(f.err.code, DATASET_E_NOT_FOUND);
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_a_folder_replaced_while_open_is_found_again)
{
	/* Proves that keeping a folder's descriptor does not freeze the set on a folder that is gone. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	ds = open_trusted("imagefolder", in_root("pets"));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(rename(in_root("pets/cat"), in_root("old")), 0);
	ck_assert_int_eq(unlink(in_root("old/a.jpg")), 0);
	make_dir("pets/cat", 0755);
	put("pets/cat/a.jpg", "new a");
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(memcmp(b.data, "new a", 5), 0);
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_odd_files_are_refused_without_waiting)
{
	/* Proves that FIFOs, folders named like images and files beyond the limit are errors that name the file, at once. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_dir("odd", 0755);
	make_dir("odd/c", 0755);
	ck_assert_int_eq(mkfifo(in_root("odd/c/1.jpg"), 0644), 0);
	put("odd/c/2.jpg", "");
	ck_assert_int_eq(truncate(in_root("odd/c/2.jpg"), (256 << 20) + 1), 0);
	put("odd/c/3.jpg", "");
	ds = open_trusted("imagefolder", in_root("odd"));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -EINVAL);
	ck_assert_str_eq(f.err.text, "c/1.jpg: not a regular file");
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), -EFBIG);
	ck_assert_str_eq(f.err.text, "c/2.jpg: larger than 256 MiB");
	ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), 0);
	ck_assert_uint_eq(b.n_bytes, 0);
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

static unsigned n_reports;
static uint64_t last_done;

static void on_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	(void)arg;
	(void)total;
	n_reports += !strcmp(phase, "index");
	last_done = done;
}

/* Opens root/pets with root/cache; whether the folder was listed again. */
static bool lists_again(uint64_t expected_n)
{
	char spec[1024];
	struct dataset_source source = { .spec = spec, .access = &f.trusted, .cache_dir = in_root("cache"), .on_progress = on_progress };
	struct dataset *ds;

	snprintf(spec, sizeof(spec), "imagefolder:%s", in_root("pets"));
	n_reports = 0;
	ck_assert_msg(dataset_open(&source, &ds, &f.err) == 0, "%s", f.err.text);
	ck_assert_uint_eq(dataset_n(ds), expected_n);
	ck_assert(!n_reports || last_done == expected_n);
	dataset_unref(ds);
	return n_reports > 0;
}

/* The one file in root/cache. */
static const char *kept_file(void)
{
	static char path[512];
	DIR *d = opendir(in_root("cache"));
	unsigned n = 0;

	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/cache/%s", f.root, e->d_name);
			n++;
		}
	}
	closedir(d);
	ck_assert_uint_eq(n, 1);
	return path;
}

START_TEST(test_the_index_is_used_again_until_something_changes)
{
	/* Proves reuse, and that every change of names in any folder is noticed. */
	make_pets();
	make_dir("cache", 0755);
	settle();
	ck_assert(lists_again(3));
	ck_assert(!lists_again(3));
	put("pets/cat/z.jpg", "z");
	settle();
	ck_assert(lists_again(4));
	ck_assert(!lists_again(4));
	ck_assert_int_eq(rename(in_root("pets/cat/z.jpg"), in_root("pets/dog/z.jpg")), 0);
	settle();
	ck_assert(lists_again(4));
	make_dir("pets/ant", 0755);
	put("pets/ant/x.webp", "x");
	settle();
	ck_assert(lists_again(5));
	ck_assert(!lists_again(5));
	put("pets/cat/a.jpg", "other bytes do not matter");
	ck_assert(!lists_again(5));
}
END_TEST

START_TEST(test_a_folder_changed_this_moment_is_not_trusted)
{
	/* Proves that an index is not kept while a change with the same time stamp could still come. */
	make_pets();
	make_dir("cache", 0755);
	put("pets/cat/now.jpg", "x");
	ck_assert(lists_again(4));
	ck_assert(lists_again(4));
}
END_TEST

START_TEST(test_a_damaged_index_is_made_again)
{
	/* Proves that a cut, a flipped byte, an empty file and a foreign file are rebuilt without an error. */
	make_pets();
	make_dir("cache", 0755);
	settle();
	ck_assert(lists_again(3));
	for (int damage = 0; damage < 4; damage++) {
		const char *path = kept_file();
		struct stat st;
		int fd = open(path, O_RDWR);

		ck_assert_int_eq(fstat(fd, &st), 0);
		if (damage == 0) {
			ck_assert_int_eq(ftruncate(fd, st.st_size / 2), 0);
		} else if (damage == 1) {
			ck_assert_int_eq(pwrite(fd, "\xff", 1, st.st_size - 3), 1);
		} else if (damage == 2) {
			ck_assert_int_eq(ftruncate(fd, 0), 0);
		} else {
			ck_assert_int_eq(pwrite(fd, "GIF89a, honestly", 16, 0), 16);
		}
		close(fd);
		ck_assert(lists_again(3));
		ck_assert(!lists_again(3));
	}
}
END_TEST

START_TEST(test_no_place_for_the_index_is_no_error)
{
	/* Proves that a cache folder that is missing or full only costs the listing. */
	make_pets();
	settle();
	ck_assert(lists_again(3));
	put("cache", "a file where the folder should be");
	ck_assert(lists_again(3));
}
END_TEST

START_TEST(test_the_id_says_what_the_samples_are)
{
	/* Proves that the id is the same for the same samples, listed or from the index, and changes with a name. */
	struct dataset *a, *b, *c;

	make_pets();
	make_dir("cache", 0755);
	settle();
	a = open_trusted("imagefolder", in_root("pets"));
	ck_assert(lists_again(3));
	ck_assert_int_eq(open_as(&f.trusted, "imagefolder", in_root("pets"), in_root("cache"), NULL, 0, &b), 0);
	ck_assert_int_eq(rename(in_root("pets/dog/c.png"), in_root("pets/dog/d.png")), 0);
	c = open_trusted("imagefolder", in_root("pets"));
	ck_assert_uint_eq(dataset_id(a), dataset_id(b));
	ck_assert_uint_ne(dataset_id(a), dataset_id(c));
	dataset_unref(a);
	dataset_unref(b);
	dataset_unref(c);
}
END_TEST

/* ---- on whose behalf ---- */

START_TEST(test_others_read_what_their_mode_bits_allow)
{
	/* Proves owner, group and other bits at every open: one file closed to the peer costs that file, and rights are looked at anew each time. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	ck_assert_int_eq(chmod(in_root("pets/cat/a.jpg"), 0600), 0);
	ck_assert_int_eq(chmod(in_root("pets/cat/b.JPEG"), 0640), 0);
	ck_assert_msg(open_folder_for_other("pets", &ds) == 0, "%s", f.err.text);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -EACCES);
	ck_assert_str_eq(f.err.text, "cat/a.jpg: Permission denied");
	ck_assert_int_eq(f.err.code, DATASET_E_ACCESS);
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), -EACCES);
	ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), 0);
	ck_assert(dataset_is_current(ds, 2, &b));
	ck_assert_int_eq(chmod(in_root("pets/dog/c.png"), 0600), 0);
	ck_assert(!dataset_is_current(ds, 2, &b)); /* or a cache would give away what somebody else may read */
	ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), -EACCES);
	dataset_unref(ds);

	f.other.gids[0] = getgid();
	ck_assert_int_eq(open_folder_for_other("pets", &ds), 0);
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(chmod(in_root("pets/cat/b.JPEG"), 0604), 0); /* the group's bits decide, not the others' */
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), -EACCES);
	dataset_unref(ds);

	f.other.uid = getuid();
	ck_assert_int_eq(open_folder_for_other("pets", &ds), 0);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	dataset_unref(ds);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_others_need_every_folder)
{
	/* Proves that a folder the peer may not list or search refuses the data set by name, also when an index was kept for somebody else. */
	static const mode_t modes[] = { 0700, 0744, 0711 };
	struct dataset *ds;

	make_pets();
	make_dir("cache", 0755);
	settle();
	ck_assert(lists_again(3));
	for (size_t i = 0; i < 3; i++) {
		int fd = open_dir("pets"), r;

		ck_assert_int_eq(chmod(in_root("pets/dog"), modes[i]), 0);
		r = open_as(&f.other, "imagefolder", in_root("pets"), in_root("cache"), &fd, 1, &ds);
		close(fd);
		ck_assert_int_eq(r, -EACCES);
		ck_assert_msg(strstr(f.err.text, "pets/dog: Permission denied") != NULL, "%s", f.err.text);
		ck_assert_int_eq(f.err.code, DATASET_E_ACCESS);
	}
	ck_assert_int_eq(chmod(in_root("pets/dog"), 0755), 0);
	ck_assert_int_eq(chmod(in_root("pets"), 0700), 0);
	ck_assert_int_eq(open_folder_for_other("pets", &ds), -EACCES);
}
END_TEST

START_TEST(test_others_must_send_descriptors)
{
	/* Proves that the daemon opens no path for a peer that is not trusted. */
	struct dataset *ds;

	make_pets();
	put("list", "pets/cat/a.jpg 1\n");
	ck_assert_int_eq(open_as(&f.other, "imagefolder", in_root("pets"), NULL, NULL, 0, &ds), -EACCES);
	ck_assert_msg(strstr(f.err.text, "not named in the configuration") != NULL, "%s", f.err.text);
	ck_assert_int_eq(open_as(&f.other, "files", in_root("list"), NULL, NULL, 0, &ds), -EACCES);
	ck_assert_int_eq(open_as(&f.other, "npy", in_root("list"), NULL, NULL, 0, &ds), -EACCES);
}
END_TEST

START_TEST(test_links_lead_others_nowhere)
{
	/* Proves that a link to a file is not read, a link to a folder refuses the set, and that trusted sources follow both. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	make_dir("secret", 0755);
	put("secret/s.jpg", "secret");
	ck_assert_int_eq(symlink("../../secret/s.jpg", in_root("pets/cat/0.jpg")), 0);
	ck_assert_msg(open_folder_for_other("pets", &ds) == 0, "%s", f.err.text);
	ck_assert_uint_eq(dataset_n(ds), 4);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -ELOOP);
	ck_assert_msg(strstr(f.err.text, "cat/0.jpg: a symbolic link") != NULL, "%s", f.err.text);
	dataset_unref(ds);
	ck_assert_int_eq(symlink("../../secret", in_root("pets/dog/down")), 0);
	ck_assert_int_eq(open_folder_for_other("pets", &ds), -ELOOP);
	ck_assert_msg(strstr(f.err.text, "dog/down: a symbolic link") != NULL, "%s", f.err.text);

	ds = open_trusted("imagefolder", in_root("pets"));
	ck_assert_uint_eq(dataset_n(ds), 5);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(memcmp(b.data, "secret", 6), 0);
	dataset_unref(ds);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_a_folder_swapped_for_a_link_leads_nowhere)
{
	/* Proves that swapping a checked folder for a link afterwards gives a peer nothing. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_pets();
	make_dir("secret", 0700);
	put("secret/c.png", "secret");
	ck_assert_int_eq(open_folder_for_other("pets", &ds), 0);
	ck_assert_int_eq(rename(in_root("pets/dog"), in_root("dog")), 0);
	ck_assert_int_eq(symlink("../secret", in_root("pets/dog")), 0);
	ck_assert_int_lt(dataset_read(ds, 2, READ_WAIT, &b, &f.err), 0);
	dataset_unref(ds);
	file_bytes_finish(&b);
}
END_TEST

/* From now on this process has no openat2, as in a container whose sandbox is older than it. */
static void forbid_openat2(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
	ck_assert_int_lt(syscall(SYS_openat2, AT_FDCWD, "/", NULL, 0), 0);
}

START_TEST(test_without_openat2_the_same_rules_hold)
{
	/* Proves the older way to open: others read what they may and follow no link, trusted sources read, and nobody reads without waiting. Forks. */
	struct file_bytes b = { 0 };
	struct dataset *ds;
	int fds[2];

	forbid_openat2();
	make_pets();
	make_dir("secret", 0755);
	put("secret/s.jpg", "secret");
	ck_assert_int_eq(symlink("../../secret/s.jpg", in_root("pets/cat/0.jpg")), 0);
	ck_assert_msg(open_folder_for_other("pets", &ds) == 0, "%s", f.err.text);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -ELOOP);
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(dataset_read(ds, 1, READ_NOWAIT, &b, &f.err), -EAGAIN);
	dataset_unref(ds);
	ck_assert_int_eq(rename(in_root("pets/dog"), in_root("dog")), 0);
	ck_assert_int_eq(symlink("../secret", in_root("pets/dog")), 0);
	ck_assert_int_lt(open_folder_for_other("pets", &ds), 0);

	put("list.txt", "dog/./c.png 1\npets/dog/s.jpg 2\n");
	fds[0] = open(in_root("list.txt"), O_RDONLY);
	fds[1] = open_dir("");
	ck_assert_int_lt(open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, &ds), 0); /* a linked folder */
	ck_assert_int_eq(unlink(in_root("pets/dog")), 0);
	ck_assert_msg(open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, &ds) == 0, "%s", f.err.text);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(symlink("../secret", in_root("pets/dog")), 0);
	ck_assert_int_lt(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
	dataset_unref(ds);
	ds = open_trusted("files", in_root("list.txt"));
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(memcmp(b.data, "secret", 6), 0);
	dataset_unref(ds);
	close(fds[0]);
	close(fds[1]);
	file_bytes_finish(&b);
}
END_TEST

/* ---- lists ---- */

START_TEST(test_a_list_is_read_from_descriptors_or_by_path)
{
	/* Proves labels, order and bytes of a list, for trusted sources and for peers with descriptors of the list and its folder. */
	struct file_bytes b = { 0 };
	int fds[2];

	make_pets();
	put("list.txt", "pets/dog/c.png\t-5\npets/cat/a.jpg\t7\npets/cat/none.jpg\t8\n");
	fds[0] = open(in_root("list.txt"), O_RDONLY);
	fds[1] = open_dir("");
	for (int other = 0; other < 2; other++) {
		struct dataset *ds;

		ck_assert_msg(open_as(other ? &f.other : &f.trusted, "files", in_root("list.txt"), NULL, other ? fds : NULL, other ? 2 : 0, &ds) == 0, "%s",
			      f.err.text);
		ck_assert_uint_eq(dataset_n(ds), 3);
		ck_assert_uint_eq(dataset_n_classes(ds), 0);
		ck_assert_int_eq(dataset_label(ds, 0), -5);
		ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), 0);
		ck_assert_int_eq(memcmp(b.data, "cat a", 5), 0);
		ck_assert_int_eq(dataset_read(ds, 2, READ_WAIT, &b, &f.err), -ENOENT);
		dataset_unref(ds);
	}
	close(fds[0]);
	close(fds[1]);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_a_list_does_not_lead_others_through_closed_folders)
{
	/* Proves that each folder on the way must let the peer pass. */
	struct dataset *ds;
	int fds[2], r;

	make_dir("a", 0700);
	make_dir("a/b", 0755);
	put("a/b/x.jpg", "x");
	put("list.txt", "a/b/x.jpg\t1\n");
	fds[0] = open(in_root("list.txt"), O_RDONLY);
	fds[1] = open_dir("");
	r = open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, &ds);
	ck_assert_int_eq(r, -EACCES);
	ck_assert_str_eq(f.err.text, "a: Permission denied");
	ck_assert_int_eq(chmod(in_root("a"), 0711), 0);
	ck_assert_int_eq(open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, &ds), 0);
	dataset_unref(ds);
	ck_assert_int_eq(open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 1, &ds), -EINVAL);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* ---- arrays ---- */

static void put_npy(const char *name, const char *descr, const char *shape, const void *data, size_t n_data)
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

static const char *two_files(const char *a, const char *b)
{
	static char both[600];

	snprintf(both, sizeof(both), "%s,%s", in_root(a), in_root(b));
	return both;
}

START_TEST(test_rows_and_labels_are_gathered)
{
	/* Proves every width of row the copy has a loop for, and those between, against the plain definition. */
	static const unsigned widths[] = { 1, 2, 3, 4, 5, 8, 12, 16, 31, 32, 33, 64, 100, 300 };
	uint64_t indices[200];

	for (int i = 0; i < 200; i++) {
		indices[i] = (uint64_t)(i * 37 % 100);
	}
	for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
		unsigned char data[100 * 300], rows[200 * 300 + 1];
		int64_t labels[200];
		uint32_t shape[DATASET_MAX_DIMS];
		enum dtype dtype;
		struct dataset *ds;
		char text[32];

		for (unsigned i = 0; i < 100 * widths[w]; i++) {
			data[i] = (unsigned char)(i * 131 + i / 251);
		}
		snprintf(text, sizeof(text), "(100, %u)", widths[w]);
		put_npy("x.npy", "|u1", text, data, 100 * widths[w]);
		ds = open_trusted("npy", in_root("x.npy"));
		ck_assert_uint_eq(dataset_n(ds), 100);
		ck_assert(!dataset_is_image(ds));
		ck_assert_uint_eq(dataset_shape(ds, shape, &dtype), 1);
		ck_assert_uint_eq(shape[0], widths[w]);
		ck_assert_int_eq(dtype, DTYPE_UINT8);
		ck_assert_uint_eq(dataset_label_shape(ds, shape, &dtype), 0);
		ck_assert_int_eq(dtype, DTYPE_INT64);
		rows[200 * widths[w]] = 0xa5;
		ck_assert_int_eq(dataset_gather(ds, indices, 200, rows, labels, &f.err), 0);
		for (int i = 0; i < 200; i++) {
			ck_assert_int_eq(memcmp(rows + (size_t)i * widths[w], data + indices[i] * widths[w], widths[w]), 0);
			ck_assert_int_eq(labels[i], (int64_t)indices[i]);
		}
		ck_assert_uint_eq(rows[200 * widths[w]], 0xa5);
		dataset_unref(ds);
	}
}
END_TEST

START_TEST(test_integer_labels_become_int64)
{
	/* Proves widening with sign for each integer type, and that other labels are delivered as stored. */
	static const int8_t features[4] = { 0 };
	static const uint8_t u1[4] = { 0, 255, 3, 4 };
	static const int16_t i2[4] = { -1, 32767, -32768, 4 };
	static const int32_t i4[4] = { -1, INT32_MAX, INT32_MIN, 4 };
	static const int64_t i8[4] = { -1, INT64_MAX, INT64_MIN, 4 };
	static const float f4[8] = { 1.5f, 2, 3, 4, 5, 6, 7, 8 };
	static const uint64_t indices[] = { 3, 2, 1, 0 };
	static const int64_t expected[4][4] = { { 4, 3, 255, 0 }, { 4, -32768, 32767, -1 }, { 4, INT32_MIN, INT32_MAX, -1 }, { 4, INT64_MIN, INT64_MAX, -1 } };
	static const struct { const char *descr; const void *data; size_t n; } types[] = {
		{ "|u1", u1, sizeof(u1) }, { "<i2", i2, sizeof(i2) }, { "<i4", i4, sizeof(i4) }, { "<i8", i8, sizeof(i8) } };
	uint32_t shape[DATASET_MAX_DIMS];
	struct dataset *ds;
	enum dtype dtype;
	int8_t rows[4];
	float labels[8];

	put_npy("x.npy", "|u1", "(4,)", features, 4);
	for (int t = 0; t < 4; t++) {
		int64_t got[4];

		put_npy("y.npy", types[t].descr, "(4,)", types[t].data, types[t].n);
		ds = open_trusted("npy", two_files("x.npy", "y.npy"));
		ck_assert_uint_eq(dataset_label_shape(ds, shape, &dtype), 0);
		ck_assert_int_eq(dtype, DTYPE_INT64);
		ck_assert_int_eq(dataset_gather(ds, indices, 4, rows, got, &f.err), 0);
		ck_assert_int_eq(memcmp(got, expected[t], sizeof(got)), 0);
		dataset_unref(ds);
	}
	put_npy("y.npy", "<f4", "(4, 2)", f4, sizeof(f4));
	ds = open_trusted("npy", two_files("x.npy", "y.npy"));
	ck_assert_uint_eq(dataset_label_shape(ds, shape, &dtype), 1);
	ck_assert_uint_eq(shape[0], 2);
	ck_assert_int_eq(dtype, DTYPE_FLOAT32);
	ck_assert_int_eq(dataset_gather(ds, indices, 4, rows, labels, &f.err), 0);
	ck_assert(labels[0] == 7 && labels[1] == 8 && labels[6] == 1.5f);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_arrays_that_do_not_fit_are_refused)
{
	/* Proves the checks across files: numbers of samples, promised size, no samples, descriptors. */
	static const char zeros[64];
	struct dataset *ds;
	int fd;

	put_npy("x.npy", "<f4", "(4,)", zeros, 16);
	put_npy("y.npy", "<i4", "(3,)", zeros, 12);
	ck_assert_int_eq(open_as(&f.trusted, "npy", two_files("x.npy", "y.npy"), NULL, NULL, 0, &ds), -EINVAL);
	ck_assert_msg(strstr(f.err.text, "4 samples") && strstr(f.err.text, "3 labels"), "%s", f.err.text);
	put_npy("x.npy", "<f4", "(5,)", zeros, 16);
	ck_assert_int_eq(open_as(&f.trusted, "npy", in_root("x.npy"), NULL, NULL, 0, &ds), -EINVAL);
	ck_assert_msg(strstr(f.err.text, "its header promises") != NULL, "%s", f.err.text);
	put_npy("x.npy", "<f4", "(0, 4)", zeros, 0);
	ck_assert_int_eq(open_as(&f.trusted, "npy", in_root("x.npy"), NULL, NULL, 0, &ds), -EINVAL);
	put_npy("x.npy", "<f4", "()", zeros, 4);
	ck_assert_int_eq(open_as(&f.trusted, "npy", in_root("x.npy"), NULL, NULL, 0, &ds), -EINVAL);
	put("x.npy", "text");
	ck_assert_int_eq(open_as(&f.trusted, "npy", in_root("x.npy"), NULL, NULL, 0, &ds), -EINVAL);
	ck_assert_msg(strstr(f.err.text, "not a .npy file") != NULL, "%s", f.err.text);
	fd = open(in_root("x.npy"), O_WRONLY);
	ck_assert_int_eq(open_as(&f.other, "npy", in_root("x.npy"), NULL, &fd, 1, &ds), -EACCES);
	close(fd);
	fd = open(in_root("x.npy"), O_PATH);
	ck_assert_int_lt(open_as(&f.other, "npy", in_root("x.npy"), NULL, &fd, 1, &ds), 0);
	close(fd);
}
END_TEST

START_TEST(test_a_file_cut_short_is_an_error_not_a_crash)
{
	/* Proves that pages that vanish under a mapping, and a cut inside the last page, are -EIO naming the file; the set recovers with the file. */
	static const uint64_t indices[] = { 0, 9999 };
	static unsigned char data[10000];
	struct dataset *ds;
	unsigned char rows[2];
	int64_t labels[2];
	struct stat st;

	memset(data, 7, sizeof(data));
	put_npy("x.npy", "|u1", "(10000,)", data, sizeof(data));
	ds = open_trusted("npy", in_root("x.npy"));
	ck_assert_int_eq(dataset_gather(ds, indices, 2, rows, labels, &f.err), 0);
	ck_assert_int_eq(stat(in_root("x.npy"), &st), 0);
	for (int turn = 0; turn < 2; turn++) {
		ck_assert_int_eq(truncate(in_root("x.npy"), turn ? st.st_size - 1 : 100), 0);
		ck_assert_int_eq(dataset_gather(ds, indices, 2, rows, labels, &f.err), -EIO);
		ck_assert_msg(strstr(f.err.text, "x.npy: the file has become shorter") != NULL, "%s", f.err.text);
		ck_assert_int_eq(truncate(in_root("x.npy"), st.st_size), 0);
		ck_assert_int_eq(dataset_gather(ds, indices, 2, rows, labels, &f.err), 0);
	}
	dataset_unref(ds);
}
END_TEST

START_TEST(test_an_index_beyond_the_array_is_refused)
{
	/* Proves that no index of a client's own batch reads outside the array. */
	static const char zeros[16];
	uint64_t indices[] = { 0, 4 };
	struct dataset *ds;
	float rows[2];
	int64_t labels[2];

	put_npy("x.npy", "<f4", "(4,)", zeros, 16);
	ds = open_trusted("npy", in_root("x.npy"));
	ck_assert_int_eq(dataset_gather(ds, indices, 2, rows, labels, &f.err), -ERANGE);
	indices[1] = 3;
	ck_assert_int_eq(dataset_gather(ds, indices, 2, rows, labels, &f.err), 0);
	dataset_unref(ds);
}
END_TEST

/* ---- made-up samples ---- */

START_TEST(test_random_samples_depend_on_seed_and_index_alone)
{
	/* Proves that the same index is the same sample in any batch and place, and that seeds and indices differ. */
	struct dataset *a = open_trusted("random", "length=1000,shape=3x5x7,dtype=float32,classes=10,seed=1");
	struct dataset *b = open_trusted("random", "length=1000,shape=3x5x7,dtype=float32,classes=10,seed=2");
	static const uint64_t forward[] = { 5, 6, 999 }, backward[] = { 999, 5 };
	static float x[3][105], y[2][105], z[3][105];
	int64_t lx[3], ly[2], lz[3];

	ck_assert_int_eq(dataset_gather(a, forward, 3, x, lx, &f.err), 0);
	ck_assert_int_eq(dataset_gather(a, backward, 2, y, ly, &f.err), 0);
	ck_assert_int_eq(dataset_gather(b, forward, 3, z, lz, &f.err), 0);
	ck_assert_int_eq(memcmp(x[0], y[1], sizeof(x[0])), 0);
	ck_assert_int_eq(memcmp(x[2], y[0], sizeof(x[0])), 0);
	ck_assert_int_ne(memcmp(x[0], x[1], sizeof(x[0])), 0);
	ck_assert_int_ne(memcmp(x[0], z[0], sizeof(x[0])), 0);
	ck_assert(lx[0] == ly[1] && lx[2] == ly[0]);
	ck_assert_uint_eq(dataset_n_classes(a), 10);
	ck_assert_str_eq(dataset_class(a, 9), "9");
	ck_assert_uint_ne(dataset_id(a), dataset_id(b));
	dataset_unref(a);
	dataset_unref(b);
}
END_TEST

START_TEST(test_random_values_are_what_their_type_promises)
{
	/* Proves range and mean of floats, all values of bool and classes, and sizes that are no multiple of the generator's block. */
	static float x[20000];
	static double d[1001];
	static uint16_t h[4096];
	static uint8_t flags[1000];
	static int64_t labels[1000];
	uint64_t indices[1000], zero = 0;
	unsigned seen[10] = { 0 }, ones = 0;
	double sum = 0;
	struct dataset *ds = open_trusted("random", "length=1,shape=20000");

	ck_assert_int_eq(dataset_gather(ds, &zero, 1, x, labels, &f.err), 0);
	for (int i = 0; i < 20000; i++) {
		ck_assert(x[i] >= 0 && x[i] < 1);
		sum += x[i];
	}
	ck_assert(sum / 20000 > 0.48 && sum / 20000 < 0.52);
	dataset_unref(ds);
	ds = open_trusted("random", "length=1,shape=1001,dtype=float64");
	ck_assert_int_eq(dataset_gather(ds, &zero, 1, d, labels, &f.err), 0);
	for (int i = 0; i < 1001; i++) {
		ck_assert(d[i] >= 0 && d[i] < 1);
	}
	dataset_unref(ds);
	ds = open_trusted("random", "length=1,shape=64x64,dtype=float16");
	ck_assert_int_eq(dataset_gather(ds, &zero, 1, h, labels, &f.err), 0);
	for (int i = 0; i < 4096; i++) {
		ck_assert_uint_lt(h[i], 0x3c00); /* 1.0 */
	}
	dataset_unref(ds);
	ds = open_trusted("random", "length=1000,shape=1,dtype=bool,classes=10");
	for (uint64_t i = 0; i < 1000; i++) {
		indices[i] = i;
	}
	ck_assert_int_eq(dataset_gather(ds, indices, 1000, flags, labels, &f.err), 0);
	for (int i = 0; i < 1000; i++) {
		ck_assert_uint_le(flags[i], 1);
		ones += flags[i];
		ck_assert(labels[i] >= 0 && labels[i] < 10);
		seen[labels[i]]++;
	}
	ck_assert(ones > 400 && ones < 600);
	for (int i = 0; i < 10; i++) {
		ck_assert_uint_gt(seen[i], 50);
	}
	dataset_unref(ds);
}
END_TEST

/* ---- threads ---- */

struct crowd {
	struct dataset *files, *arrays;
};

static void *read_everything(void *arg)
{
	const struct crowd *c = arg;
	struct file_bytes b = { 0 };
	struct dataset_error err;

	for (int turn = 0; turn < 50; turn++) {
		for (uint64_t i = 0; i < 3; i++) {
			uint64_t row;
			int64_t label;

			if (dataset_read(c->files, i, turn % 2 ? READ_WAIT : READ_NOWAIT, &b, &err) == 0 && !dataset_is_current(c->files, i, &b)) {
				return "not current";
			}
			if (dataset_gather(c->arrays, &i, 1, &row, &label, &err) < 0 || label != (int64_t)i) {
				return "not gathered";
			}
		}
	}
	file_bytes_finish(&b);
	dataset_unref(c->files);
	dataset_unref(c->arrays);
	return NULL;
}

START_TEST(test_any_thread_may_read)
{
	/* Proves that folders are opened once by whoever comes first, and references may be given back anywhere (seen by the thread sanitizer). */
	static const char zeros[24];
	struct crowd c;
	pthread_t t[4];

	make_pets();
	put_npy("x.npy", "<i8", "(3,)", zeros, 24);
	c.files = open_trusted("imagefolder", in_root("pets"));
	c.arrays = open_trusted("npy", in_root("x.npy"));
	for (int i = 0; i < 4; i++) {
		dataset_ref(c.files);
		dataset_ref(c.arrays);
		ck_assert_int_eq(pthread_create(&t[i], NULL, read_everything, &c), 0);
	}
	for (int i = 0; i < 4; i++) {
		void *what;

		pthread_join(t[i], &what);
		ck_assert_msg(!what, "%s", (char *)what);
	}
	dataset_unref(c.files);
	dataset_unref(c.arrays);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("dataset");
	TCase *tc = tcase_create("dataset");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_unknown_specs_are_refused_with_what_is_expected);
	tcase_add_test(tc, test_an_image_folder_is_numbered_and_read);
	tcase_add_test(tc, test_reading_without_waiting_gives_the_same_or_asks_for_more);
	tcase_add_test(tc, test_a_changed_file_is_not_current);
	tcase_add_test(tc, test_a_folder_replaced_while_open_is_found_again);
	tcase_add_test(tc, test_odd_files_are_refused_without_waiting);
	tcase_add_test(tc, test_the_index_is_used_again_until_something_changes);
	tcase_add_test(tc, test_a_folder_changed_this_moment_is_not_trusted);
	tcase_add_test(tc, test_a_damaged_index_is_made_again);
	tcase_add_test(tc, test_no_place_for_the_index_is_no_error);
	tcase_add_test(tc, test_the_id_says_what_the_samples_are);
	tcase_add_test(tc, test_others_read_what_their_mode_bits_allow);
	tcase_add_test(tc, test_others_need_every_folder);
	tcase_add_test(tc, test_others_must_send_descriptors);
	tcase_add_test(tc, test_links_lead_others_nowhere);
	tcase_add_test(tc, test_a_folder_swapped_for_a_link_leads_nowhere);
	tcase_add_test(tc, test_without_openat2_the_same_rules_hold);
	tcase_add_test(tc, test_a_list_is_read_from_descriptors_or_by_path);
	tcase_add_test(tc, test_a_list_does_not_lead_others_through_closed_folders);
	tcase_add_test(tc, test_rows_and_labels_are_gathered);
	tcase_add_test(tc, test_integer_labels_become_int64);
	tcase_add_test(tc, test_arrays_that_do_not_fit_are_refused);
	tcase_add_test(tc, test_a_file_cut_short_is_an_error_not_a_crash);
	tcase_add_test(tc, test_an_index_beyond_the_array_is_refused);
	tcase_add_test(tc, test_random_samples_depend_on_seed_and_index_alone);
	tcase_add_test(tc, test_random_values_are_what_their_type_promises);
	tcase_add_test(tc, test_any_thread_may_read);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
