/* Decodes one WebP at a time through libwebp.
 *
 * Pillow always uses the animation decoder: it puts the first frame unblended onto a transparent black canvas and then
 * drops alpha. So only that frame is decoded here, and the rest of the canvas is black.
 *
 * Cropping inside libwebp starts at even columns and rows and computes chroma at the cut edges as if the picture ended
 * there, so a margin is added. libwebp allocates its own working memory per image and offers no hook for it; pixels are
 * written directly into the reader's memory. */
#include "image/formats/webp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "image/formats/exif.h"
#include "image/formats/webp-tables.h"
#include "base/workspace.h"

enum { MARGIN = 4, BYTES_PER_FRAME_BYTE = 5 };
/* libwebp's memory during decoding: for a lossless picture or one with transparency all pixels, else some rows. */
enum { BYTES_PER_PIXEL = 6, BYTES_PER_COLUMN = 256 };
enum { CHUNK_HEADER = 8, ALPHA_LOSSLESS = 1, KEEP_BYTES = 1 << 20 };

struct webp_reader {
	const struct decode_limits *limits; /* borrowed */
	WebPDemuxer *demuxer;               /* NULL while closed; refers to the borrowed bytes */
	WebPIterator first;                 /* frame; valid while demuxer is */
	struct scratch frame;               /* decoded part of a frame that does not cover the canvas */
	struct scratch tables[2];           /* for webp_tables_measure */
	uint64_t demuxer_bytes;             /* taken from the worker's memory for the demuxer */
	struct workspace *demuxer_payer;
	uint32_t width, height;
};

struct webp_reader *webp_reader_create(const struct decode_limits *limits)
{
	struct webp_reader *r = calloc(1, sizeof(*r));

	if (r)
		r->limits = limits;
	return r;
}

static void drop_demuxer(struct webp_reader *r)
{
	WebPDemuxDelete(r->demuxer);
	r->demuxer = NULL;
	work_return(r->demuxer_bytes, r->demuxer_payer);
	r->demuxer_bytes = 0;
}

/* libwebp keeps a record of every frame, which takes several times the size of an empty frame in the file. */
static uint64_t demuxer_bytes(const uint8_t *bytes, size_t n_bytes)
{
	bool animated = n_bytes > 20 && memcmp(bytes + 12, "VP8X", 4) == 0 && (bytes[20] & ANIMATION_FLAG);

	return animated ? (uint64_t)n_bytes * BYTES_PER_FRAME_BYTE : 0;
}

void webp_reader_close(struct webp_reader *r)
{
	if (!r->demuxer)
		return;
	WebPDemuxReleaseIterator(&r->first);
	drop_demuxer(r);
}

void webp_reader_destroy(struct webp_reader *r)
{
	if (!r)
		return;
	webp_reader_close(r);
	scratch_finish(&r->frame);
	for (int i = 0; i < 2; i++)
		scratch_finish(&r->tables[i]);
	free(r);
}

static int webp_reader_orientation_of(WebPDemuxer *demuxer)
{
	static int (*const readers[])(const uint8_t *, size_t) = { exif_orientation, xmp_orientation };
	static const char *const names[] = { "EXIF", "XMP " };
	int o = 0;

	for (int i = 0; i < 2 && o == 0; i++) {
		WebPChunkIterator chunk;

		if (WebPDemuxGetChunk(demuxer, names[i], 1, &chunk)) {
			o = readers[i](chunk.chunk.bytes, chunk.chunk.size);
			WebPDemuxReleaseChunkIterator(&chunk);
		}
	}
	return o ? o : 1;
}

int webp_reader_open(struct webp_reader *r, const uint8_t *bytes, size_t n_bytes, struct image_info *info,
		     struct image_error *err)
{
	WebPData data = { bytes, n_bytes };

	webp_reader_close(r);
	r->demuxer_bytes = demuxer_bytes(bytes, n_bytes);
	if (!work_borrow(r->demuxer_bytes, &r->demuxer_payer)) {
		r->demuxer_bytes = 0;
		return -ENOMEM;
	}
	r->demuxer = WebPDemux(&data);
	if (!r->demuxer) {
		drop_demuxer(r);
		return image_fail(err, IMAGE_E_CORRUPT, "WebP damaged or cut short");
	}
	if (!WebPDemuxGetFrame(r->demuxer, 1, &r->first)) {
		drop_demuxer(r);
		return image_fail(err, IMAGE_E_CORRUPT, "WebP without a frame");
	}

	r->width = WebPDemuxGetI(r->demuxer, WEBP_FF_CANVAS_WIDTH);
	r->height = WebPDemuxGetI(r->demuxer, WEBP_FF_CANVAS_HEIGHT);
	if ((uint64_t)r->width * r->height > r->limits->max_px)
		return image_fail(err, IMAGE_E_LIMIT, "WebP of %ux%u pixels; at most %llu pixels are read", r->width,
				  r->height, (unsigned long long)r->limits->max_px);
	info->width = r->width;
	info->height = r->height;
	info->orientation = webp_reader_orientation_of(r->demuxer);
	return 0;
}

static const char *status_text(VP8StatusCode status)
{
	switch (status) {
	case VP8_STATUS_NOT_ENOUGH_DATA:
		return "it is cut short";
	case VP8_STATUS_UNSUPPORTED_FEATURE:
		return "it uses an unknown feature";
	default:
		return "its data are damaged";
	}
}

/* Grows a span of the frame by the margin, starting at an even position. */
static void webp_reader_widen(uint32_t *start, uint32_t *length, uint32_t whole)
{
	uint32_t end = *start + *length;

	*start = *start > MARGIN ? (*start - MARGIN) & ~1u : 0;
	end = whole - end > MARGIN ? end + MARGIN : whole;
	*length = end - *start;
}

static int webp_reader_damaged(struct image_error *err)
{
	return image_fail(err, IMAGE_E_CORRUPT, "WebP cannot be decoded: %s", status_text(VP8_STATUS_BITSTREAM_ERROR));
}

/* The lossless stream in the frame, which may be its transparency alone. False: there is none. */
static bool lossless_part(const struct webp_reader *r, const uint8_t **stream, size_t *n_stream, bool *bare)
{
	const WebPData *data = &r->first.fragment;
	const uint8_t *p = data->bytes + CHUNK_HEADER;

	if (data->size <= CHUNK_HEADER)
		return false;
	size_t n = (size_t)data->bytes[4] | (size_t)data->bytes[5] << 8 | (size_t)data->bytes[6] << 16 |
		   (size_t)data->bytes[7] << 24;
	n = n < data->size - CHUNK_HEADER ? n : data->size - CHUNK_HEADER;
	*bare = memcmp(data->bytes, "ALPH", 4) == 0;
	if (!*bare && memcmp(data->bytes, "VP8L", 4) != 0)
		return false;
	if (*bare && (n < 1 || (p[0] & 3) != ALPHA_LOSSLESS))
		return false;
	*stream = p + *bare;
	*n_stream = n - *bare;
	return true;
}

/* What libwebp will allocate for the frame. Returns 0, IMAGE_E_CORRUPT or -ENOMEM. */
static int decoder_bytes(struct webp_reader *r, uint64_t *n, struct image_error *err)
{
	const WebPData *data = &r->first.fragment;
	uint32_t width = (uint32_t)r->first.width, height = (uint32_t)r->first.height;
	const uint8_t *stream;
	size_t n_stream;
	uint64_t table_bytes = 0;
	bool bare;

	if (data->size >= 4 && memcmp(data->bytes, "VP8 ", 4) == 0) {
		*n = (uint64_t)width * BYTES_PER_COLUMN;
		return 0;
	}
	if (lossless_part(r, &stream, &n_stream, &bare)) {
		int outcome = webp_tables_measure(stream, n_stream, bare, width, height, r->tables, &table_bytes);

		if (r->tables[1].size_bytes > KEEP_BYTES)
			scratch_finish(&r->tables[1]);
		if (outcome)
			return outcome == IMAGE_E_CORRUPT ? webp_reader_damaged(err) : outcome;
	}
	*n = (uint64_t)width * height * BYTES_PER_PIXEL + table_bytes;
	return 0;
}

/* Decodes `want` of the first frame, in the frame's coordinates. */
static int decode_frame(struct webp_reader *r, struct region_px want, struct scratch *pixels, struct image *out,
			struct image_error *err)
{
	struct region_px crop = want;
	WebPDecoderConfig config;

	webp_reader_widen(&crop.x, &crop.width, (uint32_t)r->first.width);
	webp_reader_widen(&crop.y, &crop.height, (uint32_t)r->first.height);
	size_t stride = (size_t)crop.width * 3;
	uint8_t *rgb = scratch_reserve(pixels, stride * crop.height);

	if (!rgb || !WebPInitDecoderConfig(&config))
		return -ENOMEM;
	config.options.use_cropping = 1;
	config.options.crop_left = (int)crop.x;
	config.options.crop_top = (int)crop.y;
	config.options.crop_width = (int)crop.width;
	config.options.crop_height = (int)crop.height;
	config.output.colorspace = MODE_RGB;
	config.output.is_external_memory = 1;
	config.output.u.RGBA = (WebPRGBABuffer){ rgb, (int)stride, stride * crop.height };
	uint64_t borrowed = 0;
	struct workspace *payer;
	int outcome = decoder_bytes(r, &borrowed, err);
	if (outcome)
		return outcome;
	if (!work_borrow(borrowed, &payer))
		return -ENOMEM;
	VP8StatusCode status = WebPDecode(r->first.fragment.bytes, r->first.fragment.size, &config);

	work_return(borrowed, payer);
	if (status == VP8_STATUS_OUT_OF_MEMORY)
		return -ENOMEM;
	if (status != VP8_STATUS_OK)
		return image_fail(err, IMAGE_E_CORRUPT, "WebP cannot be decoded: %s", status_text(status));
	*out = (struct image){ rgb + (want.y - crop.y) * stride + (size_t)(want.x - crop.x) * 3, stride, want.width,
			       want.height };
	return 0;
}

static uint32_t webp_reader_max32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t webp_reader_min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* For a frame that does not cover the canvas: fills with black, then decodes the wanted part of the frame. */
static int decode_onto_canvas(struct webp_reader *r, struct region_px want, struct scratch *pixels, struct image *out,
			      struct image_error *err)
{
	uint32_t frame_x = (uint32_t)r->first.x_offset, frame_y = (uint32_t)r->first.y_offset;
	uint32_t left = webp_reader_max32(want.x, frame_x),
		 right = webp_reader_min32(want.x + want.width, frame_x + (uint32_t)r->first.width);
	uint32_t top = webp_reader_max32(want.y, frame_y),
		 bottom = webp_reader_min32(want.y + want.height, frame_y + (uint32_t)r->first.height);
	/* If nothing of the frame is wanted, any part of it is decoded, only for its errors. */
	bool none = left >= right || top >= bottom;
	struct region_px part = { left - frame_x, top - frame_y, right - left, bottom - top };
	size_t stride = (size_t)want.width * 3;
	uint8_t *rgb = scratch_reserve(pixels, stride * want.height);
	struct image frame;

	if (!rgb)
		return -ENOMEM;
	memset(rgb, 0, stride * want.height);
	*out = (struct image){ rgb, stride, want.width, want.height };
	int outcome = decode_frame(r, none ? (struct region_px){ 0, 0, 1, 1 } : part, &r->frame, &frame, err);

	for (uint32_t y = top; !none && outcome == 0 && y < bottom; y++)
		memcpy(rgb + (y - want.y) * stride + (size_t)(left - want.x) * 3,
		       frame.rgb + (y - top) * frame.stride_bytes, (size_t)(right - left) * 3);
	return outcome;
}

int webp_reader_region(struct webp_reader *r, struct region_px want, struct scratch *pixels, struct image *out,
		       struct image_error *err)
{
	bool covers = r->first.x_offset == 0 && r->first.y_offset == 0 && (uint32_t)r->first.width == r->width &&
		      (uint32_t)r->first.height == r->height;

	return covers ? decode_frame(r, want, pixels, out, err) : decode_onto_canvas(r, want, pixels, out, err);
}
