/* One function per kind of layout converts a span of a row. Samples of more than 8 bits are clipped and not scaled, as
 * Pillow does it; only PNM scales, by its greatest value, with Python's rounding (half to even). */
#include "image/formats/raw-rows.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static uint32_t number_bytes(enum raw_number number)
{
	static const uint8_t bytes[] = {
		[RAW_UINT8] = 1, [RAW_UINT16] = 2, [RAW_INT16] = 2, [RAW_INT32] = 4, [RAW_FLOAT32] = 4
	};

	return bytes[number];
}

static uint32_t pixel_bits(const struct raw_layout *l)
{
	switch (l->kind) {
	case RAW_INDEX:
		return l->bits;
	case RAW_BYTES:
	case RAW_CMYK:
		return l->step * 8u;
	case RAW_BGR15:
	case RAW_BGR16:
		return 16;
	case RAW_SCALED:
		return number_bytes(l->number) * 8 * l->channels;
	default:
		return number_bytes(l->number) * 8;
	}
}

uint64_t raw_row_bytes(const struct raw_layout *l, uint32_t width)
{
	return ((uint64_t)width * pixel_bits(l) + 7) / 8;
}

void raw_grey_table(struct raw_layout *l)
{
	for (unsigned i = 0; i < 256; i++)
		memset(l->table[i], (int)i, 3);
}

void raw_bilevel(struct raw_layout *l, bool inverted)
{
	*l = (struct raw_layout){ .kind = RAW_INDEX, .bits = 1 };
	memset(l->table[inverted ? 0 : 1], 255, 3);
}

static void index_span(const struct raw_layout *l, const uint8_t *row, uint32_t x, uint32_t n, uint8_t *rgb)
{
	unsigned mask = (1u << l->bits) - 1;

	for (uint32_t i = 0; i < n; i++, rgb += 3) {
		size_t bit = (size_t)(x + i) * l->bits;

		memcpy(rgb, l->table[row[bit / 8] >> (8 - l->bits - bit % 8) & mask], 3);
	}
}

/* Undoes the multiplication by transparency. */
static void divided_span(const struct raw_layout *l, const uint8_t *p, uint32_t n, uint8_t *rgb)
{
	for (uint32_t i = 0; i < n; i++, p += l->step, rgb += 3)
		for (int c = 0; c < 3; c++) {
			unsigned alpha = p[l->at[3]], v = alpha ? p[l->at[c]] * 255u / alpha : 0;

			rgb[c] = (uint8_t)(v < 255 ? v : 255);
		}
}

static void bytes_span(const struct raw_layout *l, const uint8_t *p, uint32_t n, uint8_t *rgb)
{
	if (l->step == 3 && l->at[0] == 0 && l->at[1] == 1 && l->at[2] == 2) {
		memcpy(rgb, p, (size_t)n * 3);
		return;
	}
	for (uint32_t i = 0; i < n; i++, p += l->step, rgb += 3) {
		rgb[0] = p[l->at[0]];
		rgb[1] = p[l->at[1]];
		rgb[2] = p[l->at[2]];
	}
}

/* Pillow's rounding of a * b / 255. */
static unsigned times(unsigned a, unsigned b)
{
	unsigned v = a * b + 128;

	return ((v >> 8) + v) >> 8;
}

static void cmyk_span(const struct raw_layout *l, const uint8_t *p, uint32_t n, uint8_t *rgb)
{
	for (uint32_t i = 0; i < n; i++, p += l->step, rgb += 3) {
		unsigned light = 255u - p[l->at[3]];

		for (int c = 0; c < 3; c++) {
			unsigned dark = times(p[l->at[c]], light);

			rgb[c] = (uint8_t)(light > dark ? light - dark : 0);
		}
	}
}

static void bgr_span(const struct raw_layout *l, const uint8_t *p, uint32_t n, uint8_t *rgb)
{
	unsigned green_max = l->kind == RAW_BGR16 ? 63 : 31, red_shift = l->kind == RAW_BGR16 ? 11 : 10;

	for (uint32_t i = 0; i < n; i++, p += 2, rgb += 3) {
		unsigned v = p[0] | (unsigned)p[1] << 8;

		rgb[0] = (uint8_t)((v >> red_shift & 31) * 255 / 31);
		rgb[1] = (uint8_t)((v >> 5 & green_max) * 255 / green_max);
		rgb[2] = (uint8_t)((v & 31) * 255 / 31);
	}
}

static uint32_t stored16(const struct raw_layout *l, const uint8_t *p)
{
	return l->big_endian ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

static uint32_t stored32(const struct raw_layout *l, const uint8_t *p)
{
	uint32_t first = stored16(l, p), second = stored16(l, p + 2);

	return l->big_endian ? first << 16 | second : second << 16 | first;
}

static uint8_t clipped(int64_t v)
{
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static uint8_t grey_of(const struct raw_layout *l, const uint8_t *p)
{
	uint32_t bits;
	float v;

	switch (l->number) {
	case RAW_UINT8:
		return *p;
	case RAW_UINT16:
		return clipped(stored16(l, p));
	case RAW_INT16:
		return clipped((int16_t)stored16(l, p));
	case RAW_INT32:
		return clipped((int32_t)stored32(l, p));
	default:
		bits = stored32(l, p);
		memcpy(&v, &bits, sizeof(v));
		return v >= 255 ? 255 : v > 0 ? (uint8_t)v : 0; /* not a number: 0 */
	}
}

static void grey_span(const struct raw_layout *l, const uint8_t *p, uint32_t n, uint8_t *rgb)
{
	uint32_t step = number_bytes(l->number);

	for (uint32_t i = 0; i < n; i++, p += step, rgb += 3)
		rgb[0] = rgb[1] = rgb[2] = grey_of(l, p);
}

static uint8_t scaled(const struct raw_layout *l, const uint8_t *p)
{
	double v = l->number == RAW_UINT16 ? stored16(l, p) : *p;
	double to = rint(v / l->max_value * l->scale);

	return to > 255 ? 255 : (uint8_t)to;
}

static void scaled_span(const struct raw_layout *l, const uint8_t *p, uint32_t n, uint8_t *rgb)
{
	uint32_t step = number_bytes(l->number);

	for (uint32_t i = 0; i < n; i++, rgb += 3)
		for (unsigned c = 0; c < 3; c++) {
			if (c > 0 && l->channels == 1) {
				rgb[c] = rgb[0];
				continue;
			}
			rgb[c] = scaled(l, p);
			p += step;
		}
}

/* ---- numbers ---- */

bool raw_is_deep(const struct raw_layout *l, enum raw_number *give)
{
	bool scaled = l->kind == RAW_SCALED && l->channels == 1 && l->number == RAW_UINT16;

	*give = scaled || l->number == RAW_INT16 ? RAW_INT32 : l->number;
	return scaled || (l->kind == RAW_GREY && l->number != RAW_UINT8);
}

size_t raw_result_bytes(const struct raw_layout *l)
{
	enum raw_number give;

	if (!l->deep)
		return 3;
	(void)raw_is_deep(l, &give);
	return number_bytes(give);
}

/* Pillow's mode I of a PGM. */
static uint32_t scaled_number(const struct raw_layout *l, const uint8_t *p)
{
	double to = rint((double)stored16(l, p) / l->max_value * l->scale);

	return to > l->scale ? l->scale : (uint32_t)to;
}

static uint32_t number32(const struct raw_layout *l, const uint8_t *p)
{
	if (l->kind == RAW_SCALED)
		return scaled_number(l, p);
	return l->number == RAW_INT16 ? (uint32_t)(int16_t)stored16(l, p) : stored32(l, p);
}

static void numbers_span(const struct raw_layout *l, const uint8_t *p, uint32_t n, uint8_t *out)
{
	uint32_t step = number_bytes(l->number);

	for (uint32_t i = 0; i < n && raw_result_bytes(l) == 2; i++, p += step, out += 2) {
		uint16_t v = (uint16_t)stored16(l, p);

		memcpy(out, &v, sizeof(v));
	}
	for (uint32_t i = 0; i < n && raw_result_bytes(l) == 4; i++, p += step, out += 4) {
		uint32_t v = number32(l, p);

		memcpy(out, &v, sizeof(v));
	}
}

static void raw_span(const struct raw_layout *l, const uint8_t *row, uint32_t x, uint32_t n, uint8_t *rgb)
{
	const uint8_t *p = row + (size_t)x * pixel_bits(l) / 8;

	if (l->deep) {
		numbers_span(l, p, n, rgb);
		return;
	}
	switch (l->kind) {
	case RAW_INDEX:
		index_span(l, row, x, n, rgb);
		break;
	case RAW_BYTES:
		if (l->multiplied)
			divided_span(l, p, n, rgb);
		else
			bytes_span(l, p, n, rgb);
		break;
	case RAW_CMYK:
		cmyk_span(l, p, n, rgb);
		break;
	case RAW_BGR15:
	case RAW_BGR16:
		bgr_span(l, p, n, rgb);
		break;
	case RAW_GREY:
		grey_span(l, p, n, rgb);
		break;
	case RAW_SCALED:
		scaled_span(l, p, n, rgb);
		break;
	}
}

void raw_rows_convert(const struct raw_rows *r, uint32_t x, uint32_t y, struct image *out)
{
	for (uint32_t i = 0; i < out->height; i++) {
		uint32_t stored = r->bottom_up ? r->height - 1 - (y + i) : y + i;

		raw_span(&r->layout, r->data + stored * r->stride_bytes, x, out->width,
			 out->rgb + i * out->stride_bytes);
	}
}

static int raw_rows_hand_on(const struct raw_rows *r, struct region_px want, struct row_sink *sink,
			    struct scratch *pixels, struct cpu_budget *budget)
{
	struct row_bands bands;
	int outcome = row_bands_begin(&bands, sink, want.width, pixels);

	for (uint32_t i = 0; outcome == 0 && i < want.height; i++) {
		struct image row = { row_bands_next(&bands), 0, want.width, 1 };

		if (!cpu_budget_spend(budget, want.width))
			return IMAGE_E_TIME;
		raw_rows_convert(r, want.x, want.y + i, &row);
		row_bands_put(&bands);
	}
	if (outcome == 0)
		row_bands_flush(&bands);
	return outcome;
}

int raw_rows_region(const struct raw_rows *r, struct region_px want, struct row_sink *sink, struct scratch *pixels,
		    struct cpu_budget *budget, struct image *out)
{
	if (sink && !r->layout.deep) {
		*out = (struct image){ NULL, 0, want.width, want.height };
		return raw_rows_hand_on(r, want, sink, pixels, budget);
	}

	size_t stride = want.width * raw_result_bytes(&r->layout);
	uint8_t *rgb = scratch_reserve(pixels, stride * want.height);

	if (!rgb)
		return -ENOMEM;
	*out = (struct image){ rgb, stride, want.width, want.height };
	for (uint32_t i = 0; i < want.height; i++, rgb += stride) {
		struct image row = { rgb, stride, want.width, 1 };

		if (!cpu_budget_spend(budget, want.width))
			return IMAGE_E_TIME;
		raw_rows_convert(r, want.x, want.y + i, &row);
	}
	return 0;
}
