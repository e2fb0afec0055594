/* One walk over a PNG's chunks, before libpng is let near the file.
 *
 * It exists because the file is good for us exactly when it is good for Pillow, which is stricter than libpng in some places (text chunks
 * that unpack to more than 1 MiB, short ancillary chunks, animation frames out of order) and laxer in others (checksums of
 * pixel data, what may follow what). libpng then gets only the compressed rows, under a header that we write.
 *
 * Before the pixel data every checksum counts; behind it none does, and the walk ends at the first chunk that is none. */
#include "image/png-chunks.h"

#include <errno.h>
#include <string.h>

#include <zlib.h>

#include "image/exif.h"

enum {
	SIGNATURE = 8,
	CHUNK_HEADER = 8,
	CHUNK_CRC = 4,
	TEXT_MAX = 1 << 20,          /* one text or colour profile, unpacked */
	TEXT_TOTAL_MAX = 64 << 20,   /* all of them */
};

#define NAME(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

struct chunk {
	uint32_t name;
	const uint8_t *data;
	size_t n;      /* of data, as the chunk says */
	size_t n_here; /* as many as the file still has */
};

struct walk {
	const uint8_t *bytes;
	size_t n_bytes, at;
	struct png_layout *layout;
	struct arena *arena;
	struct image_error *err;
	bool known;               /* a header chunk with a valid kind of pixels came by */
	bool behind_data;         /* chunks from here on cannot change the picture any more */
	bool has_frame;           /* frame says where the first rows go */
	bool has_count;           /* of an animation's frames */
	uint32_t n_frames;
	bool has_sequence;
	uint32_t sequence;        /* number of the last animation chunk */
	uint8_t *text;            /* TEXT_MAX bytes of the arena once needed */
	z_stream z;               /* ready when text is there */
	size_t n_text_total, n_unpacked_total;
	const uint8_t *exif;
	size_t n_exif;
	int profile_orientation;  /* of ImageMagick's "Raw profile type exif"; -1: none */
	int xmp;                  /* orientation by XMP; 0: none */
};

static uint32_t get16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t get32(const uint8_t *p)
{
	return get16(p) << 16 | get16(p + 2);
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
	c->n = get32(bytes + at);
	c->name = get32(bytes + at + 4);
	c->data = bytes + at + CHUNK_HEADER;
	c->n_here = n_bytes - at - CHUNK_HEADER;
	if (c->n_here > c->n)
		c->n_here = c->n;
	return true;
}

static bool is_data(uint32_t name)
{
	return name == NAME('I', 'D', 'A', 'T') || name == NAME('D', 'D', 'A', 'T') || name == NAME('f', 'd', 'A', 'T');
}

bool png_next_data(const uint8_t *bytes, size_t n_bytes, size_t *at, const uint8_t **data, size_t *n_data)
{
	struct chunk c;
	size_t prefix = 0;

	if (!peek_chunk(bytes, n_bytes, *at, &c) || !is_data(c.name))
		return false;
	if (c.name == NAME('f', 'd', 'A', 'T'))
		prefix = c.n_here < 4 ? c.n_here : 4; /* its sequence number */
	*data = c.data + prefix;
	*n_data = c.n_here - prefix;
	*at += CHUNK_HEADER + c.n + CHUNK_CRC;
	return true;
}

static int damaged(struct walk *w, const struct chunk *c)
{
	return image_fail(w->err, IMAGE_E_CORRUPT, "damaged PNG: bad %c%c%c%c chunk", c->name >> 24, c->name >> 16 & 0xff,
			  c->name >> 8 & 0xff, c->name & 0xff);
}

/* ---- texts and profiles ---- */

static voidpf zlib_take(voidpf arena, uInt n, uInt size)
{
	return arena_take(arena, (size_t)n * size);
}

static void zlib_give(voidpf arena, voidpf p)
{
	(void)arena; /* goes with the whole arena */
	(void)p;
}

static bool ready_to_unpack(struct walk *w)
{
	if (w->text)
		return inflateReset(&w->z) == Z_OK;
	w->z = (z_stream){ .zalloc = zlib_take, .zfree = zlib_give, .opaque = w->arena };
	w->text = arena_take(w->arena, TEXT_MAX);
	return w->text && inflateInit(&w->z) == Z_OK;
}

/* Unpacks into w->text. Damaged data count as no text. */
static int unpack(struct walk *w, const uint8_t *packed, size_t n_packed, size_t *n_text)
{
	if (!ready_to_unpack(w))
		return -ENOMEM;
	w->z.next_in = (z_const Bytef *)packed;
	w->z.avail_in = (uInt)n_packed; /* a chunk is below 4 GiB */
	w->z.next_out = w->text;
	w->z.avail_out = TEXT_MAX;
	int r = n_packed > 0 ? inflate(&w->z, Z_SYNC_FLUSH) : Z_OK;
	size_t n = TEXT_MAX - w->z.avail_out;

	if (r == Z_MEM_ERROR)
		return -ENOMEM;
	if (r == Z_OK && w->z.avail_out == 0 && w->z.avail_in > 0)
		return image_fail(w->err, IMAGE_E_LIMIT, "PNG with a text or profile of more than 1 MiB when unpacked");
	w->n_unpacked_total += n;
	if (w->n_unpacked_total > TEXT_TOTAL_MAX)
		return image_fail(w->err, IMAGE_E_LIMIT, "PNG with more than 64 MiB of texts when unpacked");
	*n_text = r == Z_OK || r == Z_STREAM_END || r == Z_BUF_ERROR ? n : 0;
	return 0;
}

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* ImageMagick's way to keep EXIF in a text: a blank line, a name, a length, then hexadecimal lines. */
static int raw_profile_orientation(struct walk *w, const uint8_t *text, size_t n)
{
	const uint8_t *end = text + n;

	for (int line = 0; line < 3; line++) {
		text = memchr(text, '\n', (size_t)(end - text));
		if (!text)
			return 0;
		text++;
	}

	uint8_t *exif = arena_take(w->arena, (size_t)(end - text) / 2 + 1);
	size_t n_exif = 0;
	if (!exif)
		return 0;
	while (text < end) {
		if (*text == '\n' || *text == ' ') {
			text++;
			continue;
		}
		int high = hex_digit(text[0]), low = text + 1 < end ? hex_digit(text[1]) : -1;

		if (high < 0 || low < 0)
			return 0;
		exif[n_exif++] = (uint8_t)(high << 4 | low);
		text += 2;
	}
	return exif_orientation(exif, n_exif);
}

static bool key_is(const uint8_t *key, size_t n_key, const char *name)
{
	return n_key == strlen(name) && memcmp(key, name, n_key) == 0;
}

static int note_text(struct walk *w, const uint8_t *key, size_t n_key, const uint8_t *text, size_t n_text)
{
	if (n_key == 0)
		return 0;
	if (key_is(key, n_key, "Raw profile type exif"))
		w->profile_orientation = raw_profile_orientation(w, text, n_text);
	else if (key_is(key, n_key, "XML:com.adobe.xmp"))
		w->xmp = xmp_orientation(text, n_text);
	w->n_text_total += n_text;
	if (w->n_text_total > TEXT_TOTAL_MAX)
		return image_fail(w->err, IMAGE_E_LIMIT, "PNG with more than 64 MiB of texts");
	return 0;
}

/* Length up to the next zero byte, or n if there is none. */
static size_t field_length(const uint8_t *s, size_t n)
{
	const uint8_t *zero = n ? memchr(s, 0, n) : NULL;

	return zero ? (size_t)(zero - s) : n;
}

static int read_text(struct walk *w, const struct chunk *c)
{
	size_t n_key = field_length(c->data, c->n), start = n_key < c->n ? n_key + 1 : c->n;

	if (key_is(c->data, n_key, "exif")) {
		w->exif = c->data + start;
		w->n_exif = c->n - start;
	}
	return note_text(w, c->data, n_key, c->data + start, c->n - start);
}

static int read_packed_text(struct walk *w, const struct chunk *c)
{
	size_t n_key = field_length(c->data, c->n), start = n_key < c->n ? n_key + 1 : c->n, n_text;

	if (start < c->n && c->data[start++] != 0) /* compression method */
		return damaged(w, c);
	int r = unpack(w, c->data + start, c->n - start, &n_text);

	return r ? r : note_text(w, c->data, n_key, w->text, n_text);
}

/* Keyword, flag, method, language, translated keyword, text. What is malformed is ignored. */
static int read_international_text(struct walk *w, const struct chunk *c)
{
	size_t n_key = field_length(c->data, c->n), n_text = c->n, at = n_key + 1;

	if (at > c->n || c->n - at < 2)
		return 0;
	bool packed = c->data[at] != 0, unknown = packed && c->data[at + 1] != 0;
	at += 2;
	for (int i = 0; i < 2; i++) {
		size_t n = field_length(c->data + at, c->n - at);

		if (n == c->n - at)
			return 0;
		at += n + 1;
	}
	if (unknown)
		return 0;
	if (!packed)
		return note_text(w, c->data, n_key, c->data + at, c->n - at);
	int r = unpack(w, c->data + at, c->n - at, &n_text);

	return r ? r : note_text(w, c->data, n_key, w->text, n_text);
}

static int read_profile(struct walk *w, const struct chunk *c)
{
	const uint8_t *zero = c->n ? memchr(c->data, 0, c->n) : NULL;
	size_t method = zero ? (size_t)(zero - c->data) + 1 : 0, ignored;

	if (method >= c->n || c->data[method] != 0)
		return damaged(w, c);
	return unpack(w, c->data + method + 1, c->n - method - 1, &ignored);
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

static int read_header(struct walk *w, const struct chunk *c)
{
	struct png_layout *l = w->layout;

	if (c->n < 13)
		return damaged(w, c);
	if (!w->behind_data) {
		l->width = get32(c->data);
		l->height = get32(c->data + 4);
		if (kind_exists(c->data[8], c->data[9])) {
			l->bits = c->data[8];
			l->color = c->data[9];
			w->known = true;
		}
		l->interlaced |= c->data[12] != 0;
	}
	return c->data[11] == 0 ? 0 : damaged(w, c); /* filter method */
}

static int read_palette(struct walk *w, const struct chunk *c)
{
	struct png_layout *l = w->layout;

	if (w->behind_data || !w->known || l->color != PNG_PALETTE)
		return 0;
	if (c->n / 3 > 256)
		return damaged(w, c);
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
	return c->n < least ? damaged(w, c) : 0;
}

static int read_animation(struct walk *w, const struct chunk *c)
{
	if (c->n < 8)
		return damaged(w, c);
	uint32_t n = get32(c->data);

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
	uint32_t sequence = get32(c->data);

	if (w->has_sequence ? sequence != (uint64_t)w->sequence + 1 : sequence != 0)
		return damaged(w, c);
	w->has_sequence = true;
	w->sequence = sequence;
	return 0;
}

/* Animation data continue a sequence that a frame's control chunk began. */
static int read_frame_data(struct walk *w, const struct chunk *c)
{
	return c->n_here < 4 || !w->has_sequence ? damaged(w, c) : next_in_sequence(w, c);
}

static int read_frame(struct walk *w, const struct chunk *c)
{
	struct png_layout *l = w->layout;

	if (c->n < 26 || next_in_sequence(w, c))
		return damaged(w, c);
	struct region_px f = { get32(c->data + 12), get32(c->data + 16), get32(c->data + 4), get32(c->data + 8) };

	if ((uint64_t)f.x + f.width > l->width || (uint64_t)f.y + f.height > l->height)
		return damaged(w, c);
	if (!w->behind_data) {
		l->frame = f;
		w->has_frame = true;
	}
	return 0;
}

static int at_least(struct walk *w, const struct chunk *c, size_t n)
{
	return c->n < n ? damaged(w, c) : 0;
}

static int read_chunk(struct walk *w, const struct chunk *c)
{
	switch (c->name) {
	case NAME('I', 'H', 'D', 'R'):
		return read_header(w, c);
	case NAME('P', 'L', 'T', 'E'):
		return read_palette(w, c);
	case NAME('t', 'R', 'N', 'S'):
		return read_transparency(w, c);
	case NAME('i', 'C', 'C', 'P'):
		return read_profile(w, c);
	case NAME('t', 'E', 'X', 't'):
		return read_text(w, c);
	case NAME('z', 'T', 'X', 't'):
		return read_packed_text(w, c);
	case NAME('i', 'T', 'X', 't'):
		return read_international_text(w, c);
	case NAME('e', 'X', 'I', 'f'):
		w->exif = c->data;
		w->n_exif = c->n;
		return 0;
	case NAME('g', 'A', 'M', 'A'):
		return at_least(w, c, 4);
	case NAME('c', 'H', 'R', 'M'):
		return at_least(w, c, 32);
	case NAME('s', 'R', 'G', 'B'):
		return at_least(w, c, 1);
	case NAME('p', 'H', 'Y', 's'):
		return at_least(w, c, 9);
	case NAME('a', 'c', 'T', 'L'):
		return read_animation(w, c);
	case NAME('f', 'c', 'T', 'L'):
		return read_frame(w, c);
	default:
		return 0;
	}
}

/* ---- the walk ---- */

static int cut_short(struct walk *w)
{
	return image_fail(w->err, IMAGE_E_CORRUPT, "PNG cut short at byte %zu", w->n_bytes);
}

static int check_crc(struct walk *w, const struct chunk *c)
{
	const uint8_t *crc = c->data + c->n;

	if (w->n_bytes - (size_t)(crc - w->bytes) < CHUNK_CRC)
		return cut_short(w);
	return crc32(crc32(0, c->data - 4, 4), c->data, (uInt)c->n) == get32(crc) ? 0 : damaged(w, c);
}

static int walk_to_data(struct walk *w)
{
	for (;;) {
		struct chunk c;

		if (!peek_chunk(w->bytes, w->n_bytes, w->at, &c))
			return image_fail(w->err, IMAGE_E_CORRUPT, "damaged PNG: no chunk at byte %zu", w->at);
		if (c.name == NAME('I', 'E', 'N', 'D'))
			return image_fail(w->err, IMAGE_E_CORRUPT, "PNG without image data");
		if (c.name == NAME('I', 'D', 'A', 'T') || c.name == NAME('f', 'd', 'A', 'T'))
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
		if (c.name == NAME('f', 'd', 'A', 'T') && read_frame_data(w, &c))
			return damaged(w, &c);
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
		if (c.name == NAME('I', 'E', 'N', 'D') || (animated && c.name == NAME('f', 'c', 'T', 'L')))
			return 0;
		if (c.n_here < c.n)
			return cut_short(w);
		if (c.name == NAME('f', 'd', 'A', 'T') && read_frame_data(w, &c))
			return damaged(w, &c);
		int r = read_chunk(w, &c);

		if (r)
			return r;
		w->at += CHUNK_HEADER + c.n + CHUNK_CRC;
	}
	return 0;
}

/* What the first rows fill. An animation may say something else than the whole. */
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
	if (f->width == 0 || f->height == 0 || (uint64_t)f->x + f->width > l->width || (uint64_t)f->y + f->height > l->height)
		return image_fail(w->err, IMAGE_E_CORRUPT, "damaged PNG: its first frame lies outside");
	return 0;
}

static int orientation_of(const struct walk *w)
{
	int o = 0;

	if (w->exif)
		o = exif_orientation(w->exif, w->n_exif);
	else if (w->profile_orientation > 0)
		o = w->profile_orientation;
	if (o == 0)
		o = w->xmp;
	return o ? o : 1;
}

int png_layout_read(const uint8_t *bytes, size_t n_bytes, struct arena *arena, struct png_layout *layout, struct image_error *err)
{
	struct walk w = {
		.bytes = bytes,
		.n_bytes = n_bytes,
		.at = SIGNATURE,
		.layout = layout,
		.arena = arena,
		.err = err,
		.profile_orientation = -1,
	};

	*layout = (struct png_layout){ 0 };
	int r = walk_to_data(&w);
	if (!r)
		r = settle_frame(&w);
	if (r)
		return r;

	/* A separate still picture in front of an animation counts as one more frame. */
	bool animated = w.has_count && (w.n_frames > 1 || !w.has_frame);
	r = walk_data(&w);
	if (!r)
		r = walk_to_end(&w, animated);
	if (r)
		return r;
	layout->orientation = orientation_of(&w);
	return 0;
}
