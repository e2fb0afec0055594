/* As Pillow reads a directory: the first usable entry of a tag counts, entries of unknown types are skipped, and the
 * directory ends at the first entry whose values lie outside the file. Only whole numbers are kept. */
#include "image/formats/tiff-tags.h"

#include <string.h>

struct directory {
	const uint8_t *bytes;
	size_t n_bytes;
	bool big_endian, big; /* big: BigTIFF */
};

static uint64_t get_number(const uint8_t *p, unsigned n_bytes, bool big_endian)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < n_bytes; i++)
		v = v << 8 | p[big_endian ? i : n_bytes - 1 - i];
	return v;
}

/* Bytes of a value of a TIFF type; 0 for types that Pillow does not know. */
static unsigned tiff_type_bytes(uint64_t type)
{
	static const uint8_t bytes[] = { 0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8 };

	return type < sizeof(bytes) ? bytes[type] : 0;
}

static bool type_is_whole(uint64_t type)
{
	return type == 3 || type == 4 || type == 8 || type == 9 || type == 13 || type == 16;
}

static enum tiff_tag tag_of(uint64_t number)
{
	static const uint16_t numbers[TIFF_N_TAGS] = {
		[TIFF_WIDTH] = 256,         [TIFF_HEIGHT] = 257,        [TIFF_BITS] = 258,
		[TIFF_COMPRESSION] = 259,   [TIFF_PHOTOMETRIC] = 262,   [TIFF_FILL_ORDER] = 266,
		[TIFF_STRIP_OFFSETS] = 273, [TIFF_ORIENTATION] = 274,   [TIFF_SAMPLES] = 277,
		[TIFF_STRIP_ROWS] = 278,    [TIFF_STRIP_BYTES] = 279,   [TIFF_PLANES] = 284,
		[TIFF_PREDICTOR] = 317,     [TIFF_COLORS] = 320,        [TIFF_TILE_WIDTH] = 322,
		[TIFF_TILE_HEIGHT] = 323,   [TIFF_TILE_OFFSETS] = 324,  [TIFF_TILE_BYTES] = 325,
		[TIFF_EXTRA] = 338,         [TIFF_SAMPLE_FORMAT] = 339, [TIFF_XMP] = 700,
		[TIFF_JPEG_TABLES] = 347,
	};
	unsigned i = 0;

	while (i < TIFF_N_TAGS && numbers[i] != number)
		i++;
	return i;
}

bool tiff_begins(const uint8_t *b, size_t n)
{
	if (n < 4 || b[0] != b[1] || (b[0] != 'I' && b[0] != 'M'))
		return false;
	/* Some writers store the 42 in the other byte order than the rest; Pillow takes that, and no BigTIFF that is big
	 * endian. */
	return (b[2] == 0 && b[3] == 42) || (b[2] == 42 && b[3] == 0) || (b[0] == 'I' && b[2] == 43 && b[3] == 0);
}

/* False: its values lie outside the file. */
static bool keep_entry(const struct directory *d, const uint8_t *entry, struct tiff_tags *t)
{
	unsigned n_offset = d->big ? 8 : 4;
	uint64_t type = get_number(entry + 2, 2, d->big_endian), n = get_number(entry + 4, n_offset, d->big_endian);
	unsigned bytes = tiff_type_bytes(type);
	enum tiff_tag tag = tag_of(get_number(entry, 2, d->big_endian));
	const uint8_t *data = entry + 4 + n_offset;

	if (bytes == 0 || n == 0 || n > d->n_bytes / bytes)
		return true;
	if (n * bytes > n_offset) {
		uint64_t at = get_number(data, n_offset, d->big_endian);

		if (at > d->n_bytes || n * bytes > d->n_bytes - at) {
			t->cut = tag < TIFF_XMP;
			return false;
		}
		data = d->bytes + at;
	}
	if (tag < TIFF_N_TAGS && t->tag[tag].n == 0 &&
	    (tag == TIFF_JPEG_TABLES ? bytes == 1 : type_is_whole(type) || tag == TIFF_XMP))
		t->tag[tag] = (struct tiff_values){ data, n, (uint8_t)bytes };
	return true;
}

int tiff_tags_read(const uint8_t *bytes, size_t n_bytes, struct tiff_tags *t, struct image_error *err)
{
	struct directory d = { .bytes = bytes, .n_bytes = n_bytes, .big_endian = bytes[0] == 'M' };

	d.big = bytes[2] == 43;
	*t = (struct tiff_tags){ .big_endian = d.big_endian };
	unsigned n_head = d.big ? 16 : 8, n_count = d.big ? 8 : 2, n_entry = d.big ? 20 : 12;
	uint64_t at = n_bytes >= n_head ? get_number(bytes + n_head / 2, n_head / 2, d.big_endian) : n_bytes;

	if (at == 0 || at > n_bytes || n_bytes - at < n_count)
		return image_fail(err, IMAGE_E_CORRUPT, "TIFF without a directory");
	uint64_t n = get_number(bytes + at, n_count, d.big_endian);

	at += n_count;
	for (uint64_t i = 0; i < n && n_bytes - at >= n_entry; i++, at += n_entry)
		if (!keep_entry(&d, bytes + at, t))
			break;
	return 0;
}

uint64_t tiff_value(const struct tiff_tags *t, enum tiff_tag tag, uint64_t i)
{
	const struct tiff_values *v = &t->tag[tag];

	return get_number(v->data + i * v->bytes, v->bytes, t->big_endian);
}

uint64_t tiff_number(const struct tiff_tags *t, enum tiff_tag tag, uint64_t otherwise)
{
	return t->tag[tag].n ? tiff_value(t, tag, 0) : otherwise;
}
