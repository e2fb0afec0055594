/* See finish.h. A box of CutMix is put together as bytes, line by line, so only a blend needs arithmetic of its own. */
#include "../daemon/image/exact.h"

#include "finish.h"

#include <string.h>

static const struct finish_path *const finish_paths[] = {
#if defined(__x86_64__)
	&finish_avx2,
#endif
	&finish_c,
};
enum { FINISH_PATHS = sizeof finish_paths / sizeof *finish_paths };

/* ---- choosing ---- */

enum { TRIAL = 256 };

/* Runs all pixel values of each channel through both functions of a path and compares with the reference. */
static int finish_is_exact(const struct finish *f, const struct finish_path *path)
{
	const struct batchd_mix_row row = { .weight = 0.3f, .partner_weight = 0.7f };
	uint8_t own[TRIAL * CONVERT_MAX_CHANNELS], partner[TRIAL * CONVERT_MAX_CHANNELS];
	float ours[TRIAL * CONVERT_MAX_CHANNELS], theirs[TRIAL * CONVERT_MAX_CHANNELS],
		numbers[TRIAL * CONVERT_MAX_CHANNELS];
	struct finish trial = *f;
	size_t n_numbers = (size_t)TRIAL * f->plan.n_channels;
	size_t n_bytes = (size_t)TRIAL * f->plan.n_channels * convert_number_bytes((enum convert_number)f->plan.number);

	trial.plan.plane = TRIAL;
	for (size_t i = 0; i < sizeof own; i++) {
		own[i] = (uint8_t)(i / f->plan.n_channels);
		partner[i] = (uint8_t)(own[i] * 7 + 3);
	}
	path->plain(&trial, own, 0, TRIAL, ours);
	finish_c.plain(&trial, own, 0, TRIAL, theirs);
	if (memcmp(ours, theirs, n_bytes))
		return 0;
	path->blend(&trial, &row, own, partner, 0, TRIAL, ours);
	finish_c.blend(&trial, &row, own, partner, 0, TRIAL, theirs);
	if (memcmp(ours, theirs, n_bytes))
		return 0;
	finish_c.plain(&trial, own, 0, TRIAL, numbers);
	path->blend_numbers(&trial, &row, numbers, theirs, n_numbers, ours);
	finish_c.blend_numbers(&trial, &row, numbers, theirs, n_numbers, theirs);
	return memcmp(ours, theirs, n_bytes) == 0;
}

int finish_set_path(struct finish *f, const char *name)
{
	for (unsigned i = 0; i < FINISH_PATHS; i++)
		if ((!name || strcmp(finish_paths[i]->name, name) == 0) && finish_paths[i]->can_run(f) &&
		    finish_is_exact(f, finish_paths[i])) {
			f->path = finish_paths[i];
			return 1;
		}
	return 0;
}

static void fill_tables(struct finish *f)
{
	for (uint32_t c = 0; c < f->plan.n_channels; c++)
		for (uint32_t v = 0; v < 256; v++) {
			f->float32[c][v] = convert_value(&f->plan, c, v);
			f->sixteen[c][v] = finish_sixteen(f, f->float32[c][v]);
		}
	for (uint32_t i = 0; i < 48; i++) {
		uint32_t c = i % f->plan.n_channels;

		f->mean48[i] = f->plan.mean[c];
		f->std_high48[i] = f->plan.std_high[c];
		f->std_low48[i] = f->plan.std_low[c];
	}
}

void finish_init(struct finish *f, const struct convert_plan *plan, uint32_t height, uint32_t width, int has_numbers)
{
	*f = (struct finish){ .plan = *plan, .height = height, .width = width, .has_numbers = has_numbers };
	fill_tables(f);
	finish_set_path(f, NULL);
}

size_t finish_image_bytes(const struct finish *f)
{
	return (size_t)f->plan.plane * f->plan.n_channels * convert_number_bytes((enum convert_number)f->plan.number);
}

/* ---- images ---- */

static void finish_box(const struct finish *f, const struct batchd_mix_row *row, const uint8_t *own,
		       const uint8_t *partner, uint8_t *line, void *image)
{
	size_t pitch = (size_t)f->width * f->plan.n_channels, from = (size_t)row->left * f->plan.n_channels,
	       n = (size_t)(row->right - row->left) * f->plan.n_channels;

	f->path->plain(f, own, 0, (size_t)row->top * f->width, image);
	for (size_t y = row->top; y < row->bottom; y++) {
		memcpy(line, own + y * pitch, pitch);
		memcpy(line + from, partner + y * pitch + from, n);
		f->path->plain(f, line, y * f->width, f->width, image);
	}
	f->path->plain(f, own + row->bottom * pitch, (size_t)row->bottom * f->width,
		       (size_t)(f->height - row->bottom) * f->width, image);
}

static void finish_bytes(const struct finish *f, const uint8_t *in, const struct batchd_mix_row *row, uint32_t i,
			 uint8_t *scratch, void *image)
{
	size_t n_bytes = (size_t)f->plan.plane * f->plan.n_channels;
	const uint8_t *own = in + i * n_bytes, *partner = in + row->partner * n_bytes;

	if (row->kind == BATCHD_MIX_NONE)
		f->path->plain(f, own, 0, f->plan.plane, image);
	else if (row->kind == BATCHD_MIX_BLEND)
		f->path->blend(f, row, own, partner, 0, f->plan.plane, image);
	else
		finish_box(f, row, own, partner, scratch, image);
}

/* The box of one plane, or of all channels of NHWC images: pieces of n bytes. */
static void copy_box(const struct finish *f, const struct batchd_mix_row *row, size_t pixel_bytes, const char *partner,
		     char *image)
{
	size_t pitch = f->width * pixel_bytes, from = row->left * pixel_bytes,
	       n = (row->right - row->left) * pixel_bytes;

	for (size_t y = row->top; y < row->bottom; y++)
		memcpy(image + y * pitch + from, partner + y * pitch + from, n);
}

static void finish_numbers(const struct finish *f, const char *in, const struct batchd_mix_row *row, uint32_t i,
			   char *image)
{
	size_t n_bytes = finish_image_bytes(f), bytes = convert_number_bytes((enum convert_number)f->plan.number);
	const char *own = in + i * n_bytes, *partner = in + row->partner * n_bytes;
	uint32_t planes = f->plan.planar ? f->plan.n_channels : 1;

	if (row->kind == BATCHD_MIX_BLEND) {
		f->path->blend_numbers(f, row, own, partner, n_bytes / bytes, image);
		return;
	}
	memcpy(image, own, n_bytes);
	for (size_t c = 0; c < planes && row->kind == BATCHD_MIX_BOX; c++)
		copy_box(f, row, bytes * f->plan.n_channels / planes, partner + c * (n_bytes / planes),
			 image + c * (n_bytes / planes));
}

void finish_rows(const struct finish *f, const void *in, const struct batchd_mix_row *rows, uint32_t n_rows,
		 uint8_t *scratch, void *to)
{
	static const struct batchd_mix_row clean = { .kind = BATCHD_MIX_NONE };

	for (uint32_t i = 0; i < n_rows; i++) {
		char *image = (char *)to + i * finish_image_bytes(f);

		if (f->has_numbers)
			finish_numbers(f, in, rows ? &rows[i] : &clean, i, image);
		else
			finish_bytes(f, in, rows ? &rows[i] : &clean, i, scratch, image);
	}
}
