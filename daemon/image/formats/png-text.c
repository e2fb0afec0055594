/* Chunks are only noted as they come, and the last of each kind is read in the end: so a file of many packed texts
 * costs no time. Text of more than 1 MiB has no orientation. */
#include "image/formats/png-text.h"

#include <errno.h>
#include <string.h>

#include <zlib.h>

#include "image/formats/exif.h"

enum { TEXT_MAX = 1 << 20 };

/* ---- chunks ---- */

static bool key_is(const uint8_t *key, size_t n_key, const char *name)
{
	return n_key == strlen(name) && memcmp(key, name, n_key) == 0;
}

static void note(struct png_texts *t, const uint8_t *key, size_t n_key, struct png_text value)
{
	if (key_is(key, n_key, "Raw profile type exif"))
		t->profile = value;
	else if (key_is(key, n_key, "XML:com.adobe.xmp"))
		t->xmp = value;
	else if (key_is(key, n_key, "exif") && !value.packed)
		t->exif = value;
}

/* Length up to the next zero byte, or n if there is none. */
static size_t field_length(const uint8_t *s, size_t n)
{
	const uint8_t *zero = n ? memchr(s, 0, n) : NULL;

	return zero ? (size_t)(zero - s) : n;
}

static void note_text(struct png_texts *t, const uint8_t *data, size_t n, bool packed)
{
	size_t n_key = field_length(data, n), at = n_key < n ? n_key + 1 : n;

	if (packed && (at == n || data[at++] != 0)) /* method */
		return;
	note(t, data, n_key, (struct png_text){ data + at, n - at, packed });
}

/* Keyword, flag, method, language, translated keyword, text. */
static void note_international_text(struct png_texts *t, const uint8_t *data, size_t n)
{
	size_t n_key = field_length(data, n), at = n_key + 1;

	if (at > n || n - at < 2)
		return;
	bool packed = data[at] != 0;
	if (packed && data[at + 1] != 0)
		return;
	at += 2;
	for (int i = 0; i < 2; i++) {
		size_t n_field = field_length(data + at, n - at);

		if (n_field == n - at)
			return;
		at += n_field + 1;
	}
	note(t, data, n_key, (struct png_text){ data + at, n - at, packed });
}

void png_texts_note(struct png_texts *t, uint32_t name, const uint8_t *data, size_t n)
{
	if (name == PNG_NAME('e', 'X', 'I', 'f'))
		t->exif = (struct png_text){ data, n, false };
	else if (name == PNG_NAME('t', 'E', 'X', 't') || name == PNG_NAME('z', 'T', 'X', 't'))
		note_text(t, data, n, name == PNG_NAME('z', 'T', 'X', 't'));
	else if (name == PNG_NAME('i', 'T', 'X', 't'))
		note_international_text(t, data, n);
}

/* ---- orientation ---- */

static voidpf png_text_zlib_take(voidpf arena, uInt n, uInt size)
{
	return arena_take(arena, (size_t)n * size);
}

static void png_text_zlib_give(voidpf arena, voidpf p)
{
	(void)arena; /* freed with the whole arena */
	(void)p;
}

/* Unpacks the value into the arena. Damaged data and too much text count as no text. 0 or -ENOMEM. */
static int png_text_unpack(struct png_text *v, struct arena *arena)
{
	z_stream z = { .zalloc = png_text_zlib_take, .zfree = png_text_zlib_give, .opaque = arena };
	uint8_t *out = arena_take(arena, TEXT_MAX);

	if (!out || inflateInit(&z) != Z_OK)
		return -ENOMEM;
	z.next_in = (z_const Bytef *)v->bytes;
	z.avail_in = (uInt)v->n; /* a chunk is below 4 GiB */
	z.next_out = out;
	z.avail_out = TEXT_MAX;
	int r = inflate(&z, Z_SYNC_FLUSH);
	bool usable = r == Z_STREAM_END || (r == Z_OK && (z.avail_out > 0 || z.avail_in == 0)) || r == Z_BUF_ERROR;

	inflateEnd(&z);
	*v = (struct png_text){ out, usable ? TEXT_MAX - z.avail_out : 0, false };
	return r == Z_MEM_ERROR ? -ENOMEM : 0;
}

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* ImageMagick's format for EXIF in a text: a blank line, a name, a length, then hexadecimal lines. 0: it has none, or
 * is damaged. */
static int profile_orientation(const uint8_t *text, size_t n, struct arena *arena, int *orientation)
{
	const uint8_t *end = text + n;

	for (int line = 0; line < 3; line++) {
		text = memchr(text, '\n', (size_t)(end - text));
		if (!text)
			return 0;
		text++;
	}

	uint8_t *exif = arena_take(arena, (size_t)(end - text) / 2 + 1);
	size_t n_exif = 0;
	if (!exif)
		return -ENOMEM;
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
	*orientation = exif_orientation(exif, n_exif);
	return 0;
}

int png_texts_orientation(const struct png_texts *t, struct arena *arena, int *orientation)
{
	struct png_text profile = t->profile, xmp = t->xmp;
	int r = 0, found = 0;

	if (t->exif.bytes) {
		found = exif_orientation(t->exif.bytes, t->exif.n);
	} else if (profile.bytes) {
		r = profile.packed ? png_text_unpack(&profile, arena) : 0;
		r = r ? r : profile_orientation(profile.bytes, profile.n, arena, &found);
	}
	if (!r && !found && xmp.bytes) {
		r = xmp.packed ? png_text_unpack(&xmp, arena) : 0;
		found = r ? 0 : xmp_orientation(xmp.bytes, xmp.n);
	}
	*orientation = found ? found : 1;
	return r;
}
