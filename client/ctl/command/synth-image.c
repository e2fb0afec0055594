/* Pictures that resemble photographs where it matters to a loader and to a small model.
 *
 * To a loader: about 500x375, sizes that vary, 60 to 110 KB as a JPEG. Flat drawings would compress to a tenth of that
 * and make decoding look four times faster than it is, so noise is added in octaves, the finer the weaker, as in
 * photographs. To a model: the class is a shape (and beyond the first eight classes its filling) that appears anywhere,
 * turned and scaled; its colour leans towards one hue per class, so that even a model too small to see shapes learns
 * something within an epoch or two. */
#include "ctl/command/synth-image.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SHAPES = 8, N_FILLS = 4, UNIT = 1024 /* a shape's radius, in its own coordinates */ };

static const char *const shape_names[N_SHAPES] = { "disc",  "square", "triangle", "ring",
						   "cross", "bar",    "crescent", "hourglass" };
static const char *const fill_names[N_FILLS] = { "plain", "striped", "dotted", "chequered" };

struct painter {
	uint8_t *rgb;
	int16_t *luma, *warmth; /* noise, in 1/16 of a grey level */
	size_t capacity_px;
};

struct colour {
	int r, g, b;
};

/* splitmix64: the whole state is one counter, so every picture has a stream of its own. */
struct dice {
	uint64_t state;
};

static uint64_t dice_next(struct dice *d)
{
	uint64_t z = d->state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static int dice_range(struct dice *d, int low, int high) /* both included */
{
	return low + (int)(dice_next(d) % (uint64_t)(high - low + 1));
}

struct painter *painter_create(void)
{
	return calloc(1, sizeof(struct painter));
}

void painter_destroy(struct painter *p)
{
	if (!p)
		return;
	free(p->rgb);
	free(p->luma);
	free(p->warmth);
	free(p);
}

static int synth_image_reserve(struct painter *p, size_t n_px)
{
	if (n_px <= p->capacity_px)
		return 0;
	free(p->rgb);
	free(p->luma);
	free(p->warmth);
	p->capacity_px = 0;
	p->rgb = malloc(3 * n_px);
	p->luma = malloc(n_px * sizeof *p->luma);
	p->warmth = malloc(n_px * sizeof *p->warmth);
	if (!p->rgb || !p->luma || !p->warmth)
		return -ENOMEM;
	p->capacity_px = n_px;
	return 0;
}

void synth_image_class_name(unsigned c, char *buf, unsigned long size)
{
	if (c < N_SHAPES)
		snprintf(buf, size, "%s", shape_names[c]);
	else
		snprintf(buf, size, "%s-%s", shape_names[c % N_SHAPES], fill_names[c / N_SHAPES % N_FILLS]);
}

/* Hue in degrees, saturation and value in 0..255. */
static struct colour from_hsv(int hue, int saturation, int value)
{
	int h = ((hue % 360) + 360) % 360;
	int chroma = value * saturation / 255;
	int second = chroma * (60 - abs(h % 120 - 60)) / 60;
	int base = value - chroma;
	static const int8_t high[6][3] = {
		{ 2, 1, 0 }, { 1, 2, 0 }, { 0, 2, 1 }, { 0, 1, 2 }, { 1, 0, 2 }, { 2, 0, 1 }
	};
	const int level[3] = { base, base + second, base + chroma };
	const int8_t *pick = high[h / 60];

	return (struct colour){ level[pick[0]], level[pick[1]], level[pick[2]] };
}

/* A row of the lattice of random levels, interpolated smoothly: 256 times the level at each pixel. */
static void draw_levels(struct dice *d, int32_t *levels, uint32_t width, uint32_t wavelength, const int *weight,
			int amplitude)
{
	int right = dice_range(d, -amplitude, amplitude), left;

	for (uint32_t cell = 0, x = 0; cell <= width / wavelength; cell++) {
		left = right;
		right = dice_range(d, -amplitude, amplitude);
		for (uint32_t i = 0; i < wavelength && x < width; i++, x++)
			levels[x] = left * (256 - weight[i]) + right * weight[i];
	}
}

/* One octave of value noise: random levels `wavelength` pixels apart, interpolated smoothly. amplitude in 1/16 grey
 * levels. Most of a picture's time is spent in the loop over a row, so it has a form that compilers vectorise. */
static void add_octave(struct dice *d, int16_t *field, uint32_t width, uint32_t height, uint32_t wavelength,
		       int amplitude)
{
	int32_t rows[2][SYNTH_IMAGE_MAX_SIDE_PX], *above = rows[0], *below = rows[1];
	int weight[256];

	for (uint32_t i = 0; i < wavelength; i++) {
		double t = (double)i / wavelength;

		weight[i] = (int)lround(256 * t * t * (3 - 2 * t));
	}
	draw_levels(d, below, width, wavelength, weight, amplitude);
	for (uint32_t y = 0; y < height; y++) {
		int down = weight[y % wavelength];
		int16_t *row = field + (size_t)y * width;

		if (y % wavelength == 0) {
			int32_t *free_row = above;

			above = below;
			below = free_row;
			draw_levels(d, below, width, wavelength, weight, amplitude);
		}
		for (uint32_t x = 0; x < width; x++)
			row[x] = (int16_t)(row[x] + (above[x] * (256 - down) + below[x] * down) / 65536);
	}
}

static void add_grain(struct dice *d, int16_t *field, size_t n_px, int amplitude)
{
	for (size_t i = 0; i < n_px; i++)
		field[i] = (int16_t)(field[i] + dice_range(d, -amplitude, amplitude));
}

/* strength: percent. Amplitudes fall with the wavelength, as a photograph's spectrum does; the finest decide the
 * file's size. */
static void make_noise(struct painter *p, struct dice *d, uint32_t width, uint32_t height, int strength)
{
	static const struct {
		uint32_t wavelength;
		int amplitude;
	} octaves[] = {
		{ 128, 400 }, { 64, 320 }, { 32, 260 }, { 16, 220 }, { 8, 230 }, { 4, 250 }, { 2, 330 },
	};
	size_t n_px = (size_t)width * height;

	memset(p->luma, 0, n_px * sizeof *p->luma);
	memset(p->warmth, 0, n_px * sizeof *p->warmth);
	for (unsigned i = 0; i < sizeof octaves / sizeof *octaves; i++) {
		add_octave(d, p->luma, width, height, octaves[i].wavelength, octaves[i].amplitude * strength / 100);
		if (octaves[i].wavelength >= 8)
			add_octave(d, p->warmth, width, height, octaves[i].wavelength,
				   octaves[i].amplitude * strength / 300);
	}
	add_grain(d, p->luma, n_px, 150 * strength / 100);
}

static bool in_disc(int u, int v, int radius)
{
	return u * u + v * v < radius * radius;
}

/* Whether (u, v) lies in the shape; the shape fills the disc of radius UNIT. */
static bool in_shape(unsigned shape, int u, int v)
{
	int a = abs(u), b = abs(v);

	switch (shape) {
	case 0:
		return in_disc(u, v, UNIT);
	case 1:
		return a < 800 && b < 800;
	case 2:
		return v > -700 && 2 * a + v < 950;
	case 3:
		return in_disc(u, v, UNIT) && !in_disc(u, v, 600);
	case 4:
		return (a < 280 && b < 960) || (b < 280 && a < 960);
	case 5:
		return a < 1000 && b < 260;
	case 6:
		return in_disc(u, v, UNIT) && !in_disc(u - 480, v, 850);
	default:
		return b < 900 && a < b;
	}
}

/* Whether the filling shows its second colour at (u, v). */
static bool in_fill(unsigned fill, int u, int v)
{
	int s = (u + 8 * UNIT) % 400, t = (v + 8 * UNIT) % 400;

	switch (fill) {
	case 1:
		return t < 200;
	case 2:
		return in_disc(s - 200, t - 200, 120);
	case 3:
		return (s < 200) != (t < 200);
	default:
		return false;
	}
}

/* The position of the shape: pixel offsets from its centre, times these, shifted by 16, are its own coordinates. */
struct placing {
	int64_t cosine, sine;
	int x, y;
	unsigned shape, fill;
	struct colour first, second;
};

static struct placing synth_image_place(struct dice *d, unsigned c, uint32_t width, uint32_t height)
{
	int side = (int)(width < height ? width : height);
	int radius = side * dice_range(d, 22, 40) / 100 + 1;
	double angle = dice_range(d, 0, 3599) * 3.14159265358979323846 / 1800;
	bool own_hue = dice_range(d, 0, 9) < 8;
	int hue = own_hue ? (int)(c % N_SHAPES) * 45 + dice_range(d, -25, 25) : dice_range(d, 0, 359);
	int value = dice_range(d, 150, 240);

	return (struct placing){
		.cosine = llround(cos(angle) * UNIT * 65536 / radius),
		.sine = llround(sin(angle) * UNIT * 65536 / radius),
		.x = dice_range(d, (int)width * 3 / 10, (int)width * 7 / 10),
		.y = dice_range(d, (int)height * 3 / 10, (int)height * 7 / 10),
		.shape = c % N_SHAPES,
		.fill = c / N_SHAPES % N_FILLS,
		.first = from_hsv(hue, dice_range(d, 140, 230), value),
		.second = from_hsv(hue + dice_range(d, -20, 20), 120, value / 3),
	};
}

static const struct colour *colour_at(const struct placing *s, int x, int y)
{
	int64_t dx = x - s->x, dy = y - s->y;
	int64_t u = (dx * s->cosine + dy * s->sine) >> 16, v = (dy * s->cosine - dx * s->sine) >> 16;

	if (u <= -UNIT || u >= UNIT || v <= -UNIT || v >= UNIT || !in_shape(s->shape, (int)u, (int)v))
		return NULL;
	return in_fill(s->fill, (int)u, (int)v) ? &s->second : &s->first;
}

static uint8_t synth_image_clamp(int v)
{
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void synth_image_compose(struct painter *p, struct dice *d, unsigned c, uint32_t width, uint32_t height)
{
	struct placing shape = synth_image_place(d, c, width, height);
	struct colour from = from_hsv(dice_range(d, 0, 359), dice_range(d, 20, 110), dice_range(d, 60, 200));
	struct colour to = from_hsv(dice_range(d, 0, 359), dice_range(d, 20, 110), dice_range(d, 60, 200));
	int tilt = dice_range(d, 0, 100); /* percent of the gradient that goes downwards */

	uint32_t across[SYNTH_IMAGE_MAX_SIDE_PX];

	for (uint32_t x = 0; x < width; x++)
		across[x] = x * (uint32_t)(100 - tilt) * 256 / width;
	for (uint32_t y = 0; y < height; y++) {
		uint32_t downwards = y * (uint32_t)tilt * 256 / height;

		for (uint32_t x = 0; x < width; x++) {
			size_t i = (size_t)y * width + x;
			int t = (int)((downwards + across[x]) / 100);
			struct colour ground = { from.r + (to.r - from.r) * t / 256, from.g + (to.g - from.g) * t / 256,
						 from.b + (to.b - from.b) * t / 256 };
			const struct colour *inside = colour_at(&shape, (int)x, (int)y);
			const struct colour *base = inside ? inside : &ground;

			p->rgb[3 * i] = synth_image_clamp(base->r + (p->luma[i] + p->warmth[i]) / 16);
			p->rgb[3 * i + 1] = synth_image_clamp(base->g + p->luma[i] / 16);
			p->rgb[3 * i + 2] = synth_image_clamp(base->b + (p->luma[i] - p->warmth[i]) / 16);
		}
	}
}

int synth_image_paint(struct painter *p, uint64_t seed, unsigned c, uint64_t i, uint32_t width, uint32_t height,
		      struct synth_image *out)
{
	struct dice d = { .state = seed };
	int scale, strength;
	int r;

	d.state = dice_next(&d) ^ (c * 0xd1342543de82ef95u);
	d.state = dice_next(&d) ^ (i * 0xaf251af3b0f025b5u);
	scale = dice_range(&d, 90, 110);
	out->width = (uint32_t)((uint64_t)width * (unsigned)scale / 100);
	out->height = (uint32_t)((uint64_t)height * (unsigned)(scale + dice_range(&d, -8, 8)) / 100);
	if (dice_range(&d, 0, 4) == 0) { /* one in five stands upright */
		uint32_t swap = out->width;

		out->width = out->height;
		out->height = swap;
	}
	out->width = out->width < 16 ? 16 : out->width;
	out->height = out->height < 16 ? 16 : out->height;
	out->quality = dice_range(&d, 88, 94);
	strength = dice_range(&d, 70, 110);
	r = synth_image_reserve(p, (size_t)out->width * out->height);
	if (r < 0)
		return r;
	make_noise(p, &d, out->width, out->height, strength);
	synth_image_compose(p, &d, c, out->width, out->height);
	out->rgb = p->rgb;
	return 0;
}
