/* batchctl preview: what a pipeline makes of a data set, as a picture to look at.
 *
 * It runs the daemon's own pipeline on the daemon's own order, with the same keys: the first samples of (seed, epoch)
 * that a trainer gets, crop for crop. Only ToTensor's scaling and Normalize are undone, because their result cannot
 * be shown as a picture. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/preview/contact-sheet.h"
#include "ctl/ctl.h"
#include "ctl/command/local-dataset.h"
#include "ctl/preview/op-sheet.h"
#include "ctl/term/options.h"
#include "image/transform/views.h"
#include "ctl/preview/array.h"
#include "ctl/preview/fields.h"
#include "ctl/preview/mix.h"
#include "ctl/preview/order.h"
#include "ctl/preview/views.h"

enum { COLUMNS = 6 };

struct preview {
	const char *path, *out, *title, *transform, *indices, *op, *mix;
	uint64_t n, columns, seed, epoch;
	bool exif, json, quiet;

	struct dataset *ds;
	struct preview_array array; /* of a data set of arrays */
	struct pipeline *pipeline;  /* with an op: its last column's */
	struct op_sheet ops;
	uint32_t width, height;
	uint64_t *order; /* n sample indices */
	struct decoder *decoder;
	struct pipeline_worker *worker;
	struct file_bytes file;
	void *rows[VIEWS_MAX];
	uint8_t *rgb;  /* all views side by side, as one picture */
	uint8_t *view; /* one view */
	struct contact_sheet *sheet;
	json_t *bad;
	json_t *samples;                /* of each picture: its other fields */
	struct batchd_mix_row *mixed;   /* --mix: how each picture is made of all of them, which lie in pictures */
	struct preview_targets targets; /* --mix: of a class that a row has, and has not */
	uint8_t *pictures;
};

static int parse_pipeline(struct preview *p, struct pipeline_error *err)
{
	const struct image_form unknown = { .n_channels = 3 };
	const struct image_form *form = dataset_is_image(p->ds) ? &unknown : &p->array.pixels.form;
	/* As numbers, so that what works after Normalize is seen as well. */
	static const enum dtype stored[] = { DTYPE_UINT16, DTYPE_INT32, DTYPE_UINT8 };
	int r = views_parse(p->transform, form, DTYPE_FLOAT32, LAYOUT_NHWC, &p->pipeline, err);

	for (size_t i = 0; r == -EINVAL && i < sizeof stored / sizeof *stored; i++)
		r = views_parse(p->transform, form, stored[i], LAYOUT_NHWC, &p->pipeline, err);
	return r;
}

static int preview_open_pipeline(struct preview *p)
{
	struct pipeline_error err = { .text = "" };
	int r = p->op ? op_sheet_make(&p->ops, p->op, &err) : parse_pipeline(p, &err);

	if (r == 0 && p->op) {
		p->pipeline = p->ops.pipelines[p->ops.n - 1];
		p->columns = p->ops.n;
	}
	if (r < 0) {
		ctl_complain("preview", "%s", *err.text ? err.text : strerror(-r));
		return r == -EINVAL ? CTL_USAGE : CTL_FAILED;
	}
	preview_views_measure(p->pipeline, &p->width, &p->height);
	return CTL_OK;
}

static int choose(struct preview *p)
{
	return p->indices ? preview_order_listed(p->ds, p->indices, &p->order, &p->n)
			  : preview_order_first(p->ds, p->seed, p->epoch, &p->order, &p->n);
}

static int make_from_row(struct preview *p, const struct pipeline *pipeline, struct sample_key key, char *why,
			 size_t why_size)
{
	struct dataset_error read_error = { .text = "" };
	struct image_error error = { .text = "" };
	struct image image;
	int r = preview_array_image(&p->array, p->ds, key.index, pipeline_pixel(p->pipeline), &image, &read_error);

	if (r < 0) {
		snprintf(why, why_size, "%s", *read_error.text ? read_error.text : strerror(-r));
		return r == -ENOMEM ? r : IMAGE_E_CORRUPT;
	}
	r = views_run_image(pipeline, p->worker, &image, pixels_are_gray(&p->array.pixels, pipeline_pixel(p->pipeline)),
			    key, p->rows, &error);
	snprintf(why, why_size, "%s", error.text);
	return r;
}

static int preview_make_row(struct preview *p, const struct pipeline *pipeline, uint64_t epoch, uint64_t index,
			    char *why, size_t why_size)
{
	struct dataset_error read_error = { .text = "" };
	struct image_error error = { .text = "" };
	struct sample_key key = { .seed = p->seed, .epoch = epoch, .index = index };
	struct image_info info;
	int r;

	if (!dataset_is_image(p->ds))
		return make_from_row(p, pipeline, key, why, why_size);
	r = dataset_read(p->ds, index, READ_WAIT, &p->file, &read_error);
	if (r < 0) {
		snprintf(why, why_size, "%s", *read_error.text ? read_error.text : strerror(-r));
		return r == -ENOMEM ? r : IMAGE_E_CORRUPT;
	}
	r = pipeline_open(pipeline, p->decoder, p->file.data, p->file.n_bytes, p->exif, &info, &error);
	if (r == 0) {
		r = views_run(pipeline, p->worker, p->decoder, &info, key, p->rows, &error);
		decoder_close(p->decoder);
	}
	snprintf(why, why_size, "%s", error.text);
	return r;
}

static void preview_note_bad(struct preview *p, uint64_t index, const char *name, const char *why)
{
	if (!p->json)
		ctl_complain("preview", "%s: %s", name, why);
	json_array_append_new(p->bad, json_pack("{s:I, s:o, s:o}", "index", (json_int_t)index, "name",
						ctl_json_text(name), "error", ctl_json_text(why)));
}

/* The sample's first text, to stand under the picture; "" if it has none. */
static void first_text(const struct preview *p, uint64_t index, char *text, size_t size)
{
	*text = '\0';
	for (unsigned k = 1; k < dataset_n_fields(p->ds); k++) {
		struct field_value v;

		if (!dataset_field(p->ds, k)->text)
			continue;
		dataset_value(p->ds, index, k, &v);
		snprintf(text, size, "%.*s", (int)(v.n_bytes < size ? v.n_bytes : size - 1), (const char *)v.bytes);
		return;
	}
}

/* ---- --mix ---- */

static const char *class_of(const struct preview *p, uint64_t index, char *text, size_t size)
{
	preview_fields_label(p->ds, index, text, size);
	return text;
}

/* All pictures first: each may be another one's partner. */
static int make_pictures(struct preview *p)
{
	size_t n_bytes = (size_t)p->width * p->height * 3;
	struct mix_place place = { .seed = p->seed, .epoch = p->epoch };
	int code;

	p->mixed = calloc(p->n, sizeof *p->mixed);
	p->pictures = calloc(p->n, n_bytes);
	if (!p->mixed || !p->pictures) {
		ctl_complain("preview", "out of memory; ask for fewer images with --n");
		return CTL_FAILED;
	}
	code = preview_mix_draw(p->mix, &place, (uint32_t)p->n, p->height, p->width, dataset_n_classes(p->ds), p->mixed,
				&p->targets);
	for (uint64_t i = 0; code == CTL_OK && i < p->n; i++) {
		char name[512], why[512];
		int r = preview_make_row(p, p->pipeline, p->epoch, p->order[i], why, sizeof why);

		if (r == 0) {
			pipeline_picture(p->pipeline, p->rows[0], p->pictures + i * n_bytes);
			continue;
		}
		dataset_name(p->ds, p->order[i], name, sizeof name);
		preview_note_bad(p, p->order[i], name, why); /* black, as it has no pixels */
	}
	return code;
}

/* "0.61 cat + 0.39 dog"; the class alone where that is the whole target. */
static json_t *target_of(const struct preview *p, uint32_t i, char *text, size_t size)
{
	const struct batchd_mix_row *r = &p->mixed[i];
	char own[64], partner[64];
	bool same;
	float t[2];

	class_of(p, p->order[i], own, sizeof own);
	class_of(p, p->order[r->partner], partner, sizeof partner);
	same = strcmp(own, partner) == 0;
	preview_mix_targets(r, p->targets, same, t);
	if (r->kind == BATCHD_MIX_NONE && p->targets.off == 0.0f)
		snprintf(text, size, "%s", own);
	else if (same || r->kind == BATCHD_MIX_NONE)
		snprintf(text, size, "%.2f %s", (double)t[0], own);
	else
		snprintf(text, size, "%.2f %s + %.2f %s", (double)t[0], own, (double)t[1], partner);
	return same || r->kind == BATCHD_MIX_NONE ? json_pack("{s:f}", own, (double)t[0])
						  : json_pack("{s:f, s:f}", own, (double)t[0], partner, (double)t[1]);
}

static void draw_mixed(struct preview *p, uint32_t i)
{
	const struct batchd_mix_row *r = &p->mixed[i];
	uint64_t own = p->order[i], partner = p->order[r->partner];
	char first[256], second[128];
	json_t *target = target_of(p, i, first, sizeof first);

	preview_mix_picture(p->mixed, i, p->pictures, p->height, p->width, p->rgb);
	contact_sheet_put(p->sheet, i, p->rgb);
	snprintf(second, sizeof second, "#%" PRIu64 " + #%" PRIu64, own, partner);
	contact_sheet_caption(p->sheet, i, first, second);
	json_array_append_new(p->samples, json_pack("{s:s, s:f, s:I, s:f, s:o*}", "kind",
						    r->kind == BATCHD_MIX_BLEND ? "mixup"
						    : r->kind == BATCHD_MIX_BOX ? "cutmix"
										: "none",
						    "weight", (double)r->weight, "partner", (json_int_t)partner,
						    "partner_weight", (double)r->partner_weight, "target", target));
}

static int draw_all_mixed(struct preview *p)
{
	int code = make_pictures(p);

	for (uint32_t i = 0; code == CTL_OK && i < p->n; i++)
		draw_mixed(p, i);
	return code;
}

static int draw_one(struct preview *p, uint32_t i)
{
	unsigned column = p->op ? i % p->ops.n : 0;
	const struct pipeline *pipeline = p->op ? p->ops.pipelines[column] : p->pipeline;
	uint64_t index = p->order[p->op ? i / p->ops.n : i];
	char name[512], why[512], first[64], second[600], text[512];
	const char *base;
	int r;

	dataset_name(p->ds, index, name, sizeof name);
	base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	preview_fields_label(p->ds, index, first, sizeof first);
	first_text(p, index, text, sizeof text);
	snprintf(second, sizeof second, "#%" PRIu64 " %s", index, *text ? text : base);
	if (column == 0)
		json_array_append_new(p->samples, preview_fields_json(p->ds, index, 1));
	r = preview_make_row(p, pipeline, p->epoch + p->ops.epochs[column], index, why, sizeof why);
	if (r < 0)
		return r;
	if (r == 0) {
		preview_views_draw(pipeline, p->rows, p->view, p->width, p->height, p->rgb);
		contact_sheet_put(p->sheet, i, p->rgb);
	} else {
		contact_sheet_put_text(p->sheet, i, why);
		if (column == 0)
			preview_note_bad(p, index, name, why);
	}
	contact_sheet_caption(p->sheet, i, p->op ? p->ops.captions[column] : first, second);
	return 0;
}

/* Pictures on the sheet. */
static uint64_t n_cells(const struct preview *p)
{
	return p->op ? p->n * p->ops.n : p->n;
}

static int draw_all(struct preview *p)
{
	struct progress progress;
	int r = 0;

	uint64_t n = n_cells(p);

	progress_begin(&progress, progress_style_for(p->json, p->quiet), "preview", "images", n);
	for (uint32_t i = 0; r == 0 && i < n; i++) {
		r = draw_one(p, i);
		progress_update(&progress, i + 1);
	}
	progress_end(&progress);
	if (r < 0)
		ctl_complain("preview", "stopped: %s", strerror(-r));
	return r < 0 ? CTL_FAILED : CTL_OK;
}

static int open_sheet(struct preview *p)
{
	char title[1024];

	unsigned n_views = views_n(p->pipeline);
	bool has_rows = true;

	if (!p->columns)
		p->columns = n_views < COLUMNS ? COLUMNS / n_views : 1;
	if (p->columns > n_cells(p))
		p->columns = n_cells(p);
	snprintf(title, sizeof title, "%s   %s   seed %" PRIu64 ", epoch %" PRIu64, p->path,
		 p->op ? p->op : p->transform, p->seed, p->epoch);
	p->sheet = contact_sheet_create(p->title ? p->title : title, (uint32_t)n_cells(p), (uint32_t)p->columns,
					p->width, p->height);
	/* Every op of a sheet makes pictures of one size, some of them floats. */
	for (unsigned k = 0; k < n_views; k++) {
		uint32_t shape[3];

		pipeline_shape(views_at(p->pipeline, k), shape);
		p->rows[k] = malloc((size_t)shape[0] * shape[1] * shape[2] * sizeof(float) + 64);
		has_rows = has_rows && p->rows[k];
	}
	p->view = malloc((size_t)p->width * p->height * 3);
	p->rgb = malloc((size_t)p->width * p->height * 3);
	p->decoder = decoder_create(&decode_limits_default);
	p->worker = pipeline_worker_create();
	p->bad = json_array();
	p->samples = json_array();
	if (p->sheet && has_rows && p->view && p->rgb && p->decoder && p->worker && p->bad && p->samples)
		return CTL_OK;
	ctl_complain("preview", "%" PRIu64 " images of %ux%u make too large a sheet; ask for fewer with --n", p->n,
		     p->width, p->height);
	return CTL_FAILED;
}

static json_t *indices_json(const struct preview *p)
{
	json_t *list = json_array();

	for (uint64_t i = 0; i < p->n; i++)
		json_array_append_new(list, json_integer((json_int_t)p->order[i]));
	return list;
}

static int preview_report(struct preview *p)
{
	int r = contact_sheet_write(p->sheet, p->out);

	if (r < 0) {
		ctl_complain("preview", "cannot write '%s': %s", p->out, strerror(-r));
		return CTL_FAILED;
	}
	if (p->json)
		return ctl_print_json("preview", json_pack("{s:o, s:o, s:O, s:i, s:i, s:s, s:O}", "file",
							   ctl_json_text(p->out), "indices", indices_json(p), "fields",
							   p->samples, "width", (int)p->width, "height", (int)p->height,
							   "pipeline", pipeline_text(p->pipeline), "bad", p->bad));
	printf("%s: %" PRIu64 " images of %ux%u\n", p->out, n_cells(p), p->width, p->height);
	if (pipeline_pixel(p->pipeline) != PIXEL_RGB)
		printf("each image of mode %s is scaled: its least number is black, its greatest is white\n",
		       pixel_mode(pipeline_pixel(p->pipeline)));
	return ctl_flush("preview");
}

/* Whether the data set has pictures; otherwise *code is the end of it: its numbers, or a complaint. */
static bool has_pictures(struct preview *p, int *code)
{
	char why[400];
	int r = dataset_is_image(p->ds) ? 0 : preview_array_open(&p->array, p->ds, why, sizeof why);

	/* Arrays of numbers are what the caller takes them for. */
	bool shows_numbers = p->json && !p->out && !p->op && !p->mix && !p->transform;

	if (!r && !(shows_numbers && p->array.pixels.form.pixel != PIXEL_RGB))
		return true;
	*code = r == -ENOMEM ? CTL_FAILED : CTL_USAGE;
	if (r == -ENOMEM)
		ctl_complain("preview", "%s", why);
	else if (!shows_numbers)
		ctl_complain("preview", "'%s': %s. Their numbers are shown by --json alone", p->path, why);
	else
		*code = choose(p);
	if (*code == CTL_OK)
		*code = ctl_print_json("preview", preview_array_numbers(p->ds, p->order, p->n));
	return false;
}

static int draw_pictures(struct preview *p)
{
	int code;

	if (!p->out) {
		ctl_complain("preview", "--out FILE.png is missing: where to write the image");
		return CTL_USAGE;
	}
	if (!p->transform)
		p->transform = dataset_is_image(p->ds)                   ? "train224"
			       : p->array.pixels.form.pixel == PIXEL_RGB ? "[\"ToTensor\"]"
									 : "[\"Identity\"]";
	code = preview_open_pipeline(p);
	if (code == CTL_OK && p->mix && views_n(p->pipeline) > 1) {
		ctl_complain("preview", "--mix goes with one view of each image, and the transform makes %u",
			     views_n(p->pipeline));
		return CTL_USAGE;
	}
	if (code == CTL_OK)
		code = choose(p);
	if (code == CTL_OK)
		code = open_sheet(p);
	if (code == CTL_OK)
		code = p->mix ? draw_all_mixed(p) : draw_all(p);
	return code == CTL_OK ? preview_report(p) : code;
}

static int preview(struct preview *p)
{
	int code = local_open("preview", p->path, progress_style_for(p->json, p->quiet), &p->ds);

	if (code != CTL_OK)
		return code;
	if (dataset_n(p->ds) == 0) {
		ctl_complain("preview", "'%s' holds no sample", p->path);
		return CTL_FAILED;
	}
	return has_pictures(p, &code) ? draw_pictures(p) : code;
}

static void preview_finish(struct preview *p)
{
	contact_sheet_destroy(p->sheet);
	json_decref(p->bad);
	json_decref(p->samples);
	pipeline_worker_destroy(p->worker);
	decoder_destroy(p->decoder);
	file_bytes_finish(&p->file);
	preview_array_finish(&p->array);
	for (unsigned k = 0; k < VIEWS_MAX; k++)
		free(p->rows[k]);
	free(p->view);
	free(p->rgb);
	free(p->mixed);
	free(p->pictures);
	free(p->order);
	if (!p->op)
		pipeline_destroy(p->pipeline);
	op_sheet_finish(&p->ops);
	if (p->ds)
		dataset_unref(p->ds);
}

/* Whether the name's ending promises another format than the file has. */
static bool is_other_format(const char *name)
{
	static const char *const endings[] = {
		".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".pdf", ".svg"
	};
	const char *dot = strrchr(name, '.');
	bool is = false;

	for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
		is |= !strcasecmp(dot, endings[i]);
	return is;
}

int preview_main(int argc, char **argv)
{
	struct preview p = { .n = 0 };
	const struct option_spec specs[] = {
		{ "out", OPTION_TEXT, &p.out, "FILE", "the PNG file to write (required for images)", 0, 0, NULL },
		{ "title", OPTION_TEXT, &p.title, "TEXT", "above the images, instead of data set and transform", 0, 0,
		  NULL },
		{ "transform", OPTION_TEXT, &p.transform, "T",
		  "train224, val224 or JSON (default train224; of arrays: none)", 0, 0, NULL },
		{ "op", OPTION_TEXT, &p.op, "OP",
		  "instead of a transform: one op over its magnitudes, a name or an op in JSON", 0, 0, NULL },
		{ "mix", OPTION_TEXT, &p.mix, "MIX",
		  "mixes the images as one batch, e.g. mixup:alpha=0.2;cutmix:alpha=1", 0, 0, NULL },
		{ "n", OPTION_NUMBER, &p.n, "N", "images (default 24), of an op rows (default 4)", 1, 10000, NULL },
		{ "columns", OPTION_NUMBER, &p.columns, "N", "images in a row (default 6)", 1, 1000, NULL },
		{ "seed", OPTION_NUMBER, &p.seed, "N", "of order and augmentation", 0, UINT64_MAX, NULL },
		{ "epoch", OPTION_NUMBER, &p.epoch, "N", "of order and augmentation", 0, UINT64_MAX, NULL },
		{ "indices", OPTION_TEXT, &p.indices, "I,J,...", "these samples instead of the epoch's first ones", 0,
		  0, NULL },
		{ "exif", OPTION_FLAG, &p.exif, NULL, "turn images upright, as loaders with apply_exif do", 0, 0,
		  NULL },
		{ "json", OPTION_FLAG, &p.json, NULL, "the result, and progress on stderr, as JSON", 0, 0, NULL },
		{ "quiet", OPTION_FLAG, &p.quiet, NULL, "no progress", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"preview",
		"DATASET",
		"Draws a contact sheet of what a pipeline makes of a data set. Needs no daemon.",
		"DATASET is a directory of class folders, or a data set of one of the kinds that verify takes: images, arrays\n"
		"of images, or with --json alone arrays of numbers.\n"
		"Without --indices it shows the first samples of the epoch's shuffled order, cropped and flipped as a trainer gets them.",
		1,
	};
	int code;

	if (!command_parse(&cmd, specs, argc, argv, &p.path, &code))
		return code;
	if (!p.out && !p.json) { /* the numbers of arrays need none */
		ctl_complain("preview", "--out FILE.png is missing: where to write the image");
		return CTL_USAGE;
	}
	if (p.op && (p.transform || p.columns)) {
		ctl_complain("preview", "--op has a transform and columns of its own: leave --%s out",
			     p.transform ? "transform" : "columns");
		return CTL_USAGE;
	}
	if (p.op && p.mix) {
		ctl_complain("preview", "--op shows one op, and --mix a batch: leave one of them out");
		return CTL_USAGE;
	}
	if (!p.n)
		p.n = p.op ? 4 : 24;
	if (p.out && is_other_format(p.out)) {
		ctl_complain("preview", "--out '%s': the image is a PNG file; give it a name that ends in .png", p.out);
		return CTL_USAGE;
	}
	code = preview(&p);
	preview_finish(&p);
	return code;
}
