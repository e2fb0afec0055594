/* libbatchd before the first batch: finding a daemon, opening, refusing invalid offers of a daemon; and the information
 * that it gives about itself. */
#include <sys/wait.h>

#include "fake/daemon/fake.h"
#include "support/suite.h"

/* ---- opening ---- */

static void report_progress(struct fake *f)
{
	Batchd__Wire__Progress p = BATCHD__WIRE__PROGRESS__INIT;

	greet(f);
	hear_open(f);
	for (p.done = 1; p.done < 4; p.done++) {
		p.phase = (char *)"index";
		p.total = 3;
		SAY(f, PROGRESS, &p);
	}
	say_opened(f);
	hear(f);
}

static int on_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	uint64_t *expected = arg;

	if (!*phase)
		return 0; /* on a busy machine a second has passed */
	ck_assert_str_eq(phase, "index");
	if (done == *expected)
		return 0; /* a signal came: reported again */
	ck_assert_uint_eq(done, ++*expected);
	ck_assert_uint_eq(total, 3);
	return *expected == 103;
}

START_TEST(test_progress_is_told_and_can_cancel)
{
	/* Once to the end, once cancelled. */
	uint64_t n = 0;

	options.on_progress = on_progress;
	options.progress_arg = &n;
	play(report_progress);
	open_loader();
	ck_assert_uint_eq(n, 3);
	finish();
}
END_TEST

static int cancel(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	(void)arg, (void)phase, (void)done, (void)total;
	return 1;
}

START_TEST(test_cancelled_open_leaves_nothing_behind)
{
	/* No loader, no descriptor. */
	unsigned n_fds;

	play(report_progress);
	n_fds = count_fds();
	options.on_progress = cancel;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CANCELLED);
	ck_assert_ptr_null(loader);
	pthread_join(d->thread, NULL);
	ck_assert_uint_eq(count_fds(), n_fds);
}
END_TEST

static void refuse(struct fake *f)
{
	greet(f);
	hear_open(f);
	say_error(f, BATCHD__WIRE__ERROR_CODE__MISMATCH, "batch_size", "job test uses 32");
}

START_TEST(test_refusal_names_the_field)
{
	/* The job exists with another specification. */
	play(refuse);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_MISMATCH);
	ck_assert_str_eq(err, "batch_size: job test uses 32");
	pthread_join(d->thread, NULL);
}
END_TEST

/* Each case spoils the daemon's offer in another way. */
static void spoil(int i)
{
	char *mapping;

	switch (i) {
	case 0:
		d->opened.n_slots = 0;
		break;
	case 1:
		d->opened.window = N_SLOTS + 1;
		break;
	case 2:
		d->opened.slot_bytes += 8;
		break;
	case 3:
		d->opened.slab_bytes /= 2;
		break;
	case 4:
		d->field[1].name = (char *)"data";
		break;
	case 5:
		d->field[1].offset = d->slot_bytes - 8;
		break;
	case 6:
		d->opened.indices_offset = UINT64_MAX - 7;
		break;
	case 7:
		d->shape[0] = d->shape[1] = UINT32_MAX;
		break;
	case 8:
		d->opened.indices_offset -= 4;
		break;
	case 9:
		d->opened.world_size = 0;
		break;
	case 10: /* a file that ends in its first slot */
		close(d->slab_fd);
		d->slab_fd =
			sealed_memfd(d->slot_bytes / 2, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE, &mapping);
		munmap(mapping, d->slot_bytes / 2);
		break;
	case 11:
		d->opened.ring = 0;
		break;
	case 12:
		d->opened.ring = RING_LAYOUT + 1;
		break;
	default:
		close(d->slab_fd);
		d->slab_fd = sealed_memfd(N_SLOTS * d->slot_bytes, i == 13 ? F_SEAL_SHRINK | F_SEAL_GROW : F_SEAL_GROW,
					  &mapping);
		munmap(mapping, N_SLOTS * d->slot_bytes);
	}
}

START_TEST(test_impossible_offer_is_refused_before_it_is_used)
{
	/* Sizes that overflow, slots beyond the memory, memory that could shrink or change in use. */
	unsigned n_fds;

	spoil(_i);
	play(welcome);
	n_fds = count_fds();
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_PROTOCOL);
	pthread_join(d->thread, NULL);
	ck_assert_uint_le(count_fds(), n_fds);
}
END_TEST

static void lend_beyond(struct fake *f)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;

	welcome(f);
	EXPECT(f, SEEK);
	b.seek = 1;
	b.slot = (unsigned)f->rank == 1 ? N_SLOTS : 0;
	b.n_rows = (unsigned)f->rank == 2 ? BATCH + 1 : BATCH;
	send_batch(f, &b);
	hear(f);
}

START_TEST(test_batch_beyond_the_slab_is_refused)
{
	/* A slot that does not exist, more rows than a slot holds. */
	options.world_size = d->opened.world_size = 3;
	options.rank = _i;
	play(lend_beyond);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
	finish();
}
END_TEST

static int growing_fd; /* for writing, of a slab that ends before its last slot */

static void make_growing_slab(void)
{
	char path[64];

	growing_fd = memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(growing_fd, (off_t)((N_SLOTS - 1) * d->slot_bytes)), 0);
	munmap(d->slab, N_SLOTS * d->slot_bytes);
	close(d->slab_fd);
	d->slab = mmap(NULL, N_SLOTS * d->slot_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, growing_fd, 0);
	ck_assert_int_eq(fcntl(growing_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", growing_fd);
	d->slab_fd = open(path, O_RDONLY | O_CLOEXEC);
}

/* Lends the last slot, to rank 1 after its memory is made. */
static void lend_behind_the_end(struct fake *f)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;

	welcome(f);
	EXPECT(f, SEEK);
	b.seek = 1;
	b.slot = N_SLOTS - 1;
	b.n_rows = BATCH;
	if (f->rank == 1)
		ck_assert_int_eq(ftruncate(growing_fd, (off_t)(N_SLOTS * d->slot_bytes)), 0);
	send_batch(f, &b);
	hear(f);
}

START_TEST(test_a_slot_is_lent_once_its_memory_is_there)
{
	/* While a slab can grow, it may end before its last slot, which is refused until then, not read. */
	unsigned n_fds;

	make_growing_slab();
	d->opened.window = N_SLOTS - 1;
	n_fds = count_fds();
	options.world_size = d->opened.world_size = 2;
	options.rank = _i;
	play(lend_behind_the_end);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	if (_i == 0) {
		ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
		ck_assert_ptr_nonnull(strstr(batchd_error(loader), "lends slot"));
	} else {
		ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), 0);
		d->slab[(N_SLOTS - 1) * d->slot_bytes] = 'g';
		ck_assert_int_eq(*(const char *)batch.data, 'g');
		ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), 0);
	}
	finish();
	ck_assert_uint_le(count_fds(), n_fds);
	close(growing_fd);
}
END_TEST

static void send_batch_as_packet(struct fake *f)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;

	welcome(f);
	EXPECT(f, SEEK);
	b.seek = 1;
	b.n_rows = BATCH;
	SAY(f, BATCH, &b);
	hear(f);
}

START_TEST(test_batch_as_a_packet_is_refused)
{
	/* Batches come through the ring and in no other way. */
	play(send_batch_as_packet);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "sent Batch where only"));
	finish();
}
END_TEST

START_TEST(test_no_daemon_is_said_with_what_was_tried)
{
	/* A socket file without a daemon, and no socket file. */
	close(d->listener);
	d->listener = -1;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	ck_assert_ptr_nonnull(strstr(err, d->path));
	unlink(d->path);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	options.socket = NULL;
	setenv("BATCHD_SOCKET", "/nowhere/at/all", 1);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	ck_assert_ptr_nonnull(strstr(err, "/nowhere/at/all"));
}
END_TEST

START_TEST(test_wrong_options_are_named)
{
	/* Refused without a connection to any daemon. */
	const struct {
		const char *word;
		int32_t rank;
		uint32_t world_size, batch_size;
		int own;
		enum batchd_mode mode;
	} cases[] = {
		{ "batch_size", 0, 1, 0, 0, BATCHD_SHARD }, { "world_size", 0, 0, 1, 0, BATCHD_SHARD },
		{ "rank", 2, 2, 1, 0, BATCHD_SHARD },       { "rank", -1, 2, 1, 0, BATCHD_SHARD },
		{ "share", 0, 1, 1, 1, BATCHD_SHARE },
	};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		options.rank = cases[i].rank;
		options.world_size = cases[i].world_size;
		options.batch_size = cases[i].batch_size;
		options.own_batches = cases[i].own;
		options.mode = cases[i].mode;
		ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_INVALID);
		ck_assert_msg(strstr(err, cases[i].word) != NULL, "%s", err);
	}
}
END_TEST

static void open_file(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof path, "%s/%s", d->dir, name);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void remove_file(const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", d->dir, name);
	unlink(path);
}

static void check_fds(struct fake *f)
{
	greet(f);
	hear_open(f);
	for (unsigned i = 0; i < f->n_fds; i++) {
		char link[64], target[128] = "",
			       *want = i == 1 && strncmp(f->dataset, "files:", 6) == 0 ? f->dir : NULL;

		snprintf(link, sizeof link, "/proc/self/fd/%d", f->fds[i]);
		ck_assert_int_gt(readlink(link, target, sizeof target - 1), 0);
		ck_assert_int_eq(fcntl(f->fds[i], F_GETFL) & O_ACCMODE, O_RDONLY);
		if (want)
			ck_assert_str_eq(target, want);
		else
			ck_assert_msg(strstr(f->dataset, target) != NULL, "%s is not in %s", target, f->dataset);
	}
	f->rank = (int32_t)f->n_fds;
	say_opened(f);
	hear(f);
}

START_TEST(test_paths_become_absolute_and_come_with_their_fds)
{
	/* Relative to the current directory or the home directory; the daemon gets one descriptor of each file or
	 * folder that it may read. */
	static const struct {
		const char *given, *sent;
		int n_fds;
	} cases[] = {
		{ "imagefolder:.", "imagefolder:%s", 1 },
		{ "imagefolder:../%s", "imagefolder:%s", 1 },
		{ "files:list", "files:%s/list", 2 },
		{ "npy:x", "npy:%s/x", 1 },
		{ "npy:./x,~/list", "npy:%s/x,%s/list", 2 },
		{ "random:length=3", "random:length=3", 0 },
		{ "train", "train", 0 },
	};

	open_file("list");
	open_file("x");
	ck_assert_int_eq(chdir(d->dir), 0);
	setenv("HOME", d->dir, 1);
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		char given[128], sent[256];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(given, sizeof given, cases[i].given, strrchr(d->dir, '/') + 1);
		snprintf(sent, sizeof sent, cases[i].sent, d->dir, d->dir);
#pragma GCC diagnostic pop
		options.dataset = given;
		play(check_fds);
		open_loader();
		finish();
		ck_assert_str_eq(d->dataset, sent);
		ck_assert_int_eq(d->rank, cases[i].n_fds);
	}
	remove_file("list");
	remove_file("x");
}
END_TEST

START_TEST(test_missing_path_is_named_before_any_daemon_is_asked)
{
	/* No daemon listens here. */
	static const struct {
		const char *dataset, *word;
		int code;
	} cases[] = {
		{ "imagefolder:/no/such/dir", "/no/such/dir: No such file", BATCHD_E_NOT_FOUND },
		{ "imagefolder:/no/such/dir/", "of this path only / exists", BATCHD_E_NOT_FOUND },
		{ "imagefolder:/etc/no/such", "of this path only /etc exists", BATCHD_E_NOT_FOUND },
		{ "imagefolder:/etc/none", "/etc/none: No such file or directory", BATCHD_E_NOT_FOUND },
		{ "files:gone", "gone", BATCHD_E_NOT_FOUND },
		{ "npy:/dev/null", "regular", BATCHD_E_INVALID },
		{ "npy:", "empty", BATCHD_E_NOT_FOUND },
		{ "imagefolder:/etc/passwd", "not a directory; imagefolder: reads a folder", BATCHD_E_INVALID },
		{ "/etc", "imagefolder:/etc", BATCHD_E_INVALID },
		{ "/no/such/dir", "No such file or directory", BATCHD_E_NOT_FOUND },
		{ "/etc/passwd", "batchd.serve", BATCHD_E_INVALID },
		{ "s3://bucket/x", "nothing is read from a network", BATCHD_E_INVALID },
		{ "imagefoldr:/etc", "did you mean 'imagefolder:'", BATCHD_E_INVALID },
		{ "parquet:/x", "datasets.Dataset.from_parquet", BATCHD_E_INVALID },
		{ "tfrecord:x", "\"serve:NAME\"", BATCHD_E_INVALID },
		{ "wds:x.tar", "did you mean 'tar:'", BATCHD_E_INVALID },
		{ "imagefolders:/etc", "reads no 'imagefolders:'; did you mean 'imagefolder:'", BATCHD_E_INVALID },
		{ "Image_Folder:/etc", "did you mean 'imagefolder:'", BATCHD_E_INVALID },
		{ "file:/etc/passwd", "did you mean 'files:'", BATCHD_E_INVALID },
		{ "a\nb", "printable", BATCHD_E_INVALID },
		{ "", "no data set is named", BATCHD_E_INVALID },
	};

	options.socket = "/nowhere/at/all";
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		options.dataset = cases[i].dataset;
		ck_assert_msg(batchd_open(&options, &loader, err, sizeof err) == cases[i].code, "%s: %s",
			      cases[i].dataset, err);
		ck_assert_msg(strstr(err, cases[i].word) != NULL, "%s", err);
	}
}
END_TEST

START_TEST(test_folder_that_may_not_be_read_or_entered_is_named)
{
	/* A user without rights is told which folder is in the way: the data set's own, or one above it. */
	char closed[96], text[128], words[160];

	snprintf(closed, sizeof closed, "%s/closed", d->dir);
	ck_assert_int_eq(mkdir(closed, 0700), 0);
	ck_assert_int_eq(chmod(d->dir, 0755), 0);
	ck_assert_int_eq(chmod(closed, 0), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	options.socket = "/nowhere/at/all";
	options.dataset = text;
	snprintf(text, sizeof text, "imagefolder:%s", closed);
	snprintf(words, sizeof words, "%s: Permission denied; this user may not read it", closed);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_ACCESS);
	ck_assert_msg(strstr(err, words) && strstr(err, "datasets:"), "%s", err);
	snprintf(text, sizeof text, "imagefolder:%s/below/it", closed);
	snprintf(words, sizeof words, "Permission denied; this user may not enter %s", closed);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_ACCESS);
	ck_assert_msg(strstr(err, words) != NULL, "%s", err);
	ck_assert_int_eq(seteuid(getuid()), 0);
	ck_assert_int_eq(rmdir(closed), 0);
}
END_TEST

/* The job's name that opening with these options leads to; the loader stays open in *l. */
static void job_of(char name[WIRE_MAX_JOB + 1], struct batchd_loader **l)
{
	play(welcome);
	ck_assert_int_eq(batchd_open(&options, l, err, sizeof err), 0);
	pthread_join(d->thread, NULL);
	strcpy(name, d->job);
}

START_TEST(test_ranks_of_one_run_find_the_same_job)
{
	/* The ranks of a job differ in their rank only; another run, another specification, or a second loader with the
	 * same options in one process has a name of its own. */
	char first[129], other_rank[129], alike[129], again[129], other_run[129], other_spec[129];
	struct batchd_loader *l[2];

	options.job = NULL;
	options.world_size = d->opened.world_size = 2;
	options.rank = 0;
	setenv("MASTER_PORT", "29500", 1);
	job_of(first, &l[0]);
	job_of(alike, &l[1]);
	batchd_close(l[0]);
	batchd_close(l[1]);
	options.rank = 1;
	job_of(other_rank, &l[0]);
	batchd_close(l[0]);
	job_of(again, &l[0]);
	batchd_close(l[0]);
	options.seed = 1;
	job_of(other_spec, &l[0]);
	batchd_close(l[0]);
	options.seed = 0;
	setenv("MASTER_PORT", "29501", 1);
	job_of(other_run, &l[0]);
	batchd_close(l[0]);
	ck_assert_str_eq(first, other_rank);
	ck_assert_str_eq(first, again);
	ck_assert_str_ne(first, alike);
	ck_assert_str_ne(first, other_spec);
	ck_assert_str_ne(first, other_run);
}
END_TEST

START_TEST(test_lone_trainers_do_not_meet_and_sharing_ones_do)
{
	/* Two loaders of one process without a job's name. */
	char a[129], b[129];
	struct batchd_loader *l[2];

	options.job = NULL;
	job_of(a, &l[0]);
	job_of(b, &l[1]);
	batchd_close(l[0]);
	batchd_close(l[1]);
	ck_assert_str_ne(a, b);
	options.mode = BATCHD_SHARE;
	job_of(a, &l[0]);
	job_of(b, &l[1]);
	batchd_close(l[0]);
	batchd_close(l[1]);
	ck_assert_str_eq(a, b);
}
END_TEST

START_TEST(test_daemon_that_cannot_start_is_quoted)
{
	/* Starts the daemon on demand, as an ordinary user with a runtime directory of their own: the program's last
	 * words are in the error, and no process is left behind. */
	char program[128], runtime[128];
	FILE *script;

	snprintf(program, sizeof program, "%s/batchd", d->dir);
	snprintf(runtime, sizeof runtime, "%s/run", d->dir);
	script = fopen(program, "w");
	fputs("#!/bin/sh\necho \"no such luck: $*\" >&2\nexit 1\n", script);
	fclose(script);
	chmod(program, 0755);
	chmod(d->dir, 0755);
	mkdir(runtime, 0700);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(runtime, 65534, 65534), 0);
		ck_assert_int_eq(seteuid(65534), 0);
	}
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	setenv("BATCHD_DAEMON", program, 1);
	unsetenv("BATCHD_SOCKET");
	options.socket = NULL;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	ck_assert_msg(strstr(err, "no such luck: --socket") != NULL, "%s", err);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	options.autostart = 0;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	ck_assert_ptr_null(strstr(err, "no such luck"));
	ck_assert_int_eq(seteuid(getuid()), 0);
	snprintf(runtime, sizeof runtime, "rm -rf %s", d->dir);
	ck_assert_int_eq(system(runtime), 0);
}
END_TEST

/* ---- questions ---- */

static void tell_classes(struct fake *f)
{
	static char *names[] = { (char *)"cat",
				 (char *)"d\xff"
					 "g",
				 (char *)"eel" };
	Batchd__Wire__Classes c = BATCHD__WIRE__CLASSES__INIT;

	welcome(f);
	EXPECT(f, SEEK);
	lend(f, 1, 0, 0, 0, BATCH, false);
	ck_assert_uint_eq(EXPECT(f, CLASSES)->classes->first, 0);
	lend(f, 1, 0, 1, 1, BATCH, false);
	c.n_name = 2;
	c.name = names;
	c.total = 3;
	SAY(f, CLASSES, &c);
	ck_assert_uint_eq(EXPECT(f, CLASSES)->classes->first, 2);
	c.first = 2;
	c.n_name = 1;
	c.name = names + 2;
	SAY(f, CLASSES, &c);
	lend(f, 1, 0, 2, 2, 2, true);
	expect_releases(f, N_BATCHES);
	EXPECT(f, CLOSE);
}

START_TEST(test_classes_come_between_batches_that_wait_their_turn)
{
	/* Names in two packets, with any bytes in them, while batches arrive: no batch is lost or out of order. */
	play(tell_classes);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_str_eq(batchd_class(loader, 2), "eel");
	ck_assert_str_eq(batchd_class(loader, 0), "cat");
	ck_assert_str_eq(batchd_class(loader, 1), "d\xff"
						  "g");
	ck_assert_ptr_null(batchd_class(loader, 3));
	for (unsigned step = 0; step < N_BATCHES; step++) {
		next_is(0, step);
		release();
	}
	finish();
}
END_TEST

static void tell_status(struct fake *f)
{
	Batchd__Wire__Status s = BATCHD__WIRE__STATUS__INIT;

	greet(f);
	EXPECT(f, STATUS);
	s.json = (ProtobufCBinaryData){ 6, (uint8_t *)"{\"a\": " };
	s.more = 1;
	SAY(f, STATUS, &s);
	s.json = (ProtobufCBinaryData){ 2, (uint8_t *)"1}" };
	s.more = 0;
	SAY(f, STATUS, &s);
}

START_TEST(test_status_is_put_together_from_its_parts)
{
	/* Without a loader, in as many packets as it takes. */
	char *json;

	play(tell_status);
	ck_assert_int_eq(batchd_status(d->path, &json, err, sizeof err), 0);
	ck_assert_str_eq(json, "{\"a\": 1}");
	free(json);
	pthread_join(d->thread, NULL);
}
END_TEST

SUITE(client)
{
	Suite *suite = suite_create("client");
	TCase *all = tcase_create("client");

	tcase_add_checked_fixture(all, setup, teardown);
	suite_add_tcase(suite, all);
	tcase_add_test(all, test_progress_is_told_and_can_cancel);
	tcase_add_test(all, test_cancelled_open_leaves_nothing_behind);
	tcase_add_test(all, test_refusal_names_the_field);
	tcase_add_loop_test(all, test_impossible_offer_is_refused_before_it_is_used, 0, 15);
	tcase_add_test(all, test_batch_as_a_packet_is_refused);
	tcase_add_loop_test(all, test_a_slot_is_lent_once_its_memory_is_there, 0, 2);
	tcase_add_loop_test(all, test_batch_beyond_the_slab_is_refused, 1, 3);
	tcase_add_test(all, test_no_daemon_is_said_with_what_was_tried);
	tcase_add_test(all, test_wrong_options_are_named);
	tcase_add_test(all, test_paths_become_absolute_and_come_with_their_fds);
	tcase_add_test(all, test_missing_path_is_named_before_any_daemon_is_asked);
	tcase_add_test(all, test_folder_that_may_not_be_read_or_entered_is_named);
	tcase_add_test(all, test_ranks_of_one_run_find_the_same_job);
	tcase_add_test(all, test_lone_trainers_do_not_meet_and_sharing_ones_do);
	tcase_add_test(all, test_daemon_that_cannot_start_is_quoted);
	tcase_add_test(all, test_classes_come_between_batches_that_wait_their_turn);
	tcase_add_test(all, test_status_is_put_together_from_its_parts);
	return suite;
}
