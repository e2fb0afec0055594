/* How an Open is processed: names resolved, limits and access applied, the offending field named. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/open-request.h"
#include "support/sources-text.h"
#include "support/suite.h"

static struct config config;
static struct open_request r;
static struct refusal err;
static bool lacks_groups;

static void setup(void)
{
	struct config_error e = { .text = "" };
	static const char text[] =
		"pipelines:\n  - name: small\n    transform: [[Resize, [8, 8]], ToTensor]\n"
		"datasets:\n  - name: open\n    source: 'random:length=10,shape=2'\n"
		"  - name: pictures\n    source: imagefolder:/data/p\n    transform: small\n    users: [root]\n";
	char path[] = "/tmp/batchd-request-XXXXXX";
	int fd = mkstemp(path);
	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	close(fd);
	int result = config_load(path, &config, &e);
	unlink(path);
	ck_assert_msg(result == 0, "%s", e.text);
}

static void teardown(void)
{
	open_request_finish(&r);
	config_finish(&config);
}

static Batchd__Wire__Open usual(const char *dataset)
{
	Batchd__Wire__Open o = BATCHD__WIRE__OPEN__INIT;
	o.sources = sources_of(dataset);
	o.batch_size = 4;
	o.world_size = 1;
	o.job = (char *)"j";
	return o;
}

static bool elsewhere; /* the peer is in another mount namespace */

static int make_as(uid_t uid, const Batchd__Wire__Open *o, unsigned n_fds)
{
	gid_t gid = 12345;
	struct requester who = {
		.uid = uid, .gids = &gid, .n_gids = 1, .shares_mounts = !elsewhere, .lacks_groups = lacks_groups
	};
	open_request_finish(&r);
	return open_request_make(&config, o, &who, n_fds, &r, &err);
}

static uid_t stranger(void)
{
	return geteuid() + 4242;
}

START_TEST(test_a_producer_serves_so_many_ranks)
{
	/* All of them share one daemon, and the work for each batch grows with the number of ranks. */
	Batchd__Wire__Open o = usual("serve:x");
	o.world_size = LOADER_MAX_SERVED;
	ck_assert_int_eq(make_as(stranger(), &o, 0), 0);
	o.world_size++;
	ck_assert_int_eq(make_as(stranger(), &o, 0), REFUSED);
	ck_assert_str_eq(err.field, "world_size");
	ck_assert_ptr_nonnull(strstr(err.text, "256"));
}
END_TEST

START_TEST(test_repeats_have_a_limit_and_no_sampler_beside_them)
{
	/* Both sides of the limit; an epoch may be of any length; a caller's own order, and a producer, decide for
	 * themselves. */
	Batchd__Wire__Open o = usual("open");
	ck_assert_int_eq(make_as(0, &o, 0), 0);
	ck_assert_uint_eq(r.spec.repeats, 1);
	o.repeats = LOADER_MAX_REPEATS;
	o.epoch_rows = UINT64_MAX;
	ck_assert_int_eq(make_as(0, &o, 0), 0);
	ck_assert_uint_eq(r.spec.repeats, LOADER_MAX_REPEATS);
	ck_assert_uint_eq(r.spec.epoch_rows, UINT64_MAX);
	o.repeats++;
	ck_assert_int_eq(make_as(0, &o, 0), REFUSED);
	ck_assert_str_eq(err.field, "repeats");
	o.repeats = 1;
	o.own_batches = true;
	ck_assert_int_eq(make_as(0, &o, 0), REFUSED);
	ck_assert_str_eq(err.field, "epoch_rows");
	Batchd__Wire__Open served = usual("serve:x");
	served.repeats = 2;
	ck_assert_int_eq(make_as(stranger(), &served, 0), REFUSED);
	ck_assert_str_eq(err.field, "repeats");
}
END_TEST

START_TEST(test_names_of_fields_are_sorted_and_checked)
{
	/* The same fields in another order are the same job; a name that is there twice, or could not be one of a field,
	 * is refused by name; so are fields of a producer's batches. As many as the wire lets through fit. */
	char *two[] = { "image", "label" }, *turned[] = { "label", "image" }, *twice[] = { "a", "b", "a" };
	char *bad[] = { "a b" }, *comma[] = { "a,b" }, *many[WIRE_MAX_FIELDS];
	static char names[WIRE_MAX_FIELDS][WIRE_MAX_FIELD_NAME + 1];
	Batchd__Wire__Open o = usual("open");
	o.field = two;
	o.n_field = 2;
	ck_assert_int_eq(make_as(0, &o, 0), 0);
	ck_assert_str_eq(r.spec.fields, "image,label");
	o.field = turned;
	ck_assert_int_eq(make_as(0, &o, 0), 0);
	ck_assert_str_eq(r.spec.fields, "image,label");
	o.field = twice;
	o.n_field = 3;
	ck_assert_int_eq(make_as(0, &o, 0), REFUSED);
	ck_assert_str_eq(err.field, "fields");
	ck_assert_ptr_nonnull(strstr(err.text, "'a' twice"));
	o.n_field = 1;
	o.field = bad;
	ck_assert_int_eq(make_as(0, &o, 0), REFUSED);
	o.field = comma;
	ck_assert_int_eq(make_as(0, &o, 0), REFUSED);
	ck_assert_ptr_nonnull(strstr(err.text, "'a,b'"));
	for (unsigned i = 0; i < WIRE_MAX_FIELDS; i++) {
		memset(names[i], 'x', WIRE_MAX_FIELD_NAME);
		names[i][0] = (char)('0' + i);
		if (names[i][0] == '\\' || names[i][0] == ',')
			names[i][0] = '!';
		many[i] = names[i];
	}
	o.field = many;
	o.n_field = WIRE_MAX_FIELDS;
	ck_assert_int_eq(make_as(0, &o, 0), 0);
	ck_assert_uint_eq(strlen(r.spec.fields), WIRE_MAX_FIELDS * (WIRE_MAX_FIELD_NAME + 1) - 1);
	o = usual("serve:x");
	o.field = two;
	o.n_field = 2;
	ck_assert_int_eq(make_as(0, &o, 0), REFUSED);
	ck_assert_str_eq(err.field, "fields");
	o = usual("open");
	ck_assert_int_eq(make_as(0, &o, 0), 0);
	ck_assert_str_eq(r.spec.fields, "");
}
END_TEST

START_TEST(test_a_configured_name_becomes_its_source_and_transform)
{
	/* Opened with the daemon's rights: trusted even for another user. */
	Batchd__Wire__Open o = usual("open");
	ck_assert_int_eq(make_as(stranger(), &o, 0), 0);
	ck_assert(sources_are_equal(r.sources, sources_of("random:length=10,shape=2")));
	ck_assert_str_eq(r.spec.transform, "");
	ck_assert(r.access.trusted);
	o = usual("pictures");
	ck_assert_int_eq(make_as(0, &o, 0), 0);
	ck_assert_ptr_nonnull(strstr(r.spec.transform, "Resize"));
	o.transform = (char *)"val224";
	ck_assert_int_eq(make_as(0, &o, 0), 0);
	ck_assert_str_eq(r.spec.transform, "val224");
}
END_TEST

START_TEST(test_users_of_a_data_set_are_respected)
{
	/* users: [root]. */
	Batchd__Wire__Open o = usual("pictures");
	ck_assert_int_ne(make_as(stranger(), &o, 0), 0);
	ck_assert_int_eq(err.code, BATCHD__WIRE__ERROR_CODE__ACCESS);
	ck_assert_str_eq(err.field, "dataset");
}
END_TEST

START_TEST(test_a_stranger_sends_descriptors_and_is_not_trusted)
{
	/* A path without a descriptor would be opened with the daemon's rights. */
	Batchd__Wire__Open o = usual("imagefolder:/data/q");
	ck_assert_int_ne(make_as(stranger(), &o, 0), 0);
	ck_assert_int_eq(err.code, BATCHD__WIRE__ERROR_CODE__ACCESS);
	ck_assert_int_eq(make_as(stranger(), &o, 1), 0);
	ck_assert(!r.access.trusted);
	ck_assert_uint_eq(r.access.uid, stranger());
	ck_assert_uint_eq(r.access.gids[0], 12345);
	ck_assert_str_eq(r.spec.transform, "train224");
	ck_assert_int_eq(make_as(geteuid(), &o, 0), 0);
	ck_assert(r.access.trusted);
}
END_TEST

START_TEST(test_root_of_a_container_is_a_user_like_others)
{
	/* Proves that root and the daemon's own user are trusted in the daemon's mount namespace only: elsewhere their
	 * paths mean other things, and root is not the root that the daemon sees. */
	uid_t users[] = { 0, geteuid() };
	for (int i = 0; i < 2; i++) {
		Batchd__Wire__Open o = usual("imagefolder:/data/q");
		elsewhere = true;
		ck_assert_int_ne(make_as(users[i], &o, 0), 0);
		ck_assert_int_eq(err.code, BATCHD__WIRE__ERROR_CODE__ACCESS);
		ck_assert_int_eq(make_as(users[i], &o, 1), 0);
		ck_assert(!r.access.trusted);
		o = usual("open");
		ck_assert_int_eq(make_as(users[i], &o, 0), 0);
		elsewhere = false;
		o = usual("imagefolder:/data/q");
		ck_assert_int_eq(make_as(users[i], &o, 0), 0);
		ck_assert(r.access.trusted);
	}
	/* A restricted data set that does not name root. */
	static uid_t alice = 4711;
	struct config_dataset d = { .name = (char *)"d", .users = &alice, .n_users = 1 };
	struct requester root = { .uid = 0, .shares_mounts = true };
	ck_assert(open_request_may_use(&d, &root));
	root.shares_mounts = false;
	ck_assert(!open_request_may_use(&d, &root));
}
END_TEST

START_TEST(test_a_stranger_whose_groups_are_not_known_reads_no_path)
{
	/* Proves that an incomplete group list is not used to check descriptors, because it would allow what the
	 * missing groups deny; configured and random data is not checked at all. */
	Batchd__Wire__Open o = usual("imagefolder:/data/p");
	lacks_groups = true;
	ck_assert_int_eq(make_as(stranger(), &o, 1), REFUSED);
	ck_assert_int_eq(err.code, BATCHD__WIRE__ERROR_CODE__ACCESS);
	ck_assert_msg(strstr(err.text, "more than 256") != NULL, "%s", err.text);
	ck_assert_int_eq(make_as(geteuid(), &o, 1), 0);
	o = usual("open");
	ck_assert_int_eq(make_as(stranger(), &o, 0), 0);
	o = usual("random:length=10,shape=2");
	ck_assert_int_eq(make_as(stranger(), &o, 0), 0);
	lacks_groups = false;
}
END_TEST

START_TEST(test_an_unknown_name_says_what_would_do)
{
	/* Neither a configured name nor a kind. */
	Batchd__Wire__Open o = usual("imagenet");
	ck_assert_int_ne(make_as(0, &o, 0), 0);
	ck_assert_int_eq(err.code, BATCHD__WIRE__ERROR_CODE__NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(err.text, "imagenet"));
	ck_assert_ptr_nonnull(strstr(err.text, "imagefolder:"));
}
END_TEST

START_TEST(test_a_served_set_is_grouped_by_machine)
{
	/* For served data sets, the index on the machine replaces the rank in the whole job; an impossible one is
	 * refused. */
	Batchd__Wire__Open o = usual("serve:speech");
	o.rank = 6;
	o.world_size = 8;
	o.node_rank = 2;
	o.node_world_size = 4;
	ck_assert_msg(make_as(0, &o, 0) == 0, "%s", err.text);
	ck_assert_int_eq(r.rank, 2);
	ck_assert_uint_eq(r.spec.world_size, 4);
	o.sources = sources_of("random:length=100,shape=2");
	ck_assert_msg(make_as(0, &o, 0) == 0, "%s", err.text);
	ck_assert_int_eq(r.rank, 6);
	ck_assert_uint_eq(r.spec.world_size, 8);
	for (int i = 0; i < 2; i++) {
		o.node_rank = i ? 4 : 2;
		o.node_world_size = i ? 4 : 9;
		ck_assert_int_ne(make_as(0, &o, 0), 0);
		ck_assert_str_eq(err.field, "node_rank");
	}
}
END_TEST

START_TEST(test_ranks_fit_their_world)
{
	/* Both sides of each limit, in both modes. */
	struct {
		int32_t rank;
		uint32_t world;
		bool share, ok;
	} cases[] = { { 0, 1, false, true },     { 1, 1, false, false },  { 3, 4, false, true },
		      { 4, 4, false, false },    { -1, 4, false, false }, { -1, 1, false, true },
		      { -1, 4, true, true },     { -2, 4, true, false },  { 0, 4096, false, true },
		      { 0, 4097, false, false }, { 0, 64, true, true },   { 0, 65, true, false },
		      { 63, 1, true, true },     { 64, 1, true, false },  { 0, 0, false, false } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		Batchd__Wire__Open o = usual("open");
		o.rank = cases[i].rank;
		o.world_size = cases[i].world;
		o.mode = cases[i].share ? BATCHD__WIRE__MODE__SHARE : BATCHD__WIRE__MODE__SHARD;
		ck_assert_msg((make_as(0, &o, 0) == 0) == cases[i].ok, "case %zu: %s", i, err.text);
	}
}
END_TEST

SUITE(open_request)
{
	Suite *s = suite_create("open_request");
	TCase *t = tcase_create("request");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, test_a_producer_serves_so_many_ranks);
	tcase_add_test(t, test_repeats_have_a_limit_and_no_sampler_beside_them);
	tcase_add_test(t, test_names_of_fields_are_sorted_and_checked);
	tcase_add_test(t, test_a_configured_name_becomes_its_source_and_transform);
	tcase_add_test(t, test_users_of_a_data_set_are_respected);
	tcase_add_test(t, test_a_stranger_sends_descriptors_and_is_not_trusted);
	tcase_add_test(t, test_root_of_a_container_is_a_user_like_others);
	tcase_add_test(t, test_a_stranger_whose_groups_are_not_known_reads_no_path);
	tcase_add_test(t, test_an_unknown_name_says_what_would_do);
	tcase_add_test(t, test_ranks_fit_their_world);
	tcase_add_test(t, test_a_served_set_is_grouped_by_machine);
	suite_add_tcase(s, t);
	return s;
}
