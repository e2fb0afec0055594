/* GIF with Pillow's judgement. The canvas grows to hold the frame; where the frame leaves it bare it has the
 * transparent colour, or else the first one. A palette in which each colour is its own number as grey counts as none.
 *
 * Pillow reads blocks of 64 KiB, and takes an end code for the end of the block: if another block follows, it goes on
 * after the end code, and if none does, the file is cut short. */
#include "image/formats/gif.h"

#include <errno.h>
#include <string.h>

enum { SCREEN_BYTES = 13, FRAME_BYTES = 9, TABLE = 4096, CODE_BITS_MAX = 12, READ_BYTES = 1 << 16 };
enum { HAS_PALETTE = 128, INTERLACED = 64 };
enum { EXTENSION_CONTROL = 249, EXTENSION_COMMENT = 254, EXTENSION_APPLICATION = 255 };

/* ---- header ---- */

struct gif_file {
	const uint8_t *next, *end;
};

struct gif_palette {
	uint8_t rgb[256][3];
	unsigned n;
	bool there, needed;
};

static uint32_t gif_get16(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8;
}

static int gif_cut_short(struct image_error *err)
{
	return image_fail(err, IMAGE_E_CORRUPT, "GIF cut short");
}

static bool read_palette(struct gif_file *f, uint8_t flags, struct gif_palette *p)
{
	size_t n_bytes = (size_t)3 << ((flags & 7) + 1);

	p->there = flags & HAS_PALETTE;
	if (!p->there)
		return true;
	if ((size_t)(f->end - f->next) < n_bytes)
		return false;
	p->n = (unsigned)(n_bytes / 3);
	memcpy(p->rgb, f->next, n_bytes);
	for (unsigned i = 0; i < p->n; i++)
		p->needed |= p->rgb[i][0] != i || p->rgb[i][1] != i || p->rgb[i][2] != i;
	f->next += n_bytes;
	return true;
}

/* The next block of an extension. NULL: an empty one, which ends the extension, or the end of the file. */
static const uint8_t *next_data(struct gif_file *f, size_t *n)
{
	const uint8_t *block;

	*n = f->next < f->end ? *f->next++ : 0;
	*n = *n < (size_t)(f->end - f->next) ? *n : (size_t)(f->end - f->next);
	block = f->next;
	f->next += *n;
	return *n ? block : NULL;
}

static bool read_extension(struct gif_file *f, struct gif *g)
{
	size_t n;

	if (f->next == f->end)
		return false;
	uint8_t kind = *f->next++;
	const uint8_t *block = next_data(f, &n);

	if (kind == EXTENSION_CONTROL && block) {
		if (n < 3 || (n < 4 && (block[0] & 1)))
			return false;
		if (block[0] & 1)
			g->background = block[3];
	}
	if (kind == EXTENSION_COMMENT) {
		while (block)
			block = next_data(f, &n);
		return true;
	}
	if (kind == EXTENSION_APPLICATION && block && n >= 11 && memcmp(block, "NETSCAPE2.0", 11) == 0)
		(void)next_data(f, &n);
	while (next_data(f, &n)) {
	}
	return true;
}

static bool read_frame(struct gif_file *f, struct gif *g, struct gif_palette *local)
{
	const uint8_t *p = f->next;

	if (f->end - p < FRAME_BYTES)
		return false;
	f->next += FRAME_BYTES;
	g->left = gif_get16(p);
	g->top = gif_get16(p + 2);
	g->width = gif_get16(p + 4);
	g->height = gif_get16(p + 6);
	g->interlaced = p[8] & INTERLACED;
	if (!read_palette(f, p[8], local) || f->next == f->end)
		return false;
	g->code_bits = *f->next++;
	return true;
}

/* Reads up to the first frame. Returns 0 or IMAGE_E_CORRUPT. */
static int find_frame(struct gif_file *f, struct gif *g, struct gif_palette *local, struct image_error *err)
{
	while (f->next < f->end) {
		uint8_t kind = *f->next++;

		if (kind == ';')
			break;
		if (kind == ',')
			return read_frame(f, g, local) ? 0 : gif_cut_short(err);
		if (kind == '!' && !read_extension(f, g))
			return gif_cut_short(err);
	}
	return image_fail(err, IMAGE_E_CORRUPT, "GIF without an image");
}

int gif_read(const uint8_t *bytes, size_t n_bytes, struct gif *g, struct image_error *err)
{
	struct gif_file f = { bytes + SCREEN_BYTES, bytes + n_bytes };
	struct gif_palette global = { .n = 0 }, local = { .n = 0 };
	struct raw_layout *l = &g->rows.layout;

	if (n_bytes < SCREEN_BYTES)
		return gif_cut_short(err);
	*g = (struct gif){ .background = 0 };
	if (!read_palette(&f, bytes[10], &global))
		return gif_cut_short(err);
	int outcome = find_frame(&f, g, &local, err);
	if (outcome)
		return outcome;
	uint32_t width = gif_get16(bytes + 6), height = gif_get16(bytes + 8);
	uint32_t right = g->left + g->width, bottom = g->top + g->height;

	if (g->width == 0 || g->height == 0)
		return image_fail(err, IMAGE_E_CORRUPT, "GIF with an image of %ux%u pixels", g->width, g->height);
	if (g->code_bits > CODE_BITS_MAX)
		return image_fail(err, IMAGE_E_CORRUPT, "GIF with codes of %u bits", g->code_bits);
	*l = (struct raw_layout){ .kind = RAW_INDEX, .bits = 8 };
	if (local.needed)
		memcpy(l->table, local.rgb, (size_t)local.n * 3);
	else if (global.needed)
		memcpy(l->table, global.rgb, (size_t)global.n * 3);
	else
		raw_grey_table(l);
	g->rows.width = width > right ? width : right;
	g->rows.height = height > bottom ? height : bottom;
	g->rows.stride_bytes = g->rows.width;
	g->data_at = (size_t)(f.next - bytes);
	return 0;
}

/* ---- codes ---- */

struct gif_codes {
	uint16_t prefix[TABLE];
	uint8_t last[TABLE]; /* byte of a code's string */
	uint8_t string[TABLE + 1];
	unsigned clear, next, n_bits, previous;
	uint8_t first; /* byte of the previous code's string */
	bool fresh;    /* since the table was cleared, no code came */
};

struct gif_input {
	const uint8_t *next, *end, *read; /* read: what Pillow has read so far */
	unsigned n_block, n_bits;
	uint32_t bits;
};

struct gif_canvas {
	uint8_t *frame; /* its first pixel */
	size_t stride;
	uint32_t width, height, x, y, step;
	int pass; /* the passes of an interlaced picture are 1 to 3 and then 0 */
};

static bool read_more(struct gif_input *in)
{
	if (in->read == in->end)
		return false;
	in->read += in->end - in->read < READ_BYTES ? in->end - in->read : READ_BYTES;
	return true;
}

/* The next code, or -1 at the end of the file. */
static int next_code(struct gif_input *in, unsigned n_bits)
{
	while (in->n_bits < n_bits) {
		while (in->n_block == 0) {
			if (in->next < in->read && in->read - in->next > *in->next)
				in->n_block = *in->next++;
			else if (!read_more(in))
				return -1;
			else
				continue;
		}
		in->bits |= (uint32_t)*in->next++ << in->n_bits;
		in->n_bits += 8;
		in->n_block--;
	}
	int code = (int)(in->bits & ((1u << n_bits) - 1));

	in->bits >>= n_bits;
	in->n_bits -= n_bits;
	return code;
}

/* The string of a code, at the end of t->string; its length, or 0 if there is no such code. */
static unsigned string_of(struct gif_codes *t, unsigned code)
{
	unsigned at = TABLE + 1, c = code;

	if (code > t->next || (t->fresh && code > t->clear))
		return 0;
	if (t->fresh) {
		t->first = (uint8_t)code;
		t->previous = code;
		t->fresh = false;
		t->string[TABLE] = t->first;
		return 1;
	}
	if (code == t->next) {
		t->string[--at] = t->first;
		c = t->previous;
	}
	for (; c >= t->clear; c = t->prefix[c]) {
		if (at <= 1 || c >= TABLE)
			return 0;
		t->string[--at] = t->last[c];
	}
	t->first = (uint8_t)c;
	t->string[--at] = t->first;
	if (t->next < TABLE) {
		t->last[t->next] = t->first;
		t->prefix[t->next] = (uint16_t)t->previous;
		t->n_bits += t->next == (1u << t->n_bits) - 1 && t->n_bits < CODE_BITS_MAX;
		t->next++;
	}
	t->previous = code;
	return TABLE + 1 - at;
}

/* False: the picture is full. */
static bool next_line(struct gif_canvas *c)
{
	static const uint8_t starts[] = { 0, 4, 2, 1 }, steps[] = { 0, 8, 4, 2 };

	c->x = 0;
	c->y += c->step;
	while (c->y >= c->height) {
		if (c->pass == 0)
			return false;
		c->y = starts[c->pass];
		c->step = steps[c->pass];
		c->pass = (c->pass + 1) % 4;
	}
	return true;
}

/* False: the picture is full. */
static bool put_string(struct gif_canvas *c, const uint8_t *string, unsigned n)
{
	while (n > 0) {
		unsigned part = n < c->width - c->x ? n : c->width - c->x;

		memcpy(c->frame + c->y * c->stride + c->x, string, part);
		c->x += part;
		string += part;
		n -= part;
		if (c->x == c->width && !next_line(c))
			return false;
	}
	return true;
}

static void clear_codes(struct gif_codes *t, unsigned code_bits)
{
	t->clear = 1u << code_bits;
	t->next = t->clear + 2;
	t->n_bits = code_bits + 1;
	t->fresh = true;
}

static int read_codes(const struct gif *g, struct gif_codes *t, struct gif_input *in, struct gif_canvas *c,
		      struct cpu_budget *budget, struct image_error *err)
{
	clear_codes(t, g->code_bits);
	for (;;) {
		int code = next_code(in, t->n_bits);

		if (!cpu_budget_spend(budget, 1)) /* codes that clear the table give no pixels */
			return IMAGE_E_TIME;
		if (code < 0 || ((unsigned)code == t->clear + 1 && !read_more(in)))
			return gif_cut_short(err);
		if ((unsigned)code == t->clear)
			clear_codes(t, g->code_bits);
		if ((unsigned)code == t->clear || (unsigned)code == t->clear + 1)
			continue;
		unsigned n = string_of(t, (unsigned)code);

		if (n == 0)
			return image_fail(err, IMAGE_E_CORRUPT, "GIF with a code that stands for nothing");
		if (!put_string(c, t->string + TABLE + 1 - n, n))
			return 0;
	}
}

int gif_unpack(struct gif *g, const uint8_t *bytes, size_t n_bytes, struct scratch *indices, struct scratch *tables,
	       struct cpu_budget *budget, struct image_error *err)
{
	size_t n_canvas = (size_t)g->rows.width * g->rows.height;
	struct gif_codes *t = (struct gif_codes *)scratch_reserve(tables, sizeof(*t));
	uint8_t *canvas = scratch_reserve(indices, n_canvas);
	struct gif_input in = { .next = bytes + g->data_at, .end = bytes + n_bytes, .read = bytes + g->data_at };

	if (!t || !canvas)
		return -ENOMEM;
	memset(t, 0, sizeof(*t));
	memset(canvas, g->background, n_canvas);
	struct gif_canvas c = { .frame = canvas + (size_t)g->top * g->rows.width + g->left,
				.stride = g->rows.width,
				.width = g->width,
				.height = g->height,
				.step = g->interlaced ? 8 : 1,
				.pass = g->interlaced };
	int outcome = read_codes(g, t, &in, &c, budget, err);

	g->rows.data = canvas;
	return outcome;
}
