/* The kinds of pixels that Pillow reads, without YCbCr outside of JPEG, L*a*b*, 12 bits, and transparency that is multiplied into grey
 * or 16-bit colours. Numbers of more than 8 bits are not scaled: grey ones are clipped, of colours the high byte counts.
 *
 * Pillow takes what libtiff unpacks, which is in the machine's byte order, for big endian if the file is, unless it is
 * unsigned and of 16 bits. Its pixels are the measure, so this file names that order for packed files, too. */
#include "image/formats/tiff-layout.h"

#include <stdio.h>
#include <string.h>

enum { MAX_SAMPLES = 6, FORMAT_UNSIGNED = 1, FORMAT_SIGNED = 2, FORMAT_FLOAT = 3, CORELS_ALPHA = 999 };
enum { WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, CMYK = 5, YCBCR = 6 };
enum { EXTRA_NONE = -1, EXTRA_UNKNOWN = 0, EXTRA_MULTIPLIED = 1, EXTRA_ALPHA = 2 };

struct tiff_kind {
	uint64_t photometric, format, fill;
	uint64_t bits, n_samples, n_extra;
	int extra; /* the kind of the first; all others are unknown */
	bool packed, separate, tiled;
};

/* The one value of a tag that has one for each sample; UINT64_MAX: they differ. */
static uint64_t common_value(const struct tiff_tags *tags, enum tiff_tag tag, uint64_t n_most)
{
	uint64_t n = tags->tag[tag].n < n_most ? tags->tag[tag].n : n_most, first = tiff_number(tags, tag, 1);

	for (uint64_t i = 1; i < n; i++)
		if (tiff_value(tags, tag, i) != first)
			return UINT64_MAX;
	return first;
}

static bool read_kind(const struct tiff *t, struct tiff_kind *k)
{
	const struct tiff_tags *tags = &t->tags;
	uint64_t n_bits = tags->tag[TIFF_BITS].n;

	k->photometric = tiff_number(tags, TIFF_PHOTOMETRIC, WHITE_IS_ZERO);
	k->fill = tiff_number(tags, TIFF_FILL_ORDER, 1);
	k->n_samples = tiff_number(tags, TIFF_SAMPLES, 1);
	k->n_extra = tags->tag[TIFF_EXTRA].n;
	k->packed = t->compression != TIFF_PLAIN;
	k->separate = tiff_number(tags, TIFF_PLANES, 1) == 2;
	k->tiled = tags->tag[TIFF_STRIP_OFFSETS].n == 0;
	if (k->n_samples == 0 || k->n_samples > MAX_SAMPLES || k->n_extra > k->n_samples)
		return false;
	if (n_bits > 1 && n_bits < k->n_samples)
		return false;
	k->bits = common_value(tags, TIFF_BITS, k->n_samples);
	k->format = common_value(tags, TIFF_SAMPLE_FORMAT, UINT64_MAX);
	k->extra = EXTRA_NONE;
	for (uint64_t i = 0; i < k->n_extra; i++) {
		uint64_t v = tiff_value(tags, TIFF_EXTRA, i);

		if (i > 0 && v != EXTRA_UNKNOWN)
			return false;
		if (i == 0)
			k->extra = v <= EXTRA_ALPHA                         ? (int)v
				   : v == CORELS_ALPHA && k->n_samples == 4 ? EXTRA_ALPHA
									    : 99;
	}
	if (k->separate && k->packed && k->n_extra > 0 && k->extra == EXTRA_UNKNOWN) { /* their planes are left out */
		k->n_samples -= k->n_extra;
		k->n_extra = 0;
		k->extra = EXTRA_NONE;
	}
	return k->extra <= EXTRA_ALPHA;
}

static void index_layout(struct raw_layout *l, unsigned bits, bool inverted)
{
	unsigned most = (1u << bits) - 1;

	*l = (struct raw_layout){ .kind = RAW_INDEX, .bits = (uint8_t)bits };
	for (unsigned i = 0; i <= most; i++)
		memset(l->table[i], (int)((inverted ? most - i : i) * 255 / most), 3);
}

static void tiff_bytes(struct raw_layout *l, unsigned step, unsigned r, unsigned g, unsigned b, unsigned fourth)
{
	*l = (struct raw_layout){ .kind = RAW_BYTES,
				  .step = (uint8_t)step,
				  .at = { (uint8_t)r, (uint8_t)g, (uint8_t)b, (uint8_t)fourth } };
}

static bool number_layout(const struct tiff_kind *k, bool big_endian, struct raw_layout *l)
{
	bool black = k->photometric == BLACK_IS_ZERO;

	*l = (struct raw_layout){ .kind = RAW_GREY, .big_endian = big_endian };
	if (k->bits == 16 && k->format == FORMAT_UNSIGNED && (black || !big_endian))
		l->number = RAW_UINT16;
	else if (k->bits == 16 && k->format == FORMAT_SIGNED && black)
		l->number = RAW_INT16;
	else if (k->bits == 32 && k->format == FORMAT_FLOAT)
		l->number = RAW_FLOAT32;
	else if (k->bits == 32 && black &&
		 (k->format == FORMAT_SIGNED || (k->format == FORMAT_UNSIGNED && !big_endian)))
		l->number = RAW_INT32;
	else
		return false;
	if (k->packed && big_endian && l->number != RAW_UINT16)
		l->big_endian = false;
	if (k->fill != 1 && (k->bits != 16 || k->format != FORMAT_UNSIGNED || big_endian || !black))
		return false;
	return !k->separate || k->packed;
}

static bool grey_layout(const struct tiff_kind *k, bool big_endian, struct raw_layout *l)
{
	bool inverted = k->photometric == WHITE_IS_ZERO;

	if (k->n_samples == 2 && !(k->separate && !k->packed) && k->bits == 8 && k->format == FORMAT_UNSIGNED &&
	    !inverted && k->fill == 1 && (k->extra == EXTRA_UNKNOWN || k->extra == EXTRA_ALPHA)) {
		tiff_bytes(l, 2, 0, 0, 0, 0);
		return true;
	}
	if (k->n_samples != 1 || k->n_extra != 0)
		return false;
	if (k->bits > 8)
		return number_layout(k, big_endian, l);
	if (k->bits != 1 && k->bits != 2 && k->bits != 4 && k->bits != 8)
		return false;
	if (k->format != FORMAT_UNSIGNED && !(k->format == FORMAT_SIGNED && k->bits == 8 && !inverted && k->fill == 1))
		return false;
	index_layout(l, (unsigned)k->bits, inverted);
	if (k->fill == 2 && k->bits == 8 && inverted && !k->packed)
		return false;
	return !k->separate || k->packed || (k->bits == 8 && !inverted);
}

static bool rgb_layout(const struct tiff_kind *k, bool big_endian, struct raw_layout *l)
{
	unsigned bytes = (unsigned)k->bits / 8, high = bytes == 2 && !big_endian;
	bool missing = k->n_samples == 4 && k->n_extra == 0;

	if (k->format != FORMAT_UNSIGNED || (k->bits != 8 && k->bits != 16) || k->n_samples < 3)
		return false;
	if ((k->n_samples - 3 != k->n_extra && !missing) || (bytes == 2 && k->n_samples > 4))
		return false;
	if (k->fill != 1 && (k->n_samples != 3 || bytes != 1))
		return false;
	if (missing && k->separate && k->tiled && !k->packed)
		return false; /* Pillow takes rows at the picture's edge from wrong places */
	tiff_bytes(l, (unsigned)k->n_samples * bytes, high, bytes + high, 2 * bytes + high, 3 * bytes + high);
	l->multiplied = k->extra == EXTRA_MULTIPLIED || (missing && k->separate && k->packed);
	return !l->multiplied || (k->separate ? k->packed : bytes == 1);
}

static bool cmyk_layout(const struct tiff_kind *k, bool big_endian, struct raw_layout *l)
{
	unsigned bytes = (unsigned)k->bits / 8, high = bytes == 2 && !big_endian;

	if (k->format != FORMAT_UNSIGNED || (k->bits != 8 && k->bits != 16) || k->fill != 1 || k->n_samples < 4 ||
	    k->n_samples - 4 != k->n_extra || k->extra > EXTRA_UNKNOWN || (bytes == 2 && k->n_samples > 4))
		return false;
	tiff_bytes(l, (unsigned)k->n_samples * bytes, high, bytes + high, 2 * bytes + high, 3 * bytes + high);
	l->kind = RAW_CMYK;
	return true;
}

static bool palette_colors(const struct tiff *t, struct raw_layout *l)
{
	uint64_t n = t->tags.tag[TIFF_COLORS].n / 3;

	if (n == 0 || n > 256 || t->tags.tag[TIFF_COLORS].bytes != 2)
		return false;
	memset(l->table, 0, sizeof(l->table));
	for (uint64_t i = 0; i < n; i++)
		for (unsigned c = 0; c < 3; c++)
			l->table[i][c] = (uint8_t)(tiff_value(&t->tags, TIFF_COLORS, c * n + i) >> 8);
	return true;
}

static bool palette_layout(const struct tiff *t, const struct tiff_kind *k, struct raw_layout *l)
{
	if (k->n_samples != 1 || k->n_extra != 0 || k->format != FORMAT_UNSIGNED ||
	    (k->bits != 1 && k->bits != 2 && k->bits != 4 && k->bits != 8))
		return false;
	*l = (struct raw_layout){ .kind = RAW_INDEX, .bits = (uint8_t)k->bits };
	return palette_colors(t, l) && (k->packed || k->bits == 8 || (k->fill == 1 && !k->separate));
}

/* In JPEG, which becomes RGB when it is unpacked. */
static bool ycbcr_layout(const struct tiff *t, const struct tiff_kind *k, struct raw_layout *l)
{
	if (t->compression != TIFF_JPEG || k->n_samples != 3 || k->n_extra != 0 || k->separate ||
	    k->format != FORMAT_UNSIGNED)
		return false;
	tiff_bytes(l, 3, 0, 1, 2, 0);
	return true;
}

static bool kind_layout(const struct tiff *t, const struct tiff_kind *k, struct raw_layout *l)
{
	bool big_endian = t->tags.big_endian;

	if (k->fill != 1 && k->fill != 2)
		return false;
	if (t->compression == TIFF_JPEG && (k->bits != 8 || k->fill != 1))
		return false;
	/* Of planes that are not packed, Pillow takes the first byte of 16 bits, whichever it is, and no unknown ones. */
	if (k->separate && !k->packed && k->n_samples > 1 && (k->bits != 8 || k->extra == EXTRA_UNKNOWN))
		return false;
	switch (k->photometric) {
	case WHITE_IS_ZERO:
	case BLACK_IS_ZERO:
		return grey_layout(k, big_endian, l);
	case RGB:
		return rgb_layout(k, big_endian, l);
	case PALETTE:
		return palette_layout(t, k, l);
	case CMYK:
		return cmyk_layout(k, big_endian, l);
	case YCBCR:
		return ycbcr_layout(t, k, l);
	}
	return false;
}

int tiff_layout(struct tiff *t, struct image_error *err)
{
	struct tiff_kind k = { 0 };

	if (!read_kind(t, &k) || !kind_layout(t, &k, &t->layout))
		return image_fail(err, IMAGE_E_FORMAT,
				  "TIFF of a kind that is not read: photometric interpretation %llu, %llu samples of "
				  "%llu bits, sample format %llu, %llu extra samples%s%s",
				  (unsigned long long)k.photometric, (unsigned long long)k.n_samples,
				  (unsigned long long)tiff_number(&t->tags, TIFF_BITS, 1),
				  (unsigned long long)tiff_number(&t->tags, TIFF_SAMPLE_FORMAT, 1),
				  (unsigned long long)k.n_extra, k.separate ? ", in planes" : "",
				  k.fill == 1 ? "" : ", bits reversed");
	t->bits = (uint32_t)k.bits;
	t->n_samples = (uint32_t)k.n_samples;
	t->n_planes = k.separate ? t->n_samples : 1;
	t->is_ycbcr = k.photometric == YCBCR;
	t->reversed = k.fill == 2;
	return 0;
}
