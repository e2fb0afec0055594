/* batchctl verify: reads and decodes every file of a data set completely, and names the bad ones.
 *
 * The daemon decodes only the part of a picture that a crop needs, so damage near the end of a file may go unnoticed
 * for epochs; verify decodes every row. Arrays have nothing to decode: their header is checked when they are opened,
 * and every row is read. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "image/formats/decode.h"
#include "ctl/command/local-dataset.h"
#include "ctl/term/options.h"
#include "ctl/command/parallel-for.h"
#include "sources.h"

enum { CHUNK_BYTES = 4 << 20 };

struct bad {
	uint64_t index;
	char name[512], error[512];
};

struct verify {
	const char *path;
	uint64_t jobs;
	bool exif, json, quiet;

	struct dataset *ds;
	uint64_t n;                                         /* samples */
	size_t row_bytes[DATASET_MAX_FIELDS];               /* arrays; 0 of ragged fields */
	size_t sample_bytes;                                /* arrays: of all of these */
	uint64_t chunk;                                     /* arrays: rows read at once */
	atomic_uint_fast64_t n_bytes, n_formats[N_FORMATS]; /* by enum image_format */

	pthread_mutex_t lock; /* guards the fields below */
	struct bad *bad;
	size_t n_bad, capacity;
};

/* One thread's own state. */
struct reader {
	struct decoder *decoder;
	struct file_bytes file;
	void *rows[DATASET_MAX_FIELDS]; /* arrays: of each dense field */
};

static void free_reader(struct reader *r)
{
	decoder_destroy(r->decoder);
	file_bytes_finish(&r->file);
	for (unsigned k = 0; k < DATASET_MAX_FIELDS; k++)
		free(r->rows[k]);
	free(r);
}

static void *reader_begin(void *arg)
{
	const struct verify *v = arg;
	struct reader *r = calloc(1, sizeof *r);
	bool image = dataset_is_image(v->ds), failed = false;

	if (!r)
		return NULL;
	if (image)
		r->decoder = decoder_create(&decode_limits_default);
	for (unsigned k = 0; k < DATASET_MAX_FIELDS && !image; k++) {
		if (v->row_bytes[k])
			r->rows[k] = malloc(v->chunk * v->row_bytes[k] + 64);
		failed |= v->row_bytes[k] && !r->rows[k];
	}
	if (image ? r->decoder != NULL : !failed)
		return r;
	free_reader(r);
	return NULL;
}

static void reader_end(void *arg, void *own)
{
	(void)arg;
	free_reader(own);
}

static int add_bad(struct verify *v, uint64_t index, const char *name, const char *error)
{
	int r = 0;

	pthread_mutex_lock(&v->lock);
	if (v->n_bad == v->capacity) {
		size_t capacity = v->capacity ? 2 * v->capacity : 16;
		struct bad *bad = realloc(v->bad, capacity * sizeof *bad);

		if (bad) {
			v->bad = bad;
			v->capacity = capacity;
		} else {
			r = -ENOMEM;
		}
	}
	if (r == 0) {
		struct bad *b = &v->bad[v->n_bad++];

		b->index = index;
		snprintf(b->name, sizeof b->name, "%s", name);
		snprintf(b->error, sizeof b->error, "%s", error);
	}
	pthread_mutex_unlock(&v->lock);
	return r;
}

static int add_bad_image(struct verify *v, uint64_t index, const char *error)
{
	char name[512];

	dataset_name(v->ds, index, name, sizeof name);
	return add_bad(v, index, name, error);
}

static int verify_image(void *arg, void *own, uint64_t i)
{
	struct verify *v = arg;
	struct reader *reader = own;
	struct dataset_error read_error = { .text = "" };
	struct image_error error = { .text = "" };
	struct image_info info;
	struct image whole;
	int r = dataset_read(v->ds, i, READ_WAIT, &reader->file, &read_error);

	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return add_bad_image(v, i, *read_error.text ? read_error.text : strerror(-r));
	atomic_fetch_add(&v->n_bytes, reader->file.n_bytes);
	r = decoder_open(reader->decoder, reader->file.data, reader->file.n_bytes, v->exif, &info, &error);
	if (r == 0) {
		r = decoder_region(reader->decoder, (struct region_px){ 0, 0, info.width, info.height }, &whole,
				   &error);
		decoder_close(reader->decoder);
	}
	if (r == 0)
		atomic_fetch_add(&v->n_formats[info.format], 1);
	return r > 0 ? add_bad_image(v, i, error.text) : r;
}

static int verify_rows(void *arg, void *own, uint64_t i)
{
	struct verify *v = arg;
	struct reader *reader = own;
	struct dataset_error error = { .text = "" };
	uint64_t first = i * v->chunk;
	uint64_t n = v->n - first < v->chunk ? v->n - first : v->chunk;
	uint64_t *indices = malloc(n * sizeof *indices);
	char name[64];
	int r;

	if (!indices)
		return -ENOMEM;
	for (uint64_t k = 0; k < n; k++)
		indices[k] = first + k;
	r = dataset_gather(v->ds, indices, n, reader->rows, &error);
	free(indices);
	atomic_fetch_add(&v->n_bytes, n * v->sample_bytes);
	if (r == 0 || r == -ENOMEM)
		return r;
	snprintf(name, sizeof name, "rows %" PRIu64 " to %" PRIu64, first, first + n - 1);
	return add_bad(v, first, name, *error.text ? error.text : strerror(-r));
}

static void prepare_arrays(struct verify *v)
{
	for (unsigned k = 0; k < dataset_n_fields(v->ds); k++) {
		const struct field *f = dataset_field(v->ds, k);

		if (f->kind == FIELD_DENSE && field_item_bytes(f, &v->row_bytes[k]) == 0)
			v->sample_bytes += v->row_bytes[k];
	}
	v->chunk = CHUNK_BYTES / (v->sample_bytes + sizeof(uint64_t)) + 1;
}

static int by_index(const void *a, const void *b)
{
	const struct bad *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

static json_t *formats_json(struct verify *v)
{
	json_t *formats = json_object();

	for (enum image_format f = FORMAT_JPEG; f < N_FORMATS; f++)
		json_object_set_new(formats, image_format_name(f), json_integer((json_int_t)v->n_formats[f]));
	return formats;
}

static int report_json(struct verify *v, double seconds)
{
	json_t *list = json_array();

	for (size_t i = 0; i < v->n_bad; i++)
		json_array_append_new(list, json_pack("{s:I, s:o, s:o}", "index", (json_int_t)v->bad[i].index, "name",
						      ctl_json_text(v->bad[i].name), "error",
						      ctl_json_text(v->bad[i].error)));
	return ctl_print_json("verify", json_pack("{s:o, s:I, s:I, s:o, s:I, s:o, s:o, s:I, s:f}", "dataset",
						  ctl_json_text(v->path), "samples", (json_int_t)v->n, "n_left_out",
						  (json_int_t)dataset_n_left_out(v->ds), "left_out",
						  ctl_json_text(dataset_left_out(v->ds)), "n_bad", (json_int_t)v->n_bad,
						  "bad", list, "formats", formats_json(v), "bytes",
						  (json_int_t)v->n_bytes, "seconds", seconds));
}

static int report_text(struct verify *v, double seconds)
{
	const char *what = dataset_is_image(v->ds) ? "files" : "rows";
	uint64_t n_left_out = dataset_n_left_out(v->ds);

	for (size_t i = 0; i < v->n_bad; i++) {
		ctl_make_printable(v->bad[i].name);
		ctl_make_printable(v->bad[i].error);
		printf("%s: %s\n", v->bad[i].name, v->bad[i].error);
	}
	if (!v->n_bad)
		printf("%s: all %" PRIu64 " %s are good (%.1f s)\n", v->path, v->n, what, seconds);
	else if (dataset_is_image(v->ds))
		printf("%s: %zu of %" PRIu64 " files are bad (%.1f s)\n", v->path, v->n_bad, v->n, seconds);
	else
		printf("%s: %zu parts of %" PRIu64 " rows are bad (%.1f s)\n", v->path, v->n_bad, v->n, seconds);
	if (n_left_out)
		printf("%s: %s\n", v->path, dataset_left_out(v->ds));
	return ctl_flush("verify");
}

/* Runs over the opened data set; an exit code. */
static int verify_all(struct verify *v)
{
	bool images = dataset_is_image(v->ds);
	struct progress progress;
	double seconds;
	int r;

	v->n = dataset_n(v->ds);
	if (!images)
		prepare_arrays(v);
	progress_begin(&progress, progress_style_for(v->json, v->quiet), "verify", images ? "files" : "parts",
		       images ? v->n : (v->n + v->chunk - 1) / v->chunk);
	r = parallel_for(&(struct parallel_job){ .n = progress.total,
						 .n_threads = (unsigned)v->jobs,
						 .begin = reader_begin,
						 .end = reader_end,
						 .work = images ? verify_image : verify_rows,
						 .arg = v },
			 &progress);
	seconds = (double)(progress_now_ns() - progress.begun_ns) / 1e9;
	progress_end(&progress);
	if (r < 0) {
		ctl_complain("verify", "stopped: %s", strerror(-r));
		return CTL_FAILED;
	}
	if (v->n_bad)
		qsort(v->bad, v->n_bad, sizeof *v->bad, by_index);
	r = v->json ? report_json(v, seconds) : report_text(v, seconds);
	return r == CTL_OK && (v->n_bad || dataset_n_left_out(v->ds)) ? CTL_FAILED : r;
}

int verify_main(int argc, char **argv)
{
	struct verify v = { .jobs = ctl_n_cpus(), .lock = PTHREAD_MUTEX_INITIALIZER };
	const struct option_spec specs[] = {
		{ "jobs", OPTION_NUMBER, &v.jobs, "N", "threads (default: one per processor)", 1, 256, NULL },
		{ "exif", OPTION_FLAG, &v.exif, NULL, "turn images upright too, as loaders with apply_exif do", 0, 0,
		  NULL },
		{ "json", OPTION_FLAG, &v.json, NULL, "the result, and progress on stderr, as JSON", 0, 0, NULL },
		{ "quiet", OPTION_FLAG, &v.quiet, NULL, "no progress", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"verify",
		"DATASET",
		"Reads and decodes every file of a data set and names the bad ones. Needs no daemon.",
		"DATASET is a directory of class folders, or one of " SOURCE_FILE_KINDS_TEXT "as in batchctl(1).\n"
		"Exit codes: 0 all good, 1 some bad, 2 wrong usage, 4 no such data set.",
		1,
	};
	int code;

	if (!command_parse(&cmd, specs, argc, argv, &v.path, &code))
		return code;
	if (!strncmp(v.path, "random:", 7)) {
		ctl_complain("verify", "'%s' has no files that could be bad: it makes its numbers by itself", v.path);
		return CTL_USAGE;
	}
	if (!strncmp(v.path, "tokens:", 7) && strstr(v.path, ",windows=random")) {
		ctl_complain("verify",
			     "'%s' draws its windows at random; leave windows=random out to read each file once",
			     v.path);
		return CTL_USAGE;
	}
	code = local_open("verify", v.path, progress_style_for(v.json, v.quiet), &v.ds);
	if (code != CTL_OK)
		return code;
	code = verify_all(&v);
	dataset_unref(v.ds);
	free(v.bad);
	return code;
}
