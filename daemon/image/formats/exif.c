/* The orientation tag, read with Pillow's tolerance: the first usable entry counts, entries of unknown type are
 * skipped, and the directory ends at the first entry whose data lies outside. Damaged data means "upright", never an
 * error: a picture with broken metadata is still a picture. BigTIFF directories do not occur in EXIF and count as
 * absent. */
#include "image/formats/exif.h"

#include <stdbool.h>
#include <string.h>

enum { TAG_ORIENTATION = 0x0112, TIFF_MAGIC = 42, ENTRY_SIZE = 12 };

struct tiff {
	const uint8_t *data;
	size_t n_bytes;
	bool big_endian;
};

static uint32_t exif_get16(const struct tiff *t, size_t at)
{
	const uint8_t *p = t->data + at;

	return t->big_endian ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

static uint32_t exif_get32(const struct tiff *t, size_t at)
{
	return t->big_endian ? exif_get16(t, at) << 16 | exif_get16(t, at + 2)
			     : exif_get16(t, at + 2) << 16 | exif_get16(t, at);
}

/* Bytes per value of a TIFF type; 0 for types that do not exist. */
static uint32_t type_size(uint32_t type)
{
	static const uint8_t sizes[] = { 0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8 };

	return type < sizeof(sizes) ? sizes[type] : 0;
}

/* SHORT, LONG, their signed variants and IFD are whole numbers; no other type can hold an orientation. */
static int read_number(const struct tiff *t, uint32_t type, size_t at)
{
	uint32_t value;

	switch (type) {
	case 3:
	case 8:
		value = exif_get16(t, at);
		break;
	case 4:
	case 9:
	case 13:
		value = exif_get32(t, at);
		break;
	default:
		return 0;
	}
	return value >= 1 && value <= 8 ? (int)value : 0;
}

static int read_directory(const struct tiff *t, size_t at)
{
	if (at > t->n_bytes || t->n_bytes - at < 2)
		return 0;
	uint32_t n_entries = exif_get16(t, at);

	at += 2;
	for (uint32_t i = 0; i < n_entries && t->n_bytes - at >= ENTRY_SIZE; i++, at += ENTRY_SIZE) {
		uint32_t tag = exif_get16(t, at), type = exif_get16(t, at + 2);
		uint64_t size = (uint64_t)exif_get32(t, at + 4) * type_size(type);
		size_t value_at = at + 8;

		if (size == 0)
			continue;
		if (size > 4) {
			value_at = exif_get32(t, at + 8);
			if (size > t->n_bytes) /* invalid, but only this entry */
				continue;
			if (value_at > t->n_bytes || size > t->n_bytes - value_at)
				return 0;
		}
		if (tag == TAG_ORIENTATION)
			return read_number(t, type, value_at);
	}
	return 0;
}

int exif_orientation(const uint8_t *exif, size_t n_bytes)
{
	static const char prefix[6] = "Exif\0"; /* two zero bytes follow the name */

	for (int i = 0; i < 2 && n_bytes >= sizeof(prefix) && memcmp(exif, prefix, sizeof(prefix)) == 0; i++) {
		exif += sizeof(prefix);
		n_bytes -= sizeof(prefix);
	}
	if (n_bytes < 8)
		return 0;

	struct tiff t = { .data = exif, .n_bytes = n_bytes, .big_endian = exif[0] == 'M' };
	if (exif[0] != exif[1] || (exif[0] != 'I' && exif[0] != 'M'))
		return 0;
	/* Some writers store the 42 in the other byte order than the rest. */
	if (exif_get16(&t, 2) != TIFF_MAGIC && exif_get16(&t, 2) != TIFF_MAGIC << 8)
		return 0;
	return read_directory(&t, exif_get32(&t, 4));
}

int xmp_orientation(const uint8_t *xmp, size_t n_bytes)
{
	static const char name[] = "tiff:Orientation";
	const uint8_t *end = xmp + n_bytes;

	for (const uint8_t *p = xmp; (p = memmem(p, (size_t)(end - p), name, strlen(name)));) {
		p += strlen(name);
		if (end - p >= 3 && p[0] == '=' && p[1] == '"')
			p += 2; /* an attribute */
		else if (end - p >= 2 && p[0] == '>')
			p += 1; /* an element */
		else
			continue;
		if (*p >= '0' && *p <= '9')
			return *p >= '1' && *p <= '8' ? *p - '0' : 0;
	}
	return 0;
}
