/* Spare slots (daemon/server/spare.h): the whole daemon, and processes that say Close and open another loader. Whether
 * two loaders have had the same slab is seen by its inode. */
#include <sys/mman.h>
#include <sys/stat.h>

#include "support/packets.h"
#include "support/suite.h"

enum { SLOTS = 3, ROWS = 1200, ROW_BYTES = 256 * 4 };

/* ---- helpers ---- */

/* Three slots of 1.2 MiB. */
static Batchd__Wire__Open large_open(const char *job)
{
	Batchd__Wire__Open o = usual_open();
	o.sources = sources_of("random:length=5000,shape=256,dtype=float32");
	o.batch_size = ROWS;
	o.n_slots = SLOTS;
	o.job = (char *)job;
	return o;
}

static void long_linger(struct config *c)
{
	c->linger_ns = UINT64_C(3600) * 1000000000;
}

/* The daemon's status says that, sooner or later. */
static void await_status(const char *text)
{
	Batchd__Wire__StatusRequest ask = BATCHD__WIRE__STATUS_REQUEST__INIT;
	for (bool found = false; !found;) {
		int fd = dial();
		greet(fd);
		SEND(fd, STATUS, status, &ask);
		for (bool more = true; more;) {
			const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
			ck_assert_ptr_nonnull(m);
			ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_STATUS);
			found |= memmem(m->status->json.data, m->status->json.len, text, strlen(text)) != NULL;
			more = m->status->more;
		}
		close(fd);
	}
}

static ino_t inode(const struct client *c)
{
	struct stat st;
	ck_assert_int_eq(fstat(c->slab, &st), 0);
	return st.st_ino;
}

static void read_batches(struct client *c, unsigned n)
{
	const float *slab = mmap(NULL, c->slab_bytes, PROT_READ, MAP_SHARED, c->slab, 0);
	ck_assert_ptr_ne(slab, MAP_FAILED);
	seek_to(c, 0, 0);
	for (unsigned i = 0; i < n; i++) {
		Batchd__Wire__Batch b = next_batch(c);
		const int64_t *indices = (const int64_t *)(const void *)((const uint8_t *)slab +
									 b.slot * c->slot_bytes + c->indices_offset);
		ck_assert_uint_eq(b.step, i);
		ck_assert_int_eq(indices[0], i * ROWS);
		release(c, b.slot, b.generation);
	}
	munmap((void *)(uintptr_t)slab, c->slab_bytes);
}

/* Says Close; the daemon has heard it when this returns. */
static void say_close(struct client *c, bool ends_job)
{
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;
	bye.ends_job = ends_job;
	SEND(c->fd, CLOSE, close, &bye);
	while (receive(c->fd, NULL))
		;
	hang_up(c);
}

/* A loader that is opened, read and closed. Returns its slab. */
static ino_t run_loader(Batchd__Wire__Open o)
{
	struct client c = join_with(o);
	ino_t slab = inode(&c);
	read_batches(&c, 2);
	say_close(&c, true);
	await_status("\"loaders\":[]");
	return slab;
}

/* In another process, whose end is awaited. */
static ino_t run_loader_elsewhere(Batchd__Wire__Open o)
{
	int pipe_fds[2], status;
	ino_t slab = 0;
	ck_assert_int_eq(pipe(pipe_fds), 0);
	pid_t child = fork();
	if (child == 0) {
		slab = run_loader(o);
		_exit(write(pipe_fds[1], &slab, sizeof(slab)) != sizeof(slab));
	}
	close(pipe_fds[1]);
	ck_assert_int_eq(read(pipe_fds[0], &slab, sizeof(slab)), sizeof(slab));
	close(pipe_fds[0]);
	ck_assert_int_eq(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return slab;
}

/* ---- whose they are ---- */

START_TEST(test_the_next_loader_of_a_process_gets_the_slab_of_the_last_one)
{
	/* With the batches that it asks for, though the slots have been full of others; also for another data set with
	 * rows of that size. */
	start_daemon_with(long_linger);
	ino_t first = run_loader(large_open("one"));
	ck_assert_uint_eq(run_loader(large_open("two")), first);
	Batchd__Wire__Open other = large_open("three");
	other.sources = sources_of("random:length=9000,shape=64x4,dtype=float32");
	ck_assert_uint_eq(run_loader(other), first);
	stop_daemon();
}
END_TEST

START_TEST(test_another_process_gets_a_slab_of_its_own)
{
	/* The first process may still have its slab mapped, whatever it says. */
	start_daemon_with(long_linger);
	ino_t first = run_loader(large_open("one"));
	ck_assert_uint_ne(run_loader_elsewhere(large_open("two")), first);
	ck_assert_uint_eq(run_loader(large_open("three")), first);
	stop_daemon();
}
END_TEST

START_TEST(test_a_slab_that_two_processes_had_is_no_spare)
{
	/* A second process takes the rank over, and with it the slots; neither gets the slab again. */
	start_daemon_with(long_linger);
	struct client c = join_with(large_open("one"));
	ino_t shared = inode(&c);
	ck_assert_uint_eq(run_loader_elsewhere(large_open("one")), shared);
	hang_up(&c);
	await_status("\"spare_bytes\":0");
	ck_assert_uint_ne(run_loader(large_open("two")), shared);
	stop_daemon();
}
END_TEST

START_TEST(test_a_job_that_others_can_find_leaves_no_spare)
{
	/* Without ends_job the job lingers, with its slots. */
	start_daemon_with(long_linger);
	struct client c = join_with(large_open("one"));
	ino_t lingers = inode(&c);
	say_close(&c, false);
	await_status("\"state\":\"lingering\"");
	await_status("\"spare_bytes\":0");
	struct client other = join_with(large_open("two"));
	ck_assert_uint_ne(inode(&other), lingers);
	say_close(&other, true);
	stop_daemon();
}
END_TEST

/* ---- how long they are ---- */

START_TEST(test_spares_end_with_their_process)
{
	start_daemon_with(long_linger);
	(void)run_loader_elsewhere(large_open("one"));
	await_status("\"spare_bytes\":0");
	stop_daemon();
}
END_TEST

static void no_linger(struct config *c)
{
	c->linger_ns = 0;
}

static void short_linger(struct config *c)
{
	c->linger_ns = 20000000;
}

START_TEST(test_spares_are_kept_as_long_as_an_unused_loader)
{
	start_daemon_with(_i ? short_linger : no_linger);
	(void)run_loader(large_open("one"));
	await_status("\"spare_bytes\":0");
	stop_daemon();
}
END_TEST

static void little_memory(struct config *c)
{
	long_linger(c);
	c->memory_bytes = 16 << 20;
}

START_TEST(test_spares_make_room)
{
	/* Slots of another size: as many as without the spares. */
	start_daemon_with(little_memory);
	Batchd__Wire__Open o = large_open("one");
	o.batch_size = 1000;
	o.n_slots = 64;
	struct client c = join_with(o);
	const uint32_t most = c.n_slots;
	ck_assert_uint_lt(most, 64);
	say_close(&c, true);
	await_status("\"loaders\":[]");
	(void)run_loader(large_open("two"));
	o.job = (char *)"three";
	c = join_with(o);
	ck_assert_uint_eq(c.n_slots, most);
	say_close(&c, true);
	stop_daemon();
}
END_TEST

START_TEST(test_slots_of_another_number_are_made_anew)
{
	/* A trainer gets as many as it asks for. */
	start_daemon_with(long_linger);
	ino_t first = run_loader(large_open("one"));
	Batchd__Wire__Open o = large_open("two");
	o.n_slots = (uint32_t)(SLOTS + _i);
	struct client c = join_with(o);
	ck_assert_uint_eq(c.n_slots, o.n_slots);
	ck_assert((inode(&c) == first) == (_i == 0));
	say_close(&c, true);
	stop_daemon();
}
END_TEST

SUITE(spare)
{
	Suite *s = suite_create("spare");
	TCase *t = tcase_create("spare");
	tcase_add_test(t, test_the_next_loader_of_a_process_gets_the_slab_of_the_last_one);
	tcase_add_test(t, test_another_process_gets_a_slab_of_its_own);
	tcase_add_test(t, test_a_slab_that_two_processes_had_is_no_spare);
	tcase_add_test(t, test_a_job_that_others_can_find_leaves_no_spare);
	tcase_add_test(t, test_spares_end_with_their_process);
	tcase_add_loop_test(t, test_spares_are_kept_as_long_as_an_unused_loader, 0, 2);
	tcase_add_test(t, test_spares_make_room);
	tcase_add_loop_test(t, test_slots_of_another_number_are_made_anew, -1, 2);
	suite_add_tcase(s, t);
	return s;
}
