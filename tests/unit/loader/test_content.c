/* What a batch on loan consists of: fields by name and number, of a daemon's batches and of producers'. */
#include <sys/wait.h>

#include "fake/daemon/fake.h"
#include "link/names.h"
#include "loader/dlpack.h"
#include "support/suite.h"

enum { CAPTIONS_AT = 3072, VALUES_AT = 3328, MOST_BYTES = 256 };

static const char words[] = "onetwothreefourfive";
static const int64_t offsets[] = { 0, 3, 6, 11, 15, 19 };

static void setup_fields(void)
{
	setup();
	set_field(d, 2, "caption", BATCHD__WIRE__DTYPE__UINT8, CAPTIONS_AT);
	d->field[2].kind = BATCHD__WIRE__FIELD_KIND__RAGGED;
	d->field[2].text = true;
	d->field[2].values_offset = VALUES_AT;
	d->field[2].most_values = MOST_BYTES;
	d->opened.n_field = 3;
}

/* Slot 0 with captions; changed: a row whose offset is another one. */
static void lend_captions(struct fake *f, int changed, int64_t to)
{
	memcpy(f->slab + VALUES_AT, words, sizeof words - 1);
	memcpy(f->slab + CAPTIONS_AT, offsets, (BATCH + 1) * sizeof offsets[0]);
	if (changed >= 0)
		((int64_t *)(void *)(f->slab + CAPTIONS_AT))[changed] = to;
	lend(f, 1, 0, 0, 0, BATCH, false);
}

static void captions(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_captions(f, -1, 0);
	EXPECT(f, RELEASE);
	EXPECT(f, CLOSE);
}

START_TEST(test_a_field_is_found_by_name_and_by_number)
{
	/* Proves what info says of fields, that data and labels are the fields of these names, that rows of a ragged field
	 * are where its offsets say, and the errors for a field that is not there and a batch that is not on loan. */
	struct batchd_info info = { .size_bytes = sizeof info };
	struct batchd_array a;

	play(captions);
	open_loader();
	batchd_get_info(loader, &info);
	ck_assert_uint_eq(info.n_fields, 3);
	ck_assert_str_eq(info.fields[0].name, "data");
	ck_assert_str_eq(info.fields[2].name, "caption");
	ck_assert(info.fields[2].ragged && info.fields[2].text && info.fields[2].most_values == MOST_BYTES);
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	next_is(0, 0);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "data", &a), 0);
	ck_assert(a.data == batch.data && a.n_dims == 3 && a.shape[0] == BATCH && a.shape[2] == 3 && !a.offsets);
	ck_assert_uint_eq(a.n_bytes, BATCH * ROW_FLOATS * sizeof(float));
	ck_assert_int_eq(batchd_get_field_at(loader, &batch, 1, &a), 0);
	ck_assert(a.data == batch.labels && a.dtype == BATCHD_INT64 && a.n_dims == 1);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "caption", &a), 0);
	ck_assert(a.text && a.n_dims == 1 && a.shape[0] == (uint64_t)offsets[BATCH] && a.n_bytes == a.shape[0]);
	for (unsigned row = 0; row < BATCH; row++)
		ck_assert_mem_eq((char *)a.data + (a.offsets[row] - a.offsets[0]), words + offsets[row],
				 (size_t)(offsets[row + 1] - offsets[row]));
	ck_assert_ptr_null(a.device_data);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "text", &a), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "no field 'text': they have data, label, caption"));
	ck_assert_int_eq(batchd_get_field_at(loader, &batch, 3, &a), BATCHD_E_INVALID);
	release();
	finish();
}
END_TEST

static struct {
	int row;
	int64_t to;
} wrong[] = { { 0, -1 }, { 1, -1 }, { 1, 7 }, { BATCH, MOST_BYTES + 1 }, { BATCH, INT64_MAX }, { 0, 4 } };

static unsigned which;

static void wrong_offsets(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_captions(f, wrong[which].row, wrong[which].to);
	EXPECT(f, RELEASE);
	EXPECT(f, CLOSE);
}

START_TEST(test_offsets_that_make_no_sense_are_an_error)
{
	/* Proves that no row of a ragged field is read outside the slot: negative, falling, and beyond its room. */
	struct batchd_array a;

	which = (unsigned)_i;
	play(wrong_offsets);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	next_is(0, 0);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "caption", &a), BATCHD_E_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "'caption'"));
	ck_assert_int_eq(batchd_get_field(loader, &batch, "label", &a), 0);
	release();
	finish();
}
END_TEST

static void refused(struct fake *f)
{
	welcome(f);
}

START_TEST(test_fields_that_do_not_fit_their_slot_are_refused)
{
	/* Proves the checks of what Opened says about ragged fields. */
	switch (_i) {
	case 0:
		d->field[2].offset = d->slot_bytes - BATCH * 8;
		break;
	case 1:
		d->field[2].offset = CAPTIONS_AT + 4;
		break;
	case 2:
		d->field[2].most_values = d->slot_bytes - VALUES_AT + 1;
		break;
	case 3:
		d->field[2].most_values = UINT64_MAX;
		break;
	case 4: /* values without bytes */
		d->field[2].n_shape = 1;
		d->field[2].shape = (uint32_t[]){ 0 };
		break;
	case 5:
		d->field[0].offset = 8;
		break;
	}
	play(refused);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_PROTOCOL);
	finish();
}
END_TEST

START_TEST(test_wanted_names_are_checked_before_they_are_sent)
{
	/* Proves the limits on options.fields, on both sides. */
	char name[WIRE_MAX_FIELD_NAME + 2];
	const char *names[WIRE_MAX_FIELDS + 1];

	options.socket = "/nowhere/socket"; /* a name that is not checked first ends in another error */
	options.autostart = 0;
	memset(name, 'x', sizeof name);
	name[WIRE_MAX_FIELD_NAME + 1] = '\0';
	for (unsigned i = 0; i <= WIRE_MAX_FIELDS; i++)
		names[i] = name + 1;
	options.fields = names;
	options.n_fields = WIRE_MAX_FIELDS;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	options.n_fields++;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(err, "65 names"));
	options.n_fields = 2;
	names[1] = name;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(err, "name 1"));
	names[1] = "";
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_INVALID);
}
END_TEST

/* ---- tensors ---- */

static void *delete_plain(void *m)
{
	((struct dl_managed *)m)->deleter(m);
	return NULL;
}

static void *delete_versioned(void *m)
{
	((struct dl_managed_versioned *)m)->deleter(m);
	return NULL;
}

START_TEST(test_a_tensor_has_a_share_of_the_loan)
{
	/* Proves both forms of DLPack, of a dense and of a ragged field, and that the slot goes back with the last of
	 * two tensors, which another thread deletes after the trainer has released the batch. */
	struct dl_managed_versioned *versioned;
	struct dl_managed *plain;
	struct batchd_array a;
	pthread_t thread;
	void *again;

	options.writable = _i;
	play(captions);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	next_is(0, 0);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "data", &a), 0);
	ck_assert_int_eq(batchd_dlpack(loader, &batch, &a, 1, (void **)&versioned), 0);
	ck_assert(versioned->major == 1 && versioned->flags == (_i ? 0 : DL_FLAG_READ_ONLY));
	ck_assert_ptr_eq(versioned->tensor.data, batch.data);
	ck_assert(versioned->tensor.device_type == DL_CPU && versioned->tensor.device_id == 0);
	ck_assert(versioned->tensor.type_code == DL_FLOAT && versioned->tensor.type_bits == 32);
	ck_assert(versioned->tensor.n_dims == 3 && versioned->tensor.byte_offset == 0);
	ck_assert(versioned->tensor.shape[0] == BATCH && versioned->tensor.shape[2] == 3);
	ck_assert(versioned->tensor.strides[2] == 1 && versioned->tensor.strides[0] == ROW_FLOATS);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "caption", &a), 0);
	ck_assert_int_eq(batchd_dlpack(loader, &batch, &a, 0, (void **)&plain), 0);
	ck_assert(plain->tensor.data == a.data && plain->tensor.n_dims == 1);
	ck_assert(plain->tensor.type_code == DL_UINT && plain->tensor.shape[0] == offsets[BATCH]);
	release();
	ck_assert_int_eq(batchd_n_leased(loader), 1);
	delete_plain(plain);
	ck_assert_int_eq(batchd_n_leased(loader), 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, delete_versioned, versioned), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(batchd_n_leased(loader), 0);
	ck_assert_int_eq(batchd_dlpack(loader, &batch, &a, 0, &again), BATCHD_E_INVALID);
	ck_assert_ptr_null(again);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "no longer on loan"));
	finish();
}
END_TEST

static void lend_and_close(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_captions(f, -1, 0);
	EXPECT(f, CLOSE);
	memset(f->slab, 0xee, N_SLOTS * f->slot_bytes);
	ck_assert_ptr_null(hear(f));
}

START_TEST(test_a_tensor_outlives_its_loader_and_its_daemon)
{
	/* The bytes stay after both have gone, a forked child that deletes its copy ends nothing, and the deleter frees
	 * the loader. */
	struct dl_managed *tensor;
	struct batchd_array a;
	int status;
	pid_t child;

	play(lend_and_close);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	next_is(0, 0);
	ck_assert_int_eq(batchd_get_field_at(loader, &batch, 0, &a), 0);
	ck_assert_int_eq(batchd_dlpack(loader, &batch, &a, 0, (void **)&tensor), 0);
	release();
	child = fork();
	if (child == 0) {
		void *none;
		int r = batchd_dlpack(loader, &batch, &a, 0, &none);

		delete_plain(tensor);
		_exit(r == BATCHD_E_FORKED && !none ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(batchd_n_leased(loader), 1);
	finish();
	ck_assert(((float *)tensor->tensor.data)[0] == value(1, 0));
	delete_plain(tensor);
}
END_TEST

/* ---- producers ---- */

static const char dictionary[] =
	"{\"d\":[[\"x\",{\"a\":1}],[3,{\"v\":\"a\\\"]}\"}],[\"deep\",{\"d\":[[\"x\",{\"a\":0}]]}],[\"y\",{\"n\":0}]]}";

/* As client/link/arrays.h lays a batch out. */
static void write_table(char *slot)
{
	struct {
		char magic[8];
		uint32_t n_arrays, n_text;
		struct {
			uint64_t offset, n_bytes;
			uint32_t dtype, n_dims;
			uint64_t shape[8], offsets, n_rows, text;
		} entry[2];
		char text[sizeof dictionary - 1];
	} table = { .magic = "batchd2",
		    .n_arrays = 2,
		    .n_text = sizeof dictionary - 1,
		    .entry = { { 512, 12, BATCHD_FLOAT32, 1, { 3 } }, { 576, 16, BATCHD_INT64, 1, { 2 } } } };

	memcpy(table.text, dictionary, sizeof table.text);
	memcpy(slot, &table, sizeof table);
	*(int64_t *)(void *)(slot + 576) = 42;
}

static void produced(struct fake *f)
{
	f->opened.served = true;
	f->opened.n_rows = BATCH;
	f->opened.n_field = 1;
	f->field[0].dtype = BATCHD__WIRE__DTYPE__UINT8;
	f->field[0].n_shape = 1;
	f->shape[0] = 1024;
	welcome(f);
	EXPECT(f, SEEK);
	lend(f, 1, 0, 0, 0, BATCH, false);
	/* what lend has written lies under the table, which is written before the trainer looks */
	write_table(f->slab);
	atomic_store(&f->step, 1);
	EXPECT(f, RELEASE);
	EXPECT(f, CLOSE);
}

START_TEST(test_arrays_of_a_producer_are_found_by_their_keys)
{
	/* Proves names and numbers of a producer's arrays, through the same functions. */
	struct batchd_array a;

	options.dataset = "serve:x";
	play(produced);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	next_is(0, 0);
	await(d, 1);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "x", &a), 0);
	ck_assert(a.dtype == BATCHD_INT64 && a.shape[0] == 2 && *(int64_t *)a.data == 42);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "y", &a), 0);
	ck_assert(a.dtype == BATCHD_FLOAT32 && a.shape[0] == 3);
	ck_assert_int_eq(batchd_get_field_at(loader, &batch, 1, &a), 0);
	ck_assert(a.dtype == BATCHD_INT64);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "deep", &a), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "z", &a), BATCHD_E_INVALID);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "'z'"));
	ck_assert_int_eq(batchd_get_field_at(loader, &batch, 2, &a), BATCHD_E_INVALID);
	release();
	finish();
}
END_TEST

/* ---- batches that do not fit their slot ---- */

enum { LARGE_BYTES = 1 << 20, LARGE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

/* What the scripted daemon sends as a large batch. */
static struct {
	uint64_t n_bytes, said_bytes; /* of the memfd, and of it in Large */
	uint32_t said_slot;
	int seals;
	uint64_t seek;
} large;

static void send_large(struct fake *f)
{
	Batchd__Wire__Large m = BATCHD__WIRE__LARGE__INIT;
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;
	int fd = memfd_create("batch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char table[1024] = { 0 };

	write_table(table);
	ck_assert_int_eq(ftruncate(fd, (off_t)large.n_bytes), 0);
	ck_assert_int_eq(pwrite(fd, table, sizeof table, 0), sizeof table);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, large.seals), 0);
	m.slot = large.said_slot;
	m.generation = ++f->generation;
	m.n_bytes = large.said_bytes;
	say(f, BATCHD__WIRE__SERVER_MESSAGE__BODY_LARGE, &m, fd);
	close(fd);
	b.seek = large.seek;
	b.slot = 0;
	b.generation = f->generation;
	b.n_rows = BATCH;
	b.large_bytes = LARGE_BYTES;
	send_batch(f, &b);
}

static void begin_produced(struct fake *f)
{
	f->opened.served = true;
	f->opened.n_field = 1;
	f->field[0].dtype = BATCHD__WIRE__DTYPE__UINT8;
	f->field[0].n_shape = 1;
	f->shape[0] = 512; /* the table alone does not fit */
	welcome(f);
	EXPECT(f, SEEK);
}

static void produced_large(struct fake *f)
{
	begin_produced(f);
	EXPECT(f, SEEK);
	large.seek = 1; /* of the earlier start: it comes back unseen */
	send_large(f);
	EXPECT(f, RELEASE);
	large.seek = 2;
	send_large(f);
	EXPECT(f, CLOSE);
}

static void produced_wrong(struct fake *f)
{
	begin_produced(f);
	send_large(f);
	hear(f);
}

static void prepare_large(void)
{
	large.n_bytes = large.said_bytes = LARGE_BYTES;
	large.said_slot = 0;
	large.seals = LARGE_SEALS;
	large.seek = 1;
	options.dataset = "serve:x";
}

START_TEST(test_a_large_batch_is_read_from_its_own_memory)
{
	/* It is this process's own, to write as well, and stays what it is when the loader is closed. */
	struct batchd_array a;

	prepare_large();
	play(produced_large);
	open_loader();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_OK);
	ck_assert_ptr_null(batch.indices);
	ck_assert_int_eq(batchd_get_field(loader, &batch, "x", &a), 0);
	ck_assert(a.dtype == BATCHD_INT64 && *(int64_t *)a.data == 42);
	*(int64_t *)a.data = 43;
	ck_assert_int_eq(((char *)batch.data)[LARGE_BYTES - 1], 0);
	batchd_close(loader);
	ck_assert(*(int64_t *)a.data == 43 && ((char *)batch.data)[LARGE_BYTES - 1] == 0);
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), 0);
	loader = NULL;
	pthread_join(d->thread, NULL);
}
END_TEST

static void produced_without_memory(struct fake *f)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;

	begin_produced(f);
	b.seek = b.generation = 1;
	b.n_rows = BATCH;
	b.large_bytes = LARGE_BYTES;
	send_batch(f, &b);
	while (ring_untaken(&f->ring.batches)) /* then the trainer waits for the memory */
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	atomic_store(&f->step, 1);
	hear(f);
}

static void *close_when_it_waits(void *arg)
{
	(void)arg;
	await(d, 1);
	batchd_close(loader);
	return NULL;
}

START_TEST(test_closing_ends_the_wait_for_a_large_batch)
{
	pthread_t thread;

	prepare_large();
	play(produced_without_memory);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, close_when_it_waits, NULL), 0);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_CLOSED);
	pthread_join(thread, NULL);
	loader = NULL;
	pthread_join(d->thread, NULL);
}
END_TEST

static unsigned n_open(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void send_a_recording(struct fake *f)
{
	Batchd__Wire__Traced m = BATCHD__WIRE__TRACED__INIT;
	int fd = memfd_create("recording", MFD_CLOEXEC);

	begin_produced(f);
	await(f, 1);
	say(f, BATCHD__WIRE__SERVER_MESSAGE__BODY_TRACED, &m, fd);
	close(fd);
	atomic_store(&f->step, 2);
	hear(f);
}

START_TEST(test_descriptors_of_other_messages_are_closed)
{
	/* Only a Large brings a trainer at work one. */
	unsigned n;

	prepare_large();
	play(send_a_recording);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	n = n_open();
	atomic_store(&d->step, 1);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
	await(d, 2);
	ck_assert_uint_lt(n_open(), n); /* the script's own is closed, too */
	finish();
}
END_TEST

START_TEST(test_the_memory_of_a_large_batch_is_checked)
{
	/* Each seal is missing once; it is shorter than said; another batch's, by its slot or its size. */
	for (int i = 0; i < 6; i++) {
		const int missing[] = { F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE };

		teardown();
		setup();
		prepare_large();
		if (i < 3)
			large.seals &= ~missing[i];
		large.n_bytes -= i == 3;
		large.said_slot += i == 4;
		large.said_bytes -= i == 5;
		play(produced_wrong);
		open_loader();
		ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
		ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
		ck_assert_ptr_nonnull(strstr(batchd_error(loader), i < 3    ? "is not sealed"
								   : i == 3 ? "1048575 bytes where it said 1048576"
									    : "the memory of another batch"));
		finish();
	}
}
END_TEST

START_TEST(test_names_are_looked_for_in_the_outermost_dictionary_only)
{
	/* Proves the scan of a producer's text, which may be cut anywhere or be something else. */
	size_t n = sizeof dictionary - 1;

	ck_assert_int_eq(names_find(dictionary, n, "x"), 1);
	ck_assert_int_eq(names_find(dictionary, n, "y"), 0);
	ck_assert_int_eq(names_find(dictionary, n, "deep"), -1);
	ck_assert_int_eq(names_find(dictionary, n, ""), -1);
	for (size_t cut = 0; cut < n; cut++) {
		char *text = malloc(cut ? cut : 1); /* a read beyond it is detected by a sanitizer */

		memcpy(text, dictionary, cut);
		ck_assert_int_le(names_find(text, cut, "y"), 0);
		free(text);
	}
	ck_assert_int_eq(names_find("{\"t\":[{\"a\":0}]}", 15, "a"), -1);
	ck_assert_int_eq(names_find("{\"d\":[[\"a\",{\"a\":1234567}]]}", 27, "a"), -1);
	ck_assert_int_eq(names_find("{\"d\":[[\"a\",{\"b\":1}]]}", 21, "a"), -1);
}
END_TEST

SUITE(content)
{
	Suite *s = suite_create("content");
	TCase *tc = tcase_create("fields"), *served = tcase_create("producers");

	tcase_add_checked_fixture(tc, setup_fields, teardown);
	tcase_add_test(tc, test_a_field_is_found_by_name_and_by_number);
	tcase_add_loop_test(tc, test_offsets_that_make_no_sense_are_an_error, 0, sizeof wrong / sizeof wrong[0]);
	tcase_add_loop_test(tc, test_fields_that_do_not_fit_their_slot_are_refused, 0, 6);
	tcase_add_test(tc, test_wanted_names_are_checked_before_they_are_sent);
	tcase_add_loop_test(tc, test_a_tensor_has_a_share_of_the_loan, 0, 2);
	tcase_add_test(tc, test_a_tensor_outlives_its_loader_and_its_daemon);
	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(served, setup, teardown);
	tcase_add_test(served, test_arrays_of_a_producer_are_found_by_their_keys);
	tcase_add_test(served, test_a_large_batch_is_read_from_its_own_memory);
	tcase_add_test(served, test_the_memory_of_a_large_batch_is_checked);
	tcase_add_test(served, test_descriptors_of_other_messages_are_closed);
	tcase_add_test(served, test_closing_ends_the_wait_for_a_large_batch);
	tcase_add_test(served, test_names_are_looked_for_in_the_outermost_dictionary_only);
	suite_add_tcase(s, served);
	return s;
}
