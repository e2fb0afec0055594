/* A strip that ends early is refused, as libtiff refuses it, and what follows its last pixel is not looked at.
 *
 * The codes of TIFF's LZW begin at the high bit, and grow one code earlier than the table needs. */
#include "image/formats/tiff-codecs.h"

#include <errno.h>
#include <string.h>

#include <zlib.h>

enum { LZW_CLEAR = 256, LZW_END = 257, LZW_FIRST = 258, LZW_TABLE = 4096, LZW_BITS_MAX = 12 };

static int short_chunk(struct image_error *err)
{
	return image_fail(err, IMAGE_E_CORRUPT, "TIFF with a strip or tile that is damaged or cut short");
}

static int unpack_bits(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out, struct image_error *err)
{
	const uint8_t *end = in + n_in;
	uint8_t *limit = out + n_out;

	while (out < limit && in < end) {
		size_t room = (size_t)(limit - out), n = *in < 128 ? *in + 1u : 257u - *in;
		bool run = *in > 128, none = *in == 128;

		in++;
		if (none)
			continue;
		n = n < room ? n : room;
		if ((size_t)(end - in) < (run ? 1 : n))
			break;
		if (run)
			memset(out, *in, n);
		else
			memcpy(out, in, n);
		in += run ? 1 : n;
		out += n;
	}
	return out < limit ? short_chunk(err) : 0;
}

/* ---- LZW ---- */

struct tiff_codes {
	uint16_t prefix[LZW_TABLE], length[LZW_TABLE];
	uint8_t last[LZW_TABLE], first[LZW_TABLE]; /* bytes of a code's string */
};

static void lzw_begin(struct tiff_codes *t)
{
	for (unsigned i = 0; i < 256; i++) {
		t->first[i] = t->last[i] = (uint8_t)i;
		t->length[i] = 1;
	}
}

/* Writes the string of a code, or as much of it as there is room for. */
static size_t lzw_write(const struct tiff_codes *t, unsigned code, uint8_t *out, size_t room)
{
	size_t n = t->length[code];

	for (size_t i = n; i-- > 0; code = t->prefix[code])
		if (i < room)
			out[i] = t->last[code];
	return n < room ? n : room;
}

struct lzw_input {
	const uint8_t *next, *end;
	uint32_t bits;
	unsigned n_bits;
};

/* LZW_END at the end of the data, too. */
static unsigned lzw_code(struct lzw_input *in, unsigned n_bits)
{
	while (in->n_bits < n_bits) {
		if (in->next == in->end)
			return LZW_END;
		in->bits = in->bits << 8 | *in->next++;
		in->n_bits += 8;
	}
	in->n_bits -= n_bits;
	return in->bits >> in->n_bits & ((1u << n_bits) - 1);
}

static int unpack_lzw(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out, struct tiff_codes *t,
		      struct image_error *err)
{
	struct lzw_input input = { .next = in, .end = in + n_in };
	unsigned next = LZW_FIRST, n_bits = 9, previous = LZW_CLEAR;
	uint8_t *limit = out + n_out;

	if (n_in >= 2 && in[0] == 0 && (in[1] & 1))
		return image_fail(err, IMAGE_E_FORMAT, "TIFF with LZW codes of the old order, which are not read");
	lzw_begin(t);
	while (out < limit) {
		unsigned code = lzw_code(&input, n_bits);

		if (code == LZW_END)
			return short_chunk(err);
		if (code == LZW_CLEAR) {
			next = LZW_FIRST;
			n_bits = 9;
			previous = LZW_CLEAR;
			continue;
		}
		if (previous == LZW_CLEAR ? code >= LZW_CLEAR : code > next || (code == next && next == LZW_TABLE))
			return short_chunk(err);
		if (previous != LZW_CLEAR && next < LZW_TABLE) {
			t->prefix[next] = (uint16_t)previous;
			t->length[next] = (uint16_t)(t->length[previous] + 1);
			t->first[next] = t->first[previous];
			t->last[next] = t->first[code == next ? previous : code];
			next++;
			n_bits += next == (1u << n_bits) - 1 && n_bits < LZW_BITS_MAX;
		}
		out += lzw_write(t, code, out, (size_t)(limit - out));
		previous = code;
	}
	return 0;
}

/* ---- deflate ---- */

static voidpf tiff_zlib_take(voidpf arena, uInt n, uInt size)
{
	return arena_take(arena, (size_t)n * size);
}

static void tiff_zlib_give(voidpf arena, voidpf p)
{
	(void)arena; /* freed with the whole arena */
	(void)p;
}

static int unpack_deflate(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out, struct arena *arena,
			  struct image_error *err)
{
	z_stream z = { .zalloc = tiff_zlib_take, .zfree = tiff_zlib_give, .opaque = arena };
	int status = inflateInit(&z);

	if (status != Z_OK)
		return status == Z_MEM_ERROR ? -ENOMEM : short_chunk(err);
	z.next_in = (z_const Bytef *)in;
	z.avail_in = (uInt)n_in;
	z.next_out = out;
	z.avail_out = (uInt)n_out;
	while (status == Z_OK && z.avail_out > 0)
		status = inflate(&z, Z_NO_FLUSH);
	if (status == Z_MEM_ERROR)
		return -ENOMEM;
	return z.avail_out > 0 ? short_chunk(err) : 0;
}

int tiff_unpack(enum tiff_compression compression, const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out,
		struct scratch *tables, struct arena *arena, struct image_error *err)
{
	struct tiff_codes *t;

	switch (compression) {
	case TIFF_PLAIN:
		if (n_in < n_out)
			return short_chunk(err);
		memcpy(out, in, n_out);
		return 0;
	case TIFF_PACKBITS:
		return unpack_bits(in, n_in, out, n_out, err);
	case TIFF_LZW:
		t = (struct tiff_codes *)scratch_reserve(tables, sizeof(*t));
		return t ? unpack_lzw(in, n_in, out, n_out, t, err) : -ENOMEM;
	case TIFF_DEFLATE:
	case TIFF_OLD_DEFLATE:
		return unpack_deflate(in, n_in, out, n_out, arena, err);
	case TIFF_JPEG:
		break;
	}
	return -EINVAL;
}

/* ---- predictors ---- */

static void add_number(uint8_t *p, const uint8_t *left, unsigned n_bytes, bool big_endian)
{
	unsigned carry = 0;

	for (unsigned i = 0; i < n_bytes; i++) {
		unsigned k = big_endian ? n_bytes - 1 - i : i;

		carry += p[k] + (unsigned)left[k];
		p[k] = (uint8_t)carry;
		carry >>= 8;
	}
}

void tiff_undo_differences(uint8_t *row, size_t n_bytes, unsigned n_samples, unsigned sample_bytes, bool big_endian)
{
	size_t step = (size_t)n_samples * sample_bytes;

	if (sample_bytes == 1) {
		for (size_t i = step; i < n_bytes; i++)
			row[i] = (uint8_t)(row[i] + row[i - step]);
		return;
	}
	for (size_t i = step; i + sample_bytes <= n_bytes; i += sample_bytes)
		add_number(row + i, row + i - step, sample_bytes, big_endian);
}

void tiff_undo_float_differences(uint8_t *row, size_t n_bytes, unsigned n_samples, unsigned sample_bytes, uint8_t *temp)
{
	size_t n = n_bytes / sample_bytes;

	for (size_t i = n_samples; i < n_bytes; i++)
		row[i] = (uint8_t)(row[i] + row[i - n_samples]);
	memcpy(temp, row, n_bytes);
	for (size_t i = 0; i < n; i++)
		for (unsigned b = 0; b < sample_bytes; b++)
			row[i * sample_bytes + b] = temp[(sample_bytes - 1 - b) * n + i];
}
