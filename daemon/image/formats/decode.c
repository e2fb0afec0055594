/* The common entry to all formats: looks at the first bytes, calls that format's reader and turns the result upright if
 * asked.
 *
 * The library state of a format is made for its first image, because most data sets have only one format. */
#include "image/formats/decode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image/formats/jpeg.h"
#include "image/formats/numbers.h"
#include "image/formats/png.h"
#include "image/formats/pnm.h"
#include "image/formats/raster.h"
#include "image/formats/tiff-tags.h"
#include "image/formats/webp.h"
#include "base/workspace.h"

/* Buffers larger than this are freed at the next image, so that one giant image does not cost memory forever. */
enum { KEEP_BYTES = 64 << 20 };

const struct decode_limits decode_limits_default = {
	.max_px = 178956970,
	.max_scans = 100,
	.max_bytes = 256 << 20,
	.max_ns = 20 * UINT64_C(1000000000),
	.keep_bytes = KEEP_BYTES,
};

struct decoder {
	struct decode_limits limits;
	struct jpeg_reader *jpeg; /* each NULL until needed */
	struct png_reader *png;
	struct webp_reader *webp;
	struct raster_reader *raster;
	struct scratch pixels; /* as the file stores them */
	struct scratch turned, widened;
	struct image_info stored; /* as the file stores it; format 0 while nothing is open */
	int turn;                 /* orientation to undo, 1 for none */
};

struct decoder *decoder_create(const struct decode_limits *limits)
{
	struct decoder *d = calloc(1, sizeof(*d));

	if (d)
		d->limits = *limits;
	return d;
}

void decoder_destroy(struct decoder *d)
{
	if (!d)
		return;
	decoder_trim(d);
	free(d);
}

void decoder_trim(struct decoder *d)
{
	jpeg_reader_destroy(d->jpeg);
	png_reader_destroy(d->png);
	webp_reader_destroy(d->webp);
	raster_reader_destroy(d->raster);
	scratch_finish(&d->pixels);
	scratch_finish(&d->turned);
	scratch_finish(&d->widened);
	d->jpeg = NULL;
	d->png = NULL;
	d->webp = NULL;
	d->raster = NULL;
	d->stored = (struct image_info){ 0 };
}

void decoder_close(struct decoder *d)
{
	switch (d->stored.format) {
	case FORMAT_JPEG:
		jpeg_reader_close(d->jpeg);
		break;
	case FORMAT_PNG:
		png_reader_close(d->png);
		break;
	case FORMAT_WEBP:
		webp_reader_close(d->webp);
		break;
	case FORMAT_BMP:
	case FORMAT_PNM:
	case FORMAT_GIF:
	case FORMAT_TIFF:
		raster_reader_close(d->raster);
		break;
	default:
		break;
	}
	d->stored = (struct image_info){ 0 };
}

static void decode_trim(struct scratch *s)
{
	if (s->size_bytes > KEEP_BYTES)
		scratch_finish(s);
}

/* The format by its first bytes, 0 if it is not supported. */
static enum image_format decode_sniff(const uint8_t *b, size_t n)
{
	if (n >= 3 && memcmp(b, "\xff\xd8\xff", 3) == 0)
		return FORMAT_JPEG;
	if (n >= 8 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0)
		return FORMAT_PNG;
	if (n >= 16 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBPVP8", 7) == 0)
		return FORMAT_WEBP;
	if (n >= 2 && memcmp(b, "BM", 2) == 0)
		return FORMAT_BMP;
	if (pnm_begins(b, n))
		return FORMAT_PNM;
	if (n >= 6 && (memcmp(b, "GIF87a", 6) == 0 || memcmp(b, "GIF89a", 6) == 0))
		return FORMAT_GIF;
	if (tiff_begins(b, n))
		return FORMAT_TIFF;
	return 0;
}

const char *image_format_name(enum image_format format)
{
	static const char *const names[N_FORMATS] = {
		[FORMAT_JPEG] = "jpeg", [FORMAT_PNG] = "png", [FORMAT_WEBP] = "webp", [FORMAT_BMP] = "bmp",
		[FORMAT_PNM] = "pnm",   [FORMAT_GIF] = "gif", [FORMAT_TIFF] = "tiff"
	};

	return names[format];
}

/* What cameras and web sites write, and what is not read; NULL: nothing that is known. */
static const char *unread_format(const uint8_t *b, size_t n)
{
	if (n >= 12 && !memcmp(b + 4, "ftypavi", 7))
		return "AVIF";
	if (n >= 12 && !memcmp(b + 4, "ftyp", 4) && (!memcmp(b + 8, "hei", 3) || !memcmp(b + 8, "mif1", 4)))
		return "HEIC";
	if (n >= 12 && (!memcmp(b, "\0\0\0\x0cjP  ", 8) || !memcmp(b, "\xff\x4f\xff\x51", 4)))
		return "JPEG 2000";
	if (n >= 12 && (!memcmp(b, "\xff\x0a", 2) || !memcmp(b, "\0\0\0\x0cJXL ", 8)))
		return "JPEG XL";
	return NULL;
}

static int refuse_format(const uint8_t *b, size_t n, struct image_error *err)
{
	const char *unread = unread_format(b, n);

	if (unread)
		return image_fail(err, IMAGE_E_FORMAT, "is %s; " DECODE_FORMATS " are read", unread);
	if (n >= 1 && b[0] == '<')
		return image_fail(err, IMAGE_E_FORMAT, "a text file; " DECODE_FORMATS " are read");
	if (n < 4)
		return image_fail(err, IMAGE_E_FORMAT, "a file of %zu bytes is no image", n);
	return image_fail(err, IMAGE_E_FORMAT, "begins with bytes %02x %02x %02x %02x; " DECODE_FORMATS " are read",
			  b[0], b[1], b[2], b[3]);
}

static int open_jpeg(struct decoder *d, const uint8_t *bytes, size_t n_bytes, struct image_error *err)
{
	if (!d->jpeg && !(d->jpeg = jpeg_reader_create(&d->limits)))
		return -ENOMEM;
	return jpeg_reader_open(d->jpeg, bytes, n_bytes, &d->stored, err);
}

static int open_png(struct decoder *d, const uint8_t *bytes, size_t n_bytes, struct image_error *err)
{
	if (!d->png && !(d->png = png_reader_create(&d->limits)))
		return -ENOMEM;
	return png_reader_open(d->png, bytes, n_bytes, &d->stored, err);
}

static int open_webp(struct decoder *d, const uint8_t *bytes, size_t n_bytes, struct image_error *err)
{
	if (!d->webp && !(d->webp = webp_reader_create(&d->limits)))
		return -ENOMEM;
	return webp_reader_open(d->webp, bytes, n_bytes, &d->stored, err);
}

static int open_raster(struct decoder *d, enum image_format format, const uint8_t *bytes, size_t n_bytes,
		       struct image_error *err)
{
	if (!d->raster && !(d->raster = raster_reader_create(&d->limits)))
		return -ENOMEM;
	return raster_reader_open(d->raster, format, bytes, n_bytes, &d->stored, err);
}

static int open_stored(struct decoder *d, enum image_format format, const uint8_t *bytes, size_t n_bytes,
		       struct image_error *err)
{
	switch (format) {
	case FORMAT_JPEG:
		return open_jpeg(d, bytes, n_bytes, err);
	case FORMAT_PNG:
		return open_png(d, bytes, n_bytes, err);
	case FORMAT_WEBP:
		return open_webp(d, bytes, n_bytes, err);
	case FORMAT_BMP:
	case FORMAT_PNM:
	case FORMAT_GIF:
	case FORMAT_TIFF:
		return open_raster(d, format, bytes, n_bytes, err);
	default:
		return refuse_format(bytes, n_bytes, err);
	}
}

static void tell_upright(const struct decoder *d, struct image_info *info)
{
	*info = d->stored;
	if (d->turn >= 5) {
		info->width = d->stored.height;
		info->height = d->stored.width;
	}
}

static int decode_open(struct decoder *d, const uint8_t *bytes, size_t n_bytes, bool apply_exif,
		       struct image_info *info, struct image_error *err)
{
	decoder_close(d);
	decode_trim(&d->pixels);
	decode_trim(&d->turned);
	decode_trim(&d->widened);
	if (n_bytes > d->limits.max_bytes)
		return image_fail(err, IMAGE_E_LIMIT, "file of %zu bytes; at most %llu are read", n_bytes,
				  (unsigned long long)d->limits.max_bytes);

	enum image_format format = decode_sniff(bytes, n_bytes);
	int outcome = open_stored(d, format, bytes, n_bytes, err);
	if (outcome)
		return outcome;

	d->stored.format = format;
	d->turn = apply_exif || format == FORMAT_TIFF ? d->stored.orientation : 1;
	tell_upright(d, info);
	return 0;
}

void decoder_draft(struct decoder *d, uint32_t width, uint32_t height, struct image_info *info)
{
	if (d->stored.format != FORMAT_JPEG)
		return;
	jpeg_reader_draft(d->jpeg, width, height, &d->stored);
	tell_upright(d, info);
}

void decoder_want_index(struct decoder *d, const void *known, size_t n_bytes, enum index_effort most)
{
	if (d->stored.format == FORMAT_JPEG)
		jpeg_reader_want_index(d->jpeg, known, n_bytes, most);
}

const void *decoder_index(const struct decoder *d, size_t *n_bytes)
{
	return d->stored.format == FORMAT_JPEG ? jpeg_reader_index(d->jpeg, n_bytes) : NULL;
}

enum index_use decoder_index_use(const struct decoder *d)
{
	return d->stored.format == FORMAT_JPEG ? jpeg_reader_index_use(d->jpeg) : INDEX_OTHER;
}

/* The mapping from an upright pixel to its stored one: swap the axes (orientations 5 to 8), then count from the far
 * side. */
static bool turn_swaps(int turn)
{
	return turn >= 5;
}

static bool turn_mirrors_x(int turn)
{
	return turn == 2 || turn == 3 || turn == 7 || turn == 8;
}

static bool turn_mirrors_y(int turn)
{
	return turn == 3 || turn == 4 || turn == 6 || turn == 7;
}

/* The stored rectangle that becomes `upright`. */
static struct region_px stored_region(const struct decoder *d, struct region_px upright)
{
	struct region_px r = upright;

	if (turn_swaps(d->turn))
		r = (struct region_px){ upright.y, upright.x, upright.height, upright.width };
	if (turn_mirrors_x(d->turn))
		r.x = d->stored.width - r.x - r.width;
	if (turn_mirrors_y(d->turn))
		r.y = d->stored.height - r.y - r.height;
	return r;
}

/* Copies one row of the result: n pixels, `right` bytes apart. */
static void turn_row(const uint8_t *from, ptrdiff_t right, uint32_t n, size_t bytes, uint8_t *to)
{
	for (uint32_t x = 0; x < n; x++, from += right, to += bytes)
		memcpy(to, from, bytes);
}

/* Copies `from` into memory of the decoder, turned upright. */
static int turn_upright(struct decoder *d, size_t bytes, const struct image *from, struct image *to)
{
	bool swaps = turn_swaps(d->turn);
	uint32_t width = swaps ? from->height : from->width, height = swaps ? from->width : from->height;
	uint8_t *rgb = scratch_reserve(&d->turned, (size_t)width * height * bytes);

	if (!rgb)
		return -ENOMEM;
	*to = (struct image){ rgb, (size_t)width * bytes, width, height };

	/* Steps in `from` for one pixel to the right and one down in `to`, and where `to` begins. */
	ptrdiff_t step_x = (ptrdiff_t)bytes, step_y = (ptrdiff_t)from->stride_bytes;
	const uint8_t *start = from->rgb;
	if (turn_mirrors_x(d->turn)) {
		start += (size_t)(from->width - 1) * bytes;
		step_x = -step_x;
	}
	if (turn_mirrors_y(d->turn)) {
		start += (size_t)(from->height - 1) * from->stride_bytes;
		step_y = -step_y;
	}
	ptrdiff_t right = swaps ? step_y : step_x, down = swaps ? step_x : step_y;

	for (uint32_t y = 0; y < height; y++, rgb += width * bytes) {
		const uint8_t *row = start + (ptrdiff_t)y * down;

		if (bytes == 3)
			turn_row(row, right, width, 3, rgb);
		else
			turn_row(row, right, width, bytes, rgb);
	}
	return 0;
}

/* deep: numbers of more than 8 bits come as the file has them (image_info.numbers), not as RGB. */
static int read_stored(struct decoder *d, bool deep, struct region_px want, struct row_sink *sink, struct image *out,
		       struct image_error *err)
{
	switch (d->stored.format) {
	case FORMAT_JPEG:
		return jpeg_reader_region(d->jpeg, want, sink, &d->pixels, out, err);
	case FORMAT_PNG:
		return png_reader_region(d->png, deep, want, sink, &d->pixels, out, err);
	case FORMAT_WEBP:
		return webp_reader_region(d->webp, want, &d->pixels, out, err);
	case FORMAT_BMP:
	case FORMAT_PNM:
	case FORMAT_GIF:
	case FORMAT_TIFF:
		return raster_reader_region(d->raster, deep, want, sink, &d->pixels, out, err);
	default:
		break;
	}
	return -EINVAL; /* nothing is open */
}

static const char *numbers_text(enum image_numbers numbers)
{
	static const char *const texts[] = { "no image of one grey number for each pixel",
					     "an image of 8 bits for each pixel (Pillow's mode L)",
					     "an image of 16 bits for each pixel (Pillow's mode I;16)",
					     "an image of 32-bit numbers (Pillow's mode I)",
					     "an image of floats (Pillow's mode F)" };

	return texts[numbers];
}

/* The file's numbers, as `as` has them. */
static int read_numbers(struct decoder *d, enum pixel as, struct region_px want, struct image *out,
			struct image_error *err)
{
	enum image_numbers from = d->stored.numbers;
	struct image stored;

	if (!numbers_fit(from, as))
		return image_fail(err, IMAGE_E_FORMAT, "%s, which Convert to \"%s\" does not read", numbers_text(from),
				  pixel_mode(as));
	int outcome = read_stored(d, from != NUMBERS_UINT8, want, NULL, &stored, err);

	if (outcome)
		return outcome;
	if (numbers_are(from, as)) {
		*out = stored;
		return 0;
	}
	return numbers_widen(from, &stored, as, &d->widened, out);
}

static int decode_region(struct decoder *d, enum pixel as, struct region_px want, struct row_sink *sink,
			 struct image *out, struct image_error *err)
{
	struct image stored;
	struct region_px r = stored_region(d, want);

	if (r.width == 0 || r.height == 0 || r.width > d->stored.width || r.x > d->stored.width - r.width ||
	    r.height > d->stored.height || r.y > d->stored.height - r.height)
		return -EINVAL; /* the caller's mistake, not the file's */

	sink = d->turn == 1 ? sink : NULL; /* rows that are turned are not rows */
	int outcome =
		as == PIXEL_RGB ? read_stored(d, false, r, sink, &stored, err) : read_numbers(d, as, r, &stored, err);
	if (outcome)
		return outcome;
	if (d->turn != 1)
		return turn_upright(d, pixel_bytes(as), &stored, out);
	*out = stored;
	return 0;
}

/* ---- the stage of the thread ---- */

int decoder_open(struct decoder *d, const uint8_t *bytes, size_t n_bytes, bool apply_exif, struct image_info *info,
		 struct image_error *err)
{
	enum stage before = workspace_stage(STAGE_DECODE);
	int outcome = decode_open(d, bytes, n_bytes, apply_exif, info, err);

	workspace_stage(before);
	return outcome;
}

static int decode_region_in_stage(struct decoder *d, enum pixel as, struct region_px want, struct row_sink *sink,
				  struct image *out, struct image_error *err)
{
	enum stage before = workspace_stage(STAGE_DECODE);
	int outcome = decode_region(d, as, want, sink, out, err);

	workspace_stage(before);
	return outcome;
}

int decoder_region(struct decoder *d, struct region_px want, struct image *out, struct image_error *err)
{
	return decoder_region_as(d, PIXEL_RGB, want, out, err);
}

int decoder_region_as(struct decoder *d, enum pixel as, struct region_px want, struct image *out,
		      struct image_error *err)
{
	return decode_region_in_stage(d, as, want, NULL, out, err);
}

int decoder_region_to(struct decoder *d, struct region_px want, struct row_sink *sink, struct image *out,
		      struct image_error *err)
{
	return decode_region_in_stage(d, PIXEL_RGB, want, sink, out, err);
}
