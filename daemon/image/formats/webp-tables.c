/* See webp-tables.h. The header of a lossless stream up to its entropy image: transforms, whose pictures are decoded
 * and dropped, the size of the colour cache, and the entropy image itself. All of these pictures have at most one pixel
 * for 4 x 4 of the whole and are coded alike, so that one small decoder reads them. It is simple rather than fast: it
 * takes about a hundredth of the time of decoding the whole.
 *
 * Bits after the end of the data are zero; a reader that has used such bits fails at the end. */
#include "image/formats/webp-tables.h"

#include <errno.h>
#include <string.h>

enum {
	SIGNATURE = 0x2f,
	SIZE_BITS = 14,
	MAX_CODE_LENGTH = 15,
	N_LITERALS = 256,
	N_LENGTHS = 24,
	N_DISTANCES = 40,
	MAX_CACHE_BITS = 11,
	MAX_SYMBOLS = N_LITERALS + N_LENGTHS + (1 << MAX_CACHE_BITS),
	N_LENGTH_CODES = 19,
	MAX_GROUPS = 1 << 16,
	N_PLANE_CODES = 120,
	/* libwebp numbers the groups again if there are more than this, and then makes only those in use. */
	DENSE_GROUPS = 1000,
	/* Of libwebp: a table entry; a group besides its tables; tables of a group without the green one. */
	ENTRY_BYTES = 4,
	GROUP_BYTES = 576,
	FIXED_ENTRIES = 630 * 3 + 410,
};

struct bits {
	const uint8_t *bytes;
	size_t n;
	uint64_t at; /* bit */
};

struct code {
	uint16_t count[MAX_CODE_LENGTH + 1]; /* of codes by length */
	uint16_t n_symbols;
	uint16_t symbols[MAX_SYMBOLS]; /* in the order of their codes */
};

enum { GREEN, RED, BLUE, ALPHA, DISTANCE, N_CODES };

struct header {
	struct bits in;
	struct code codes[N_CODES];
	struct code lengths;
	uint8_t length_of[MAX_SYMBOLS];
	uint32_t cache[1 << MAX_CACHE_BITS];
	uint32_t cache_bits; /* 0: none */
	uint8_t used[MAX_GROUPS / 8];
	struct scratch *pixels;
};

/* ---- bits and codes ---- */

static uint32_t read_bits(struct bits *b, uint32_t n)
{
	uint32_t v = 0;

	for (uint32_t i = 0; i < n; i++, b->at++)
		if (b->at / 8 < b->n)
			v |= (uint32_t)(b->bytes[b->at / 8] >> b->at % 8 & 1) << i;
	return v;
}

static bool webp_tables_overrun(const struct bits *b)
{
	return b->at > (uint64_t)b->n * 8;
}

/* The code must be complete, or have one symbol, which then takes no bits. */
static bool webp_tables_build(struct code *c, const uint8_t *length_of, uint32_t n)
{
	uint32_t at[MAX_CODE_LENGTH + 1] = { 0 };
	int32_t open = 1;

	memset(c->count, 0, sizeof(c->count));
	for (uint32_t i = 0; i < n; i++)
		c->count[length_of[i]]++;
	c->n_symbols = (uint16_t)(n - c->count[0]);
	c->count[0] = 0;
	for (unsigned length = 1; length <= MAX_CODE_LENGTH; length++) {
		open = 2 * open - c->count[length];
		if (open < 0)
			return false;
		if (length < MAX_CODE_LENGTH)
			at[length + 1] = at[length] + c->count[length];
	}
	for (uint32_t i = 0; i < n; i++)
		if (length_of[i])
			c->symbols[at[length_of[i]]++] = (uint16_t)i;
	return c->n_symbols == 1 || (c->n_symbols > 1 && open == 0);
}

static uint32_t read_symbol(struct bits *b, const struct code *c)
{
	int32_t code = 0, first = 0, index = 0;

	if (c->n_symbols == 1)
		return c->symbols[0];
	for (unsigned length = 1; length <= MAX_CODE_LENGTH; length++) {
		int32_t count = c->count[length];

		code |= (int32_t)read_bits(b, 1);
		if (code - first < count)
			return c->symbols[index + code - first];
		index += count;
		first = (first + count) * 2;
		code *= 2;
	}
	return 0; /* not reached: the code is complete */
}

static bool webp_tables_read_lengths(struct header *d, uint32_t n)
{
	static const uint8_t order[N_LENGTH_CODES] = {
		17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	};
	static const uint8_t extra_bits[] = { 2, 3, 7 }, least[] = { 3, 3, 11 };
	uint8_t of_lengths[N_LENGTH_CODES] = { 0 }, previous = 8;
	uint32_t n_lengths = 4 + read_bits(&d->in, 4), left = n, at = 0;

	for (uint32_t i = 0; i < n_lengths; i++)
		of_lengths[order[i]] = (uint8_t)read_bits(&d->in, 3);
	if (!webp_tables_build(&d->lengths, of_lengths, N_LENGTH_CODES))
		return false;
	if (read_bits(&d->in, 1)) {
		left = 2 + read_bits(&d->in, 2 + 2 * read_bits(&d->in, 3));
		if (left > n)
			return false;
	}
	for (; at < n && left > 0; left--) {
		uint32_t symbol = read_symbol(&d->in, &d->lengths);

		if (symbol < 16) {
			d->length_of[at++] = (uint8_t)symbol;
			previous = symbol ? (uint8_t)symbol : previous;
			continue;
		}
		uint32_t repeat = read_bits(&d->in, extra_bits[symbol - 16]) + least[symbol - 16];
		if (repeat > n - at)
			return false;
		memset(d->length_of + at, symbol == 16 ? previous : 0, repeat);
		at += repeat;
	}
	return true;
}

static bool read_code(struct header *d, struct code *c, uint32_t n)
{
	memset(d->length_of, 0, n);
	if (!read_bits(&d->in, 1)) {
		if (!webp_tables_read_lengths(d, n))
			return false;
	} else {
		uint32_t n_symbols = 1 + read_bits(&d->in, 1), wide = read_bits(&d->in, 1);

		d->length_of[read_bits(&d->in, wide ? 8 : 1)] = 1;
		if (n_symbols == 2)
			d->length_of[read_bits(&d->in, 8)] = 1;
	}
	return webp_tables_build(c, d->length_of, n) && !webp_tables_overrun(&d->in);
}

static bool webp_tables_read_codes(struct header *d)
{
	static const uint16_t n_symbols[N_CODES] = { N_LITERALS + N_LENGTHS, N_LITERALS, N_LITERALS, N_LITERALS,
						     N_DISTANCES };

	for (int i = 0; i < N_CODES; i++)
		if (!read_code(d, &d->codes[i], n_symbols[i] + (i == GREEN && d->cache_bits ? 1u << d->cache_bits : 0)))
			return false;
	return true;
}

static bool read_cache_bits(struct header *d)
{
	d->cache_bits = read_bits(&d->in, 1) ? read_bits(&d->in, 4) : UINT32_MAX;
	if (d->cache_bits == 0 || (d->cache_bits > MAX_CACHE_BITS && d->cache_bits != UINT32_MAX))
		return false;
	d->cache_bits = d->cache_bits == UINT32_MAX ? 0 : d->cache_bits;
	return true;
}

/* ---- a small picture ---- */

static uint32_t webp_tables_read_extra(struct bits *b, uint32_t symbol)
{
	if (symbol < 4)
		return symbol + 1;
	uint32_t n_extra = (symbol - 2) >> 1, base = (2 + (symbol & 1)) << n_extra;

	return base + read_bits(b, n_extra) + 1;
}

/* The shortest distances have codes for places nearby, in the rows above. */
static uint64_t distance_of(uint32_t code, uint32_t width)
{
	static const uint8_t places[N_PLANE_CODES] = {
		0x18, 0x07, 0x17, 0x19, 0x28, 0x06, 0x27, 0x29, 0x16, 0x1a, 0x26, 0x2a, 0x38, 0x05, 0x37,
		0x39, 0x15, 0x1b, 0x36, 0x3a, 0x25, 0x2b, 0x48, 0x04, 0x47, 0x49, 0x14, 0x1c, 0x35, 0x3b,
		0x46, 0x4a, 0x24, 0x2c, 0x58, 0x45, 0x4b, 0x34, 0x3c, 0x03, 0x57, 0x59, 0x13, 0x1d, 0x56,
		0x5a, 0x23, 0x2d, 0x44, 0x4c, 0x55, 0x5b, 0x33, 0x3d, 0x68, 0x02, 0x67, 0x69, 0x12, 0x1e,
		0x66, 0x6a, 0x22, 0x2e, 0x54, 0x5c, 0x43, 0x4d, 0x65, 0x6b, 0x32, 0x3e, 0x78, 0x01, 0x77,
		0x79, 0x53, 0x5d, 0x11, 0x1f, 0x64, 0x6c, 0x42, 0x4e, 0x76, 0x7a, 0x21, 0x2f, 0x75, 0x7b,
		0x31, 0x3f, 0x63, 0x6d, 0x52, 0x5e, 0x00, 0x74, 0x7c, 0x41, 0x4f, 0x10, 0x20, 0x62, 0x6e,
		0x30, 0x73, 0x7d, 0x51, 0x5f, 0x40, 0x72, 0x7e, 0x61, 0x6f, 0x50, 0x71, 0x7f, 0x60, 0x70,
	};

	if (code > N_PLANE_CODES)
		return code - N_PLANE_CODES;
	int64_t distance = (places[code - 1] >> 4) * (int64_t)width + 8 - (places[code - 1] & 15);
	return distance < 1 ? 1 : (uint64_t)distance;
}

static void webp_tables_remember(struct header *d, uint32_t argb)
{
	if (d->cache_bits)
		d->cache[(argb * 0x1e35a7bdu) >> (32 - d->cache_bits)] = argb;
}

static uint32_t read_literal(struct header *d, uint32_t green)
{
	uint32_t red = read_symbol(&d->in, &d->codes[RED]), blue = read_symbol(&d->in, &d->codes[BLUE]);

	return read_symbol(&d->in, &d->codes[ALPHA]) << 24 | red << 16 | green << 8 | blue;
}

static bool read_pixels(struct header *d, uint32_t *px, uint64_t n, uint32_t width)
{
	for (uint64_t at = 0; at < n;) {
		uint32_t symbol = read_symbol(&d->in, &d->codes[GREEN]), length = 1;
		uint64_t distance = 0;

		if (symbol < N_LITERALS) {
			px[at] = read_literal(d, symbol);
		} else if (symbol >= N_LITERALS + N_LENGTHS) {
			px[at] = d->cache[symbol - N_LITERALS - N_LENGTHS];
		} else {
			length = webp_tables_read_extra(&d->in, symbol - N_LITERALS);
			distance = distance_of(webp_tables_read_extra(&d->in, read_symbol(&d->in, &d->codes[DISTANCE])),
					       width);
			if (distance > at || length > n - at)
				return false;
		}
		if (webp_tables_overrun(&d->in))
			return false;
		for (; length > 0; length--, at++) {
			if (distance)
				px[at] = px[at - distance];
			webp_tables_remember(d, px[at]);
		}
	}
	return true;
}

/* Reads a picture of the header. Returns 0, IMAGE_E_CORRUPT or -ENOMEM; the pixels are in d->pixels. */
static int read_picture(struct header *d, uint32_t width, uint32_t height)
{
	uint64_t n = (uint64_t)width * height;

	if (!read_cache_bits(d) || !webp_tables_read_codes(d))
		return IMAGE_E_CORRUPT;
	uint32_t *px = (void *)scratch_reserve(d->pixels, n * sizeof(*px));
	if (!px)
		return -ENOMEM;
	memset(d->cache, 0, sizeof(d->cache));
	return read_pixels(d, px, n, width) ? 0 : IMAGE_E_CORRUPT;
}

/* ---- the header ---- */

static uint32_t webp_tables_shrunk(uint32_t size, uint32_t bits)
{
	return (size + (1u << bits) - 1) >> bits;
}

enum { PREDICTOR, CROSS_COLOR, SUBTRACT_GREEN, COLOR_INDEXING };

/* A palette packs several pixels into one: *width shrinks. */
static int webp_tables_read_transforms(struct header *d, uint32_t *width, uint32_t height)
{
	uint32_t seen = 0;
	int r = 0;

	while (r == 0 && read_bits(&d->in, 1)) {
		uint32_t type = read_bits(&d->in, 2), n;

		if (seen >> type & 1)
			return IMAGE_E_CORRUPT;
		seen |= 1u << type;
		switch (type) {
		case PREDICTOR:
		case CROSS_COLOR:
			n = 2 + read_bits(&d->in, 3);
			r = read_picture(d, webp_tables_shrunk(*width, n), webp_tables_shrunk(height, n));
			break;
		case COLOR_INDEXING:
			n = 1 + read_bits(&d->in, 8);
			r = read_picture(d, n, 1);
			*width = webp_tables_shrunk(*width, n > 16 ? 0 : n > 4 ? 1 : n > 2 ? 2 : 3);
			break;
		default:
			break;
		}
	}
	return r;
}

/* As libwebp counts: the largest number, or only those in use. *n_numbers: one more than the largest. */
static uint64_t count_groups(struct header *d, uint64_t n_px, uint64_t n_whole, uint64_t *n_numbers)
{
	const uint32_t *px = (const void *)d->pixels->data;
	uint64_t n_used = 0;

	*n_numbers = 1;
	for (uint64_t i = 0; i < n_px; i++) {
		uint32_t group = px[i] >> 8 & 0xffff;

		if (group >= *n_numbers)
			*n_numbers = group + 1;
		n_used += !(d->used[group / 8] >> group % 8 & 1);
		d->used[group / 8] |= (uint8_t)(1u << group % 8);
	}
	return *n_numbers > DENSE_GROUPS || *n_numbers > n_whole ? n_used : *n_numbers;
}

static int webp_tables_measure_stream(struct header *d, uint32_t width, uint32_t height, uint64_t *table_bytes)
{
	static const uint16_t green_entries[MAX_CACHE_BITS + 1] = { 654, 656, 658, 662,  670,  686,
								    718, 782, 912, 1168, 1680, 2704 };
	uint64_t n_groups = 1, n_numbers = 1;
	int r = webp_tables_read_transforms(d, &width, height);

	if (r)
		return r;
	if (!read_cache_bits(d))
		return IMAGE_E_CORRUPT;
	uint32_t cache_bits = d->cache_bits;
	if (read_bits(&d->in, 1)) {
		uint32_t n = 2 + read_bits(&d->in, 3), columns = webp_tables_shrunk(width, n),
			 rows = webp_tables_shrunk(height, n);

		if ((r = read_picture(d, columns, rows)))
			return r;
		n_groups = count_groups(d, (uint64_t)columns * rows, (uint64_t)width * height, &n_numbers);
	}
	*table_bytes = n_groups * ((FIXED_ENTRIES + green_entries[cache_bits]) * ENTRY_BYTES + GROUP_BYTES) +
		       n_numbers * sizeof(uint32_t);
	return webp_tables_overrun(&d->in) ? IMAGE_E_CORRUPT : 0;
}

int webp_tables_measure(const uint8_t *bytes, size_t n, bool bare, uint32_t width, uint32_t height,
			struct scratch work[2], uint64_t *table_bytes)
{
	struct header *d = (void *)scratch_reserve(&work[0], sizeof(*d));

	if (!d)
		return -ENOMEM;
	memset(d->used, 0, sizeof(d->used));
	d->in = (struct bits){ bytes, n, 0 };
	d->pixels = &work[1];
	if (!bare && (read_bits(&d->in, 8) != SIGNATURE || read_bits(&d->in, SIZE_BITS) + 1 != width ||
		      read_bits(&d->in, SIZE_BITS) + 1 != height || read_bits(&d->in, 4) >> 1 != 0))
		return IMAGE_E_CORRUPT;
	return webp_tables_measure_stream(d, width, height, table_bytes);
}
