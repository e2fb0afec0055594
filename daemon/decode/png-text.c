/* A PNG's texts and colour profile: read for the picture's orientation, and for reasons why Pillow would refuse the
 * file.
 *
 * Pillow unpacks them all when it opens a file, and refuses a text that unpacks to more than 1 MiB, or a sum of more
 * than 64 MiB. So every text is unpacked here too, into one buffer, and examined there. The limit on the sum also
 * covers colour profiles, which Pillow does not count: without it a file could use a worker for minutes. */
#include "decode/png-text.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "decode/exif.h"

enum {
	TEXT_MAX = 1 << 20,        /* one text or colour profile, unpacked */
	TEXT_TOTAL_MAX = 64 << 20, /* all of them */
};

static int bad_method(struct png_texts *t)
{
	return image_fail(t->err, IMAGE_E_CORRUPT, "damaged PNG: a text or profile is packed in an unknown way");
}

static voidpf png_text_zlib_take(voidpf arena, uInt n, uInt size)
{
	return arena_take(arena, (size_t)n * size);
}

static void png_text_zlib_give(voidpf arena, voidpf p)
{
	(void)arena; /* freed with the whole arena */
	(void)p;
}

static bool ready_to_unpack(struct png_texts *t)
{
	if (t->unpacked)
		return inflateReset(&t->z) == Z_OK;
	t->z = (z_stream){ .zalloc = png_text_zlib_take, .zfree = png_text_zlib_give, .opaque = t->arena };
	t->unpacked = arena_take(t->arena, TEXT_MAX);
	return t->unpacked && inflateInit(&t->z) == Z_OK;
}

/* Unpacks into t->unpacked. Damaged data count as no text. */
static int png_text_unpack(struct png_texts *t, const uint8_t *packed, size_t n_packed, size_t *n_text)
{
	if (!ready_to_unpack(t))
		return -ENOMEM;
	t->z.next_in = (z_const Bytef *)packed;
	t->z.avail_in = (uInt)n_packed; /* a chunk is below 4 GiB */
	t->z.next_out = t->unpacked;
	t->z.avail_out = TEXT_MAX;
	int r = n_packed > 0 ? inflate(&t->z, Z_SYNC_FLUSH) : Z_OK;
	size_t n = TEXT_MAX - t->z.avail_out;

	if (r == Z_MEM_ERROR)
		return -ENOMEM;
	if (r == Z_OK && t->z.avail_out == 0 && t->z.avail_in > 0)
		return image_fail(t->err, IMAGE_E_LIMIT, "PNG with a text or profile of more than 1 MiB when unpacked");
	t->n_unpacked_total += n;
	if (t->n_unpacked_total > TEXT_TOTAL_MAX)
		return image_fail(t->err, IMAGE_E_LIMIT, "PNG with more than 64 MiB of texts when unpacked");
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

/* ImageMagick's format for EXIF in a text: a blank line, a name, a length, then hexadecimal lines. */
static int raw_profile_orientation(struct png_texts *t, const uint8_t *text, size_t n)
{
	const uint8_t *end = text + n;

	for (int line = 0; line < 3; line++) {
		text = memchr(text, '\n', (size_t)(end - text));
		if (!text)
			return 0;
		text++;
	}

	uint8_t *exif = arena_take(t->arena, (size_t)(end - text) / 2 + 1);
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

static int note_text(struct png_texts *t, const uint8_t *key, size_t n_key, const uint8_t *text, size_t n_text)
{
	if (n_key == 0)
		return 0;
	if (key_is(key, n_key, "Raw profile type exif"))
		t->profile_orientation = raw_profile_orientation(t, text, n_text);
	else if (key_is(key, n_key, "XML:com.adobe.xmp"))
		t->xmp = xmp_orientation(text, n_text);
	t->n_total += n_text;
	if (t->n_total > TEXT_TOTAL_MAX)
		return image_fail(t->err, IMAGE_E_LIMIT, "PNG with more than 64 MiB of texts");
	return 0;
}

/* Length up to the next zero byte, or n if there is none. */
static size_t field_length(const uint8_t *s, size_t n)
{
	const uint8_t *zero = n ? memchr(s, 0, n) : NULL;

	return zero ? (size_t)(zero - s) : n;
}

static int png_text_read_text(struct png_texts *t, const uint8_t *data, size_t n)
{
	size_t n_key = field_length(data, n), start = n_key < n ? n_key + 1 : n;

	if (key_is(data, n_key, "exif")) {
		t->exif = data + start;
		t->n_exif = n - start;
	}
	return note_text(t, data, n_key, data + start, n - start);
}

static int read_packed_text(struct png_texts *t, const uint8_t *data, size_t n)
{
	size_t n_key = field_length(data, n), start = n_key < n ? n_key + 1 : n, n_text;

	if (start < n && data[start++] != 0) /* compression method */
		return bad_method(t);
	int r = png_text_unpack(t, data + start, n - start, &n_text);

	return r ? r : note_text(t, data, n_key, t->unpacked, n_text);
}

/* Keyword, flag, method, language, translated keyword, text. Malformed texts are ignored. */
static int read_international_text(struct png_texts *t, const uint8_t *data, size_t n)
{
	size_t n_key = field_length(data, n), n_text = n, at = n_key + 1;

	if (at > n || n - at < 2)
		return 0;
	bool packed = data[at] != 0, unknown = packed && data[at + 1] != 0;
	at += 2;
	for (int i = 0; i < 2; i++) {
		size_t n_field = field_length(data + at, n - at);

		if (n_field == n - at)
			return 0;
		at += n_field + 1;
	}
	if (unknown)
		return 0;
	if (!packed)
		return note_text(t, data, n_key, data + at, n - at);
	int r = png_text_unpack(t, data + at, n - at, &n_text);

	return r ? r : note_text(t, data, n_key, t->unpacked, n_text);
}

static int read_profile(struct png_texts *t, const uint8_t *data, size_t n)
{
	const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
	size_t method = zero ? (size_t)(zero - data) + 1 : 0, ignored;

	if (method >= n || data[method] != 0)
		return bad_method(t);
	return png_text_unpack(t, data + method + 1, n - method - 1, &ignored);
}

void png_texts_init(struct png_texts *t, struct arena *arena, struct image_error *err)
{
	*t = (struct png_texts){ .arena = arena, .err = err, .profile_orientation = -1 };
}

int png_texts_read(struct png_texts *t, uint32_t name, const uint8_t *data, size_t n)
{
	switch (name) {
	case PNG_NAME('i', 'C', 'C', 'P'):
		return read_profile(t, data, n);
	case PNG_NAME('t', 'E', 'X', 't'):
		return png_text_read_text(t, data, n);
	case PNG_NAME('z', 'T', 'X', 't'):
		return read_packed_text(t, data, n);
	case PNG_NAME('i', 'T', 'X', 't'):
		return read_international_text(t, data, n);
	case PNG_NAME('e', 'X', 'I', 'f'):
		t->exif = data;
		t->n_exif = n;
		return 0;
	default:
		return 0;
	}
}

int png_texts_orientation(const struct png_texts *t)
{
	int o = 0;

	if (t->exif)
		o = exif_orientation(t->exif, t->n_exif);
	else if (t->profile_orientation > 0)
		o = t->profile_orientation;
	if (o == 0)
		o = t->xmp;
	return o ? o : 1;
}
