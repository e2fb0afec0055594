/* batchctl load: one image through a pipeline, in this process or by a daemon's workers, as batchd.load does it: its numbers, as a file of numpy
 * or as a picture, and how long it takes. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batchd-inline.h"
#include "batchd.h"
#include "ctl/ctl.h"
#include "ctl/term/options.h"
#include "ctl/term/progress.h"

enum { MOST_BYTES = 256 << 20 }; /* of a file: the daemon's limit */

static const char *const load_dtypes[] = { "uint8", "float16", "float32", NULL };
static const char *const load_layouts[] = { "NCHW", "NHWC", NULL };

struct load {
	const char *path, *transform, *out, *socket;
	unsigned dtype, layout;
	uint64_t repeat, seed, epoch, index;
	bool exif, json, daemon;

	batchd_inline *pipeline;
	struct batchd_load *connection; /* daemon: in place of the pipeline */
	uint8_t *bytes;
	size_t n_bytes, row_bytes;
	uint32_t shape[3];
	void *row;
	double *ms; /* of each repetition */
};

/* The file's bytes, with a complaint that names it where they cannot be had. */
static int load_read(struct load *o)
{
	int fd = open(o->path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	ssize_t n = -1;

	if (fd < 0 || fstat(fd, &st) != 0) {
		ctl_complain("load", "cannot read '%s': %s", o->path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return CTL_UNKNOWN;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > MOST_BYTES) {
		ctl_complain("load", "'%s' is no image file: it is %s", o->path,
			     S_ISREG(st.st_mode) ? "larger than 256 MiB" : "not a regular file");
		close(fd);
		return CTL_FAILED;
	}
	o->n_bytes = (size_t)st.st_size;
	o->bytes = malloc(o->n_bytes + 1);
	for (size_t at = 0; o->bytes && at < o->n_bytes; at += (size_t)n) {
		n = read(fd, o->bytes + at, o->n_bytes - at);
		if (n <= 0)
			break;
	}
	if (!o->bytes || (o->n_bytes && n <= 0))
		ctl_complain("load", "cannot read '%s': %s", o->path,
			     !o->bytes ? "not enough memory"
			     : n < 0   ? strerror(errno)
				       : "it became shorter");
	close(fd);
	return o->bytes && (!o->n_bytes || n > 0) ? CTL_OK : CTL_UNKNOWN;
}

static int load_open_daemon(struct load *o, char *err, size_t err_size)
{
	struct batchd_load_options options;
	int r;

	batchd_load_options_init(&options);
	options.socket = o->socket;
	options.transform = o->transform;
	options.dtype = (enum batchd_dtype)o->dtype;
	options.layout = (enum batchd_layout)o->layout;
	options.apply_exif = o->exif;
	options.autostart = 0;
	options.program = "batchctl load";
	r = batchd_load_open(&options, &o->connection, err, err_size);
	if (r < 0)
		return r;
	batchd_load_shape(o->connection, o->shape);
	o->row_bytes = batchd_load_row_bytes(o->connection);
	return 0;
}

static int load_open_inline(struct load *o, char *err, size_t err_size)
{
	int r = batchd_inline_open(o->transform, (int)o->dtype, (int)o->layout, &o->pipeline, err, err_size);

	if (r < 0)
		return r;
	batchd_inline_shape(o->pipeline, o->shape);
	o->row_bytes = batchd_inline_row_bytes(o->pipeline);
	return 0;
}

static int load_open(struct load *o)
{
	char err[5000];
	int r = (o->daemon || o->socket ? load_open_daemon : load_open_inline)(o, err, sizeof err);

	if (r < 0) {
		ctl_complain("load", "%s", err);
		return r == BATCHD_E_INVALID ? CTL_USAGE : r == BATCHD_E_CONNECT ? CTL_NOT_RUNNING : CTL_FAILED;
	}
	o->row = malloc(o->row_bytes + 64);
	o->ms = calloc(o->repeat, sizeof *o->ms);
	if (o->row && o->ms)
		return load_read(o);
	ctl_complain("load", "not enough memory");
	return CTL_FAILED;
}

static int load_once(struct load *o, char *err, size_t err_size)
{
	const struct batchd_image image = {
		.bytes = o->bytes, .n_bytes = o->n_bytes, .seed = o->seed, .epoch = o->epoch, .index = o->index
	};
	uint32_t failed;
	int r;

	if (!o->connection)
		return batchd_inline_load(o->pipeline, o->bytes, o->n_bytes, o->exif, o->seed, o->epoch, o->index,
					  o->row, err, err_size);
	do
		r = batchd_load_images(o->connection, &image, 1, o->row, &failed, err, err_size);
	while (r == BATCHD_AGAIN);
	return r;
}

static int load_run(struct load *o)
{
	char err[5000];

	for (uint64_t i = 0; i < o->repeat; i++) {
		uint64_t began = progress_now_ns();
		int r = load_once(o, err, sizeof err);

		if (r < 0) {
			ctl_complain("load", "%s: %s", o->path, err);
			return CTL_FAILED;
		}
		o->ms[i] = (double)(progress_now_ns() - began) / 1e6;
	}
	return CTL_OK;
}

/* Version 1.0 of numpy's format: a magic number, the header's length, and a dictionary padded to 64 bytes. */
static int load_write(const struct load *o)
{
	static const char *const types[] = { "|u1", "<f2", "<f4" };
	char header[128];
	FILE *f = fopen(o->out, "we");
	bool ok;

	memset(header, ' ', sizeof header);
	memcpy(header, "\x93NUMPY\x01\x00", 8);
	header[8] = sizeof header - 10;
	header[9] = 0;
	header[10 + snprintf(header + 10, sizeof header - 11,
			     "{'descr': '%s', 'fortran_order': False, 'shape': (%" PRIu32 ", %" PRIu32 ", %" PRIu32
			     "), }",
			     types[o->dtype], o->shape[0], o->shape[1], o->shape[2])] = ' ';
	header[sizeof header - 1] = '\n';
	ok = f && fwrite(header, sizeof header, 1, f) == 1 && fwrite(o->row, o->row_bytes, 1, f) == 1;
	if (f && fclose(f) != 0)
		ok = false;
	if (ok)
		return CTL_OK;
	ctl_complain("load", "cannot write '%s': %s", o->out, strerror(errno));
	return CTL_FAILED;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int load_report(struct load *o)
{
	double p50, p99;

	qsort(o->ms, o->repeat, sizeof *o->ms, by_value);
	p50 = o->ms[(o->repeat - 1) / 2];
	p99 = o->ms[(o->repeat - 1) * 99 / 100];
	if (o->json)
		return ctl_print_json("load",
				      json_pack("{s:o, s:s, s:s, s:[i,i,i], s:I, s:f, s:f, s:o?}", "file",
						ctl_json_text(o->path), "dtype", load_dtypes[o->dtype], "layout",
						load_layouts[o->layout], "shape", (int)o->shape[0], (int)o->shape[1],
						(int)o->shape[2], "n", (json_int_t)o->repeat, "p50_ms", p50, "p99_ms",
						p99, "out", o->out ? ctl_json_text(o->out) : NULL));
	printf("%s: %s %" PRIu32 "x%" PRIu32 "x%" PRIu32, o->path, load_dtypes[o->dtype], o->shape[0], o->shape[1],
	       o->shape[2]);
	if (o->repeat > 1)
		printf(", p50 %.2f ms, p99 %.2f ms of %" PRIu64 "\n", p50, p99, o->repeat);
	else
		printf(", %.2f ms\n", p50);
	return ctl_flush("load");
}

int load_main(int argc, char **argv)
{
	struct load o = { .transform = "val224", .dtype = BATCHD_FLOAT32, .repeat = 1 };
	const struct option_spec specs[] = {
		{ "transform", OPTION_TEXT, &o.transform, "T", "train224, val224 or JSON", 0, 0, NULL },
		{ "dtype", OPTION_CHOICE, &o.dtype, "D", "uint8, float16 or float32", 0, 0, load_dtypes },
		{ "layout", OPTION_CHOICE, &o.layout, "L", "NCHW or NHWC", 0, 0, load_layouts },
		{ "exif", OPTION_FLAG, &o.exif, NULL, "turn the image upright", 0, 0, NULL },
		{ "seed", OPTION_NUMBER, &o.seed, "N", "of random ops", 0, UINT64_MAX, NULL },
		{ "epoch", OPTION_NUMBER, &o.epoch, "N", "of random ops", 0, UINT64_MAX, NULL },
		{ "index", OPTION_NUMBER, &o.index, "N", "of the sample, for random ops", 0, UINT64_MAX, NULL },
		{ "out", OPTION_TEXT, &o.out, "FILE.npy", "write the numbers as an array of numpy", 0, 0, NULL },
		{ "repeat", OPTION_NUMBER, &o.repeat, "N", "so many times, to measure the delay", 1, 1000000, NULL },
		{ "daemon", OPTION_FLAG, &o.daemon, NULL, "by the workers of a daemon, not in this process", 0, 0,
		  NULL },
		{ "socket", OPTION_TEXT, &o.socket, "PATH", "by the daemon at PATH", 0, 0, NULL },
		{ "json", OPTION_FLAG, &o.json, NULL, "the result as JSON", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"load",
		"FILE",
		"Runs one image through a pipeline, as batchd.load does. Needs no daemon, unless asked for one.",
		"The first repetition has empty tables and buffers; p50 says what a process that goes on takes.",
		1,
	};
	int code;

	if (!command_parse(&cmd, specs, argc, argv, &o.path, &code))
		return code;
	code = load_open(&o);
	if (code == CTL_OK)
		code = load_run(&o);
	if (code == CTL_OK && o.out)
		code = load_write(&o);
	if (code == CTL_OK)
		code = load_report(&o);
	batchd_inline_close(o.pipeline);
	batchd_load_close(o.connection);
	free(o.bytes);
	free(o.row);
	free(o.ms);
	return code;
}
