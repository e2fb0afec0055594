/* Decodes the compressed rows of one PNG: png-rows.c decodes plain files, and libpng all other and all doubtful ones as
 * follows.
 *
 * libpng never sees the file. png-chunks.c has read and checked its chunks. This file gives libpng a signature and a
 * header of its own and then the data chunks, so that libpng only inflates and unfilters. Palette pictures are decoded
 * as grey ones, because png-samples.c looks the indexes up.
 *
 * Rows after the wanted ones are not inflated unless the file is cut short, so damage in them is not noticed.
 *
 * A special case: rows that are missing. If the compressed stream ends cleanly between two rows, Pillow takes the rest
 * as zero; if it ends anywhere else, the file is broken. libpng cannot tell the two apart, so in this rare case the
 * stream is inflated again to find its end.
 *
 * libpng leaves its functions by longjmp when it fails. All state that must survive is in struct png_reader. */
#include "image/formats/png.h"

#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <zlib.h>

#include "image/formats/arena.h"
#include "image/formats/png-chunks.h"
#include "image/formats/png-rows.h"
#include "image/formats/png-samples.h"
#include "base/cpu-budget.h"

enum {
	SIGNATURE = 8,
	HEADER_CHUNK = 8 + 13 + 4,
	KEEP_BYTES = 16 << 20,
	N_PASSES = 7,
	/* Deflate packs at most 1032 to 1. A large picture that claims more is refused before its memory is
	 * allocated. */
	RATIO_MAX = 1040,
	SMALL_BYTES = 16 << 20,
};

static const char too_short[] = "Not enough image data"; /* libpng's error text */

struct png_reader {
	const struct decode_limits *limits; /* borrowed */
	struct arena arena;                 /* libpng's and zlib's memory of one image */
	struct png_rows rows;               /* the fast decoder for plain files */
	struct scratch raw;                 /* one row, or all of an interlaced picture */
	struct png_layout layout;
	const uint8_t *bytes; /* borrowed; NULL while closed */
	size_t n_bytes;

	png_structp png;
	uint8_t head[SIGNATURE + HEADER_CHUNK]; /* libpng's input: this, */
	uint8_t link[12];                       /* then checksum, length and name before each piece of data, */
	const uint8_t *next_data;               /* the piece itself */
	size_t n_next_data;
	const uint8_t *piece; /* being fed */
	size_t n_piece;
	size_t at;  /* of the next chunk */
	bool ended; /* the end chunk has been fed */
	struct cpu_budget budget;
	bool late;       /* the budget is spent */
	uint32_t n_done; /* rows that are in `out`, or were not wanted; if not interlaced */

	jmp_buf escape;
	char problem[96]; /* libpng's error text; empty: out of memory */
};

struct png_reader *png_reader_create(const struct decode_limits *limits)
{
	struct png_reader *r = calloc(1, sizeof(*r));

	if (r)
		r->limits = limits;
	return r;
}

void png_reader_destroy(struct png_reader *r)
{
	if (!r)
		return;
	arena_finish(&r->arena);
	png_rows_finish(&r->rows);
	scratch_finish(&r->raw);
	free(r);
}

void png_reader_close(struct png_reader *r)
{
	r->bytes = NULL;
	if (r->raw.size_bytes > KEEP_BYTES)
		scratch_finish(&r->raw);
	png_rows_trim(&r->rows, KEEP_BYTES);
}

static int png_reader_check_size(const struct png_reader *r, struct image_error *err)
{
	const struct png_layout *l = &r->layout;
	uint64_t n_px = (uint64_t)l->width * l->height, n_raw = png_row_bytes(l, l->frame.width) * l->frame.height;

	if (n_px > r->limits->max_px)
		return image_fail(err, IMAGE_E_LIMIT, "PNG of %ux%u pixels; at most %llu pixels are read", l->width,
				  l->height, (unsigned long long)r->limits->max_px);
	if (n_raw > SMALL_BYTES && n_raw / RATIO_MAX > l->data_bytes)
		return image_fail(err, IMAGE_E_LIMIT, "PNG of %ux%u pixels in only %zu bytes", l->width, l->height,
				  l->data_bytes);
	return 0;
}

int png_reader_open(struct png_reader *r, const uint8_t *bytes, size_t n_bytes, struct image_info *info,
		    struct image_error *err)
{
	r->bytes = bytes;
	r->n_bytes = n_bytes;
	r->late = false;
	cpu_budget_begin(&r->budget, r->limits->max_ns);
	int outcome = png_layout_read(bytes, n_bytes, &r->arena, &r->layout, err);

	arena_reset(&r->arena, KEEP_BYTES);
	if (outcome == 0)
		outcome = png_reader_check_size(r, err);
	if (outcome)
		return outcome;
	info->width = r->layout.width;
	info->height = r->layout.height;
	info->orientation = r->layout.orientation;
	if (r->layout.color == PNG_GREY && r->layout.bits > 1)
		info->numbers = r->layout.bits == 16 ? NUMBERS_UINT16 : NUMBERS_UINT8;
	return 0;
}

/* ---- callbacks of libpng ---- */

static _Noreturn void png_reader_on_error(png_structp png, png_const_charp text)
{
	struct png_reader *r = png_get_error_ptr(png);

	snprintf(r->problem, sizeof(r->problem), "%s", text);
	longjmp(r->escape, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
	(void)png; /* never on stderr */
	(void)text;
}

static png_voidp on_malloc(png_structp png, png_alloc_size_t size)
{
	return arena_take(png_get_mem_ptr(png), size);
}

static void png_reader_on_free(png_structp png, png_voidp p)
{
	(void)png; /* freed with the whole arena */
	(void)p;
}

static void png_reader_put32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

/* Finds the next input: a piece of data after its link, or the link of the next data chunk. */
static bool next_piece(struct png_reader *r)
{
	if (r->next_data) {
		r->piece = r->next_data;
		r->n_piece = r->n_next_data;
		r->next_data = NULL;
		return true;
	}

	bool first = r->at == r->layout.data_at;
	bool more = png_next_data(r->bytes, r->n_bytes, &r->at, &r->next_data, &r->n_next_data);
	if (!more && r->ended)
		return false;
	r->ended = !more;
	png_reader_put32(r->link, 0); /* the checksum of the previous chunk is not checked */
	png_reader_put32(r->link + 4, more ? (uint32_t)r->n_next_data : 0);
	memcpy(r->link + 8, more ? "IDAT" : "IEND", 4);
	r->piece = first ? r->link + 4 : r->link;
	r->n_piece = first ? 8 : 12;
	return true;
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
	struct png_reader *r = png_get_io_ptr(png);

	while (n > 0) {
		if (r->n_piece == 0 && !next_piece(r))
			png_error(png, too_short);
		size_t part = n < r->n_piece ? n : r->n_piece;

		memcpy(to, r->piece, part);
		to += part;
		n -= part;
		r->piece += part;
		r->n_piece -= part;
	}
}

/* ---- decoding ---- */

static void write_head(struct png_reader *r)
{
	const struct png_layout *l = &r->layout;
	uint8_t *p = r->head;

	memcpy(p, "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", 16);
	png_reader_put32(p + 16, l->frame.width);
	png_reader_put32(p + 20, l->frame.height);
	p[24] = l->bits;
	p[25] = l->color == PNG_PALETTE ? PNG_GREY : l->color;
	p[26] = p[27] = 0;
	p[28] = l->interlaced;
	png_reader_put32(p + 29, 0);
	r->piece = r->head;
	r->n_piece = sizeof(r->head);
	r->next_data = NULL;
	r->ended = false;
	r->at = l->data_at;
}

static void png_reader_start(struct png_reader *r)
{
	r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, png_reader_on_error, on_warning, &r->arena,
					  on_malloc, png_reader_on_free);
	png_infop info = r->png ? png_create_info_struct(r->png) : NULL;

	if (!info)
		longjmp(r->escape, 1);
	write_head(r);
	png_set_read_fn(r->png, r, on_read);
	png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
	png_set_crc_action(r->png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
	png_set_option(r->png, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);
	png_read_info(r->png, info);
	png_set_packing(r->png);
	png_set_strip_alpha(r->png);
	if (r->layout.color != PNG_GREY)
		png_set_strip_16(r->png);
	if (r->layout.interlaced)
		(void)png_set_interlace_handling(r->png);
	png_start_read_image(r->png);
}

/* r->raw holds row y: copies its wanted part to `out`. */
static void keep_row(struct png_reader *r, struct region_px want, struct image *out, uint32_t y)
{
	if (y >= want.y && y - want.y < want.height)
		png_samples_to_rgb(&r->layout, r->raw.data + want.x * png_pixel_bytes(&r->layout), want.width,
				   out->rgb + (y - want.y) * out->stride_bytes);
	r->n_done = y + 1;
}

static void read_row(struct png_reader *r, uint8_t *to)
{
	if (!cpu_budget_spend(&r->budget, r->layout.frame.width)) {
		r->late = true;
		longjmp(r->escape, 1);
	}
	png_read_row(r->png, to, NULL);
}

/* want lies in the frame. Rows before it are inflated and dropped. */
static void png_reader_read_rows(struct png_reader *r, struct region_px want, struct image *out)
{
	const struct png_layout *l = &r->layout;
	/* In a file that is cut short, all rows are read to find out whether the missing data matters. */
	uint32_t n_rows = l->complete ? want.y + want.height : l->frame.height;

	for (uint32_t y = 0; y < n_rows; y++) {
		read_row(r, r->raw.data);
		keep_row(r, want, out, y);
	}
}

static void read_passes(struct png_reader *r, size_t row_bytes)
{
	for (int pass = 0; pass < N_PASSES; pass++)
		for (uint32_t y = 0; y < r->layout.frame.height; y++)
			read_row(r, r->raw.data + y * row_bytes);
}

static voidpf png_reader_zlib_take(voidpf arena, uInt n, uInt size)
{
	return arena_take(arena, (size_t)n * size);
}

static void png_reader_zlib_give(voidpf arena, voidpf p)
{
	(void)arena;
	(void)p;
}

/* Inflates all the data without storing it. It is less than a picture's worth, or libpng would not have run out of
 * data. */
static bool stream_ends_on_row(struct png_reader *r)
{
	uint8_t sink[4096];
	z_stream z = { .zalloc = png_reader_zlib_take, .zfree = png_reader_zlib_give, .opaque = &r->arena };
	size_t at = r->layout.data_at, n;
	const uint8_t *data;
	uint64_t n_out = 0;
	int status = inflateInit(&z);

	while (status == Z_OK && png_next_data(r->bytes, r->n_bytes, &at, &data, &n)) {
		z.next_in = (z_const Bytef *)data;
		z.avail_in = (uInt)n;
		while (status == Z_OK && (z.avail_in > 0 || z.avail_out == 0)) {
			z.next_out = sink;
			z.avail_out = sizeof(sink);
			status = inflate(&z, Z_NO_FLUSH);
			n_out += sizeof(sink) - z.avail_out;
		}
		if (status == Z_BUF_ERROR) /* no progress without more input */
			status = Z_OK;
	}
	return status == Z_STREAM_END && png_ends_on_row(&r->layout, n_out);
}

/* libpng had all rows and reported an error in the data after them, which Pillow never looks at. */
static bool png_reader_is_whole(const struct png_reader *r)
{
	return r->layout.interlaced ? png_get_current_pass_number(r->png) >= N_PASSES
				    : png_get_current_row_number(r->png) >= r->layout.frame.height;
}

static int after_error(struct png_reader *r, struct region_px want, struct image *out, struct image_error *err)
{
	if (r->late)
		return image_fail(err, IMAGE_E_TIME,
				  "PNG that takes more than %.3g s of processor time to decode "
				  "(limits.image_time in the daemon's configuration)",
				  (double)r->limits->max_ns / 1e9);
	if (!r->png || !r->problem[0] || strcmp(r->problem, "Out of memory") == 0)
		return -ENOMEM;
	if (png_reader_is_whole(r)) {
		if (!r->layout.interlaced && r->n_done < r->layout.frame.height)
			keep_row(r, want, out, r->n_done); /* the last row, whose reading ended in the error */
		return 0;
	}
	if (strcmp(r->problem, too_short) == 0 && stream_ends_on_row(r))
		return 0;
	return image_fail(err, IMAGE_E_CORRUPT, "PNG cannot be decoded: %s", r->problem);
}

/* Runs libpng. Returns 0, also if rows are missing that Pillow takes as zero, IMAGE_E_CORRUPT or -ENOMEM. */
static int png_reader_run(struct png_reader *r, struct region_px want, struct image *out, size_t row_bytes,
			  struct image_error *err)
{
	r->png = NULL;
	r->problem[0] = '\0';
	if (setjmp(r->escape))
		return after_error(r, want, out, err);
	png_reader_start(r);
	if (r->layout.interlaced)
		read_passes(r, row_bytes);
	else
		png_reader_read_rows(r, want, out);
	return 0;
}

/* By libpng. `want` in the frame's coordinates; `out` has the same size. */
static int png_reader_read_surely(struct png_reader *r, struct region_px want, struct image *out,
				  struct image_error *err)
{
	const struct png_layout *l = &r->layout;
	size_t row_bytes = l->frame.width * png_pixel_bytes(l),
	       n_raw = l->interlaced ? row_bytes * l->frame.height : row_bytes;
	int outcome;

	if (!scratch_reserve(&r->raw, n_raw))
		return -ENOMEM;
	memset(r->raw.data, 0, n_raw);
	r->n_done = 0;
	outcome = png_reader_run(r, want, out, row_bytes, err);

	arena_reset(&r->arena, KEEP_BYTES);
	if (outcome)
		return outcome;
	if (!l->interlaced && r->n_done < want.y + want.height)
		png_fill_zero(l, out, r->n_done > want.y ? r->n_done - want.y : 0);
	for (uint32_t y = 0; l->interlaced && y < want.height; y++)
		png_samples_to_rgb(l, r->raw.data + (want.y + y) * row_bytes + want.x * png_pixel_bytes(l), want.width,
				   out->rgb + y * out->stride_bytes);
	return 0;
}

/* The same, by png-rows.c if it can. */
static int png_reader_read_frame(struct png_reader *r, struct region_px want, struct image *out,
				 struct image_error *err)
{
	int outcome = png_rows_read(&r->rows, &r->layout, r->bytes, r->n_bytes, want, NULL, out, &r->budget);

	return outcome == PNG_ROWS_UNSURE ? png_reader_read_surely(r, want, out, err) : outcome;
}

static uint32_t png_reader_max32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t png_reader_min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* All rows of the picture are its only frame's. */
static bool png_reader_is_plain(const struct png_layout *l)
{
	return l->frame.x == 0 && l->frame.y == 0 && l->frame.width == l->width && l->frame.height == l->height;
}

/* Hands the rows on while they are decoded. PNG_ROWS_UNSURE: those that the sink has got do not count. */
static int png_reader_hand_on(struct png_reader *r, struct region_px want, struct row_sink *sink,
			      struct scratch *pixels, struct image *out)
{
	struct row_bands bands;
	int outcome = row_bands_begin(&bands, sink, want.width, pixels);

	*out = (struct image){ NULL, 0, want.width, want.height };
	return outcome ? outcome
		       : png_rows_read(&r->rows, &r->layout, r->bytes, r->n_bytes, want, &bands, NULL, &r->budget);
}

int png_reader_region(struct png_reader *r, bool deep, struct region_px want, struct row_sink *sink,
		      struct scratch *pixels, struct image *out, struct image_error *err)
{
	r->layout.deep = deep && r->layout.color == PNG_GREY && r->layout.bits == 16;

	const bool hands_on = sink && !r->layout.deep && png_reader_is_plain(&r->layout);
	int outcome = hands_on ? png_reader_hand_on(r, want, sink, pixels, out) : PNG_ROWS_UNSURE;

	if (outcome != PNG_ROWS_UNSURE)
		return outcome;

	const struct region_px f = r->layout.frame;
	size_t bytes = png_result_bytes(&r->layout), stride = want.width * bytes;
	uint8_t *rgb = scratch_reserve(pixels, stride * want.height);

	if (!rgb)
		return -ENOMEM;
	*out = (struct image){ rgb, stride, want.width, want.height };

	uint32_t left = png_reader_max32(want.x, f.x), right = png_reader_min32(want.x + want.width, f.x + f.width);
	uint32_t top = png_reader_max32(want.y, f.y), bottom = png_reader_min32(want.y + want.height, f.y + f.height);
	bool inside = left == want.x && top == want.y && right == want.x + want.width && bottom == want.y + want.height;

	if (!inside)
		png_fill_zero(&r->layout, out, 0);
	if (left >= right || top >= bottom) { /* the frame is outside; its first row must still be sound */
		struct image none = { rgb, stride, 0, 0 };

		return png_reader_read_frame(r, (struct region_px){ 0, 0, 0, 0 }, &none, err);
	}
	struct image part = { rgb + (top - want.y) * stride + (left - want.x) * bytes, stride, right - left,
			      bottom - top };

	return (hands_on ? png_reader_read_surely : png_reader_read_frame)(
		r, (struct region_px){ left - f.x, top - f.y, right - left, bottom - top }, &part, err);
}
