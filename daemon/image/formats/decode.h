/* Decodes compressed bytes to RGB pixels, byte for byte as Pillow's Image.open(f).convert("RGB"), or to numbers of 16 or
 * 32 bits, as convert("I;16"), convert("I") and convert("F") do.
 *
 * A decoder belongs to one thread, which uses it for every image. Order of calls for one image: decoder_open, then
 * decoder_region once. After the first images, decoding allocates nothing. In these the thread is in STAGE_DECODE
 * (workspace_stage); a sink is called in it, too. */
#ifndef BATCHD_DECODE_H
#define BATCHD_DECODE_H

#include <stdbool.h>

#include "image/kernels/image.h"
#include "image/kernels/pixel.h"
#include "image/kernels/row-sink.h"

struct decoder;
struct work_memory;

struct decode_limits {
	uint64_t max_px;    /* width * height; default 178956970, Pillow's bomb limit (twice MAX_IMAGE_PIXELS) */
	uint32_t max_scans; /* of a progressive JPEG; default 100 */
	uint64_t max_bytes; /* compressed size; default 256 MiB */
	uint64_t max_ns;    /* processor time for one image, and twice that for its ops too; default 20 s */
	/* For a sample's worker: the source of its memory (NULL: without limit), and what it may keep between
	 * samples. */
	struct work_memory *memory;
	uint64_t keep_bytes;
};
extern const struct decode_limits decode_limits_default;

enum image_format {
	FORMAT_JPEG = 1,
	FORMAT_PNG,
	FORMAT_WEBP,
	FORMAT_BMP,
	FORMAT_PNM,
	FORMAT_GIF,
	FORMAT_TIFF,
	N_FORMATS
};

/* What a file's pixels are, if it has one number each: Pillow's modes L, I;16, I and F. */
enum image_numbers { NUMBERS_NONE, NUMBERS_UINT8, NUMBERS_UINT16, NUMBERS_INT32, NUMBERS_FLOAT32 };

struct image_info {
	enum image_format format;
	enum image_numbers numbers;
	uint32_t width, height; /* as decoder_region will see them: after EXIF orientation if that is applied */
	int orientation; /* EXIF, 1..8; 1 when absent. A TIFF is turned upright in any case, as Pillow does it. */
};

/* The formats that are read, for a message. */
#define DECODE_FORMATS "JPEG, PNG, WebP, BMP, PNM, GIF and TIFF"
/* A format's name in lower case. */
const char *image_format_name(enum image_format format);

/* NULL when memory is short. */
struct decoder *decoder_create(const struct decode_limits *limits);
void decoder_destroy(struct decoder *d);
/* Looks at the header of one image. The bytes are borrowed until the next decoder_open or decoder_close and need no
 * alignment. Returns 0, an IMAGE_E_ outcome with err->text, or -ENOMEM. apply_exif: turn the image upright (torchvision
 * does not; PIL.ImageOps.exif_transpose does). */
int decoder_open(struct decoder *d, const uint8_t *bytes, size_t n_bytes, bool apply_exif, struct image_info *info,
		 struct image_error *err);

/* As Pillow's Image.draft("RGB", (width, height)) on the open file: a JPEG is decoded at 1/8, 1/4 or 1/2 of its size, the
 * smallest of these, by whole numbers, that is at least width x height (of the picture as the file stores it); changes
 * info's size. Other files stay as they are. Between decoder_open and decoder_region. */
void decoder_draft(struct decoder *d, uint32_t width, uint32_t height, struct image_info *info);

/* Decodes at least `want` (inside the image) and sets *out to exactly that rectangle: pixels in the decoder's memory,
 * valid until the next decoder_open. Decodes only the needed rows and columns where the format allows. The pixels equal
 * those of a full decode. Same returns. */
int decoder_region(struct decoder *d, struct region_px want, struct image *out, struct image_error *err);
/* The same, but the rows may go to the sink while they are decoded: then out->rgb is NULL, and the sink has got all. If
 * it is not NULL the sink has got none, or some that do not count, and *out has them all. */
int decoder_region_to(struct decoder *d, struct region_px want, struct row_sink *sink, struct image *out,
		      struct image_error *err);
/* The same as decoder_region, as pixels of another kind, which lie where `rgb` says. Only of a file whose numbers they
 * hold all: 8 bits go into any, 16 bits into 32 bits, whole numbers into floats; otherwise IMAGE_E_FORMAT. */
int decoder_region_as(struct decoder *d, enum pixel as, struct region_px want, struct image *out,
		      struct image_error *err);

/* Indexes into compressed data (image/jpeg/checkpoints.h: places where decoding can start; image/jpeg/block-pack.h:
 * what decoding a progressive picture's scans gave) make a later region of the same bytes cheaper. `known` is the
 * earlier result of decoder_index for these bytes, or NULL; borrowed until decoder_region has returned. Call it between
 * decoder_open and decoder_region; without it no index is made. Formats and files that cannot use an index ignore
 * it. */
enum index_effort {
	INDEX_SMALL, /* some hundredths of the bytes */
	INDEX_LARGE, /* one that takes as much memory as the bytes, or some times more, where it costs little time */
	INDEX_DEAR,  /* the same, where it costs as much time as decoding the picture */
};
void decoder_want_index(struct decoder *d, const void *known, size_t n_bytes, enum index_effort most);
/* After decoder_region: the index if it has more than the known one, else NULL. 8-byte aligned, valid until the next
 * decoder_open. */
const void *decoder_index(const struct decoder *d, size_t *n_bytes);

/* After decoder_region: what became of an index that INDEX_DEAR allows. */
enum index_use {
	INDEX_OTHER,   /* there is none for this file, or not yet a small one to begin with */
	INDEX_MISSING, /* the small one was used */
	INDEX_MADE,    /* at all that it costs, or tried: of a damaged picture there is none */
	INDEX_USED,
};
enum index_use decoder_index_use(const struct decoder *d);

/* Closes it and frees all its memory. The next image costs a little more. */
void decoder_trim(struct decoder *d);
/* Ends the borrowing of the bytes. */
void decoder_close(struct decoder *d);

#endif
