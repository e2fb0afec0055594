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
		numbers[TRIAL * CONVERT_MAX_CHANNELS], floats[TRIAL * CONVERT_MAX_CHANNELS];
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
	path->floats(&trial, partner, TRIAL, floats);
	path->blend(&trial, &row, own, floats, 0, TRIAL, ours);
	finish_c.floats(&trial, partner, TRIAL, floats);
	finish_c.blend(&trial, &row, own, floats, 0, TRIAL, theirs);
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

/* ---- blends of pixels ---- */

enum { TILE_PX = 2048 };

struct blend {
	const struct finish *f;
	const uint8_t *in;
	const struct batchd_mix_row *rows;
	char *to;
};

static const uint8_t *blend_px(const struct blend *b, uint32_t i, size_t first)
{
	return b->in + (i * (size_t)b->f->plan.plane + first) * b->f->plan.n_channels;
}

static char *blend_image(const struct blend *b, uint32_t i)
{
	return b->to + i * finish_image_bytes(b->f);
}

/* Rows from..end - 1, of which each is the next one's partner, tile by tile: so every row is read and converted once. */
static void blend_chain(const struct blend *b, uint32_t from, uint32_t end)
{
	float tile[TILE_PX * CONVERT_MAX_CHANNELS];
	size_t plane = b->f->plan.plane;

	for (size_t first = 0; first < plane; first += TILE_PX) {
		size_t n = plane - first < TILE_PX ? plane - first : TILE_PX;

		b->f->path->floats(b->f, blend_px(b, b->rows[from].partner, first), n, tile);
		for (uint32_t i = from; i < end; i++)
			b->f->path->blend(b->f, &b->rows[i], blend_px(b, i, first), tile, first, n, blend_image(b, i));
	}
}

static void blend_pair(const struct blend *b, uint32_t i, uint32_t j)
{
	const struct batchd_mix_row *const rows[2] = { &b->rows[i], &b->rows[j] };
	const uint8_t *const px[2] = { blend_px(b, i, 0), blend_px(b, j, 0) };
	void *const images[2] = { blend_image(b, i), blend_image(b, j) };

	b->f->path->pair(b->f, rows, px, 0, b->f->plan.plane, images);
}

/* Whether a row and another one are each other's partners. */
static int is_pair(const struct batchd_mix_row *rows, uint32_t i)
{
	const struct batchd_mix_row *partner = &rows[rows[i].partner];

	return rows[i].partner != i && partner->kind == BATCHD_MIX_BLEND && partner->partner == i;
}

/* Blends row i and the rows after it that can be done together. Returns the first row after these. */
static uint32_t blend_from(const struct blend *b, uint32_t i, uint32_t n_rows)
{
	const struct batchd_mix_row *rows = b->rows;
	uint32_t end = i + 1;

	if (is_pair(rows, i)) {
		if (i < rows[i].partner)
			blend_pair(b, i, rows[i].partner);
		return end;
	}
	while (end < n_rows && rows[end].kind == BATCHD_MIX_BLEND && rows[end].partner == end - 1 &&
	       !is_pair(rows, end))
		end++;
	blend_chain(b, i, end);
	return end;
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
	struct blend blend = { .f = f, .in = in, .rows = rows, .to = to };

	for (uint32_t i = 0; i < n_rows; i++) {
		const struct batchd_mix_row *row = rows ? &rows[i] : &clean;
		char *image = (char *)to + i * finish_image_bytes(f);

		if (f->has_numbers)
			finish_numbers(f, in, row, i, image);
		else if (row->kind == BATCHD_MIX_BLEND)
			i = blend_from(&blend, i, n_rows) - 1;
		else
			finish_bytes(f, in, row, i, scratch, image);
	}
}
