/* See finish.h. A box of CutMix is put together as bytes, line by line, so only a blend needs arithmetic of its own. */
#include "../daemon/image/kernels/exact.h"

#include "finish/finish.h"

#include <stdlib.h>
#include <string.h>

static const struct finish_path *const finish_paths[] = {
#if defined(__x86_64__)
	&finish_avx512,
	&finish_avx2,
#endif
	&finish_c,
};
enum { FINISH_PATHS = sizeof finish_paths / sizeof *finish_paths };

/* ---- choosing ---- */

enum { TRIAL = 256 };

struct trial {
	struct finish f;
	struct batchd_mix_row row[FINISH_CHAIN];
	uint8_t px[FINISH_CHAIN + 1][TRIAL * CONVERT_MAX_CHANNELS];
	float out[FINISH_CHAIN][TRIAL * CONVERT_MAX_CHANNELS];
};

/* All pixel values of each channel, in each source. */
static void trial_init(struct trial *t, const struct finish *f)
{
	t->f = *f;
	t->f.plan.plane = TRIAL;
	t->f.width = TRIAL;
	for (unsigned s = 0; s <= FINISH_CHAIN; s++)
		for (size_t i = 0; i < sizeof t->px[s]; i++)
			t->px[s][i] = (uint8_t)(i / f->plan.n_channels * (2 * s + 1) + 3 * s);
	for (unsigned r = 0; r < FINISH_CHAIN; r++)
		t->row[r] = (struct batchd_mix_row){ .weight = 0.1f * (float)(r + 1),
						     .partner_weight = 1 - 0.1f * (float)(r + 1),
						     .left = 37,
						     .right = 131 };
}

static struct finish_chain trial_chain(struct trial *t, unsigned n)
{
	struct finish_chain chain = { .n = n };

	for (unsigned r = 0; r < n; r++) {
		chain.row[r] = &t->row[r];
		chain.to[r] = t->out[r];
	}
	for (unsigned s = 0; s <= n; s++)
		chain.from[s] = t->px[s];
	return chain;
}

enum { TRIALS = 5 + FINISH_CHAIN };

/* Runs one function of a path; what it makes is in t->out. */
static void trial_run(struct trial *t, const struct finish_path *path, int which)
{
	struct finish_chain chain = trial_chain(t, which < FINISH_CHAIN ? (unsigned)which + 1 : 2);
	uint8_t scratch[TRIAL * CONVERT_MAX_CHANNELS];
	float numbers[TRIAL * CONVERT_MAX_CHANNELS];
	size_t n = (size_t)TRIAL * t->f.plan.n_channels;

	memset(t->out, 0, sizeof t->out);
	if (which < FINISH_CHAIN) {
		path->chain(&t->f, &chain, 0);
	} else if (which == FINISH_CHAIN) {
		path->pair(&t->f, &chain, 0);
	} else if (which == FINISH_CHAIN + 1) {
		path->plain(&t->f, t->px[0], 0, TRIAL, t->out[0]);
	} else if (which == FINISH_CHAIN + 2) {
		path->plain(&t->f, t->px[0], 0, TRIAL - 1, t->out[0]); /* ends of lines */
	} else if (which == FINISH_CHAIN + 3) {
		path->box(&t->f, &t->row[0], t->px[0], t->px[1], 0, scratch, t->out[0]);
	} else {
		finish_c.plain(&t->f, t->px[0], 0, TRIAL, numbers);
		chain.from[0] = chain.from[2] = chain.from[1] = numbers;
		path->chain_numbers(&t->f, &chain, 0, n - 1);
	}
}

/* Runs all pixel values of each channel through the functions of a path and compares with the reference. */
static int finish_is_exact(const struct finish *f, const struct finish_path *path)
{
	struct trial *t = malloc(2 * sizeof *t);
	int same = t != NULL;

	for (int which = 0; same && which < TRIALS; which++) {
		trial_init(&t[0], f);
		trial_init(&t[1], f);
		trial_run(&t[0], path, which);
		trial_run(&t[1], &finish_c, which);
		same = memcmp(t[0].out, t[1].out, sizeof t->out) == 0;
	}
	free(t);
	return same || path == &finish_c;
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
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t c = i % f->plan.n_channels;

		f->mean64[i] = f->plan.mean[c];
		f->std_high64[i] = f->plan.std_high[c];
		f->std_low64[i] = f->plan.std_low[c];
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

struct blend {
	const struct finish *f;
	const char *in;
	const struct batchd_mix_row *rows;
	char *to;
	size_t in_bytes; /* of an image in the slot */
};

static const void *blend_from_image(const struct blend *b, uint32_t i)
{
	return b->in + i * b->in_bytes;
}

static void blend_add(const struct blend *b, struct finish_chain *chain, uint32_t i)
{
	chain->row[chain->n] = &b->rows[i];
	chain->to[chain->n] = b->to + i * finish_image_bytes(b->f);
	chain->from[++chain->n] = blend_from_image(b, i);
}

static void blend_run(const struct blend *b, const struct finish_chain *chain)
{
	if (b->f->has_numbers)
		b->f->path->chain_numbers(b->f, chain, 0, (size_t)b->f->plan.plane * b->f->plan.n_channels);
	else
		b->f->path->chain(b->f, chain, 0);
}

/* Rows from..end - 1, of which each is the next one's partner, some at a time. */
static void blend_chain(const struct blend *b, uint32_t from, uint32_t end)
{
	for (uint32_t i = from; i < end;) {
		struct finish_chain chain = { .from = { blend_from_image(b, b->rows[i].partner) } };

		while (i < end && chain.n < FINISH_CHAIN)
			blend_add(b, &chain, i++);
		blend_run(b, &chain);
	}
}

static void blend_pair(const struct blend *b, uint32_t i, uint32_t j)
{
	struct finish_chain chain = { .from = { blend_from_image(b, j) } };

	blend_add(b, &chain, i);
	blend_add(b, &chain, j);
	if (b->f->has_numbers)
		blend_run(b, &chain);
	else
		b->f->path->pair(b->f, &chain, 0);
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
		       const uint8_t *partner, uint8_t *scratch, void *image)
{
	size_t pitch = (size_t)f->width * f->plan.n_channels;

	f->path->plain(f, own, 0, (size_t)row->top * f->width, image);
	for (size_t y = row->top; y < row->bottom; y++)
		f->path->box(f, row, own + y * pitch, partner + y * pitch, y * f->width, scratch, image);
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

/* One plane, or all channels of NHWC images: own numbers around the box, which lie together from one line to the next,
 * and the partner's in it. */
static void plane_box(const struct finish *f, const struct batchd_mix_row *row, size_t pixel_bytes, const char *own,
		      const char *partner, char *image)
{
	size_t pitch = f->width * pixel_bytes, from = row->left * pixel_bytes,
	       n = (row->right - row->left) * pixel_bytes, done = 0;

	for (size_t y = row->top; y < row->bottom; y++) {
		size_t at = y * pitch + from;

		memcpy(image + done, own + done, at - done);
		memcpy(image + at, partner + at, n);
		done = at + n;
	}
	memcpy(image + done, own + done, f->height * pitch - done);
}

static void finish_numbers(const struct finish *f, const char *in, const struct batchd_mix_row *row, uint32_t i,
			   char *image)
{
	size_t n_bytes = finish_image_bytes(f), bytes = convert_number_bytes((enum convert_number)f->plan.number);
	uint32_t planes = f->plan.planar ? f->plan.n_channels : 1;
	const char *own = in + i * n_bytes, *partner = in + row->partner * n_bytes;

	if (row->kind == BATCHD_MIX_NONE) {
		memcpy(image, own, n_bytes);
		return;
	}
	for (size_t c = 0; c < planes; c++)
		plane_box(f, row, bytes * f->plan.n_channels / planes, own + c * (n_bytes / planes),
			  partner + c * (n_bytes / planes), image + c * (n_bytes / planes));
}

void finish_rows(const struct finish *f, const void *in, const struct batchd_mix_row *rows, uint32_t n_rows,
		 uint8_t *scratch, void *to)
{
	static const struct batchd_mix_row clean = { .kind = BATCHD_MIX_NONE };
	struct blend blend = { .f = f, .in = in, .rows = rows, .to = to };

	blend.in_bytes = f->has_numbers ? finish_image_bytes(f) : (size_t)f->plan.plane * f->plan.n_channels;
	for (uint32_t i = 0; i < n_rows; i++) {
		const struct batchd_mix_row *row = rows ? &rows[i] : &clean;
		char *image = (char *)to + i * finish_image_bytes(f);

		if (row->kind == BATCHD_MIX_BLEND)
			i = blend_from(&blend, i, n_rows) - 1;
		else if (f->has_numbers)
			finish_numbers(f, in, row, i, image);
		else
			finish_bytes(f, in, row, i, scratch, image);
	}
}
