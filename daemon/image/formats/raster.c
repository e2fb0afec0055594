/* Formats whose decoding is unpacking: the header names a layout of rows (raw-rows.h), and the rows are either the
 * file's own or unpacked into the reader's memory first. A file that lacks rows is refused when it is opened, or when
 * it is unpacked, whatever region is wanted, as Pillow refuses it. */
#include "image/formats/raster.h"

#include <stdlib.h>

#include "image/formats/bmp.h"
#include "image/formats/gif.h"
#include "image/formats/pnm.h"
#include "image/formats/tiff.h"

enum { KEEP_BYTES = 16 << 20 };

struct raster_reader {
	const struct decode_limits *limits; /* borrowed */
	enum image_format format;           /* 0 while closed */
	const uint8_t *bytes;               /* borrowed */
	size_t n_bytes;
	struct cpu_budget budget; /* of the open file */
	struct scratch unpacked;
	struct pnm_text text;
	struct scratch tables;
	struct tiff_memory tiff_memory;
	union {
		struct bmp bmp;
		struct pnm pnm;
		struct gif gif;
		struct tiff tiff;
	};
};

struct raster_reader *raster_reader_create(const struct decode_limits *limits)
{
	struct raster_reader *r = calloc(1, sizeof(*r));

	if (r)
		r->limits = r->tiff_memory.limits = limits;
	return r;
}

static void raster_trim(struct raster_reader *r, size_t keep_bytes)
{
	struct scratch *const all[] = { &r->unpacked, &r->text.values, &r->text.block, &r->tables };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i]->size_bytes > keep_bytes)
			scratch_finish(all[i]);
	tiff_memory_trim(&r->tiff_memory, keep_bytes);
}

void raster_reader_destroy(struct raster_reader *r)
{
	if (!r)
		return;
	raster_trim(r, 0);
	free(r);
}

void raster_reader_close(struct raster_reader *r)
{
	r->format = 0;
	r->bytes = NULL;
	raster_trim(r, KEEP_BYTES);
}

static const char *const kinds[N_FORMATS] = {
	[FORMAT_BMP] = "BMP", [FORMAT_PNM] = "PNM", [FORMAT_GIF] = "GIF", [FORMAT_TIFF] = "TIFF"
};

static int raster_check_size(const struct raster_reader *r, const char *kind, uint32_t width, uint32_t height,
			     struct image_error *err)
{
	if ((uint64_t)width * height <= r->limits->max_px)
		return 0;
	return image_fail(err, IMAGE_E_LIMIT, "%s of %ux%u pixels; at most %llu pixels are read", kind, width, height,
			  (unsigned long long)r->limits->max_px);
}

static struct raw_rows *raster_rows(struct raster_reader *r)
{
	switch (r->format) {
	case FORMAT_BMP:
		return &r->bmp.rows;
	case FORMAT_PNM:
		return &r->pnm.rows;
	default:
		return &r->gif.rows;
	}
}

static int raster_read(struct raster_reader *r, struct image_error *err)
{
	switch (r->format) {
	case FORMAT_BMP:
		return bmp_read(r->bytes, r->n_bytes, &r->bmp, err);
	case FORMAT_PNM:
		return pnm_read(r->bytes, r->n_bytes, &r->pnm, err);
	default:
		return gif_read(r->bytes, r->n_bytes, &r->gif, err);
	}
}

static struct raw_layout *raster_layout(struct raster_reader *r)
{
	return r->format == FORMAT_TIFF ? &r->tiff.layout : &raster_rows(r)->layout;
}

/* Grey of 8 bits, as Pillow's mode L: of two values it is mode 1, and BMP and GIF have palettes. */
static bool raster_is_grey(const struct raster_reader *r, const struct raw_layout *l)
{
	if (r->format == FORMAT_PNM)
		return (l->kind == RAW_SCALED && l->channels == 1) || (l->kind == RAW_BYTES && l->step == 1);
	return r->format == FORMAT_TIFF && tiff_is_grey(&r->tiff);
}

static enum image_numbers raster_numbers(struct raster_reader *r)
{
	static const enum image_numbers numbers[] = {
		[RAW_UINT16] = NUMBERS_UINT16, [RAW_INT32] = NUMBERS_INT32, [RAW_FLOAT32] = NUMBERS_FLOAT32
	};
	const struct raw_layout *l = raster_layout(r);
	enum raw_number give;

	if (raw_is_deep(l, &give))
		return numbers[give];
	return raster_is_grey(r, l) ? NUMBERS_UINT8 : NUMBERS_NONE;
}

int raster_reader_open(struct raster_reader *r, enum image_format format, const uint8_t *bytes, size_t n_bytes,
		       struct image_info *info, struct image_error *err)
{
	r->format = format;
	r->bytes = bytes;
	r->n_bytes = n_bytes;
	cpu_budget_begin(&r->budget, r->limits->max_ns);
	int outcome = format == FORMAT_TIFF ? tiff_read(bytes, n_bytes, &r->tiff, err) : raster_read(r, err);

	if (outcome)
		return outcome;
	bool tiff = format == FORMAT_TIFF;
	info->width = tiff ? r->tiff.width : raster_rows(r)->width;
	info->height = tiff ? r->tiff.height : raster_rows(r)->height;
	info->orientation = tiff ? r->tiff.orientation : 1;
	info->numbers = raster_numbers(r);
	outcome = raster_check_size(r, kinds[format], info->width, info->height, err);
	if (!outcome && tiff)
		outcome = tiff_check_chunks(&r->tiff, n_bytes, r->limits->max_px, err);
	return outcome;
}

static int raster_unpack(struct raster_reader *r, struct image_error *err)
{
	if (r->format == FORMAT_BMP && r->bmp.packed)
		return bmp_unpack(&r->bmp, r->bytes, r->n_bytes, &r->unpacked, &r->budget, err);
	if (r->format == FORMAT_PNM && r->pnm.text)
		return pnm_read_text(&r->pnm, r->bytes, r->n_bytes, &r->text, &r->budget, err);
	if (r->format == FORMAT_GIF)
		return gif_unpack(&r->gif, r->bytes, r->n_bytes, &r->unpacked, &r->tables, &r->budget, err);
	return 0;
}

int raster_reader_region(struct raster_reader *r, bool deep, struct region_px want, struct row_sink *sink,
			 struct scratch *pixels, struct image *out, struct image_error *err)
{
	enum raw_number give;
	struct raw_layout *layout = raster_layout(r);

	layout->deep = deep && raw_is_deep(layout, &give);
	if (r->format == FORMAT_TIFF)
		return tiff_region(&r->tiff, r->bytes, want, &r->tiff_memory, pixels, out, &r->budget, err);
	int outcome = raster_unpack(r, err);

	if (outcome == 0)
		outcome = raw_rows_region(raster_rows(r), want, sink, pixels, &r->budget, out);
	if (outcome == IMAGE_E_TIME)
		return image_fail(err, IMAGE_E_TIME,
				  "%s that takes more than %.3g s of processor time to decode "
				  "(limits.image_time in the daemon's configuration)",
				  kinds[r->format], (double)r->limits->max_ns / 1e9);
	return outcome;
}
