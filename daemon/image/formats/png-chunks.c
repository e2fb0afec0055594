/* One pass over a PNG's chunks, before libpng sees the file.
 *
 * Of what bears on the pixels, a file is accepted exactly when Pillow accepts it. Pillow is stricter than libpng in some
 * places (animation frames out of order) and more tolerant in others (checksums of pixel data, order of chunks). libpng
 * then gets only the compressed rows, under a header made here. Texts, profiles and measures are skipped, also those for
 * which Pillow refuses a file.
 *
 * Before the pixel data every checksum counts. After it none does, and the pass ends at the first invalid chunk. */
#include "image/formats/png-chunks.h"

#include <string.h>

#include <zlib.h>

#include "image/formats/png-text.h"

enum {
	SIGNATURE = 8,
	CHUNK_HEADER = 8,
	CHUNK_CRC = 4,
};

struct chunk {
	uint32_t name;
	const uint8_t *data;
	size_t n;      /* size of data by the chunk's length */
	size_t n_here; /* bytes of it that the file has */
};

struct walk {
	const uint8_t *bytes;
	size_t n_bytes, at;
	struct png_layout *layout;
	struct image_error *err;
	bool known;       /* there was a header chunk with a valid kind of pixels */
	bool behind_data; /* from here on chunks cannot change the picture */
	bool has_frame;   /* frame is the place of the first rows */
	bool has_count;   /* of an animation's frames */
	uint32_t n_frames;
	bool has_sequence;
	uint32_t sequence; /* number of the last animation chunk */
	struct png_texts texts;
};

static uint32_t png_chunks_get16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t png_chunks_get32(const uint8_t *p)
{
	return png_chunks_get16(p) << 16 | png_chunks_get16(p + 2);
}

static bool is_name_char(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

/* False when there is no chunk at `at`. */
static bool peek_chunk(const uint8_t *bytes, size_t n_bytes, size_t at, struct chunk *c)
{
	if (at > n_bytes || n_bytes - at < CHUNK_HEADER)
		return false;
	for (size_t i = 4; i < 8; i++)
		if (!is_name_char(bytes[at + i]))
			return false;
	c->n = png_chunks_get32(bytes + at);
	c->name = png_chunks_get32(bytes + at + 4);
	c->data = bytes + at + CHUNK_HEADER;
	c->n_here = n_bytes - at - CHUNK_HEADER;
	if (c->n_here > c->n)
		c->n_here = c->n;
	return true;
}

static bool is_data(uint32_t name)
{
	return name == PNG_NAME('I', 'D', 'A', 'T') || name == PNG_NAME('D', 'D', 'A', 'T') ||
	       name == PNG_NAME('f', 'd', 'A', 'T');
}

bool png_next_data(const uint8_t *bytes, size_t n_bytes, size_t *at, const uint8_t **data, size_t *n_data)
{
	struct chunk c;
	size_t prefix = 0;

	if (!peek_chunk(bytes, n_bytes, *at, &c) || !is_data(c.name))
		return false;
	if (c.name == PNG_NAME('f', 'd', 'A', 'T'))
		prefix = c.n_here < 4 ? c.n_here : 4; /* its sequence number */
	*data = c.data + prefix;
	*n_data = c.n_here - prefix;
	*at += CHUNK_HEADER + c.n + CHUNK_CRC;
	return true;
}

static int png_chunks_damaged(struct walk *w, const struct chunk *c)
{
	return image_fail(w->err, IMAGE_E_CORRUPT, "damaged PNG: bad %c%c%c%c chunk", c->name >> 24,
			  c->name >> 16 & 0xff, c->name >> 8 & 0xff, c->name & 0xff);
}

/* ---- header, palette, animation ---- */

static bool kind_exists(uint8_t bits, uint8_t color)
{
	switch (color) {
	case PNG_GREY:
		return bits == 1 || bits == 2 || bits == 4 || bits == 8 || bits == 16;
	case PNG_PALETTE:
		return bits == 1 || bits == 2 || bits == 4 || bits == 8;
	case PNG_RGB:
	case PNG_GREY_ALPHA:
	case PNG_RGB_ALPHA:
		return bits == 8 || bits == 16;
	default:
		return false;
	}
}

static int png_chunks_read_header(struct walk *w, const struct chunk *c)
{
	struct png_layout *l = w->layout;

	if (c->n < 13)
		return png_chunks_damaged(w, c);
	if (!w->behind_data) {
		l->width = png_chunks_get32(c->data);
		l->height = png_chunks_get32(c->data + 4);
		if (kind_exists(c->data[8], c->data[9])) {
			l->bits = c->data[8];
			l->color = c->data[9];
			w->known = true;
		}
		l->interlaced |= c->data[12] != 0;
	}
	return c->data[11] == 0 ? 0 : png_chunks_damaged(w, c); /* filter method */
}

static int read_palette(struct walk *w, const struct chunk *c)
{
	struct png_layout *l = w->layout;

	if (w->behind_data || !w->known || l->color != PNG_PALETTE)
		return 0;
	if (c->n / 3 > 256)
		return png_chunks_damaged(w, c);
	memset(l->palette, 0, sizeof(l->palette));
	memcpy(l->palette, c->data, c->n / 3 * 3);
	return 0;
}

static int read_transparency(struct walk *w, const struct chunk *c)
{
	size_t least = 0; /* the colour itself does not matter: alpha is dropped */

	if (w->known && w->layout->color == PNG_GREY)
		least = 2;
	else if (w->known && w->layout->color == PNG_RGB && w->layout->bits <= 16)
		least = 6;
	return c->n < least ? png_chunks_damaged(w, c) : 0;
}

static int read_animation(struct walk *w, const struct chunk *c)
{
	if (c->n < 8)
		return png_chunks_damaged(w, c);
	uint32_t n = png_chunks_get32(c->data);

	if (w->has_count) {
		w->has_count = false;
	} else if (n > 0 && n <= 0x80000000) {
		w->has_count = true;
		w->n_frames = n;
	}
	return 0;
}

static int next_in_sequence(struct walk *w, const struct chunk *c)
{
	uint32_t sequence = png_chunks_get32(c->data);

	if (w->has_sequence ? sequence != (uint64_t)w->sequence + 1 : sequence != 0)
		return png_chunks_damaged(w, c);
	w->has_sequence = true;
	w->sequence = sequence;
	return 0;
}

/* Animation data continue a sequence that a frame's control chunk began. */
static int read_frame_data(struct walk *w, const struct chunk *c)
{
	return c->n_here < 4 || !w->has_sequence ? png_chunks_damaged(w, c) : next_in_sequence(w, c);
}

static int png_chunks_read_frame(struct walk *w, const struct chunk *c)
{
	struct png_layout *l = w->layout;

	if (c->n < 26 || next_in_sequence(w, c))
		return png_chunks_damaged(w, c);
	struct region_px f = { png_chunks_get32(c->data + 12), png_chunks_get32(c->data + 16),
			       png_chunks_get32(c->data + 4), png_chunks_get32(c->data + 8) };

	if ((uint64_t)f.x + f.width > l->width || (uint64_t)f.y + f.height > l->height)
		return png_chunks_damaged(w, c);
	if (!w->behind_data) {
		l->frame = f;
		w->has_frame = true;
	}
	return 0;
}

static int read_chunk(struct walk *w, const struct chunk *c)
{
	switch (c->name) {
	case PNG_NAME('I', 'H', 'D', 'R'):
		return png_chunks_read_header(w, c);
	case PNG_NAME('P', 'L', 'T', 'E'):
		return read_palette(w, c);
	case PNG_NAME('t', 'R', 'N', 'S'):
		return read_transparency(w, c);
	case PNG_NAME('a', 'c', 'T', 'L'):
		return read_animation(w, c);
	case PNG_NAME('f', 'c', 'T', 'L'):
		return png_chunks_read_frame(w, c);
	default:
		png_texts_note(&w->texts, c->name, c->data, c->n);
		return 0;
	}
}

/* ---- the pass ---- */

static int cut_short(struct walk *w)
{
	return image_fail(w->err, IMAGE_E_CORRUPT, "PNG cut short at byte %zu", w->n_bytes);
}

static int check_crc(struct walk *w, const struct chunk *c)
{
	const uint8_t *crc = c->data + c->n;

	if (w->n_bytes - (size_t)(crc - w->bytes) < CHUNK_CRC)
		return cut_short(w);
	return crc32(crc32(0, c->data - 4, 4), c->data, (uInt)c->n) == png_chunks_get32(crc) ? 0
											     : png_chunks_damaged(w, c);
}

static int walk_to_data(struct walk *w)
{
	for (;;) {
		struct chunk c;

		if (!peek_chunk(w->bytes, w->n_bytes, w->at, &c))
			return image_fail(w->err, IMAGE_E_CORRUPT, "damaged PNG: no chunk at byte %zu", w->at);
		if (c.name == PNG_NAME('I', 'E', 'N', 'D'))
			return image_fail(w->err, IMAGE_E_CORRUPT, "PNG without image data");
		if (c.name == PNG_NAME('I', 'D', 'A', 'T') || c.name == PNG_NAME('f', 'd', 'A', 'T'))
			return 0; /* the first rows may be an animation's */
		if (c.n_here < c.n)
			return cut_short(w);
		int r = read_chunk(w, &c);

		if (!r)
			r = check_crc(w, &c);
		if (r)
			return r;
		w->at += CHUNK_HEADER + c.n + CHUNK_CRC;
	}
}

static int walk_data(struct walk *w)
{
	struct chunk c;
	const uint8_t *data;
	size_t n_data = 0;

	w->layout->data_at = w->at;
	while (peek_chunk(w->bytes, w->n_bytes, w->at, &c) && is_data(c.name)) {
		if (c.name == PNG_NAME('f', 'd', 'A', 'T') && read_frame_data(w, &c))
			return png_chunks_damaged(w, &c);
		(void)png_next_data(w->bytes, w->n_bytes, &w->at, &data, &n_data);
		w->layout->data_bytes += n_data;
	}
	w->layout->complete = peek_chunk(w->bytes, w->n_bytes, w->at, &c);
	return 0;
}

static int walk_to_end(struct walk *w, bool animated)
{
	struct chunk c;

	w->behind_data = true;
	while (peek_chunk(w->bytes, w->n_bytes, w->at, &c)) {
		if (c.name == PNG_NAME('I', 'E', 'N', 'D') || (animated && c.name == PNG_NAME('f', 'c', 'T', 'L')))
			return 0;
		if (c.n_here < c.n)
			return cut_short(w);
		if (c.name == PNG_NAME('f', 'd', 'A', 'T') && read_frame_data(w, &c))
			return png_chunks_damaged(w, &c);
		int r = read_chunk(w, &c);

		if (r)
			return r;
		w->at += CHUNK_HEADER + c.n + CHUNK_CRC;
	}
	return 0;
}

/* The place of the first rows. An animation may give another place than the whole picture. */
static int settle_frame(struct walk *w)
{
	struct png_layout *l = w->layout;
	struct region_px *f = &l->frame;

	if (!w->known)
		return image_fail(w->err, IMAGE_E_CORRUPT, "damaged PNG: no valid header");
	if (l->width == 0 || l->height == 0)
		return image_fail(w->err, IMAGE_E_CORRUPT, "damaged PNG: size %ux%u", l->width, l->height);
	if (!w->has_frame)
		*f = (struct region_px){ 0, 0, l->width, l->height };
	/* A second header may have changed the size after the frame was checked. */
	if (f->width == 0 || f->height == 0 || (uint64_t)f->x + f->width > l->width ||
	    (uint64_t)f->y + f->height > l->height)
		return image_fail(w->err, IMAGE_E_CORRUPT, "damaged PNG: its first frame lies outside");
	return 0;
}

int png_layout_read(const uint8_t *bytes, size_t n_bytes, struct arena *arena, struct png_layout *layout,
		    struct image_error *err)
{
	struct walk w = {
		.bytes = bytes,
		.n_bytes = n_bytes,
		.at = SIGNATURE,
		.layout = layout,
		.err = err,
	};

	*layout = (struct png_layout){ 0 };
	int r = walk_to_data(&w);
	if (!r)
		r = settle_frame(&w);
	if (r)
		return r;

	/* A separate still picture before an animation counts as one more frame. */
	bool animated = w.has_count && (w.n_frames > 1 || !w.has_frame);
	r = walk_data(&w);
	if (!r)
		r = walk_to_end(&w, animated);
	return r ? r : png_texts_orientation(&w.texts, arena, &layout->orientation);
}
