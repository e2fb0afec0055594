/* batchd_load_open with a daemon, or another program at its socket, that offers memory which is not what it says. */
#include "fake/daemon/fake.h"

enum { EDGE = 2, ROW = EDGE * EDGE * 3 };

static const struct offer {
	uint64_t row_bytes, slot_bytes;
	uint32_t shape[3];
	bool is_file;    /* which has no seals */
	const char *why; /* NULL: it is taken */
} offers[] = {
	{ ROW, 4096, { EDGE, EDGE, 3 }, false, NULL },
	{ ROW, 4096, { EDGE, EDGE, 3 }, true, "could take away" },
	{ ROW, 1 << 20, { EDGE, EDGE, 3 }, false, "could take away" },
	{ 4096, 4096, { EDGE, EDGE, 3 }, false, "its rows" },
	{ ROW, 4096, { UINT32_MAX, UINT32_MAX, UINT32_MAX }, false, "its rows" },
	{ ROW, 4096, { 0, EDGE, 3 }, false, "its rows" },
};

static const struct offer *offer;

static void offers_rows(struct fake *f)
{
	Batchd__Wire__LoadOpened m = BATCHD__WIRE__LOAD_OPENED__INIT;
	char name[128];
	int fd = -1;

	greet(f);
	EXPECT(f, LOAD_OPEN);
	m.n_slots = N_SLOTS;
	m.slot_bytes = offer->slot_bytes;
	m.row_bytes = offer->row_bytes;
	m.n_shape = 3;
	m.shape = (uint32_t *)offer->shape;
	if (offer->is_file) {
		snprintf(name, sizeof name, "%s/file", f->dir);
		fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		ck_assert(fd >= 0 && ftruncate(fd, N_SLOTS * 4096) == 0);
		unlink(name);
	}
	say(f, BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED, &m, fd >= 0 ? fd : f->slab_fd);
	if (fd >= 0)
		close(fd);
	hear(f);
}

START_TEST(test_rows_lie_in_memory_that_stays)
{
	struct batchd_load_options o;
	struct batchd_load *l;
	int r;

	offer = &offers[_i];
	play(offers_rows);
	batchd_load_options_init(&o);
	o.socket = d->path;
	o.dtype = BATCHD_UINT8;
	r = batchd_load_open(&o, &l, err, sizeof err);
	if (offer->why) {
		ck_assert_int_eq(r, BATCHD_E_PROTOCOL);
		ck_assert_msg(strstr(err, offer->why) != NULL, "%s", err);
	} else {
		ck_assert_msg(r == 0, "%s", err);
		ck_assert_uint_eq(batchd_load_row_bytes(l), ROW);
	}
	batchd_load_close(l);
	pthread_join(d->thread, NULL);
}
END_TEST

SUITE(load_answers)
{
	Suite *s = suite_create("load answers");
	TCase *c = tcase_create("open");

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_loop_test(c, test_rows_lie_in_memory_that_stays, 0, sizeof offers / sizeof *offers);
	suite_add_tcase(s, c);
	return s;
}
