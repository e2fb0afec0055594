/* What the fuzz targets of pictures share: no crash, no read outside, no excessive run time, and a decoded region equals
 * that region of the whole picture. */
#ifndef BATCHD_FUZZ_REGIONS_H
#define BATCHD_FUZZ_REGIONS_H

#include <stdlib.h>
#include <string.h>

#include "image/formats/decode.h"

static const struct decode_limits regions_limits = { .max_px = 1 << 18, .max_scans = 20, .max_bytes = 1 << 20 };

/* A rectangle that depends on the input only. */
static struct region_px regions_pick(const uint8_t *bytes, size_t n, const struct image_info *info)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ bytes[i]) * 16777619u;
	struct region_px r = { .x = h % info->width, .y = (h >> 8) % info->height };

	r.width = 1 + (h >> 16) % (info->width - r.x);
	r.height = 1 + (h >> 20) % (info->height - r.y);
	return r;
}

static uint8_t *regions_copy(const struct image *image)
{
	uint8_t *rgb = malloc((size_t)image->width * image->height * 3);

	for (uint32_t y = 0; rgb && y < image->height; y++)
		memcpy(rgb + (size_t)y * image->width * 3, image->rgb + y * image->stride_bytes,
		       (size_t)image->width * 3);
	return rgb;
}

/* Both decoders had the same bytes: they must agree. */
static void regions_compare(const uint8_t *whole, uint32_t whole_width, struct region_px r, const struct image *part)
{
	for (uint32_t y = 0; y < r.height; y++)
		if (memcmp(whole + ((size_t)(r.y + y) * whole_width + r.x) * 3, part->rgb + y * part->stride_bytes,
			   (size_t)r.width * 3) != 0)
			abort();
}

/* Compares a region's rows with the whole picture's. Rows of a picture that is then given up do not count. */
struct regions_sink {
	struct row_sink sink;
	const uint8_t *whole; /* its next row; NULL: it could not be decoded */
	size_t whole_stride, row_bytes;
	uint32_t n_left;
	int differs;
};

static void regions_take(struct row_sink *sink, const uint8_t *rows, size_t stride_bytes, unsigned n)
{
	struct regions_sink *s = (struct regions_sink *)(void *)sink;

	if (n == 0 || n > ROW_SINK_BAND || n > s->n_left)
		abort();
	s->n_left -= n;
	for (unsigned i = 0; s->whole && i < n; i++, s->whole += s->whole_stride)
		s->differs |= memcmp(s->whole, rows + i * stride_bytes, s->row_bytes);
}

/* The open picture's region, handed on while it is decoded. */
static void regions_by_rows(struct decoder *d, const uint8_t *whole, uint32_t whole_width, struct region_px r)
{
	struct regions_sink s = { { regions_take }, NULL, (size_t)whole_width * 3, (size_t)r.width * 3, r.height, 0 };
	struct image_error err;
	struct image out;

	if (whole)
		s.whole = whole + ((size_t)r.y * whole_width + r.x) * 3;
	if (decoder_region_to(d, r, &s.sink, &out, &err) != 0)
		return;
	if (out.rgb && whole)
		regions_compare(whole, whole_width, r, &out);
	if (!out.rgb && (s.n_left > 0 || s.differs))
		abort();
}

/* Opens it, in some inputs as a draft. */
static int regions_open(struct decoder *d, const uint8_t *bytes, size_t n, struct image_info *info)
{
	struct image_error err;
	int r = decoder_open(d, bytes, n, n > 0 && (bytes[n / 2] & 1), info, &err);

	if (r == 0 && bytes[n / 3] & 1)
		decoder_draft(d, 1 + bytes[n / 3] / 2, 1 + bytes[n / 2] / 2, info);
	return r;
}

/* The same of the file's numbers, as every kind of pixel that holds them. A kind that does not is refused. */
static void regions_of_numbers(struct decoder *d, const uint8_t *bytes, size_t n, enum pixel as)
{
	struct image_info info;
	struct image_error err = { "" };
	struct image out;

	if (regions_open(d, bytes, n, &info) != 0)
		abort();
	struct region_px r = regions_pick(bytes, n, &info), all = { 0, 0, info.width, info.height };
	size_t px = pixel_bytes(as), row = info.width * px;

	if (decoder_region_as(d, as, all, &out, &err) != 0)
		return;
	uint8_t *whole = malloc(row * info.height);

	for (uint32_t y = 0; whole && y < info.height; y++)
		memcpy(whole + y * row, out.rgb + y * out.stride_bytes, row);
	if (regions_open(d, bytes, n, &info) != 0)
		abort();
	if (decoder_region_as(d, as, r, &out, &err) == 0)
		for (uint32_t y = 0; whole && y < r.height; y++)
			if (memcmp(whole + (r.y + y) * row + r.x * px, out.rgb + y * out.stride_bytes, r.width * px))
				abort();
	free(whole);
}

static int regions_agree(const uint8_t *bytes, size_t n)
{
	static struct decoder *d; /* kept, as a worker keeps it: leftovers of one image must not affect the next */
	struct image_info info;
	struct image_error err;
	struct image out;

	if (!d && !(d = decoder_create(&regions_limits)))
		abort();
	if (regions_open(d, bytes, n, &info) != 0)
		return 0;
	struct region_px r = regions_pick(bytes, n, &info), all = { 0, 0, info.width, info.height };
	uint8_t *whole = decoder_region(d, all, &out, &err) == 0 ? regions_copy(&out) : NULL;

	if (regions_open(d, bytes, n, &info) != 0)
		abort();
	if (decoder_region(d, r, &out, &err) == 0 && whole)
		regions_compare(whole, info.width, r, &out);
	if (regions_open(d, bytes, n, &info) != 0)
		abort();
	regions_by_rows(d, whole, info.width, r);
	if (info.numbers != NUMBERS_NONE)
		for (enum pixel as = PIXEL_UINT16; as <= PIXEL_FLOAT32; as++)
			regions_of_numbers(d, bytes, n, as);
	decoder_close(d);
	free(whole);
	return 0;
}

#endif
