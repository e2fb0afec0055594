/* Drawn with libgd and its built-in fonts, which need no font files on the machine.
 *
 * Those fonts hold ISO-8859-2. Class names are UTF-8, so they are converted, and a character that the font lacks
 * becomes the nearest one that iconv knows or '?': a sheet with a question mark is better than none. */
#include "ctl/preview/contact-sheet.h"

#include <errno.h>
#include <gd.h>
#include <gdfonts.h>
#include <iconv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	GAP = 8,
	LINE = 14,
	TITLE = 22,
	CAPTION = 2 * LINE + 4,
	MIN_SHOWN_WIDTH = 128,
	MAX_PX = 200000000,
	MAX_TEXT = 512
};
/* 0xRRGGBB, gd's true colour */
enum { PAPER = 0xffffff, INK = 0x202020, FAINT = 0x707070, HOLE = 0xe8e8e8, ALARM = 0xb02020 };

struct contact_sheet {
	gdImagePtr canvas;
	uint32_t columns, width, height, scale;
};

static uint64_t cell_width(const struct contact_sheet *s)
{
	return (uint64_t)s->width * s->scale + GAP;
}

static uint64_t cell_height(const struct contact_sheet *s)
{
	return (uint64_t)s->height * s->scale + CAPTION + GAP;
}

static int contact_sheet_left(const struct contact_sheet *s, uint32_t i)
{
	return (int)(GAP + i % s->columns * cell_width(s));
}

static int contact_sheet_top(const struct contact_sheet *s, uint32_t i)
{
	return (int)(TITLE + i / s->columns * cell_height(s));
}

/* One '?' for each character that iconv refuses. */
static void to_font(const char *utf8, char *out, size_t size)
{
	iconv_t cd = iconv_open("ISO-8859-2//TRANSLIT", "UTF-8");
	char *in = (char *)(uintptr_t)utf8; /* iconv's prototype lacks a const */
	size_t n_in = strlen(utf8), n_out = size - 1;

	while (n_in && n_out) {
		size_t r = cd != (iconv_t)-1 ? iconv(cd, &in, &n_in, &out, &n_out) : (size_t)-1;

		if (r != (size_t)-1 || !n_in || !n_out || (errno == E2BIG && cd != (iconv_t)-1))
			break;
		*out++ = cd == (iconv_t)-1 && !(*in & 0x80) ? *in : '?';
		n_out--;
		do {
			in++;
			n_in--;
		} while (n_in && (*in & 0xc0) == 0x80);
	}
	*out = 0;
	if (cd != (iconv_t)-1)
		iconv_close(cd);
}

/* width: pixels available for the text. */
static void draw_text(const struct contact_sheet *s, int x, int y, uint64_t width, const char *utf8, int colour)
{
	gdFontPtr font = gdFontGetSmall();
	char text[MAX_TEXT];
	size_t fits = width / (unsigned)font->w;

	to_font(utf8, text, sizeof text);
	if (strlen(text) > fits && fits >= 3)
		memcpy(text + fits - 3, "...", 4);
	else if (strlen(text) > fits)
		text[fits] = 0;
	gdImageString(s->canvas, font, x, y, (unsigned char *)text, colour);
}

struct contact_sheet *contact_sheet_create(const char *title, uint32_t n, uint32_t columns, uint32_t width,
					   uint32_t height)
{
	struct contact_sheet *s = calloc(1, sizeof *s);
	uint64_t w, h;

	if (!s)
		return NULL;
	s->columns = columns;
	s->width = width;
	s->height = height;
	s->scale = width < MIN_SHOWN_WIDTH ? (MIN_SHOWN_WIDTH + width - 1) / width : 1;
	w = columns * cell_width(s) + GAP;
	h = (uint64_t)((n + columns - 1) / columns) * cell_height(s) + TITLE;
	if (w < MAX_PX && h < MAX_PX && w * h <= MAX_PX)
		s->canvas = gdImageCreateTrueColor((int)w, (int)h);
	if (!s->canvas) {
		free(s);
		return NULL;
	}
	gdImageFilledRectangle(s->canvas, 0, 0, (int)w - 1, (int)h - 1, PAPER);
	draw_text(s, GAP, 4, w - 2 * GAP, title, INK);
	return s;
}

void contact_sheet_destroy(struct contact_sheet *s)
{
	if (!s)
		return;
	gdImageDestroy(s->canvas);
	free(s);
}

void contact_sheet_put(struct contact_sheet *s, uint32_t i, const uint8_t *rgb)
{
	int x0 = contact_sheet_left(s, i), y0 = contact_sheet_top(s, i);

	for (uint32_t y = 0; y < s->height * s->scale; y++) {
		const uint8_t *row = rgb + (size_t)(y / s->scale) * s->width * 3;

		for (uint32_t x = 0; x < s->width * s->scale; x++) {
			const uint8_t *p = row + (size_t)(x / s->scale) * 3;

			s->canvas->tpixels[y0 + (int)y][x0 + (int)x] = p[0] << 16 | p[1] << 8 | p[2];
		}
	}
}

void contact_sheet_put_text(struct contact_sheet *s, uint32_t i, const char *text)
{
	int x = contact_sheet_left(s, i), y = contact_sheet_top(s, i);
	uint64_t width = (uint64_t)s->width * s->scale;
	int height = (int)(s->height * s->scale);
	size_t per_line = (width - 8) / (unsigned)gdFontGetSmall()->w;
	char line[MAX_TEXT];

	gdImageFilledRectangle(s->canvas, x, y, x + (int)width - 1, y + height - 1, HOLE);
	for (int down = 4; *text && down + LINE <= height; down += LINE) {
		size_t n = strlen(text) < per_line ? strlen(text) : per_line;

		if (text[n])
			for (size_t k = n; k > n / 2; k--)
				if (text[k] == ' ') {
					n = k;
					break;
				}
		snprintf(line, sizeof line, "%.*s", (int)n, text);
		draw_text(s, x + 4, y + down, width - 8, line, ALARM);
		text += n + (text[n] == ' ');
	}
}

void contact_sheet_caption(struct contact_sheet *s, uint32_t i, const char *first, const char *second)
{
	int x = contact_sheet_left(s, i), y = contact_sheet_top(s, i) + (int)(s->height * s->scale) + 1;
	uint64_t width = (uint64_t)s->width * s->scale;

	draw_text(s, x, y, width, first, INK);
	draw_text(s, x, y + LINE, width, second, FAINT);
}

static int write_png(const struct contact_sheet *s, FILE *file)
{
	int n_bytes = 0;
	void *png = gdImagePngPtr(s->canvas, &n_bytes);
	int r = 0;

	if (!png)
		return -ENOMEM;
	errno = 0;
	if (fwrite(png, 1, (size_t)n_bytes, file) != (size_t)n_bytes || fflush(file) != 0)
		r = errno ? -errno : -EIO;
	gdFree(png);
	return r;
}

int contact_sheet_write(const struct contact_sheet *s, const char *path)
{
	char *partial;
	FILE *file;
	int r;

	if (asprintf(&partial, "%s.partial", path) < 0)
		return -ENOMEM;
	file = fopen(partial, "wbe");
	r = file ? write_png(s, file) : -errno;
	if (file && fclose(file) != 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(partial, path) != 0)
		r = -errno;
	if (file && r < 0)
		unlink(partial);
	free(partial);
	return r;
}
