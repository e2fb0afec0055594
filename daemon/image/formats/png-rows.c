/* See png-rows.h.
 *
 * The window holds the last 32 KiB of inflated bytes, to which the stream may refer, and after them the bytes that are
 * no rows yet. When it is full, both move to its start. */
#include "image/formats/png-rows.h"

#include <errno.h>
#include <string.h>

#include <zlib.h>

#include "image/formats/inflate.h"
#include "image/formats/png-filters.h"
#include "image/formats/png-samples.h"

enum {
	ROW_MAX = 1 << 20,     /* bytes; longer rows are libpng's, */
	STREAM_MAX = 16 << 20, /* and so is more compressed data, which would have to be copied */
	PART_BYTES = 64 << 10, /* inflated at once, at least */
	N_LINES = 3,           /* two rows, and samples of one in a form for png_samples_to_rgb */
};

struct rows {
	const struct png_layout *layout;
	struct inflate *inflate;
	uint8_t *window, *limit;
	uint8_t *next, *end; /* inflated bytes that are no rows yet */
	enum inflate_outcome inflated;
	uint8_t *line[N_LINES];
	size_t row_bytes;     /* in the stream, with the filter byte */
	size_t n_used;        /* of these, up to the last wanted column, without the filter byte */
	unsigned pixel_bytes; /* between neighbours, for the filters */
};

static int join_stream(struct png_rows *r, const struct png_layout *l, const uint8_t *bytes, size_t n_bytes)
{
	uint8_t *to = scratch_reserve(&r->stream, l->data_bytes + INFLATE_PAD_BYTES);
	size_t at = l->data_at, n;
	const uint8_t *data;

	if (!to)
		return -ENOMEM;
	for (; png_next_data(bytes, n_bytes, &at, &data, &n); to += n)
		memcpy(to, data, n);
	memset(to, 0, INFLATE_PAD_BYTES);
	return 0;
}

static int png_rows_reserve(struct png_rows *r, struct rows *s)
{
	size_t room = INFLATE_WINDOW + s->row_bytes + PART_BYTES, line = s->layout->frame.width;

	line = line > s->row_bytes ? line : s->row_bytes; /* pixels of a few bits take a byte each as samples */
	line = (line + PNG_ROW_MARGIN + 63) / 64 * 64;
	s->inflate = (struct inflate *)(void *)scratch_reserve(&r->inflate, sizeof(*s->inflate));
	s->window = scratch_reserve(&r->window, room + INFLATE_SLACK + PNG_ROW_MARGIN);
	uint8_t *lines = scratch_reserve(&r->lines, N_LINES * line);
	if (!s->inflate || !s->window || !lines)
		return -ENOMEM;
	for (int i = 0; i < N_LINES; i++)
		s->line[i] = lines + (size_t)i * line;
	memset(s->line[1], 0, line);
	s->next = s->end = s->window;
	s->limit = s->window + room;
	return 0;
}

/* Makes room in the window. */
static void png_rows_slide(struct rows *s)
{
	size_t n_unread = (size_t)(s->end - s->next), n_all = (size_t)(s->end - s->window), n_keep = INFLATE_WINDOW;

	n_keep = n_unread > n_keep ? n_unread : n_keep;
	n_keep = n_all < n_keep ? n_all : n_keep;
	memmove(s->window, s->end - n_keep, n_keep);
	s->end = s->window + n_keep;
	s->next = s->end - n_unread;
}

/* Inflates until there is a whole row. */
static int png_rows_fill(struct rows *s)
{
	while ((size_t)(s->end - s->next) < s->row_bytes) {
		if (s->inflated != INFLATE_MORE)
			return PNG_ROWS_UNSURE;
		if (s->end >= s->limit)
			png_rows_slide(s);
		s->inflated = inflate_run(s->inflate, &s->end, s->limit);
	}
	return 0;
}

/* After the last row of the picture: zlib goes on until it has another byte, so Pillow notices what is wrong there. */
static int check_end(struct rows *s, uint32_t adler)
{
	if (s->next == s->end && s->inflated == INFLATE_MORE) {
		png_rows_slide(s);
		s->inflated = inflate_run(s->inflate, &s->end, s->end + 1);
	}
	if (s->next != s->end)
		return 0;
	return s->inflated == INFLATE_END && inflate_checksum_is(s->inflate, adler) ? 0 : PNG_ROWS_UNSURE;
}

/* Samples of a whole number of bytes: keeps the first byte of each channel that png_samples_to_rgb wants. */
static void pick_bytes(const uint8_t *in, unsigned step, unsigned sample_step, unsigned n_kept, uint32_t n, uint8_t *to)
{
	for (uint32_t i = 0; i < n; i++, in += step)
		for (unsigned c = 0; c < n_kept; c++)
			*to++ = in[c * sample_step];
}

static void pick_bits(const uint8_t *in, unsigned bits, uint32_t first, uint32_t n, uint8_t *to)
{
	for (uint32_t i = 0; i < n; i++) {
		size_t bit = (size_t)(first + i) * bits;

		to[i] = (uint8_t)(in[bit / 8] >> (8 - bits - bit % 8) & ((1u << bits) - 1));
	}
}

static void png_rows_emit(const struct rows *s, const uint8_t *row, uint32_t x, uint32_t n, uint8_t *rgb)
{
	const struct png_layout *l = s->layout;
	const uint8_t *from = row + (size_t)x * s->pixel_bytes;
	uint8_t *samples = s->line[2];
	bool deep = l->bits == 16, color = l->color == PNG_RGB || l->color == PNG_RGB_ALPHA;

	if (l->bits < 8)
		pick_bits(row, l->bits, x, n, samples);
	else if (color && s->pixel_bytes == 4)
		pick_bytes(from, 4, 1, 3, n, samples);
	else if (color && deep)
		pick_bytes(from, s->pixel_bytes, 2, 3, n, samples);
	else if (l->color == PNG_GREY_ALPHA)
		pick_bytes(from, s->pixel_bytes, 1, 1, n, samples);
	else
		samples = (uint8_t *)(uintptr_t)from;
	png_samples_to_rgb(l, samples, n, rgb);
}

static int png_rows_read_rows(struct rows *s, struct region_px want, struct row_bands *bands, struct image *out,
			      struct cpu_budget *budget)
{
	const bool to_end = want.y + want.height == s->layout->frame.height;
	uint32_t adler = 1;

	for (uint32_t y = 0; y < want.y + want.height; y++) {
		if (!cpu_budget_spend(budget, s->layout->frame.width) || png_rows_fill(s))
			return PNG_ROWS_UNSURE;
		unsigned filter = s->next[0];
		if (filter >= PNG_N_FILTERS)
			return PNG_ROWS_UNSURE;
		if (to_end)
			adler = (uint32_t)adler32(adler, s->next, (uInt)s->row_bytes);
		uint8_t *row = s->line[0];

		png_unfilter(filter, s->next + 1, s->line[1], row, s->n_used, s->pixel_bytes);
		s->next += s->row_bytes;
		if (y >= want.y)
			png_rows_emit(s, row, want.x, want.width,
				      bands ? row_bands_next(bands) : out->rgb + (y - want.y) * out->stride_bytes);
		if (y >= want.y && bands)
			row_bands_put(bands);
		s->line[0] = s->line[1];
		s->line[1] = row;
	}
	if (bands)
		row_bands_flush(bands);
	return to_end ? check_end(s, adler) : 0;
}

int png_rows_read(struct png_rows *r, const struct png_layout *l, const uint8_t *bytes, size_t n_bytes,
		  struct region_px want, struct row_bands *bands, struct image *out, struct cpu_budget *budget)
{
	struct rows s = { .layout = l, .row_bytes = (size_t)png_row_bytes(l, l->frame.width) };
	unsigned pixel_bits = png_channels(l) * l->bits;
	int outcome;

	if (l->interlaced || !l->complete || want.height == 0 || s.row_bytes > ROW_MAX || l->data_bytes > STREAM_MAX)
		return PNG_ROWS_UNSURE;
	s.pixel_bytes = pixel_bits < 8 ? 1 : pixel_bits / 8;
	s.n_used = ((size_t)(want.x + want.width) * pixel_bits + 7) / 8;
	if ((outcome = join_stream(r, l, bytes, n_bytes)) || (outcome = png_rows_reserve(r, &s)))
		return outcome;
	if (inflate_begin(s.inflate, r->stream.data, l->data_bytes) != INFLATE_MORE)
		return PNG_ROWS_UNSURE;
	return png_rows_read_rows(&s, want, bands, out, budget);
}

void png_rows_trim(struct png_rows *r, size_t keep_bytes)
{
	struct scratch *const all[] = { &r->inflate, &r->stream, &r->window, &r->lines };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i]->size_bytes > keep_bytes)
			scratch_finish(all[i]);
}

void png_rows_finish(struct png_rows *r)
{
	png_rows_trim(r, 0);
}
