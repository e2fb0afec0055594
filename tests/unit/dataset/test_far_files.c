/* Files on a server: a worker never waits for it, I/O threads wait, and closing does not wait at all. The server is a
 * FUSE file system of the test's own, which is stopped (SIGSTOP) as a network file system hangs. Skipped where FUSE may
 * not be mounted. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "batch/sample.h"
#include "dataset/locate.h"
#include "dataset/cache/sample-cache.h"
#include "support/jpegs.h"

#include "support/datasets.h"
#include "support/sources-text.h"
#include "fake/fuse/fuse.h"

static pid_t server;

static bool start_server(void)
{
	make_dir("far", 0755);
	server = fuse_start(in_root("here"), in_root("far"));
	return server > 0;
}

static void stop_server(void)
{
	int status;

	ck_assert_int_eq(kill(server, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(server, &status, WUNTRACED), server);
}

static void go_on(void)
{
	ck_assert_int_eq(kill(server, SIGCONT), 0);
}

static void end_server(void)
{
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	ck_assert_int_eq(umount2(in_root("far"), MNT_DETACH), 0);
}

START_TEST(test_what_a_server_holds_is_never_asked_for_without_waiting)
{
	/* Proves that a stopped server blocks neither a read nor a check of a file's state that may not wait, however
	 * much of the file the kernel has in memory, for trusted access and for other users. */
	struct file_bytes b = { 0 };

	make_dir("here", 0755);
	make_dir("here/cat", 0755);
	put("here/cat/a.jpg", "cat a");
	if (!start_server()) {
		return;
	}
	for (int other = 0; other < 2; other++) {
		const struct data_access *access = other ? &f.other : &f.trusted;
		int fd = open_dir("far");
		struct dataset *ds;

		ck_assert_msg(open_as(access, "imagefolder", in_root("far"), NULL, &fd, 1, &ds) == 0, "%s", f.err.text);
		close(fd);
		ck_assert_uint_ne(dataset_server(ds), 0);
		ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
		ck_assert_int_eq(memcmp(b.data, "cat a", 5), 0);
		ck_assert_int_eq(dataset_is_current(ds, 0, READ_WAIT, &b), 1);
		stop_server();
		ck_assert_int_eq(dataset_read(ds, 0, READ_NOWAIT, &b, &f.err), -EAGAIN);
		ck_assert_int_eq(dataset_is_current(ds, 0, READ_NOWAIT, &b), -EAGAIN);
		dataset_unref(ds); /* the loop thread does this */
		go_on();
	}
	end_server();
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_a_servers_clock_is_not_trusted_for_some_seconds)
{
	/* Proves that an index is not kept within seconds of a change on a server, whose clock may be behind ours. */
	struct timespec began, ended;
	unsigned n_left = 20;
	bool again;

	make_dir("here", 0755);
	make_dir("cache", 0755);
	make_dir("here/cat", 0755);
	put("here/cat/a.jpg", "x");
	if (!start_server()) {
		return;
	}
	ck_assert_int_eq(symlink("far", in_root("pets")), 0); /* which lists_again opens */
	do {                                                  /* a slower machine proves nothing */
		clock_gettime(CLOCK_REALTIME, &began);
		ck_assert_int_eq(chmod(in_root("here/cat"), 0755), 0);
		settle();
		again = lists_again(1) && lists_again(1);
		clock_gettime(CLOCK_REALTIME, &ended);
	} while (ended.tv_sec - began.tv_sec > 3 && --n_left);
	if (n_left)
		ck_assert(again);
	else
		puts("skipped: a folder takes seconds to list here");
	end_server();
}
END_TEST

START_TEST(test_a_link_to_a_server_is_not_followed_without_waiting)
{
	/* Proves the same for a file whose name is on a local disk but is a link to a file on a server. */
	struct file_bytes b = { 0 };
	struct dataset *ds;

	make_dir("here", 0755);
	put("here/a.jpg", "far a");
	if (!start_server()) {
		return;
	}
	make_dir("pets", 0755);
	make_dir("pets/cat", 0755);
	ck_assert_int_eq(symlink("../../far/a.jpg", in_root("pets/cat/a.jpg")), 0);
	ds = open_trusted("imagefolder", in_root("pets"));
	ck_assert_int_eq(dataset_read(ds, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(memcmp(b.data, "far a", 5), 0);
	stop_server();
	ck_assert_int_eq(dataset_read(ds, 0, READ_NOWAIT, &b, &f.err), -EAGAIN);
	ck_assert_int_eq(dataset_is_current(ds, 0, READ_NOWAIT, &b), -EAGAIN);
	go_on();
	dataset_unref(ds);
	end_server();
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_a_set_that_reaches_a_server_counts_as_one)
{
	/* Proves that a server's folder below a local one makes the whole set a server's if the folder exists at
	 * opening, and that for other users a folder that appears later is not entered. */
	struct file_bytes b = { 0 };
	struct dataset *early, *late;
	int fds[2];

	make_dir("here", 0755);
	put("here/a.jpg", "far a");
	if (!start_server()) {
		return;
	}
	make_dir("near", 0755);
	put("near/a.jpg", "near a");
	put("list.txt", "near/a.jpg 0\nsub/a.jpg 1\n");
	fds[0] = open(in_root("list.txt"), O_RDONLY);
	fds[1] = open_dir("");
	ck_assert_int_eq(open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, &early), 0);
	make_dir("sub", 0755);
	ck_assert_int_eq(mount(in_root("far"), in_root("sub"), NULL, MS_BIND, NULL), 0);
	ck_assert_int_eq(open_as(&f.other, "files", in_root("list.txt"), NULL, fds, 2, &late), 0);
	ck_assert_uint_eq(dataset_server(early), 0);
	ck_assert_uint_ne(dataset_server(late), 0);
	ck_assert_int_eq(dataset_read(early, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(dataset_read(early, 1, READ_WAIT, &b, &f.err), -EXDEV);
	ck_assert_int_eq(dataset_read(late, 0, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(dataset_read(late, 1, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(memcmp(b.data, "far a", 5), 0);
	dataset_unref(late);
	late = open_trusted("files", in_root("list.txt"));
	ck_assert_uint_ne(dataset_server(late), 0);
	dataset_unref(late);
	dataset_unref(early);
	ck_assert_int_eq(umount2(in_root("sub"), MNT_DETACH), 0);
	end_server();
	close(fds[0]);
	close(fds[1]);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_a_set_that_reaches_two_servers_has_a_number_of_its_own)
{
	/* Proves that it shares threads with the sets of neither server, and that files of a local disk beside a
	 * server's change nothing. */
	static const int32_t numbers[] = { 3, 1, 4 };
	static const char *const sources[] = { "far/x.npy", "far/y.npy", "second/x.npy", "near.npy" };
	uint64_t of[4], both[2];
	char text[512];
	struct dataset *ds;
	pid_t first;

	make_dir("here", 0755);
	make_dir("second", 0755);
	put_npy("here/x.npy", "<i4", "(3,)", numbers, sizeof(numbers));
	put_npy("here/y.npy", "<i4", "(3,)", numbers, sizeof(numbers));
	put_npy("near.npy", "<i4", "(3,)", numbers, sizeof(numbers));
	if (!start_server()) {
		return;
	}
	first = server;
	server = fuse_start(in_root("here"), in_root("second"));
	ck_assert_int_gt(server, 0);
	for (int i = 0; i < 4; i++) {
		ds = open_trusted("npy", in_root(sources[i]));
		of[i] = dataset_server(ds);
		dataset_unref(ds);
	}
	ck_assert(of[0] && of[0] == of[1] && of[2] && of[2] != of[0] && !of[3]);
	for (int i = 0; i < 2; i++) {
		snprintf(text, sizeof(text), "%s/far/x.npy,%s/%s", f.root, f.root, i ? "near.npy" : "second/x.npy");
		ds = open_trusted("npy", text);
		both[i] = dataset_server(ds);
		dataset_unref(ds);
	}
	ck_assert(both[0] && both[0] != of[0] && both[0] != of[2]);
	ck_assert_uint_eq(both[1], of[0]);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	ck_assert_int_eq(umount2(in_root("second"), MNT_DETACH), 0);
	server = first;
	end_server();
}
END_TEST

static struct location locate(const struct data_access *access, const char *spec, const int *fds, unsigned n_fds)
{
	const struct dataset_source source = {
		.sources = sources_of(spec), .fds = fds, .n_fds = n_fds, .access = access
	};
	struct location out;

	locate_source(&source, &out);
	return out;
}

/* With the test's folder for each @. */
static void below_root(const char *spec, char text[600])
{
	size_t n = 0;

	for (; *spec; spec++)
		n += (size_t)snprintf(text + n, 600 - n, "%.*s", *spec == '@' ? 64 : 1, *spec == '@' ? f.root : spec);
}

START_TEST(test_a_server_is_found_without_asking_it)
{
	/* Proves that a stopped server's file system is known by paths, links, patterns and descriptors, and has the number
	 * that its data sets have; and that local files and memory have none. */
	static const char *const there[] = { "imagefolder:@/far",
					     "imagefolder:@/far/cat/..",
					     "imagefolder:@/near/../link/cat",
					     "files:@/link/no/such/list.txt",
					     "tar:@/far/{0..9}.tar",
					     "npy:@/near/x.npy,@/far/y.npy",
					     "blend:imagefolder:@/near;;imagefolder:@/far" };
	static const char *const here[] = { "imagefolder:@", "npy:@/farther.npy", "random:length=8" };
	char text[600], named[300];
	struct location at;
	struct dataset *ds;
	int fd[2];

	make_dir("here", 0755);
	make_dir("here/cat", 0755);
	make_dir("near", 0755);
	put("here/cat/a.jpg", "cat a");
	if (!start_server()) {
		return;
	}
	ck_assert_int_eq(symlink("near/../far", in_root("link")), 0);
	ds = open_trusted("imagefolder", in_root("far"));
	locate_dataset(ds, &at);
	snprintf(named, sizeof(named), "fuse at %s/far", f.root);
	ck_assert_str_eq(at.name, named);
	fd[0] = open(in_root("near"), O_PATH | O_CLOEXEC);
	fd[1] = open(in_root("far/cat"), O_PATH | O_CLOEXEC);
	stop_server();
	for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++) {
		below_root(there[i], text);
		at = locate(&f.trusted, text, NULL, 0);
		ck_assert_msg(at.server == dataset_server(ds), "%s", text);
		ck_assert_str_eq(at.name, named);
	}
	ck_assert_uint_eq(locate(&f.other, "imagefolder:/elsewhere", fd, 2).server, dataset_server(ds));
	for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++) {
		below_root(here[i], text);
		at = locate(&f.trusted, text, NULL, 0);
		ck_assert_msg(at.server == 0, "%s", text);
	}
	ck_assert_uint_eq(locate(&f.other, "imagefolder:/elsewhere", fd, 1).server, 0);
	close(fd[0]);
	close(fd[1]);
	fd[0] = memfd_create("x", MFD_CLOEXEC);
	ck_assert_uint_eq(locate(&f.other, "npy:x", fd, 1).server, 0);
	close(fd[0]);
	go_on();
	dataset_unref(ds);
	end_server();
}
END_TEST

START_TEST(test_arrays_and_lists_of_a_server_are_served_and_closed_without_it)
{
	/* Proves that descriptors of files on FUSE are accepted from any user, that their sets count as a server's, and
	 * that dropping one does not wait for the server, as closing a file on FUSE does. */
	static const int32_t numbers[] = { 3, 1, 4, 1, 5 };
	static const uint64_t last = 4;
	struct dataset *ds;
	int64_t label;
	int32_t row;
	int fd;

	make_dir("here", 0755);
	put_npy("here/x.npy", "<i4", "(5,)", numbers, sizeof(numbers));
	put("here/list.txt", "a.jpg 7\n");
	if (!start_server()) {
		return;
	}
	fd = open(in_root("far/x.npy"), O_RDONLY);
	ck_assert_msg(open_as(&f.other, "npy", in_root("far/x.npy"), NULL, &fd, 1, &ds) == 0, "%s", f.err.text);
	ck_assert_uint_ne(dataset_server(ds), 0);
	ck_assert_int_eq(dataset_gather(ds, &last, 1, ROWS(&row, &label), &f.err), 0);
	ck_assert_int_eq(row, 5);
	close(fd);
	stop_server();
	dataset_unref(ds);
	go_on();
	put_npy("y.npy", "<i4", "(5,)", numbers, sizeof(numbers));
	ds = open_trusted("npy", in_root("y.npy"));
	ck_assert_uint_eq(dataset_server(ds), 0);
	dataset_unref(ds);
	end_server();
}
END_TEST

/* ---- cached samples ---- */

START_TEST(test_a_cached_sample_is_used_after_a_look_at_its_file_alone)
{
	/* Proves that an I/O thread that finds a sample in a cache reads nothing, that the worker then makes the row
	 * without any access to the file, and that it has the file read when the entry has gone meanwhile. */
	static const struct jpeg_recipe picture = {
		.width = 64, .height = 48, .n_components = 3, .h = 1, .v = 1, .quality = 90
	};
	static const char resize[] = "[[\"Resize\", [16, 16]]]";
	struct cache_config config = { .budget_bytes = { [CACHE_DECODED] = 1 << 20 } };
	struct recipe recipe = { 0 };
	struct sample_worker *w = sample_worker_create(&decode_limits_default);
	const struct sample_key key = { .seed = 1 };
	struct sample_input in = { 0 };
	struct pipeline_error why;
	struct sample_error err;
	struct cache *cache;
	struct cache_hit hit;
	uint8_t first[3 * 16 * 16], row[3 * 16 * 16];
	size_t n;
	uint8_t *jpeg = jpeg_make(&picture, 5, &n);

	make_dir("pets", 0755);
	make_dir("pets/cat", 0755);
	put_bytes("pets/cat/a.jpg", jpeg, n, 0644);
	free(jpeg);
	recipe.dataset = open_trusted("imagefolder", in_root("pets"));
	ck_assert_int_eq(pipeline_parse(resize, DTYPE_UINT8, LAYOUT_NHWC, &recipe.pipeline, &why), 0);
	ck_assert_int_eq(cache_create(&config, &cache), 0);
	ck_assert_int_eq(recipe_attach(&recipe, cache, 1 << 20, false, &decode_limits_default), 0);
	sample_fetch(&recipe, 0, &in);
	ck_assert(!in.checked && in.bytes.n_bytes == n);
	ck_assert_int_eq(sample_make(&recipe, w, key, &in, false, (void *[]){ first }, &err), 0);

	sample_fetch(&recipe, 0, &in);
	ck_assert(in.checked);
	ck_assert_int_eq(unlink(in_root("pets/cat/a.jpg")), 0); /* any access to the file would fail now */
	ck_assert_int_eq(sample_make(&recipe, w, key, &in, false, (void *[]){ row }, &err), 0);
	ck_assert_mem_eq(row, first, sizeof(row));

	ck_assert(cache_lookup(recipe.decoded, 0, &hit));
	cache_drop(recipe.decoded, 0, &hit);
	ck_assert_int_eq(sample_make(&recipe, w, key, &in, false, (void *[]){ row }, &err), SAMPLE_E_WOULD_BLOCK);
	sample_fetch(&recipe, 0, &in);
	ck_assert(!in.checked);
	ck_assert_int_eq(in.result, -ENOENT);
	ck_assert_int_eq(sample_make(&recipe, w, key, &in, false, (void *[]){ row }, &err), SAMPLE_E_BAD);
	file_bytes_finish(&in.bytes);
	sample_worker_destroy(w);
	recipe_finish(&recipe);
	cache_destroy(cache);
}
END_TEST

SUITE(far_files)
{
	Suite *s = suite_create("far files");
	TCase *tc = tcase_create("far files");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_what_a_server_holds_is_never_asked_for_without_waiting);
	tcase_add_test(tc, test_a_servers_clock_is_not_trusted_for_some_seconds);
	tcase_add_test(tc, test_a_link_to_a_server_is_not_followed_without_waiting);
	tcase_add_test(tc, test_a_set_that_reaches_a_server_counts_as_one);
	tcase_add_test(tc, test_a_set_that_reaches_two_servers_has_a_number_of_its_own);
	tcase_add_test(tc, test_a_server_is_found_without_asking_it);
	tcase_add_test(tc, test_arrays_and_lists_of_a_server_are_served_and_closed_without_it);
	tcase_add_test(tc, test_a_cached_sample_is_used_after_a_look_at_its_file_alone);
	suite_add_tcase(s, tc);
	return s;
}
