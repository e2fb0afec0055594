/* The files kept on a disk stay bounded, and reading them delays only the reader.
 *
 * io_full_read and io_full_sync are this program's own and take precedence over the library's, so that a disk can be
 * made to wait. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/cache/dir.h"
#include "dataset/cache/file.h"
#include "dataset/dataset.h"
#include "dataset/cache/sample-cache.h"
#include "support/suite.h"
#include "base/io-full.h"

static char folder[64];

/* ---- a disk that waits ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool hangs; /* reads after a file's header wait */
	unsigned n_waiting;
} disk = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void disk_wait(void)
{
	pthread_mutex_lock(&disk.lock);
	disk.n_waiting++;
	pthread_cond_broadcast(&disk.changed);
	while (disk.hangs) {
		pthread_cond_wait(&disk.changed, &disk.lock);
	}
	disk.n_waiting--;
	pthread_mutex_unlock(&disk.lock);
}

static void disk_set(bool hangs)
{
	pthread_mutex_lock(&disk.lock);
	disk.hangs = hangs;
	pthread_cond_broadcast(&disk.changed);
	pthread_mutex_unlock(&disk.lock);
}

static void disk_await_reader(void)
{
	pthread_mutex_lock(&disk.lock);
	while (!disk.n_waiting) {
		pthread_cond_wait(&disk.changed, &disk.lock);
	}
	pthread_mutex_unlock(&disk.lock);
}

ssize_t io_full_read(int fd, void *buf, size_t n, off_t at)
{
	size_t done = 0;

	if (at > 0) {
		disk_wait();
	}
	while (done < n) {
		ssize_t got = pread(fd, (char *)buf + done, n - done, at + (off_t)done);

		if (got < 0 && errno != EINTR) {
			return -errno;
		}
		if (got == 0) {
			break;
		}
		done += got > 0 ? (size_t)got : 0;
	}
	return (ssize_t)done;
}

int io_full_sync(int fd)
{
	return fsync(fd) < 0 ? -errno : 0;
}

/* ---- a folder ---- */

static void set_up(void)
{
	strcpy(folder, "/tmp/test_cache_dir.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void tear_down(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	ck_assert_int_eq(system(command), 0);
}

static const char *in_folder(const char *name)
{
	static char path[4][512];
	static unsigned turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[0]), "%s/%s", folder, name);
	return path[turn];
}

static bool is_there(const char *name)
{
	return access(in_folder(name), F_OK) == 0;
}

static unsigned n_files(void)
{
	DIR *d = opendir(folder);
	unsigned n = 0;

	for (struct dirent *e; (e = readdir(d));) {
		n += e->d_name[0] != '.';
	}
	closedir(d);
	return n;
}

static struct cache *make(uint64_t budget)
{
	struct cache_config config = { .budget_bytes = { budget, budget }, .dir = folder };
	struct cache *c;

	ck_assert_int_eq(cache_create(&config, &c), 0);
	return c;
}

static struct file_bytes file_of(uint64_t index)
{
	return (struct file_bytes){ .n_bytes = 100, .mtime_ns = 1000, .ino = index, .dev = 7 };
}

static void put(struct cache_space *s, uint64_t index, const void *bytes, size_t n)
{
	struct file_bytes b = file_of(index);

	ck_assert_int_eq(cache_put_index(s, index, &b, bytes, n), 0);
}

static bool has(struct cache_space *s, uint64_t index, const char *text)
{
	struct file_bytes b = file_of(index);
	struct cache_hit hit;
	bool found = cache_lookup_for(s, index, &b, &hit);

	if (found) {
		found = !strcmp(hit.index, text);
		cache_release(&hit);
	}
	return found;
}

/* One run of a daemon that learns this text for samples 0..n-1 of data set 9. */
static void live(unsigned n, const char *text)
{
	struct cache *c = make(64 << 20);
	struct cache_space *s = cache_attach(c, 9, 1000, CACHE_CHECKPOINTS, 0, 1);

	for (uint64_t i = 0; i < n; i++) {
		put(s, i, text, strlen(text) + 1);
	}
	cache_detach(s, 1);
	cache_destroy(c);
}

static const char kept[] = "index-0000000000000009.cache";

/* ---- reading ---- */

START_TEST(test_a_kept_file_of_holes_is_begun_anew)
{
	/* Proves that a kept file of one TiB, nearly all of it holes, is not read (which would take hours) but
	 * replaced, and that a short file of holes is replaced as well. */
	for (int i = 0; i < 2; i++) {
		struct cache *c;
		struct cache_space *s;
		struct stat st;

		live(20, "text");
		ck_assert_int_eq(truncate(in_folder(kept), i ? (off_t)4 << 30 : (off_t)1 << 40), 0);
		c = make(i ? (uint64_t)8 << 30 : 64 << 20);
		s = cache_attach(c, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
		ck_assert_int_eq(stat(in_folder(kept), &st), 0);
		ck_assert_int_eq(st.st_size, CACHE_FILE_HEADER_BYTES);
		put(s, 3, "new", 4);
		cache_detach(s, 1);
		cache_destroy(c);
	}
}
END_TEST

START_TEST(test_another_users_kept_file_is_left_alone)
{
	/* Proves that what another user has put into the folder is neither believed nor changed. */
	struct cache *c;
	struct cache_space *s;
	struct stat before, after;

	if (geteuid() != 0) {
		puts("skipped: only root can give a file to another user");
		return;
	}
	live(2, "text");
	ck_assert_int_eq(chown(in_folder(kept), 65534, 65534), 0);
	ck_assert_int_eq(stat(in_folder(kept), &before), 0);
	c = make(64 << 20);
	s = cache_attach(c, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	ck_assert(!has(s, 0, "text"));
	put(s, 5, "more", 5);
	cache_detach(s, 1);
	cache_destroy(c);
	ck_assert_int_eq(stat(in_folder(kept), &after), 0);
	ck_assert_int_eq(after.st_size, before.st_size);
}
END_TEST

START_TEST(test_reading_gives_up_behind_so_much_junk)
{
	/* Proves that the search for a record after damage ends after 64 MiB, and that the unsearched rest is cut
	 * off. */
	enum { JUNK = 80 << 20 };
	struct cache *c;
	struct cache_space *s;
	struct stat before, after;
	unsigned char *records;
	int fd;

	live(2, "text");
	ck_assert_int_eq(stat(in_folder(kept), &before), 0);
	fd = open(in_folder(kept), O_RDWR);
	records = malloc((size_t)before.st_size);
	ck_assert_int_eq(pread(fd, records, (size_t)before.st_size, 0), before.st_size);
	ck_assert_int_eq(posix_fallocate(fd, before.st_size, JUNK), 0);
	/* A copy of the second record beyond the end of the search. */
	ck_assert_int_eq(pwrite(fd, records + before.st_size - 80, 80, before.st_size + JUNK), 80);
	free(records);
	close(fd);
	c = make(64 << 20);
	s = cache_attach(c, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	ck_assert(has(s, 0, "text") && has(s, 1, "text"));
	ck_assert_int_eq(stat(in_folder(kept), &after), 0);
	ck_assert_int_eq(after.st_size, before.st_size);
	cache_detach(s, 1);
	cache_destroy(c);
}
END_TEST

static struct cache *shared;
static struct cache_space *slow;

static void *attach_slowly(void *arg)
{
	(void)arg;
	slow = cache_attach(shared, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	return NULL;
}

START_TEST(test_a_slow_load_holds_no_trainer_up)
{
	/* Proves that while one opening reads a kept cache from a disk that hangs, other openings of other data sets
	 * and of the same one attach, learn and sync; and that kept records do not replace what was learnt
	 * meanwhile. */
	pthread_t thread;
	struct cache_space *other, *same;

	live(20, "kept");
	shared = make(64 << 20);
	disk_set(true);
	ck_assert_int_eq(pthread_create(&thread, NULL, attach_slowly, NULL), 0);
	disk_await_reader();
	other = cache_attach(shared, 9, 1000, CACHE_DECODED, 0, 1);
	same = cache_attach(shared, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	ck_assert_ptr_nonnull(other);
	ck_assert_ptr_nonnull(same);
	put(same, 3, "fresh", 6);
	cache_sync(shared);
	disk_set(false);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_ptr_eq(slow, same);
	ck_assert(has(same, 2, "kept"));
	ck_assert(has(same, 3, "fresh"));
	cache_detach(slow, 1);
	cache_detach(same, 1);
	cache_detach(other, 1);
	cache_destroy(shared);
	shared = make(64 << 20);
	same = cache_attach(shared, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	ck_assert_msg(has(same, 3, "fresh"), "what was learnt while the space was loaded is not kept");
	ck_assert(has(same, 2, "kept"));
	cache_detach(same, 1);
	cache_destroy(shared);
}
END_TEST

START_TEST(test_a_put_never_writes_to_a_disk)
{
	/* Proves that a worker that needs memory does not write another data set's indexes to get it: unwritten indexes
	 * stay, and are evicted once they are written. */
	struct cache *c = make(2 << 20);
	struct cache_space *old = cache_attach(c, 9, 100, CACHE_CHECKPOINTS, 0, 1), *fresh;
	struct file_bytes b = file_of(1);
	static char bytes[1500000];
	struct stat st;

	put(old, 0, bytes, sizeof(bytes));
	cache_detach(old, 1);
	fresh = cache_attach(c, 10, 100, CACHE_CHECKPOINTS, 0, 1);
	ck_assert_int_eq(cache_put_index(fresh, 1, &b, bytes, sizeof(bytes)), CACHE_E_FULL);
	ck_assert_int_eq(stat(in_folder(kept), &st), 0);
	ck_assert_int_eq(st.st_size, CACHE_FILE_HEADER_BYTES);
	cache_sync(c);
	ck_assert_int_eq(cache_put_index(fresh, 1, &b, bytes, sizeof(bytes)), 0);
	cache_detach(fresh, 1);
	cache_destroy(c);
}
END_TEST

/* ---- writing ---- */

START_TEST(test_a_failed_compaction_leaves_nothing)
{
	/* Proves that a new file that cannot be completed (here because of a limit, as on a full disk) is removed. */
	enum { N = 200, BYTES = 20000 };
	struct cache *c = make(64 << 20);
	struct cache_space *s = cache_attach(c, 9, 1000, CACHE_CHECKPOINTS, 0, 1);
	struct rlimit limit = { 500000, 500000 };
	static char bytes[BYTES];
	struct cache_hit hit;
	struct stat st;

	for (uint64_t i = 0; i < N; i++) {
		put(s, i, bytes, sizeof(bytes));
	}
	cache_sync(c);
	ck_assert_int_eq(stat(in_folder(kept), &st), 0);
	for (uint64_t i = 0; i < N * 7 / 10; i++) { /* live records shrink to a third */
		struct file_bytes b = file_of(i);

		b.mtime_ns++;
		ck_assert(!cache_lookup_for(s, i, &b, &hit));
	}
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cache_sync(c);
	ck_assert_uint_eq(n_files(), 1);
	ck_assert(is_there(kept));
	cache_detach(s, 1);
	cache_destroy(c);
}
END_TEST

/* ---- the limit ---- */

/* A file of n bytes that was last used `age` seconds ago. */
static void leave(const char *name, size_t n, time_t age)
{
	int fd = open(in_folder(name), O_WRONLY | O_CREAT, 0600);
	struct timespec times[2] = { { .tv_sec = time(NULL) - age }, { .tv_sec = time(NULL) - age } };
	static char bytes[1 << 20];

	ck_assert_int_ge(fd, 0);
	memset(bytes, 7, sizeof(bytes));
	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	ck_assert_int_eq(fsync(fd), 0); /* otherwise its blocks may not be counted yet */
	ck_assert_int_eq(futimens(fd, times), 0);
	close(fd);
}

START_TEST(test_what_was_unused_for_longest_goes_first)
{
	/* Proves that both kinds are counted together, that the oldest are removed until the rest fits, and that files
	 * with other names are left alone. */
	leave("imagefolder-0123456789abcdef.index", 1 << 20, 400);
	leave("index-0123456789abcdef.cache", 1 << 20, 300);
	leave("imagefolder-00000000000000ff.index", 1 << 20, 200);
	leave("index-00000000000000ff.cache", 1 << 20, 100);
	leave("notes.txt", 1 << 20, 900);
	leave("index-1.cache", 1 << 20, 900);
	ck_assert_int_eq(cache_dir_trim(folder, 16 << 20), 0);
	ck_assert_uint_eq(n_files(), 6);
	ck_assert_int_eq(cache_dir_trim(folder, 5 << 19), 0);
	ck_assert(!is_there("imagefolder-0123456789abcdef.index") && !is_there("index-0123456789abcdef.cache"));
	ck_assert(is_there("imagefolder-00000000000000ff.index") && is_there("index-00000000000000ff.cache"));
	ck_assert(is_there("notes.txt") && is_there("index-1.cache"));
	ck_assert_int_eq(cache_dir_trim(in_folder("nowhere"), 1), -ENOENT);
}
END_TEST

START_TEST(test_what_a_daemon_has_open_stays)
{
	/* Proves that a file that a daemon is writing is not removed, and that a file left by a crash is. */
	int fd;

	leave("index-0123456789abcdef.cache", 1 << 20, 300);
	leave("index-00000000000000ff.cache", 1 << 20, 100);
	leave("index-00000000000000ff.cache.new", 1 << 10, 0);
	leave("imagefolder-00000000000000ff.index.aBcDeF", 1 << 10, 7200);
	leave("imagefolder-00000000000000ff.index.GhIjKl", 1 << 10, 0); /* possibly being written */
	fd = open(in_folder("index-0123456789abcdef.cache"), O_RDWR);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	ck_assert_int_eq(cache_dir_trim(folder, 64 << 20), 0);
	ck_assert_uint_eq(n_files(), 3);
	ck_assert(is_there("imagefolder-00000000000000ff.index.GhIjKl"));
	ck_assert_int_eq(cache_dir_trim(folder, 1 << 20), 0);
	ck_assert(is_there("index-0123456789abcdef.cache"));
	ck_assert(!is_there("index-00000000000000ff.cache"));
	close(fd);
	ck_assert_int_eq(cache_dir_trim(folder, 1000), 0);
	ck_assert_uint_eq(n_files(), 0);
}
END_TEST

START_TEST(test_the_number_of_kept_files_is_bounded)
{
	/* Proves that empty files, which take no space, are bounded by number. */
	for (unsigned i = 0; i < CACHE_DIR_MOST_FILES + 20; i++) {
		char name[64];

		snprintf(name, sizeof(name), "index-%016x.cache", i);
		leave(name, 0, i < 20 ? 300 : 100);
	}
	ck_assert_int_eq(cache_dir_trim(folder, (uint64_t)1 << 40), 0);
	ck_assert_uint_eq(n_files(), CACHE_DIR_MOST_FILES);
	ck_assert(!is_there("index-0000000000000013.cache") && is_there("index-0000000000000014.cache"));
}
END_TEST

START_TEST(test_every_sync_trims)
{
	/* Proves that a daemon's own syncs keep its directory within the limit. */
	struct cache_config config = { .budget_bytes = { [CACHE_CHECKPOINTS] = 1 << 20 },
				       .dir = folder,
				       .dir_limit_bytes = 1 << 20 };
	struct cache *c;

	leave("index-0123456789abcdef.cache", 1 << 20, 300);
	leave("index-00000000000000ff.cache", 1 << 19, 100);
	ck_assert_int_eq(cache_create(&config, &c), 0);
	cache_sync(c);
	ck_assert_uint_eq(n_files(), 1);
	ck_assert(is_there("index-00000000000000ff.cache"));
	cache_destroy(c);
}
END_TEST

START_TEST(test_listings_are_kept_within_the_limit)
{
	/* Proves that each kept listing of a folder makes room for itself, so that opening folder after folder does not
	 * fill the disk. */
	struct data_access access = { .trusted = true };
	char where[128];

	snprintf(where, sizeof(where), "%s/kept", folder);
	ck_assert_int_eq(mkdir(where, 0700), 0);
	for (unsigned i = 0; i < 5; i++) {
		char path[160], spec[192];
		struct dataset_source source = {
			.spec = spec, .access = &access, .cache_dir = where, .cache_limit_bytes = 2 << 12
		};
		struct timespec past[2] = { { .tv_sec = 1000000 }, { .tv_sec = 1000000 } };
		struct dataset_error err;
		struct dataset *ds;

		snprintf(path, sizeof(path), "%s/set%u", folder, i);
		ck_assert_int_eq(mkdir(path, 0755), 0);
		snprintf(spec, sizeof(spec), "imagefolder:%s", path);
		strcat(path, "/cat");
		ck_assert_int_eq(mkdir(path, 0755), 0);
		strcat(path, "/a.jpg");
		close(open(path, O_WRONLY | O_CREAT, 0644));
		utimensat(AT_FDCWD, path, past, 0);
		usleep(40000); /* an index of folders that changed a moment ago is not kept */
		ck_assert_msg(dataset_open(&source, &ds, &err) == 0, "%s", err.text);
		dataset_unref(ds);
	}
	strcpy(folder + strlen(folder), "/kept");
	ck_assert_uint_ge(n_files(), 1);
	ck_assert_uint_le(n_files(), 2);
	folder[strlen(folder) - strlen("/kept")] = '\0';
}
END_TEST

SUITE(cache_dir)
{
	Suite *s = suite_create("cache directory");
	TCase *t = tcase_create("reading"), *w = tcase_create("limit");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, test_a_kept_file_of_holes_is_begun_anew);
	tcase_add_test(t, test_another_users_kept_file_is_left_alone);
	tcase_add_test(t, test_reading_gives_up_behind_so_much_junk);
	tcase_add_test(t, test_a_slow_load_holds_no_trainer_up);
	tcase_add_test(t, test_a_put_never_writes_to_a_disk);
	tcase_add_test(t, test_a_failed_compaction_leaves_nothing);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(w, set_up, tear_down);
	tcase_add_test(w, test_what_was_unused_for_longest_goes_first);
	tcase_add_test(w, test_what_a_daemon_has_open_stays);
	tcase_add_test(w, test_the_number_of_kept_files_is_bounded);
	tcase_add_test(w, test_every_sync_trims);
	tcase_add_test(w, test_listings_are_kept_within_the_limit);
	suite_add_tcase(s, w);
	return s;
}
