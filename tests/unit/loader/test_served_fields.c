/* Ragged fields of producers' batches: written and read back, and producers whose tables lie. */
#include <stdarg.h>

#include "link/arrays.h"
#include "fake/daemon/fake.h"
#include "support/suite.h"

/* What client/link/arrays.o calls; in the library its name is local. */
int fault_set(struct fault *f, int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(f->text, sizeof f->text, fmt, args);
	va_end(args);
	f->code = code;
	return code;
}

/* As client/link/arrays.h lays a batch out: captions of three rows, and numbers after them. */
enum { OFFSETS_AT = 320, TEXT_AT = 384, NUMBERS_AT = 448, N_ROWS = 3, N_BYTES = 6, ROOM = 1024 };

static const char dictionary[] = "{\"d\":[[\"caption\",{\"s\":0}],[\"x\",{\"a\":1}]]}";

struct table {
	char magic[8];
	uint32_t n_arrays, n_text;
	struct {
		uint64_t offset, n_bytes;
		uint32_t dtype, n_dims;
		uint64_t shape[8], offsets, n_rows;
		uint32_t text, nothing;
	} entry[2];
};

static struct table truth(void)
{
	return (struct table){
		.magic = "batchd2",
		.n_arrays = 2,
		.entry = { { TEXT_AT, N_BYTES, BATCHD_UINT8, 1, { N_BYTES }, OFFSETS_AT, N_ROWS, 1, 0 },
			   { NUMBERS_AT, 24, BATCHD_INT64, 1, { 3 }, 0, 0, 0, 0 } },
	};
}

static const int64_t rising[] = { 0, 3, 3, 6 };

/* What a producer says that is not so. */
static const struct lie {
	const char *says;
	int64_t offsets[N_ROWS + 1];
	uint64_t offset, n_bytes, offsets_at, n_rows, n_values;
	uint64_t numbers_at;
	uint32_t dtype;
} lies[] = {
	{ .says = "run backwards", .offsets = { 0, 5, 3, 6 } },
	{ .says = "run backwards", .offsets = { 0, -1, 3, 6 } },
	{ .says = "do not add up", .offsets = { 0, 3, 3, 7 } },
	{ .says = "do not add up", .offsets = { 0, 3, 3, INT64_MAX } },
	{ .says = "do not add up", .offsets = { INT64_MIN, 0, 0, INT64_MAX } },
	{ .says = "offsets outside", .offsets_at = ROOM - 64 + 1 },
	{ .says = "offsets outside", .offsets_at = ROOM },
	{ .says = "offsets outside", .offsets_at = UINT64_MAX - 63 },
	{ .says = "offsets outside", .offsets_at = 64 }, /* in the table */
	{ .says = "offsets outside", .n_rows = 1 << 20 },
	{ .says = "offsets outside", .n_rows = UINT64_MAX },
	{ .says = "outside of its slot", .offset = ROOM },
	{ .says = "outside of its slot", .offset = UINT64_MAX - 63 },
	{ .says = "overlaps", .offset = OFFSETS_AT },
	{ .says = "overlaps", .numbers_at = TEXT_AT },
	{ .says = "overlaps", .numbers_at = OFFSETS_AT },
	{ .says = "another size", .n_bytes = N_BYTES + 1 },
	{ .says = "another size", .n_values = UINT64_MAX },
	{ .says = "a text of no bytes", .dtype = BATCHD_INT8 },
};

static void write_slot(char *slot, const struct lie *lie)
{
	static const struct lie none;
	struct table table = truth();

	lie = lie ? lie : &none;
	table.n_text = sizeof dictionary - 1;
	table.entry[0].offset = lie->offset ? lie->offset : table.entry[0].offset;
	table.entry[0].n_bytes = lie->n_bytes ? lie->n_bytes : table.entry[0].n_bytes;
	table.entry[0].offsets = lie->offsets_at ? lie->offsets_at : table.entry[0].offsets;
	table.entry[0].n_rows = lie->n_rows ? lie->n_rows : table.entry[0].n_rows;
	table.entry[0].shape[0] = lie->n_values ? lie->n_values : table.entry[0].shape[0];
	table.entry[0].dtype = lie->dtype ? lie->dtype : table.entry[0].dtype;
	table.entry[1].offset = lie->numbers_at ? lie->numbers_at : table.entry[1].offset;
	memcpy(slot, &table, sizeof table);
	memcpy(slot + sizeof table, dictionary, sizeof dictionary - 1);
	memcpy(slot + OFFSETS_AT, lie->offsets[N_ROWS] ? lie->offsets : rising, sizeof rising);
	memcpy(slot + TEXT_AT, "onetwo", N_BYTES);
}

static unsigned which;

/* A batch that lies, and an honest one. */
static void lying(struct fake *f)
{
	f->opened.served = true;
	f->opened.n_rows = BATCH;
	f->opened.n_field = 1;
	f->field[0].dtype = BATCHD__WIRE__DTYPE__UINT8;
	f->field[0].n_shape = 1;
	f->shape[0] = ROOM;
	welcome(f);
	EXPECT(f, SEEK);
	lend(f, 1, 0, 0, 0, N_ROWS, false);
	write_slot(f->slab, &lies[which]);
	atomic_store(&f->step, 1);
	EXPECT(f, RELEASE);
	lend(f, 1, 0, 1, 0, N_ROWS, false);
	write_slot(f->slab, NULL);
	atomic_store(&f->step, 2);
	EXPECT(f, RELEASE);
	EXPECT(f, CLOSE);
}

START_TEST(test_a_producer_that_lies_costs_its_own_batch)
{
	/* Proves that each lie about a ragged field is refused with its text, for every way to read the batch, and that
	 * the loader goes on with the next batch. */
	struct batchd_array a[2];
	int64_t offsets[N_ROWS + 1];
	char bytes[N_BYTES];
	struct batchd_target target = { "caption", BATCHD_UINT8, bytes, sizeof bytes, offsets, N_ROWS + 1 };
	const char *text;
	size_t n_text;

	which = (unsigned)_i;
	options.dataset = "serve:x";
	play(lying);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	next_is(0, 0);
	await(d, 1);
	ck_assert_int_eq(batchd_arrays(loader, &batch, a, 2, &text, &n_text), BATCHD_E_PROTOCOL);
	ck_assert_msg(strstr(batchd_error(loader), lies[_i].says), "%s", batchd_error(loader));
	ck_assert_int_eq(batchd_get_field(loader, &batch, "caption", a), BATCHD_E_PROTOCOL);
	ck_assert_int_eq(batchd_into(loader, &batch, &target, 1, NULL), BATCHD_E_PROTOCOL);
	release();
	next_is(0, 1);
	await(d, 2);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "caption", a), 0);
	ck_assert(a->text && a->n_rows == N_ROWS && a->shape[0] == N_BYTES && a->offsets[1] == 3 &&
		  !memcmp(a->data, "onetwo", 6));
	ck_assert_int_eq(batchd_get_field(loader, &batch, "x", a), 0);
	ck_assert(!a->offsets && a->n_rows == 3);
	target.n_offsets = N_ROWS; /* a producer makes batches as large as it likes, whatever its usual ones are */
	offsets[N_ROWS] = -7;
	ck_assert_int_eq(batchd_into(loader, &batch, &target, 1, NULL), BATCHD_E_INVALID);
	ck_assert_msg(strstr(batchd_error(loader), "takes 4 offsets"), "%s", batchd_error(loader));
	ck_assert_int_eq(offsets[N_ROWS], -7);
	target.n_offsets = N_ROWS + 1;
	ck_assert_int_eq(batchd_into(loader, &batch, &target, 1, NULL), 0);
	ck_assert_mem_eq(bytes, "onetwo", 6);
	ck_assert_mem_eq(offsets, rising, sizeof rising);
	release();
	finish();
}
END_TEST

START_TEST(test_ragged_arrays_are_laid_out_and_read_back)
{
	/* Proves that offsets that begin anywhere begin at 0 in the slot, the size of such a batch, that a slot one byte
	 * too small is refused, and the error for offsets that do not rise. */
	static const int64_t from_seven[] = { 7, 8, 8, 11 }, falling[] = { 0, 2, 1, 4 };
	struct batchd_array a[2] = { { .dtype = BATCHD_FLOAT32,
				       .n_dims = 2,
				       .shape = { 4, 3 },
				       .offsets = from_seven,
				       .n_rows = 3 },
				     { .dtype = BATCHD_INT64, .n_dims = 1, .shape = { 5 } } },
			    got[2];
	size_t size = arrays_size(a, 2, 2), n_text;
	char *slot = aligned_alloc(64, 1024);
	const char *text;
	struct fault f = { 0 };

	memset(slot, 0, 1024);
	ck_assert_uint_eq(size, 256 + 64 + 64 + 40); /* offsets of 32 bytes, values of 48 */
	ck_assert_int_eq(arrays_lay(slot, size - 1, a, 2, "[]", 2, &f), BATCHD_E_LIMIT);
	ck_assert_int_eq(arrays_lay(slot, size, a, 2, "[]", 2, &f), 0);
	ck_assert_int_eq(arrays_read(slot, size, got, 2, &text, &n_text, &f), 2);
	ck_assert(got[0].n_rows == 3 && got[0].offsets[0] == 0 && got[0].offsets[1] == 1 && got[0].offsets[3] == 4);
	ck_assert(got[0].data == a[0].data && got[1].data == a[1].data && !got[1].offsets && got[1].n_rows == 5);
	a[0].offsets = falling;
	ck_assert_int_eq(arrays_lay(slot, size, a, 2, "[]", 2, &f), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(f.text, "array 0: its 4 offsets have to rise by its number of values, 4"));
	a[0].n_rows = UINT64_MAX;
	ck_assert_uint_eq(arrays_size(a, 2, 2), 0);
	free(slot);
}
END_TEST

SUITE(served_fields)
{
	Suite *s = suite_create("served_fields");
	TCase *tc = tcase_create("producers"), *layout = tcase_create("layout");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_a_producer_that_lies_costs_its_own_batch, 0, sizeof lies / sizeof lies[0]);
	suite_add_tcase(s, tc);
	tcase_add_test(layout, test_ragged_arrays_are_laid_out_and_read_back);
	suite_add_tcase(s, layout);
	return s;
}
