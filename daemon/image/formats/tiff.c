/* TIFF as Pillow judges it, for the ways of packing that its writers use for photographs and measurements; old-style JPEG,
 * fax and other codes inside a TIFF are refused by name.
 *
 * A picture is a grid of chunks, strips or tiles. All of them must lie in the file, and only those are unpacked that
 * the wanted region touches, each down to its last wanted row. Pillow turns a TIFF upright when it loads it. */
#include "image/formats/tiff.h"

#include <errno.h>
#include <string.h>

#include "image/formats/exif.h"
#include "image/formats/tiff-layout.h"

enum { DIFFERENCES = 2, FLOAT_DIFFERENCES = 3 };

static const char *compression_name(uint64_t compression)
{
	switch (compression) {
	case 2:
	case 3:
	case 4:
		return "fax codes";
	case 6:
		return "old-style JPEG";
	case 34925:
		return "LZMA";
	case 50000:
		return "Zstandard";
	case 50001:
		return "WebP";
	}
	return "an unusual compression";
}

static int read_compression(struct tiff *t, struct image_error *err)
{
	uint64_t v = tiff_number(&t->tags, TIFF_COMPRESSION, TIFF_PLAIN);

	switch (v) {
	case TIFF_PLAIN:
	case TIFF_LZW:
	case TIFF_JPEG:
	case TIFF_DEFLATE:
	case TIFF_PACKBITS:
	case TIFF_OLD_DEFLATE:
		t->compression = (enum tiff_compression)v;
		return 0;
	}
	return image_fail(err, IMAGE_E_FORMAT,
			  "TIFF with %s (compression %llu) inside; none, LZW, Deflate, PackBits and JPEG are read",
			  compression_name(v), (unsigned long long)v);
}

static int read_predictor(struct tiff *t, struct image_error *err)
{
	uint64_t v = tiff_number(&t->tags, TIFF_PREDICTOR, 1);
	bool used = t->compression != TIFF_PLAIN && t->compression != TIFF_PACKBITS && t->compression != TIFF_JPEG;
	bool is_float = t->layout.kind == RAW_GREY && t->layout.number == RAW_FLOAT32;

	t->predictor = used ? (unsigned)v : 1;
	if (t->predictor == FLOAT_DIFFERENCES)
		t->layout.big_endian = t->tags.big_endian; /* taken for it, though unpacked to little endian */
	if (t->predictor == 1 || (t->predictor == DIFFERENCES && t->bits >= 8) ||
	    (t->predictor == FLOAT_DIFFERENCES && is_float))
		return 0;
	return image_fail(err, IMAGE_E_FORMAT, "TIFF with predictor %llu for samples of %u bits, which is not read",
			  (unsigned long long)v, t->bits);
}

static int bad_size(const char *what, uint64_t value, struct image_error *err)
{
	return image_fail(err, IMAGE_E_CORRUPT, "TIFF with a %s of %llu", what, (unsigned long long)value);
}

static int read_grid(struct tiff *t, struct image_error *err)
{
	bool tiled = t->tags.tag[TIFF_STRIP_OFFSETS].n == 0;
	uint64_t width = tiled ? tiff_number(&t->tags, TIFF_TILE_WIDTH, 0) : t->width;
	uint64_t height = tiff_number(&t->tags, tiled ? TIFF_TILE_HEIGHT : TIFF_STRIP_ROWS, tiled ? 0 : t->height);

	t->offsets = tiled ? TIFF_TILE_OFFSETS : TIFF_STRIP_OFFSETS;
	t->byte_counts = tiled ? TIFF_TILE_BYTES : TIFF_STRIP_BYTES;
	if (width == 0 || width > UINT32_MAX)
		return bad_size("tile width", width, err);
	if (height == 0 || height > UINT32_MAX)
		return bad_size("strip or tile height", height, err);
	t->chunk_width = (uint32_t)width;
	t->chunk_height = (uint32_t)(tiled || height < t->height ? height : t->height);
	t->n_across = (t->width + width - 1) / width;
	t->n_down = ((uint64_t)t->height + t->chunk_height - 1) / t->chunk_height;
	return 0;
}

static int read_orientation(const struct tiff *t)
{
	uint64_t v = tiff_number(&t->tags, TIFF_ORIENTATION, 0);

	if (t->tags.tag[TIFF_ORIENTATION].n == 0 && t->tags.tag[TIFF_XMP].n && t->tags.tag[TIFF_XMP].bytes == 1)
		v = (uint64_t)xmp_orientation(t->tags.tag[TIFF_XMP].data, t->tags.tag[TIFF_XMP].n);
	return v >= 1 && v <= 8 ? (int)v : 1;
}

/* libtiff takes the sampling of the first chunk's JPEG for that of all, whatever the tag says. */
static void read_sampling(struct tiff *t, const uint8_t *bytes, size_t n_bytes)
{
	t->across = t->down = 1;
	if (!t->is_ycbcr || !t->tags.tag[t->offsets].n || !t->tags.tag[t->byte_counts].n)
		return;
	uint64_t at = tiff_number(&t->tags, t->offsets, 0), n = tiff_number(&t->tags, t->byte_counts, 0);

	if (at > n_bytes || n > n_bytes - at || !tiff_jpeg_sampling(bytes + at, n, &t->across, &t->down))
		t->across = t->down = 2;
}

int tiff_read(const uint8_t *bytes, size_t n_bytes, struct tiff *t, struct image_error *err)
{
	int outcome;

	*t = (struct tiff){ .orientation = 1 };
	if ((outcome = tiff_tags_read(bytes, n_bytes, &t->tags, err)))
		return outcome;
	uint64_t width = tiff_number(&t->tags, TIFF_WIDTH, 0), height = tiff_number(&t->tags, TIFF_HEIGHT, 0);

	if (width == 0 || width > INT32_MAX)
		return bad_size("width", width, err);
	if (height == 0 || height > INT32_MAX)
		return bad_size("height", height, err);
	t->width = (uint32_t)width;
	t->height = (uint32_t)height;
	if ((outcome = read_compression(t, err)))
		return outcome;
	if (t->tags.cut && t->compression != TIFF_PLAIN) /* libtiff refuses it, and Pillow does without the rest */
		return image_fail(err, IMAGE_E_CORRUPT, "TIFF whose directory is cut short");
	if ((outcome = tiff_layout(t, err)) || (outcome = read_predictor(t, err)) || (outcome = read_grid(t, err)))
		return outcome;
	read_sampling(t, bytes, n_bytes);
	t->orientation = read_orientation(t);
	return 0;
}

/* Bytes of a row of one plane of a chunk. */
static uint64_t chunk_row_bytes(const struct tiff *t)
{
	return ((uint64_t)t->chunk_width * t->bits * (t->n_samples / t->n_planes) + 7) / 8;
}

/* Rows of the chunks of a row of chunks; below a strip's last there is nothing, and a tile's rest is packed with it. */
static uint32_t chunk_rows(const struct tiff *t, uint64_t down)
{
	uint64_t left = t->height - down * t->chunk_height;

	return left < t->chunk_height ? (uint32_t)left : t->chunk_height;
}

/* Pillow takes the last offset where one chunk is the whole picture. */
static uint64_t chunk_number(const struct tiff *t, uint64_t plane, uint64_t down, uint64_t across)
{
	if (t->compression == TIFF_PLAIN && t->n_planes == 1 && t->chunk_width == t->width &&
	    t->chunk_height == t->height)
		return t->tags.tag[t->offsets].n - 1;
	return (plane * t->n_down + down) * t->n_across + across;
}

static uint64_t chunk_bytes(const struct tiff *t, uint64_t chunk, uint64_t down)
{
	return t->compression == TIFF_PLAIN ? chunk_row_bytes(t) * chunk_rows(t, down)
					    : tiff_value(&t->tags, t->byte_counts, chunk);
}

/* What of a plain chunk must be in the file: the last row needs no padding beyond the picture's edge. */
static uint64_t chunk_needs(const struct tiff *t, uint64_t chunk, uint64_t down, uint64_t across)
{
	uint64_t left = t->width - across * t->chunk_width, row = chunk_row_bytes(t);

	if (t->compression != TIFF_PLAIN || left >= t->chunk_width)
		return chunk_bytes(t, chunk, down);
	return row * (chunk_rows(t, down) - 1u) + (left * t->bits * (t->n_samples / t->n_planes) + 7) / 8;
}

int tiff_check_chunks(const struct tiff *t, size_t n_bytes, uint64_t max_px, struct image_error *err)
{
	uint64_t n = t->n_across * t->n_down * t->n_planes;
	bool packed = t->compression != TIFF_PLAIN;

	if ((uint64_t)t->chunk_width * t->chunk_height > max_px)
		return image_fail(err, IMAGE_E_LIMIT, "TIFF with tiles of %ux%u pixels", t->chunk_width,
				  t->chunk_height);
	if (t->tags.tag[t->offsets].n < n || (packed && t->tags.tag[t->byte_counts].n < n))
		return image_fail(err, IMAGE_E_CORRUPT, "TIFF that lacks strips or tiles: it should have %llu",
				  (unsigned long long)n);
	for (uint64_t plane = 0; plane < t->n_planes; plane++)
		for (uint64_t down = 0; down < t->n_down; down++)
			for (uint64_t across = 0; across < t->n_across; across++) {
				uint64_t chunk = chunk_number(t, plane, down, across);
				uint64_t at = tiff_value(&t->tags, t->offsets, chunk);

				if (at > n_bytes || chunk_needs(t, chunk, down, across) > n_bytes - at)
					return image_fail(err, IMAGE_E_CORRUPT, "TIFF cut short");
			}
	return 0;
}

bool tiff_is_grey(const struct tiff *t)
{
	return tiff_number(&t->tags, TIFF_PHOTOMETRIC, 0) <= 1 && t->n_samples == 1 && t->bits > 1 && t->bits <= 8;
}

/* ---- pixels ---- */

struct tiff_job {
	const struct tiff *t;
	const uint8_t *bytes;
	struct tiff_memory *m;
	struct image_error *err;
	struct region_px want;
	struct image *out;
	struct cpu_budget *budget;
};

static uint8_t reversed_bits(uint8_t v)
{
	v = (uint8_t)((v & 0x0f) << 4 | v >> 4);
	v = (uint8_t)((v & 0x33) << 2 | (v >> 2 & 0x33));
	return (uint8_t)((v & 0x55) << 1 | (v >> 1 & 0x55));
}

static void undo_predictor(const struct tiff *t, uint8_t *rows, uint32_t n_rows, uint8_t *temp)
{
	size_t row = chunk_row_bytes(t);
	unsigned n_samples = t->n_samples / t->n_planes;

	for (uint32_t y = 0; y < n_rows; y++, rows += row) {
		if (t->predictor == DIFFERENCES)
			tiff_undo_differences(rows, row, n_samples, t->bits / 8, t->tags.big_endian);
		else if (t->predictor == FLOAT_DIFFERENCES)
			tiff_undo_float_differences(rows, row, n_samples, t->bits / 8, temp);
	}
}

static int jpeg_rows(const struct tiff_job *j, uint64_t chunk, uint64_t down, uint32_t n_rows, uint8_t *out)
{
	const struct tiff *t = j->t;
	const struct tiff_values *tables = &t->tags.tag[TIFF_JPEG_TABLES];
	bool tiled = t->offsets == TIFF_TILE_OFFSETS;
	struct tiff_jpeg_chunk c = { .tables = tables->n ? tables->data : NULL,
				     .n_tables = tables->n,
				     .bytes = j->bytes + tiff_value(&t->tags, t->offsets, chunk),
				     .n_bytes = tiff_value(&t->tags, t->byte_counts, chunk),
				     .width = t->chunk_width,
				     .height = tiled ? t->chunk_height : chunk_rows(t, down),
				     .may_be_taller = !tiled && down + 1 == t->n_down,
				     .n_samples = t->n_samples / t->n_planes,
				     .is_ycbcr = t->is_ycbcr,
				     .across = t->across,
				     .down = t->down };

	if (!j->m->jpeg)
		j->m->jpeg = tiff_jpeg_create(j->m->limits);
	return j->m->jpeg ? tiff_jpeg_rows(j->m->jpeg, &c, n_rows, out, j->budget, j->err) : -ENOMEM;
}

/* Unpacks n_rows of one plane of a chunk. Where nothing is to be done, *rows is in the file. */
static int plane_rows(const struct tiff_job *j, uint64_t plane, uint64_t down, uint64_t across, uint32_t n_rows,
		      const uint8_t **rows)
{
	const struct tiff *t = j->t;
	uint64_t chunk = chunk_number(t, plane, down, across), n_in = chunk_needs(t, chunk, down, across);
	const uint8_t *in = j->bytes + tiff_value(&t->tags, t->offsets, chunk);
	size_t row = chunk_row_bytes(t), n_out = row * n_rows;

	if (t->reversed) {
		uint8_t *flipped = scratch_reserve(&j->m->input, n_in);

		if (!flipped)
			return -ENOMEM;
		for (uint64_t i = 0; i < n_in; i++)
			flipped[i] = reversed_bits(in[i]);
		in = flipped;
	}
	*rows = in;
	if (t->compression == TIFF_PLAIN)
		return 0;
	uint8_t *out = scratch_reserve(&j->m->plane, n_out + row);

	if (!out)
		return -ENOMEM;
	if (t->compression == TIFF_JPEG) {
		*rows = out;
		return jpeg_rows(j, chunk, down, n_rows, out);
	}
	int outcome = tiff_unpack(t->compression, in, n_in, out, n_out, &j->m->tables, &j->m->arena, j->err);

	arena_reset(&j->m->arena, SIZE_MAX);
	undo_predictor(t, out, n_rows, out + n_out);
	*rows = out;
	return outcome;
}

/* As plane_rows, for pixels whose samples lie in planes: puts them beside each other. */
static int joined_rows(const struct tiff_job *j, uint64_t down, uint64_t across, uint32_t n_rows, const uint8_t **rows)
{
	const struct tiff *t = j->t;
	size_t bytes = t->bits / 8, step = bytes * t->n_planes, n_px = (size_t)t->chunk_width * n_rows;
	uint64_t left = t->width - across * t->chunk_width;
	uint8_t *joined = scratch_reserve(&j->m->chunk, n_px * step);

	if (!joined)
		return -ENOMEM;
	left = left < t->chunk_width ? left : t->chunk_width;
	for (uint32_t plane = 0; plane < t->n_planes; plane++) {
		const uint8_t *p;
		int outcome = plane_rows(j, plane, down, across, n_rows, &p);

		if (outcome)
			return outcome;
		for (uint32_t y = 0; y < n_rows; y++)
			for (size_t i = y * (size_t)t->chunk_width, n = 0; n < left; i++, n++)
				memcpy(joined + i * step + plane * bytes, p + i * bytes, bytes);
	}
	*rows = joined;
	return 0;
}

static uint32_t tiff_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Converts what is wanted of a chunk. */
static int convert_chunk(const struct tiff_job *j, uint64_t down, uint64_t across)
{
	const struct tiff *t = j->t;
	const struct region_px w = j->want;
	uint32_t left = (uint32_t)(across * t->chunk_width), top = (uint32_t)(down * t->chunk_height);
	uint32_t x = w.x > left ? w.x - left : 0, y = w.y > top ? w.y - top : 0;
	uint32_t right = tiff_min(w.x + w.width - left, t->chunk_width);
	uint32_t bottom = tiff_min(w.y + w.height - top, chunk_rows(t, down));
	struct raw_rows rows = { .layout = t->layout, .width = t->chunk_width, .height = bottom };
	int outcome = t->n_planes > 1 ? joined_rows(j, down, across, bottom, &rows.data)
				      : plane_rows(j, 0, down, across, bottom, &rows.data);

	if (outcome)
		return outcome;
	rows.stride_bytes = chunk_row_bytes(t) * t->n_planes;
	struct image part = { j->out->rgb + (top + y - w.y) * j->out->stride_bytes +
				      (left + x - w.x) * raw_result_bytes(&t->layout),
			      j->out->stride_bytes, right - x, bottom - y };

	raw_rows_convert(&rows, x, y, &part);
	return 0;
}

/* What a chunk's planes take in the file: the time to read them may be all that they cost. */
static uint64_t chunk_bytes_of_planes(const struct tiff *t, uint64_t down, uint64_t across)
{
	uint64_t n = 0;

	for (uint64_t plane = 0; plane < t->n_planes; plane++)
		n += chunk_bytes(t, chunk_number(t, plane, down, across), down);
	return n;
}

int tiff_region(const struct tiff *t, const uint8_t *bytes, struct region_px want, struct tiff_memory *m,
		struct scratch *pixels, struct image *out, struct cpu_budget *budget, struct image_error *err)
{
	size_t stride = want.width * raw_result_bytes(&t->layout);
	uint8_t *rgb = scratch_reserve(pixels, stride * want.height);
	struct tiff_job j = { .t = t, .bytes = bytes, .m = m, .err = err, .want = want, .out = out, .budget = budget };

	if (!rgb)
		return -ENOMEM;
	*out = (struct image){ rgb, stride, want.width, want.height };
	for (uint64_t down = want.y / t->chunk_height; down * t->chunk_height < want.y + want.height; down++)
		for (uint64_t across = want.x / t->chunk_width; across * t->chunk_width < want.x + want.width;
		     across++) {
			uint64_t n_in = chunk_bytes_of_planes(t, down, across);
			int outcome = convert_chunk(&j, down, across);

			if (outcome)
				return outcome;
			if (!cpu_budget_spend(budget, n_in + (uint64_t)t->chunk_width * t->chunk_height))
				return image_fail(err, IMAGE_E_TIME,
						  "TIFF that takes more than %.3g s of processor time to decode "
						  "(limits.image_time in the daemon's configuration)",
						  (double)budget->limit_ns / 1e9);
		}
	return 0;
}

void tiff_memory_trim(struct tiff_memory *m, size_t keep_bytes)
{
	struct scratch *const all[] = { &m->chunk, &m->plane, &m->input, &m->tables };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i]->size_bytes > keep_bytes)
			scratch_finish(all[i]);
	if (keep_bytes == 0) {
		arena_finish(&m->arena);
		tiff_jpeg_destroy(m->jpeg);
		m->jpeg = NULL;
	}
}
