/* BMP with Pillow's judgement: which headers, depths and masks are read, when a palette counts as grey, and that run
 * lengths must give all pixels. Heights are negative for pictures that begin at the top. */
#include "image/formats/bmp.h"

#include <errno.h>
#include <string.h>

enum { FILE_HEADER = 14, OS2_HEADER = 12, INFO_HEADER = 40, MASKS_AT = 36, COLORS_MAX = 65536, PALETTE_MAX = 256 };
enum { PLAIN = 0, RLE8 = 1, RLE4 = 2, BITFIELDS = 3 };

struct bmp_header {
	const uint8_t *bytes;
	size_t n_bytes;
	uint32_t size; /* of the header proper */
	uint32_t width, height, bits, compression, mask[4];
	uint64_t n_colors, at; /* `at`: where reading the header has come to */
	uint64_t data_at;
	unsigned entry_bytes;   /* of the palette */
	bool top_down, bilevel; /* bilevel: a palette of black, and white */
};

static uint32_t bmp_get16(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t bmp_get32(const uint8_t *p)
{
	return bmp_get16(p) | bmp_get16(p + 2) << 16;
}

static int cut_short(struct image_error *err)
{
	return image_fail(err, IMAGE_E_CORRUPT, "BMP cut short");
}

static int read_masks(struct bmp_header *h, const uint8_t *info, struct image_error *err)
{
	unsigned n = h->size >= 56 ? 4 : 3;
	const uint8_t *p = info + MASKS_AT;

	if (h->size < 52) { /* after the header */
		if (h->n_bytes - h->at < 12)
			return cut_short(err);
		p = h->bytes + h->at;
		h->at += 12;
	}
	for (unsigned i = 0; i < n; i++)
		h->mask[i] = bmp_get32(p + i * 4);
	return 0;
}

static int read_info(struct bmp_header *h, struct image_error *err)
{
	const uint8_t *info = h->bytes + FILE_HEADER + 4;

	switch (h->size) {
	case OS2_HEADER:
		h->width = bmp_get16(info);
		h->height = bmp_get16(info + 2);
		h->bits = bmp_get16(info + 6);
		h->entry_bytes = 3;
		return 0;
	case INFO_HEADER:
	case 52:
	case 56:
	case 64:
	case 108:
	case 124:
		h->top_down = info[7] == 0xff;
		h->width = bmp_get32(info);
		h->height = h->top_down ? -bmp_get32(info + 4) : bmp_get32(info + 4);
		h->bits = bmp_get16(info + 10);
		h->compression = bmp_get32(info + 12);
		h->n_colors = bmp_get32(info + 28);
		h->entry_bytes = 4;
		return h->compression == BITFIELDS ? read_masks(h, info, err) : 0;
	}
	return image_fail(err, IMAGE_E_FORMAT, "BMP with a header of %u bytes, which is of no known version", h->size);
}

static int read_header(struct bmp_header *h, struct image_error *err)
{
	if (h->n_bytes < FILE_HEADER + 4)
		return cut_short(err);
	h->size = bmp_get32(h->bytes + FILE_HEADER);
	h->data_at = bmp_get32(h->bytes + 10);
	h->at = FILE_HEADER + (uint64_t)h->size;
	if (h->size >= OS2_HEADER && h->at > h->n_bytes)
		return cut_short(err);
	int outcome = read_info(h, err);
	if (outcome)
		return outcome;
	if (h->width == 0 || h->height == 0)
		return image_fail(err, IMAGE_E_CORRUPT, "BMP of %ux%u pixels", h->width, h->height);
	if (h->n_colors == 0 && h->bits <= 8)
		h->n_colors = UINT64_C(1) << h->bits;
	if (h->data_at == FILE_HEADER + (uint64_t)h->size && h->bits <= 8)
		h->data_at += h->entry_bytes * h->n_colors;
	return 0;
}

static int unknown_masks(const struct bmp_header *h, struct image_error *err)
{
	return image_fail(err, IMAGE_E_FORMAT,
			  "BMP of %u bits a pixel with masks %08x %08x %08x %08x, which are not read", h->bits,
			  h->mask[0], h->mask[1], h->mask[2], h->mask[3]);
}

static void bmp_bytes(struct raw_layout *l, unsigned step, unsigned r, unsigned g, unsigned b)
{
	*l = (struct raw_layout){ .kind = RAW_BYTES,
				  .step = (uint8_t)step,
				  .at = { (uint8_t)r, (uint8_t)g, (uint8_t)b } };
}

/* The places of the colours' bytes for Pillow's list of masks. */
static int masked_layout(const struct bmp_header *h, struct raw_layout *l, struct image_error *err)
{
	static const struct {
		uint32_t mask[4];
		uint8_t at[3];
	} known[] = {
		{ { 0xff0000, 0xff00, 0xff, 0 }, { 2, 1, 0 } },
		{ { 0xff000000, 0xff0000, 0xff00, 0 }, { 3, 2, 1 } },
		{ { 0xff000000, 0xff00, 0xff, 0 }, { 3, 1, 0 } },
		{ { 0xff000000, 0xff0000, 0xff00, 0xff }, { 3, 2, 1 } },
		{ { 0xff, 0xff00, 0xff0000, 0xff000000 }, { 0, 1, 2 } },
		{ { 0xff0000, 0xff00, 0xff, 0xff000000 }, { 2, 1, 0 } },
		{ { 0xff000000, 0xff00, 0xff, 0xff0000 }, { 3, 1, 0 } },
		{ { 0, 0, 0, 0 }, { 2, 1, 0 } },
	};
	const uint32_t *m = h->mask;

	if (h->bits == 24 && m[0] == 0xff0000 && m[1] == 0xff00 && m[2] == 0xff)
		bmp_bytes(l, 3, 2, 1, 0);
	else if (h->bits == 16 && m[0] == 0xf800 && m[1] == 0x7e0 && m[2] == 0x1f)
		*l = (struct raw_layout){ .kind = RAW_BGR16 };
	else if (h->bits == 16 && m[0] == 0x7c00 && m[1] == 0x3e0 && m[2] == 0x1f)
		*l = (struct raw_layout){ .kind = RAW_BGR15 };
	else if (h->bits == 32) {
		for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
			if (memcmp(m, known[i].mask, sizeof(known[i].mask)) == 0) {
				bmp_bytes(l, 4, known[i].at[0], known[i].at[1], known[i].at[2]);
				return 0;
			}
		return unknown_masks(h, err);
	} else {
		return unknown_masks(h, err);
	}
	return 0;
}

static int color_layout(const struct bmp_header *h, struct raw_layout *l, struct image_error *err)
{
	if (h->compression == BITFIELDS)
		return masked_layout(h, l, err);
	if (h->compression != PLAIN)
		return image_fail(err, IMAGE_E_FORMAT, "BMP of %u bits a pixel with compression %u, which is not read",
				  h->bits, h->compression);
	if (h->bits == 16)
		*l = (struct raw_layout){ .kind = RAW_BGR15 };
	else
		bmp_bytes(l, h->bits / 8, 2, 1, 0);
	return 0;
}

/* Whether each colour is its own number as grey; of two colours, black and white. */
static bool palette_is_grey(const struct bmp_header *h, const uint8_t *palette, uint64_t n_palette)
{
	for (uint64_t i = 0; i < h->n_colors; i++) {
		const uint8_t *p = palette + i * h->entry_bytes;
		uint8_t grey = (uint8_t)(h->n_colors == 2 ? i * 255 : i);

		if (i * h->entry_bytes + 3 > n_palette || p[0] != grey || p[1] != grey || p[2] != grey)
			return false;
	}
	return true;
}

static int palette_layout(struct bmp_header *h, struct raw_layout *l, struct image_error *err)
{
	if (h->compression > RLE4)
		return color_layout(h, l, err); /* which names what is not read */
	if (h->n_colors == 0 || h->n_colors > COLORS_MAX)
		return image_fail(err, IMAGE_E_CORRUPT, "BMP with a palette of %llu colours",
				  (unsigned long long)h->n_colors);
	const uint8_t *palette = h->bytes + h->at;
	uint64_t n_palette = h->n_colors * h->entry_bytes, n_left = h->n_bytes - h->at;

	n_palette = n_palette < n_left ? n_palette : n_left;
	h->at += n_palette;
	if (palette_is_grey(h, palette, n_palette)) {
		/* Pillow then unpacks bits or bytes, whatever the file says of its pixels. */
		h->bilevel = h->n_colors <= 2;
		if (h->bilevel) {
			raw_bilevel(l, false);
		} else {
			*l = (struct raw_layout){ .kind = RAW_INDEX, .bits = 8 };
			raw_grey_table(l);
		}
		return 0;
	}
	if (n_palette / h->entry_bytes > PALETTE_MAX)
		return image_fail(err, IMAGE_E_CORRUPT, "BMP with a palette of %llu colours; at most 256 are possible",
				  (unsigned long long)h->n_colors);
	*l = (struct raw_layout){ .kind = RAW_INDEX, .bits = (uint8_t)h->bits };
	for (uint64_t i = 0; i < n_palette / h->entry_bytes; i++)
		for (int c = 0; c < 3; c++)
			l->table[i][c] = palette[i * h->entry_bytes + 2u - (unsigned)c];
	return 0;
}

static int plain_rows(const struct bmp_header *h, struct bmp *b, struct image_error *err)
{
	uint64_t row = raw_row_bytes(&b->rows.layout, h->width);

	b->rows.stride_bytes = (((uint64_t)h->width * h->bits + 31) >> 3) & ~UINT64_C(3);
	if (row > b->rows.stride_bytes)
		return image_fail(err, IMAGE_E_CORRUPT, "BMP with a palette of other pixels than its header's");
	if (b->data_at > h->n_bytes || h->n_bytes - b->data_at < row ||
	    (h->n_bytes - b->data_at - row) / b->rows.stride_bytes < h->height - 1)
		return cut_short(err);
	b->rows.data = h->bytes + b->data_at;
	return 0;
}

int bmp_read(const uint8_t *bytes, size_t n_bytes, struct bmp *b, struct image_error *err)
{
	struct bmp_header h = { .bytes = bytes, .n_bytes = n_bytes };
	struct raw_layout *l = &b->rows.layout;
	int outcome = read_header(&h, err);

	if (outcome)
		return outcome;
	if (h.bits == 1 || h.bits == 4 || h.bits == 8)
		outcome = palette_layout(&h, l, err);
	else if (h.bits == 16 || h.bits == 24 || h.bits == 32)
		outcome = color_layout(&h, l, err);
	else
		outcome = image_fail(err, IMAGE_E_FORMAT, "BMP of %u bits a pixel", h.bits);
	if (outcome)
		return outcome;
	b->rows.width = h.width;
	b->rows.height = h.height;
	b->rows.bottom_up = !h.top_down;
	b->rows.data = NULL;
	b->data_at = h.data_at ? h.data_at : h.at;
	b->packed = h.compression == RLE8 || h.compression == RLE4;
	b->nibbles = h.compression == RLE4;
	if (!b->packed)
		return plain_rows(&h, b, err);
	if (h.bilevel)
		return image_fail(err, IMAGE_E_FORMAT, "BMP with run lengths of black and white pixels");
	l->bits = 8;
	b->rows.stride_bytes = h.width;
	return 0;
}

/* ---- run lengths ---- */

struct runs {
	const uint8_t *in, *end, *file;
	uint8_t *out;
	uint64_t n_out, n_all, x;
	uint32_t width;
	bool nibbles;
};

static void write_run(struct runs *s, unsigned n, uint8_t value)
{
	uint64_t room = s->x < s->width ? s->width - s->x : 0;

	room = room < s->n_all - s->n_out ? room : s->n_all - s->n_out;
	n = n < room ? n : (unsigned)room;
	if (!s->nibbles)
		memset(s->out + s->n_out, value, n);
	for (unsigned i = 0; s->nibbles && i < n; i++)
		s->out[s->n_out + i] = i % 2 ? value & 15 : value >> 4;
	s->n_out += n;
	s->x += n;
}

static void write_zeros(struct runs *s, uint64_t n)
{
	n = n < s->n_all - s->n_out ? n : s->n_all - s->n_out;
	memset(s->out + s->n_out, 0, n);
	s->n_out += n;
}

/* False: nothing follows. */
static bool write_literal(struct runs *s, unsigned n_claimed)
{
	uint64_t n = n_claimed < s->n_all - s->n_out ? n_claimed : s->n_all - s->n_out;
	uint64_t n_bytes = s->nibbles ? (n + 1) / 2 : n;

	if ((uint64_t)(s->end - s->in) < n_bytes)
		return false;
	for (uint64_t i = 0; i < n; i++)
		s->out[s->n_out + i] = !s->nibbles ? s->in[i] : i % 2 ? s->in[i / 2] & 15 : s->in[i / 2] >> 4;
	s->n_out += n;
	s->in += n_bytes;
	s->x += n_claimed;
	if ((s->in - s->file) % 2 && s->in < s->end)
		s->in++;
	return true;
}

/* An escape: end of line, end of picture, a jump, or pixels as they are. */
static bool run_escape(struct runs *s, unsigned code)
{
	switch (code) {
	case 0:
		write_zeros(s, (s->width - s->n_out % s->width) % s->width);
		s->x = 0;
		return true;
	case 1:
		return false;
	case 2:
		if (s->end - s->in < 2)
			return false;
		write_zeros(s, s->in[0] + (uint64_t)s->in[1] * s->width);
		s->in += 2;
		s->x = s->n_out % s->width;
		return true;
	default:
		return write_literal(s, code);
	}
}

int bmp_unpack(struct bmp *b, const uint8_t *bytes, size_t n_bytes, struct scratch *indices, struct cpu_budget *budget,
	       struct image_error *err)
{
	struct runs s = { .file = bytes, .end = bytes + n_bytes, .width = b->rows.width, .nibbles = b->nibbles };

	s.in = b->data_at < n_bytes ? bytes + b->data_at : s.end;
	s.n_all = (uint64_t)b->rows.width * b->rows.height;
	s.out = scratch_reserve(indices, s.n_all);
	if (!s.out)
		return -ENOMEM;
	while (s.n_out < s.n_all && s.end - s.in >= 2) {
		unsigned n = s.in[0], value = s.in[1];

		if (!cpu_budget_spend(budget, 1)) /* ends of lines and empty runs give no pixels */
			return IMAGE_E_TIME;
		s.in += 2;
		if (n)
			write_run(&s, n, (uint8_t)value);
		else if (!run_escape(&s, value))
			break;
	}
	if (s.n_out < s.n_all)
		return image_fail(err, IMAGE_E_CORRUPT, "BMP whose run lengths end after %llu of %llu pixels",
				  (unsigned long long)s.n_out, (unsigned long long)s.n_all);
	b->rows.data = s.out;
	return 0;
}
