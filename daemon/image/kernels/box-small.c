/* Box filters of a small radius. An image row goes through its three passes along x, then through three rings of rows:
 * as soon as a ring has the rows around one, the pass along y makes that row for the next ring. So every pass works on
 * whole rows, and an image is read and written once.
 *
 * Pixels are words here, so that the passes in between need not pack and unpack them. */
#include "image/kernels/box-small.h"

#include <errno.h>
#include <string.h>

#include "image/kernels/processor.h"

enum {
	N_PASSES = 3,
	ROWS_AT_ONCE = 2,
	PAD = 3 * (BOX_SMALL_MAX_RADIUS + 1), /* words on both sides of a row: pixels outside are those at the edge */
	ROOM_LEFT = 32,                       /* at least PAD; keeps rows aligned */
};

struct sweep {
	const struct image *image;
	const struct box *x, *y;
	const struct box_small_path *path;
	size_t n, stride; /* words of a row, and from one to the next */
	uint16_t *line[ROWS_AT_ONCE][2];
	uint16_t *ring[N_PASSES];
	uint16_t *made; /* a row on its way into the image */
};

static void box_small_plain(const struct box *b, const uint16_t *const window[BOX_SMALL_WINDOW], uint16_t *out,
			    size_t n)
{
	uint32_t n_inside = 2 * b->radius + 1;

	for (size_t i = 0; i < n; i++) {
		uint32_t sum = 0, far = (uint32_t)window[0][i] + window[n_inside + 1][i];

		for (uint32_t k = 1; k <= n_inside; k++)
			sum += window[k][i];
		out[i] = (uint16_t)((sum * b->ww + far * b->fw + BOX_HALF) >> 24);
	}
}

static void widen(const uint8_t *from, uint16_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = from[i];
}

static void narrow(const uint16_t *from, uint8_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)from[i];
}

static const struct box_small_path *path_of_processor(void)
{
	static const struct box_small_path plain = { box_small_plain, widen, narrow };

#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX512)
		return &box_small_avx512;
	if (processor_path() >= PROCESSOR_AVX2)
		return &box_small_avx2;
#endif
	return &plain;
}

/* Repeats the pixels at the edges. */
static void pad_line(uint16_t *line, size_t n)
{
	for (size_t i = 0; i < PAD; i++) {
		line[-1 - (ptrdiff_t)i] = line[2 - i % 3];
		line[n + i] = line[n - 3 + i % 3];
	}
}

/* line is padded. */
static void pass_along_x(const struct sweep *s, const uint16_t *line, uint16_t *out)
{
	const uint16_t *window[BOX_SMALL_WINDOW];
	ptrdiff_t reach = (ptrdiff_t)s->x->radius + 1;

	for (ptrdiff_t k = -reach; k <= reach; k++)
		window[k + reach] = line + 3 * k;
	s->path->pass(s->x, window, out, s->n);
}

static uint8_t *image_row(const struct sweep *s, uint32_t y)
{
	return s->image->rgb + (size_t)y * s->image->stride_bytes;
}

/* All but the last pass along x of n_rows rows, into their lines 0. In turn, because a pass begins with loads across what
 * the one before stored, which wait until that has left the processor. */
static void begin_rows(const struct sweep *s, uint32_t y, uint32_t n_rows)
{
	for (uint32_t r = 0; r < n_rows; r++) {
		s->path->widen(image_row(s, y + r), s->line[r][0], s->n);
		pad_line(s->line[r][0], s->n);
	}
	for (unsigned pass = 0; pass < N_PASSES - 1; pass++)
		for (uint32_t r = 0; r < n_rows; r++) {
			uint16_t *to = s->line[r][(pass + 1) % 2];

			pass_along_x(s, s->line[r][pass % 2], to);
			pad_line(to, s->n);
		}
}

static void store_row(const struct sweep *s, uint32_t y)
{
	s->path->narrow(s->made, image_row(s, y), s->n);
}

/* Where row y waits for pass number `pass` along y. */
static uint16_t *box_small_row(const struct sweep *s, unsigned pass, uint32_t y)
{
	return s->ring[pass] + (y % BOX_SMALL_WINDOW) * s->stride;
}

/* Row y of the pass's result, from the rows around it. */
static void pass_along_y(const struct sweep *s, unsigned pass, uint32_t y)
{
	const uint16_t *window[BOX_SMALL_WINDOW];
	uint32_t reach = s->y->radius + 1, last = s->image->height - 1;

	for (uint32_t k = 0; k <= 2 * reach; k++) {
		uint32_t at = y + k < reach ? 0 : y + k - reach;

		window[k] = box_small_row(s, pass, at < last ? at : last);
	}
	s->path->pass(s->y, window, pass + 1 < N_PASSES ? box_small_row(s, pass + 1, y) : s->made, s->n);
}

static void row_is_there(const struct sweep *s, unsigned pass, uint32_t y);

static void send_on(const struct sweep *s, unsigned pass, uint32_t y)
{
	pass_along_y(s, pass, y);
	if (pass + 1 < N_PASSES)
		row_is_there(s, pass + 1, y);
	else
		store_row(s, y);
}

/* Row y came into a ring: the row that waited for it goes on, and after the last one all others. */
static void row_is_there(const struct sweep *s, unsigned pass, uint32_t y)
{
	uint32_t reach = s->y->radius + 1, height = s->image->height;

	if (y >= reach)
		send_on(s, pass, y - reach);
	if (y + 1 == height)
		for (uint32_t left = height > reach ? height - reach : 0; left < height; left++)
			send_on(s, pass, left);
}

/* Row y on its way down, from line if it is blurred along x. */
static void end_row(const struct sweep *s, uint32_t y, const uint16_t *line)
{
	uint16_t *out = s->y ? box_small_row(s, 0, y) : s->made;

	if (s->x)
		pass_along_x(s, line, out);
	else
		s->path->widen(image_row(s, y), out, s->n);
	if (s->y)
		row_is_there(s, 0, y);
	else
		store_row(s, y);
}

static void sweep(const struct sweep *s)
{
	for (uint32_t y = 0, n; y < s->image->height; y += n) {
		n = s->image->height - y < ROWS_AT_ONCE ? s->image->height - y : ROWS_AT_ONCE;
		if (s->x)
			begin_rows(s, y, n);
		for (uint32_t r = 0; r < n; r++)
			end_row(s, y + r, s->line[r][0]);
	}
}

int box_small(struct image *i, const struct box *x, const struct box *y, struct scratch *room)
{
	struct sweep s = { .image = i, .x = x, .y = y, .path = path_of_processor(), .n = (size_t)i->width * 3 };
	size_t n_rows = 2 * ROWS_AT_ONCE + 1 + (y ? (size_t)N_PASSES * BOX_SMALL_WINDOW : 0), n_bytes;
	uint16_t *at;

	s.stride = (ROOM_LEFT + s.n + PAD + 2 * BOX_SMALL_STEP - 1) / BOX_SMALL_STEP * BOX_SMALL_STEP;
	n_bytes = n_rows * s.stride * sizeof(*at);
	at = (uint16_t *)(void *)scratch_reserve(room, n_bytes);
	if (!at)
		return -ENOMEM;
	memset(at, 0, n_bytes); /* passes read what is behind a row, though nothing comes of it */
	at += ROOM_LEFT;
	for (unsigned k = 0; k < 2 * ROWS_AT_ONCE; k++, at += s.stride)
		s.line[k / 2][k % 2] = at;
	s.made = at;
	at += s.stride;
	for (unsigned k = 0; y && k < N_PASSES; k++, at += BOX_SMALL_WINDOW * s.stride)
		s.ring[k] = at;
	sweep(&s);
	return 0;
}
