/* Packed data sets: what is read of which shard, for whom, and what of the index is kept. */
#include "support/datasets.h"

#include <sys/resource.h>

#include <jansson.h>
#include <zlib.h>

#include "dataset/cache/dir.h"
#include "dataset/file.h"
#include "base/clock.h"
#include "base/log.h"

enum { BLOCK = 512 };

static size_t header(unsigned char *block, const char *name, size_t n)
{
	unsigned sum = 0;

	memset(block, 0, BLOCK);
	snprintf((char *)block, 100, "%s", name);
	snprintf((char *)block + 124, 12, "%011zo", n);
	block[156] = '0';
	memcpy(block + 257, "ustar\00000", 8);
	memset(block + 148, ' ', 8);
	for (unsigned i = 0; i < BLOCK; i++) {
		sum += block[i];
	}
	snprintf((char *)block + 148, 8, "%06o", sum);
	return BLOCK;
}

/* A shard of n samples "0.jpg", "1.jpg" ... with the text as bytes and the number as label. */
static void put_shard(const char *name, unsigned n, const char *text, mode_t mode)
{
	static unsigned char shard[64 << 10];
	size_t at = 0;

	memset(shard, 0, sizeof(shard));
	for (unsigned i = 0; i < n; i++) {
		char path[32], label[16];

		snprintf(path, sizeof(path), "%u.jpg", i);
		at += header(shard + at, path, strlen(text));
		memcpy(shard + at, text, strlen(text));
		at += BLOCK;
		snprintf(path, sizeof(path), "%u.cls", i);
		at += header(shard + at, path, (size_t)snprintf(label, sizeof(label), "%u", i));
		memcpy(shard + at, label, strlen(label));
		at += BLOCK;
	}
	put_bytes(name, shard, at + 2 * (size_t)BLOCK, mode);
}

static void assert_reads(struct dataset *ds, uint64_t index, const char *text)
{
	struct file_bytes b = { 0 };

	ck_assert_msg(dataset_read(ds, index, READ_WAIT, &b, &f.err) == 0, "%s", f.err.text);
	ck_assert_uint_eq(b.n_bytes, strlen(text));
	ck_assert_mem_eq(b.data, text, b.n_bytes);
	for (size_t i = 0; i < 64; i++) {
		ck_assert_uint_eq(b.data[b.n_bytes + i], 0);
	}
	ck_assert_int_eq(dataset_is_current(ds, index, READ_WAIT, &b), 1);
	file_bytes_finish(&b);
}

static struct dataset *open_kept(const char *cache)
{
	struct dataset *ds = NULL;

	ck_assert_msg(open_as(&f.trusted, "tar", in_root("*.tar"), cache, NULL, 0, &ds) == 0, "%s", f.err.text);
	return ds;
}

START_TEST(test_samples_are_read_at_their_places)
{
	/* Proves bytes, zeros after them, labels and names of samples in two shards. */
	struct dataset *ds;
	char name[64];

	put_shard("a.tar", 3, "first", 0644);
	put_shard("b.tar", 2, "second one", 0644);
	ds = open_trusted("tar", in_root("{a,b}.tar"));
	ck_assert_uint_eq(dataset_n(ds), 5);
	assert_reads(ds, 2, "first");
	assert_reads(ds, 4, "second one");
	ck_assert_int_eq(dataset_label(ds, 2), 2);
	ck_assert_int_eq(dataset_label(ds, 4), 1);
	dataset_name(ds, 4, name, sizeof(name));
	ck_assert_str_eq(name, "b.tar: 1.jpg");
	dataset_unref(ds);
}
END_TEST

START_TEST(test_a_shard_that_changes_is_named)
{
	/* Proves that a shard which is written, or cut short, while it is open gives no bytes and is named; samples of
	 * other shards are read as before. */
	struct file_bytes b = { 0 }, old = { 0 };
	struct dataset *ds;

	put_shard("a.tar", 2, "first", 0644);
	put_shard("b.tar", 2, "other", 0644);
	ds = open_trusted("tar", in_root("*.tar"));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &old, &f.err), 0);
	put_shard("a.tar", 2, "FIRST", 0644);
	ck_assert_int_eq(dataset_is_current(ds, 0, READ_WAIT, &old), 0);
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), -ESTALE);
	ck_assert_ptr_nonnull(strstr(f.err.text, "/a.tar: changed since it was indexed"));
	ck_assert_int_eq(truncate(in_root("a.tar"), 600), 0);
	ck_assert_int_eq(dataset_read(ds, 1, READ_WAIT, &b, &f.err), -ESTALE);
	ck_assert_ptr_nonnull(strstr(f.err.text, "/a.tar: cut short since it was indexed"));
	assert_reads(ds, 2, "other");
	file_bytes_finish(&b);
	file_bytes_finish(&old);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_a_shard_that_is_removed_is_read_to_the_end)
{
	/* Proves that an open shard needs its name no more: jobs survive a clean-up by rename, as with open files. */
	struct dataset *ds;

	put_shard("a.tar", 2, "first", 0644);
	ds = open_trusted("tar", in_root("a.tar"));
	ck_assert_int_eq(unlink(in_root("a.tar")), 0);
	assert_reads(ds, 1, "first");
	dataset_unref(ds);
}
END_TEST

START_TEST(test_a_sample_of_an_open_shard_costs_no_open)
{
	/* Proves it with a process that may open nothing more: every sample of two shards is read, and is current. */
	struct rlimit limit;
	struct dataset *ds;
	int lowest;

	put_shard("a.tar", 20, "first", 0644);
	put_shard("b.tar", 20, "second one", 0644);
	ds = open_trusted("tar", in_root("*.tar"));
	assert_reads(ds, 0, "first");
	assert_reads(ds, 20, "second one");
	lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(lowest, 0);
	ck_assert_int_eq(close(lowest), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = (rlim_t)lowest;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(open("/dev/null", O_RDONLY | O_CLOEXEC), -1);
	ck_assert_int_eq(errno, EMFILE);
	for (uint64_t i = 0; i < 40; i++) {
		assert_reads(ds, (i * 37) % 40, (i * 37) % 40 < 20 ? "first" : "second one");
	}
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_a_peer_reads_what_it_may)
{
	/* Proves the rules of access for shards: mode bits, links, folders below, a way out of the root, no descriptor. */
	struct dataset *ds = NULL;
	int fd;

	make_dir("d", 0755);
	make_dir("d/closed", 0700);
	put_shard("d/a.tar", 1, "first", 0644);
	put_shard("d/b.tar", 1, "first", 0600);
	put_shard("d/closed/c.tar", 1, "first", 0644);
	put_shard("out.tar", 1, "first", 0644);
	ck_assert_int_eq(symlink("a.tar", in_root("d/link.tar")), 0);
	fd = open_dir("d");
	ck_assert_msg(open_as(&f.other, "tar", in_root("d//a.tar"), NULL, &fd, 1, &ds) == 0, "%s", f.err.text);
	assert_reads(ds, 0, "first");
	dataset_unref(ds);
	ck_assert_int_eq(open_as(&f.other, "tar", in_root("d//b.tar"), NULL, &fd, 1, &ds), -EACCES);
	ck_assert_ptr_nonnull(strstr(f.err.text, "/d/b.tar"));
	ck_assert_int_eq(open_as(&f.other, "tar", in_root("d//closed/c.tar"), NULL, &fd, 1, &ds), -EACCES);
	ck_assert_int_eq(open_as(&f.other, "tar", in_root("d//closed/*.tar"), NULL, &fd, 1, &ds), -EACCES);
	ck_assert_int_eq(open_as(&f.other, "tar", in_root("d//link.tar"), NULL, &fd, 1, &ds), -ELOOP);
	ck_assert_int_lt(open_as(&f.other, "tar", in_root("d//../out.tar"), NULL, &fd, 1, &ds), 0);
	ck_assert_int_lt(open_as(&f.other, "tar", in_root("d//{closed/,../out}.tar"), NULL, &fd, 1, &ds), 0);
	ck_assert_int_eq(open_as(&f.other, "tar", in_root("d/a.tar"), NULL, NULL, 0, &ds), -EACCES);
	close(fd);
}
END_TEST

static void note_total(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	(void)phase;
	(void)done;
	*(uint64_t *)arg = total;
}

START_TEST(test_progress_tells_nothing_of_other_files)
{
	/* Proves that the total is that of shards which the peer may read: it sees no size of a file outside the root. So
	 * many shards take long enough for a report, before the first of the others ends the opening. */
	enum { N_SHARDS = 12 * 12 * 12 * 12 };
	uint64_t total = 0;
	struct stat st;
	struct dataset *ds;
	char spec[300];
	int fd;

	make_dir("d", 0755);
	put_shard("d/a.tar", 1, "first", 0644);
	put_shard("out.tar", 9, "first", 0600);
	fd = open_dir("d");
	snprintf(spec, sizeof(spec), "tar:%s//{a,../out}%s.tar", in_root("d"),
		 "{,,,,,,,,,,,}{,,,,,,,,,,,}{,,,,,,,,,,,}{,,,,,,,,,,,}");
	ck_assert_int_lt(dataset_open(&(struct dataset_source){ .spec = spec,
								.fds = &fd,
								.n_fds = 1,
								.access = &f.other,
								.on_progress = note_total,
								.progress_arg = &total },
				      &ds, &f.err),
			 0);
	ck_assert_int_eq(stat(in_root("d/a.tar"), &st), 0);
	ck_assert_uint_le(total, (uint64_t)st.st_size * N_SHARDS);
	close(fd);
}
END_TEST

/* The path of the one index in the folder. */
static void find_kept(char *kept, size_t size)
{
	char command[200];
	FILE *p;

	snprintf(command, sizeof(command), "ls %s/packed-*.index", in_root("cache"));
	p = popen(command, "r");
	ck_assert_ptr_nonnull(fgets(kept, (int)size, p));
	pclose(p);
	kept[strcspn(kept, "\n")] = '\0';
}

START_TEST(test_the_index_is_kept_and_renewed_by_shard)
{
	/* Proves that the index is written once, taken again unchanged, and made again for a shard that was changed, came or
	 * went. */
	struct stat first, second;
	struct dataset *ds;
	char kept[400];

	make_dir("cache", 0700);
	put_shard("a.tar", 2, "first", 0644);
	put_shard("b.tar", 2, "second", 0644);
	settle();
	dataset_unref(open_kept(in_root("cache")));
	find_kept(kept, sizeof(kept));
	ck_assert_int_eq(stat(kept, &first), 0);

	ds = open_kept(in_root("cache"));
	assert_reads(ds, 3, "second");
	ck_assert_int_eq(dataset_label(ds, 3), 1);
	dataset_unref(ds);
	ck_assert_int_eq(stat(kept, &second), 0);
	ck_assert_uint_eq(first.st_ino, second.st_ino); /* not written again */

	put_shard("b.tar", 4, "changed", 0644);
	settle();
	ds = open_kept(in_root("cache"));
	ck_assert_uint_eq(dataset_n(ds), 6);
	assert_reads(ds, 1, "first");
	assert_reads(ds, 5, "changed");
	ck_assert_int_eq(dataset_label(ds, 5), 3);
	dataset_unref(ds);
	ck_assert_int_eq(stat(kept, &second), 0);
	ck_assert_uint_ne(first.st_ino, second.st_ino);

	ck_assert_int_eq(unlink(in_root("a.tar")), 0);
	put_shard("c.tar", 1, "new", 0644);
	settle();
	ds = open_kept(in_root("cache"));
	ck_assert_uint_eq(dataset_n(ds), 5);
	assert_reads(ds, 0, "changed");
	assert_reads(ds, 4, "new");
	dataset_unref(ds);
}
END_TEST

/* Opens the kept data set again; what it logs. */
static void open_and_log(char *text, size_t size)
{
	FILE *log = tmpfile();
	int old = dup(STDERR_FILENO);
	ssize_t n;

	ck_assert_int_ge(dup2(fileno(log), STDERR_FILENO), 0);
	log_set_level(LOG_LEVEL_INFO);
	dataset_unref(open_kept(in_root("cache")));
	dup2(old, STDERR_FILENO);
	close(old);
	n = pread(fileno(log), text, size - 1, 0);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	fclose(log);
}

START_TEST(test_a_kept_shard_without_an_end_mark_is_named_again)
{
	/* Proves that a later opening, which reads no header of the shard, warns as the first does. */
	char first[2048], second[2048];

	make_dir("cache", 0700);
	put_shard("a.tar", 2, "first", 0644);
	put_shard("b.tar", 2, "second", 0644);
	ck_assert_int_eq(truncate(in_root("b.tar"), 2 * 4 * BLOCK), 0); /* two members a sample, each of two blocks */
	settle();
	open_and_log(first, sizeof(first));
	open_and_log(second, sizeof(second));
	ck_assert_msg(strstr(first, "headers of 2 of 2 shards") && strstr(second, "headers of 0 of 2 shards"), "%s%s",
		      first, second);
	ck_assert_msg(strstr(first, "/b.tar has no end mark") && strstr(second, "/b.tar has no end mark"), "%s%s",
		      first, second);
	ck_assert(!strstr(second, "a.tar has no end mark"));
}
END_TEST

/* A shard of one sample with this label; NULL: without one. */
static void put_sample(const char *name, const char *label)
{
	static unsigned char shard[8 * BLOCK];

	memset(shard, 0, sizeof(shard));
	header(shard, "0.jpg", 1);
	shard[BLOCK] = 'x';
	if (label) {
		header(shard + 2 * (size_t)BLOCK, "0.cls", strlen(label));
		memcpy(shard + 3 * (size_t)BLOCK, label, strlen(label));
	}
	put_bytes(name, shard, sizeof(shard), 0644);
}

START_TEST(test_kept_shards_follow_one_that_has_no_sample)
{
	/* Proves that a shard which was indexed without a label is indexed again after one whose only sample has a label
	 * that is no number: its kept index has no such column. */
	struct dataset *ds = NULL;

	make_dir("cache", 0700);
	put_sample("a.tar", NULL);
	put_sample("b.tar", NULL);
	settle();
	dataset_unref(open_kept(in_root("cache")));
	put_sample("a.tar", "none");
	settle();
	ck_assert_int_eq(open_as(&f.trusted, "tar", in_root("*.tar"), in_root("cache"), NULL, 0, &ds), -EINVAL);
	ck_assert_ptr_nonnull(strstr(f.err.text, "every group of files lacks one of image ("));
}
END_TEST

static size_t add_u32(unsigned char *to, size_t at, unsigned value)
{
	for (unsigned i = 0; i < 4; i++) {
		to[at + i] = (unsigned char)(value >> 8 * i);
	}
	return at + 4;
}

/* An MDS shard of one sample: a picture of one byte, a text and an int64. */
static void put_mds(const char *name, const char *text)
{
	static const char config[] = "{\"column_names\":[\"img\",\"about\",\"n\"],"
				     "\"column_encodings\":[\"jpeg\",\"str\",\"int\"],"
				     "\"column_sizes\":[null,null,8]}";
	unsigned char shard[400];
	size_t at = add_u32(shard, 0, 1), first = 12 + strlen(config), n = strlen(text);

	at = add_u32(shard, at, (unsigned)first);
	at = add_u32(shard, at, (unsigned)(first + 8 + 1 + n + 8));
	memcpy(shard + at, config, strlen(config));
	at = add_u32(shard, first, 1);
	at = add_u32(shard, at, (unsigned)n);
	shard[at++] = 'x';
	memcpy(shard + at, text, n);
	memset(shard + at + n, 0, 8);
	shard[at + n] = 7;
	put_bytes(name, shard, at + n + 8, 0644);
}

static void assert_mds(const char *last)
{
	struct field_value v;
	struct dataset *ds = NULL;
	char spec[300];

	snprintf(spec, sizeof(spec), "%s#image=img,about=about,n=n", in_root("*.mds"));
	ck_assert_msg(open_as(&f.trusted, "mds", spec, in_root("cache"), NULL, 0, &ds) == 0, "%s", f.err.text);
	ck_assert(dataset_field(ds, 1)->text);
	ck_assert_int_eq(dataset_field(ds, 2)->dtype, DTYPE_INT64);
	dataset_value(ds, 0, 2, &v);
	ck_assert_int_eq(*(const int64_t *)v.bytes, 7);
	dataset_value(ds, 1, 1, &v);
	ck_assert_uint_eq(v.n_bytes, strlen(last));
	ck_assert_mem_eq(v.bytes, last, v.n_bytes);
	dataset_unref(ds);
}

START_TEST(test_kept_values_have_the_kinds_of_their_columns)
{
	/* Proves that values of an MDS data set have the same types from the kept index as from the shards, also when a
	 * further shard has changed. */
	make_dir("cache", 0700);
	put_mds("a.mds", "first");
	put_mds("b.mds", "second");
	settle();
	assert_mds("second");
	assert_mds("second");
	put_mds("b.mds", "changed");
	settle();
	assert_mds("changed");
}
END_TEST

static void spoil(const char *kept)
{
	int fd = open(kept, O_RDWR);
	char byte;

	ck_assert_int_eq(pread(fd, &byte, 1, 200), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, 200), 1);
	close(fd);
}

START_TEST(test_a_damaged_kept_index_is_made_anew)
{
	/* Proves that damage costs another look at the shards, and nothing else. */
	struct dataset *ds;
	char kept[400];

	make_dir("cache", 0700);
	put_shard("a.tar", 2, "first", 0644);
	settle();
	dataset_unref(open_kept(in_root("cache")));
	find_kept(kept, sizeof(kept));
	spoil(kept);
	ds = open_kept(in_root("cache"));
	ck_assert_uint_eq(dataset_n(ds), 2);
	assert_reads(ds, 1, "first");
	dataset_unref(ds);
}
END_TEST

START_TEST(test_another_users_kept_index_is_not_believed)
{
	/* Proves that an index in a folder to which others may write is read only if it is the daemon's own: it names the
	 * labels, and which bytes are which sample. */
	char kept[400];
	struct stat own, made;

	if (geteuid() != 0) {
		puts("skipped: only root can give a file to another user");
		return;
	}
	make_dir("cache", 0777);
	put_shard("a.tar", 2, "first", 0644);
	settle();
	dataset_unref(open_kept(in_root("cache")));
	find_kept(kept, sizeof(kept));
	ck_assert_int_eq(chown(kept, 65534, 65534), 0);
	ck_assert_int_eq(stat(kept, &own), 0);
	dataset_unref(open_kept(in_root("cache")));
	ck_assert_int_eq(stat(kept, &made), 0);
	ck_assert_uint_eq(made.st_uid, 0);
	ck_assert_uint_ne(made.st_ino, own.st_ino);
}
END_TEST

START_TEST(test_identity_is_the_content)
{
	/* Proves that a copy elsewhere has the same content, and that another index has another content and caches. */
	struct dataset *here, *there, *after;

	make_dir("x", 0755);
	make_dir("y", 0755);
	put_shard("x/a.tar", 2, "first", 0644);
	put_shard("y/a.tar", 2, "first", 0644);
	here = open_trusted("tar", in_root("x"));
	there = open_trusted("tar", in_root("y"));
	ck_assert_uint_eq(dataset_content_id(here), dataset_content_id(there));
	ck_assert_uint_ne(dataset_cache_id(here), dataset_cache_id(there));
	put_shard("x/a.tar", 3, "first", 0644);
	after = open_trusted("tar", in_root("x"));
	ck_assert_uint_ne(dataset_content_id(here), dataset_content_id(after));
	ck_assert_uint_ne(dataset_cache_id(here), dataset_cache_id(after));
	dataset_unref(here);
	dataset_unref(there);
	dataset_unref(after);
}
END_TEST

static unsigned n_json_blocks;

static void *count_json(size_t n)
{
	n_json_blocks++;
	return malloc(n);
}

/* How many blocks of JSON it takes to open a.tar with so many fields of each document. */
static unsigned json_blocks_of(unsigned n_fields)
{
	char spec[1000], *at = spec;

	at += snprintf(at, 300, "%s#", in_root("a.tar"));
	for (unsigned i = 0; i < n_fields; i++)
		at += snprintf(at, 40, "%sf%u=json:k%u", i ? "," : "", i, i);
	n_json_blocks = 0;
	dataset_unref(open_trusted("tar", spec));
	return n_json_blocks;
}

START_TEST(test_a_document_is_parsed_once_for_all_of_its_fields)
{
	/* Proves that a sample with many fields of one document costs about as much as one with a single field. */
	enum { N = 30 };
	static unsigned char shard[8 << 10];
	char text[2000], *end = text;
	size_t at;
	unsigned one;

	*end++ = '{';
	for (unsigned i = 0; i < N; i++)
		end += sprintf(end, "%s\"k%u\": [%u, 1]", i ? ", " : "", i, i);
	*end++ = '}';
	at = header(shard, "0.json", (size_t)(end - text));
	memcpy(shard + at, text, (size_t)(end - text));
	put_bytes("a.tar", shard, sizeof(shard), 0644);
	json_set_alloc_funcs(count_json, free);
	one = json_blocks_of(1);
	ck_assert_uint_ge(one, N);
	ck_assert_uint_lt(json_blocks_of(N), 5 * one);
}
END_TEST

static int grant(void *arg, uint64_t bytes)
{
	uint64_t *left = arg;

	if (bytes > *left) {
		return -EDQUOT;
	}
	*left -= bytes;
	return 0;
}

START_TEST(test_memory_of_the_index_is_asked_for)
{
	/* Proves that an index larger than its user may have is refused, and that what is granted covers it. */
	uint64_t left = 1 << 20;
	struct meter meter = { .more = grant, .arg = &left };
	struct dataset_source source = { .access = &f.trusted, .meter = &meter };
	char spec[300];
	struct dataset *ds = NULL;

	put_shard("a.tar", 20, "first", 0644);
	snprintf(spec, sizeof(spec), "tar:%s", in_root("a.tar"));
	source.spec = spec;
	ck_assert_msg(dataset_open(&source, &ds, &f.err) == 0, "%s", f.err.text);
	ck_assert_uint_ge(meter.used, dataset_memory_bytes(ds) - 4096);
	dataset_unref(ds);
	left = 8 << 10;
	meter = (struct meter){ .more = grant, .arg = &left };
	ck_assert_int_eq(dataset_open(&source, &ds, &f.err), -EDQUOT);
	ck_assert_int_eq(f.err.code, DATASET_E_LIMIT);
}
END_TEST

START_TEST(test_a_kept_index_is_read_into_memory_that_was_granted)
{
	/* Proves that a user who has no memory left gets none for kept indexes either: however little is granted, the file
	 * is read (which renews its time) only if its bytes are among what is. */
	static const struct timespec old[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
	char spec[300], kept[400], cache[300];
	struct dataset_source source = { .spec = spec, .access = &f.trusted, .cache_dir = cache };
	struct stat st;
	bool read = false;

	make_dir("cache", 0700);
	snprintf(cache, sizeof(cache), "%s", in_root("cache"));
	for (unsigned i = 0; i < 50; i++) {
		snprintf(spec, sizeof(spec), "%u.tar", i);
		put_shard(spec, 20, "text", 0644);
	}
	settle();
	dataset_unref(open_kept(cache));
	find_kept(kept, sizeof(kept));
	snprintf(spec, sizeof(spec), "tar:%s", in_root("*.tar"));
	for (uint64_t most = 4 << 10; !read && most < 4 << 20; most += 4 << 10) {
		uint64_t left = most;
		struct meter meter = { .more = grant, .arg = &left };
		struct dataset *ds = NULL;

		source.meter = &meter;
		ck_assert_int_eq(utimensat(AT_FDCWD, kept, old, 0), 0);
		(void)dataset_open(&source, &ds, &f.err);
		dataset_unref(ds);
		ck_assert_int_eq(stat(kept, &st), 0);
		read = st.st_mtim.tv_sec != old[1].tv_sec;
		ck_assert(!read || meter.granted >= (uint64_t)st.st_size);
	}
	ck_assert(read);
}
END_TEST

START_TEST(test_an_opening_that_is_stopped_reads_no_shard)
{
	/* A daemon that stops waits for its threads, and an index of many shards takes minutes. */
	atomic_bool stop = true;
	struct dataset_source source = { .access = &f.trusted, .stop = &stop };
	char spec[300];
	struct dataset *ds = NULL;

	put_shard("a.tar", 3, "first", 0644);
	put_bytes("b.tar", "this is no header of a tar archive", 34, 0644);
	snprintf(spec, sizeof(spec), "tar:%s", in_root("{a,b}.tar"));
	source.spec = spec;
	ck_assert_int_eq(dataset_open(&source, &ds, &f.err), -ECANCELED);
	atomic_store(&stop, false);
	ck_assert_int_eq(dataset_open(&source, &ds, &f.err), -EINVAL);
	ck_assert_int_eq(f.err.code, DATASET_E_BAD_DATA);
}
END_TEST

static atomic_bool amid;

static int grant_and_stop(void *arg, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
	atomic_store(&amid, true);
	return 0;
}

static int open_stopped(const char *kind, const char *name, struct meter *meter)
{
	char spec[300];
	struct dataset *ds = NULL;
	struct dataset_source source = { .spec = spec, .access = &f.trusted, .meter = meter, .stop = &amid };
	int r;

	snprintf(spec, sizeof(spec), "%s:%s", kind, in_root(name));
	r = dataset_open(&source, &ds, &f.err);
	dataset_unref(ds);
	return r;
}

START_TEST(test_an_opening_that_is_stopped_ends_amid_a_file)
{
	/* Proves that one file is not read to its end: a shard, compressed numbers, an index of documents; nor is a folder
	 * without pictures listed. */
	static const unsigned char numbers[] = { 0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3, 4 };
	static const unsigned char index[64] = "MMIDIDX\0\0\1\0\0\0\0\0\0\0\4";
	struct meter meter = { .more = grant_and_stop };
	gzFile compressed;

	put_shard("a.tar", 31, "first", 0644);
	ck_assert_int_eq(open_stopped("tar", "a.tar", &meter), -ECANCELED);
	ck_assert(atomic_load(&amid)); /* set while it grew */
	compressed = gzopen(in_root("a.idx.gz"), "w");
	ck_assert_int_eq(gzwrite(compressed, numbers, sizeof(numbers)), sizeof(numbers));
	ck_assert_int_eq(gzclose(compressed), Z_OK);
	ck_assert_int_eq(open_stopped("idx", "a.idx.gz", NULL), -ECANCELED);
	put_bytes("t.idx", index, sizeof(index), 0644);
	put("t.bin", "1234");
	ck_assert_int_eq(open_stopped("tokens", "t.idx,length=1", NULL), -ECANCELED);
	make_dir("folder", 0755);
	make_dir("folder/class", 0755);
	ck_assert_int_eq(open_stopped("imagefolder", "folder", NULL), -ECANCELED);
}
END_TEST

START_TEST(test_the_memory_of_a_description_is_asked_for)
{
	/* Proves that a description of MDS, which takes a hundred times its bytes when it is parsed, is refused to a peer
	 * that has not as much, before it is parsed. */
	static unsigned char shard[200 << 10];
	uint64_t left = 4 << 20;
	struct meter meter = { .more = grant, .arg = &left };
	struct dataset_source source = { .access = &f.trusted, .meter = &meter };
	struct dataset *ds = NULL;
	char spec[300];

	memset(shard, ' ', sizeof(shard));
	add_u32(shard, 0, 1);
	add_u32(shard, 4, sizeof(shard));
	add_u32(shard, 8, sizeof(shard));
	put_bytes("a.mds", shard, sizeof(shard), 0644);
	snprintf(spec, sizeof(spec), "mds:%s", in_root("a.mds"));
	source.spec = spec;
	ck_assert_int_eq(dataset_open(&source, &ds, &f.err), -EDQUOT);
	ck_assert_int_eq(f.err.code, DATASET_E_LIMIT);
}
END_TEST

START_TEST(test_patterns_that_cost_too_much_are_refused)
{
	/* Proves that braces do not list a folder any number of times, and that no pattern is cut. */
	struct dataset_source source = { .access = &f.trusted };
	struct dataset *ds = NULL;
	char pattern[400], spec[5000];

	put_shard("a.tar", 1, "first", 0644);
	ck_assert_int_eq(open_as(&f.trusted, "tar", in_root("{0..1030}*.tar"), NULL, NULL, 0, &ds), -ENOENT);
	snprintf(pattern, sizeof(pattern), "%s/*{%s}{%s}.tar", f.root, ",,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,",
		 ",,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,");
	ck_assert_int_eq(open_as(&f.trusted, "tar", pattern, NULL, NULL, 0, &ds), -EFBIG);
	ck_assert_ptr_nonnull(strstr(f.err.text, "more than 1024 paths with a wildcard"));
	memset(spec, '/', sizeof(spec));
	spec[snprintf(spec, sizeof(spec), "tar:%s/a.tar::", f.root)] = '/';
	strcpy(spec + 4400, "b.tar");
	source.spec = spec;
	ck_assert_int_eq(dataset_open(&source, &ds, &f.err), -ENAMETOOLONG);
}
END_TEST

SUITE(packed)
{
	TCase *t = tcase_create("packed");
	Suite *s = suite_create("packed");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, test_samples_are_read_at_their_places);
	tcase_add_test(t, test_a_shard_that_changes_is_named);
	tcase_add_test(t, test_a_shard_that_is_removed_is_read_to_the_end);
	tcase_add_test(t, test_a_sample_of_an_open_shard_costs_no_open);
	tcase_add_test(t, test_a_peer_reads_what_it_may);
	tcase_add_test(t, test_progress_tells_nothing_of_other_files);
	tcase_add_test(t, test_the_index_is_kept_and_renewed_by_shard);
	tcase_add_test(t, test_kept_shards_follow_one_that_has_no_sample);
	tcase_add_test(t, test_a_kept_shard_without_an_end_mark_is_named_again);
	tcase_add_test(t, test_kept_values_have_the_kinds_of_their_columns);
	tcase_add_test(t, test_a_damaged_kept_index_is_made_anew);
	tcase_add_test(t, test_another_users_kept_index_is_not_believed);
	tcase_add_test(t, test_identity_is_the_content);
	tcase_add_test(t, test_a_document_is_parsed_once_for_all_of_its_fields);
	tcase_add_test(t, test_memory_of_the_index_is_asked_for);
	tcase_add_test(t, test_a_kept_index_is_read_into_memory_that_was_granted);
	tcase_add_test(t, test_an_opening_that_is_stopped_ends_amid_a_file);
	tcase_add_test(t, test_the_memory_of_a_description_is_asked_for);
	tcase_add_test(t, test_an_opening_that_is_stopped_reads_no_shard);
	tcase_add_test(t, test_patterns_that_cost_too_much_are_refused);
	suite_add_tcase(s, t);
	return s;
}
