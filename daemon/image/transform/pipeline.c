/* Runs a pipeline: sends a view through the ops; then the conversion writes it. */
#include "image/transform/pipeline.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/transform/pipeline-impl.h"
#include "image/transform/random.h"

enum dtype dtype_of_pixel(enum pixel p)
{
	static const enum dtype of[] = { DTYPE_UINT8, DTYPE_UINT16, DTYPE_INT32, DTYPE_FLOAT32 };

	return of[p];
}

static int check_numbers(const struct form *f, enum dtype dtype, struct pipeline_error *err)
{
	enum dtype stored = dtype_of_pixel(f->pixel);

	if (f->to_tensor ? dtype == DTYPE_FLOAT32 || dtype == DTYPE_FLOAT16 : dtype == stored)
		return 0;
	if (dtype == DTYPE_UINT8)
		snprintf(
			err->text, sizeof(err->text),
			"images of mode %s are not made as bytes, and these batches are (dtype uint8, as for a GPU, which "
			"finishes bytes itself): ask for dtype %s in host memory, and copy batches to the GPU in the "
			"training loop",
			pixel_mode(f->pixel), dtype_name(f->to_tensor ? DTYPE_FLOAT32 : stored));
	else if (f->to_tensor)
		snprintf(err->text, sizeof(err->text),
			 "dtype is %s, and the pipeline makes floats of images of mode %s: ask for dtype float32 or "
			 "float16, or leave ToDtype out",
			 dtype_name(dtype), pixel_mode(f->pixel));
	else
		snprintf(
			err->text, sizeof(err->text),
			"dtype is %s, and images of mode %s are %s: ask for that, or put [\"ToDtype\", \"float32\", true] "
			"into the pipeline for floats",
			dtype_name(dtype), pixel_mode(f->pixel), dtype_name(stored));
	return -EINVAL;
}

static int check_output(const struct spec *s, enum dtype dtype, enum layout layout, struct pipeline_error *err)
{
	if (s->form.pixel != PIXEL_RGB && (layout == LAYOUT_NCHW || layout == LAYOUT_NHWC))
		return check_numbers(&s->form, dtype, err);
	if (dtype != DTYPE_UINT8 && dtype != DTYPE_FLOAT16 && dtype != DTYPE_FLOAT32) {
		const char *name = dtype_name(dtype);
		snprintf(err->text, sizeof(err->text),
			 "images cannot be made as %s; expected uint8, float16 or float32", name ? name : "that dtype");
		return -EINVAL;
	}
	if (layout != LAYOUT_NCHW && layout != LAYOUT_NHWC) {
		snprintf(err->text, sizeof(err->text), "the layout of images is NCHW or NHWC");
		return -EINVAL;
	}
	if (dtype != DTYPE_UINT8 && !s->form.to_tensor) {
		snprintf(err->text, sizeof(err->text),
			 "%s needs \"ToTensor\" in the pipeline, which scales pixels to 0..1; without it ask for dtype "
			 "uint8",
			 dtype_name(dtype));
		return -EINVAL;
	}
	return 0;
}

static void init_finish(struct pipeline *p)
{
	const struct form *form = &p->spec.form;
	if (form->pixel != PIXEL_RGB) {
		convert_init_numbers(&p->finish, form->pixel, form->width, form->height);
		if (form->to_tensor)
			convert_numbers_to(&p->finish, p->dtype == DTYPE_FLOAT16 ? CONVERT_FLOAT16 : CONVERT_FLOAT32,
					   !form->unscaled, form->mean[0], form->std[0]);
		return;
	}
	enum convert_type type = p->dtype == DTYPE_UINT8     ? CONVERT_UINT8
				 : p->dtype == DTYPE_FLOAT16 ? CONVERT_FLOAT16
							     : CONVERT_FLOAT32;

	convert_init(&p->finish, type, p->layout == LAYOUT_NCHW, form->n_channels, form->width, form->height,
		     form->mean, form->std);
}

/* With uint8 the trainer does ToTensor and Normalize, so what comes after them must be possible on pixels. */
static int pipeline_check_bytes(const struct pipeline *p, struct pipeline_error *err)
{
	const struct spec *s = &p->spec;
	int rc = 0;

	for (unsigned i = s->n_pixel_ops; rc == 0 && i < s->n_ops; i++)
		if (s->ops[i].type->check_bytes)
			rc = s->ops[i].type->check_bytes(&s->ops[i], &p->finish, err);
	return rc;
}

/* Messages quote given text, which may contain line ends; messages go into logs. */
static void keep_one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = ' ';
}

int pipeline_parse(const char *text, enum dtype dtype, enum layout layout, struct pipeline **out,
		   struct pipeline_error *err)
{
	static const struct image_form unknown = { .n_channels = 3 };

	return pipeline_parse_for(text, &unknown, dtype, layout, out, err);
}

int pipeline_parse_for(const char *text, const struct image_form *source, enum dtype dtype, enum layout layout,
		       struct pipeline **out, struct pipeline_error *err)
{
	struct pipeline *p = calloc(1, sizeof(*p));
	int rc;

	err->text[0] = '\0';
	if (!p)
		return -ENOMEM;
	rc = spec_parse(&p->spec, text, source, err);
	if (rc == 0)
		rc = check_output(&p->spec, dtype, layout, err);
	p->dtype = dtype;
	p->layout = layout;
	if (rc == 0)
		init_finish(p);
	if (rc == 0 && dtype == DTYPE_UINT8)
		rc = pipeline_check_bytes(p, err);
	if (rc != 0) {
		keep_one_line(err->text);
		pipeline_destroy(p);
		return rc;
	}
	*out = p;
	return 0;
}

void pipeline_destroy(struct pipeline *p)
{
	if (!p)
		return;
	for (unsigned k = 0; k < p->n_more; k++)
		pipeline_destroy(p->more[k]);
	free(p->more);
	free(p->text);
	spec_finish(&p->spec);
	free(p);
}

const char *pipeline_text(const struct pipeline *p)
{
	return p->text ? p->text : p->spec.text;
}

const char *pipeline_prefix_text(const struct pipeline *p)
{
	return p->spec.prefix_text;
}

void pipeline_shape(const struct pipeline *p, uint32_t shape[3])
{
	bool planar = p->layout == LAYOUT_NCHW;

	shape[0] = planar ? p->spec.form.n_channels : p->spec.form.height;
	shape[1] = planar ? p->spec.form.height : p->spec.form.width;
	shape[2] = planar ? p->spec.form.width : p->spec.form.n_channels;
}

size_t pipeline_row_bytes(const struct pipeline *p)
{
	return convert_bytes(&p->finish);
}

enum pixel pipeline_pixel(const struct pipeline *p)
{
	return p->spec.form.pixel;
}

bool pipeline_to_tensor(const struct pipeline *p)
{
	return p->spec.form.to_tensor;
}

bool pipeline_normalize(const struct pipeline *p, float mean[3], float std[3])
{
	if (p->dtype != DTYPE_UINT8 || !p->spec.form.normalize)
		return false;
	memcpy(mean, p->finish.mean, sizeof(p->finish.mean));
	memcpy(std, p->finish.std, sizeof(p->finish.std));
	return true;
}

/* The mean and std that undo every Normalize of a channel: the conversion's, and those that are passes of their own. */
void pipeline_normalized_by(const struct pipeline *p, uint32_t channel, double *mean, double *std)
{
	*mean = (double)p->finish.mean[channel];
	*std = (double)p->finish.std[channel];
	for (unsigned i = p->spec.n_pixel_ops; i < p->spec.n_ops; i++)
		if (p->spec.ops[i].type->undo)
			p->spec.ops[i].type->undo(&p->spec.ops[i], channel, mean, std);
}

static uint8_t pixel_of_number(double number, double mean, double std)
{
	double v = (number * std + mean) * 255.0;

	return (uint8_t)lrint(v < 0.0 ? 0.0 : v > 255.0 ? 255.0 : v);
}

static double stored_number(enum dtype dtype, const void *row, size_t i)
{
	return dtype == DTYPE_UINT16  ? ((const uint16_t *)row)[i]
	       : dtype == DTYPE_INT32 ? ((const int32_t *)row)[i]
				      : (double)((const float *)row)[i];
}

/* From the least number, black, to the greatest, white; what is no number is black. */
static void picture_of_numbers(const struct pipeline *p, const void *row, uint8_t *rgb)
{
	size_t n = (size_t)p->finish.width * p->finish.height;
	double least = INFINITY, greatest = -INFINITY;

	for (size_t i = 0; i < n; i++) {
		double v = stored_number(p->dtype, row, i);

		if (isfinite(v)) {
			least = v < least ? v : least;
			greatest = v > greatest ? v : greatest;
		}
	}
	for (size_t i = 0; i < n; i++, rgb += 3) {
		double v = stored_number(p->dtype, row, i), of = greatest - least;
		double at = of > 0 ? (v - least) / of * 255.0 : 0.0;

		rgb[0] = rgb[1] = rgb[2] = (uint8_t)lrint(at > 0.0 ? at < 255.0 ? at : 255.0 : 0.0);
	}
}

void pipeline_picture(const struct pipeline *p, const void *row, uint8_t *rgb)
{
	const struct convert *f = &p->finish;
	const uint8_t *bytes = row;
	const float *numbers = row;
	double mean[3], std[3];

	if (f->pixel != PIXEL_RGB) {
		picture_of_numbers(p, row, rgb);
		return;
	}
	for (uint32_t c = 0; c < f->n_channels; c++)
		pipeline_normalized_by(p, c, &mean[c], &std[c]);
	for (size_t i = 0; i < (size_t)f->width * f->height; i++) {
		for (uint32_t c = 0; c < 3; c++) {
			uint32_t channel = c % f->n_channels;
			size_t at = i * f->n_channels + channel;

			rgb[i * 3 + c] = p->dtype == DTYPE_UINT8
						 ? bytes[at]
						 : pixel_of_number((double)numbers[at], mean[channel], std[channel]);
		}
	}
}

struct pipeline_worker *pipeline_worker_create(void)
{
	struct pipeline_worker *w = calloc(1, sizeof(*w));

	if (w)
		w->resampler = resampler_create();
	if (w && !w->resampler) {
		free(w);
		return NULL;
	}
	return w;
}

void pipeline_worker_destroy(struct pipeline_worker *w)
{
	if (!w)
		return;
	pipeline_worker_trim(w);
	resampler_destroy(w->resampler);
	free(w);
}

void pipeline_worker_limit(struct pipeline_worker *w, uint64_t max_ns)
{
	w->max_ns = max_ns;
}

void pipeline_worker_trim(struct pipeline_worker *w)
{
	resampler_trim(w->resampler);
	scratch_finish(&w->pixels[0]);
	scratch_finish(&w->pixels[1]);
	scratch_finish(&w->columns);
	scratch_finish(&w->room);
	scratch_finish(&w->chains[0]);
	scratch_finish(&w->chains[1]);
	scratch_finish(&w->source);
	scratch_finish(&w->numbers[0]);
	scratch_finish(&w->numbers[1]);
	scratch_finish(&w->rgb);
}

int pipeline_make(const struct pipeline *p, struct op_run *run, struct view *v, unsigned first, void *row,
		  struct image_error *err)
{
	const struct spec *s = &p->spec;
	v->pixel = s->form.pixel;
	int rc = ops_run(run, s->ops + first, s->n_pixel_ops - first, v, err);

	if (rc == 0)
		rc = view_finish(v, run->worker, &p->finish, row, err);
	return rc == 0 ? ops_finish(run, s->ops + s->n_pixel_ops, s->n_ops - s->n_pixel_ops, &p->finish, row, err) : rc;
}

int pipeline_open(const struct pipeline *p, struct decoder *d, const uint8_t *bytes, size_t n_bytes, bool apply_exif,
		  struct image_info *info, struct image_error *err)
{
	const struct draft *draft = &p->spec.draft;
	int rc = decoder_open(d, bytes, n_bytes, apply_exif, info, err);

	if (rc == 0 && draft->wanted)
		decoder_draft(d, draft->width, draft->height, info);
	return rc;
}

int pipeline_run(const struct pipeline *p, struct pipeline_worker *w, struct decoder *d, const struct image_info *info,
		 struct sample_key key, void *row, struct image_error *err)
{
	struct op_run run;
	struct view v;

	op_run_init(&run, w, key);
	view_of_decoder(&v, d, info->width, info->height);
	return pipeline_make(p, &run, &v, 0, row, err);
}

int pipeline_prefix(const struct pipeline *p, struct pipeline_worker *w, struct decoder *d,
		    const struct image_info *info, struct image *out, struct image_error *err)
{
	struct sample_key unused = { 0, 0, 0 }; /* nothing in the prefix draws */
	struct op_run run;
	struct view v;
	int rc;

	op_run_init(&run, w, unused);
	view_of_decoder(&v, d, info->width, info->height);
	v.pixel = p->spec.form.pixel;
	rc = ops_run(&run, p->spec.ops, p->spec.n_prefix, &v, err);
	if (rc == 0)
		rc = view_settle(&v, w, false, err);
	if (rc == 0)
		*out = v.image;
	return rc;
}

int pipeline_resume(const struct pipeline *p, struct pipeline_worker *w, const struct image *prefix,
		    struct sample_key key, void *row, struct image_error *err)
{
	struct op_run run;
	struct view v;

	op_run_init(&run, w, key);
	view_of_image(&v, w, prefix);
	return pipeline_make(p, &run, &v, p->spec.n_prefix, row, err);
}
