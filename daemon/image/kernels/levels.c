/* Point and histogram operations. Those without a histogram are written as arithmetic that compilers vectorise; the
 * others make Pillow's table of 256 values for each channel, with its arithmetic. */
#include "image/kernels/exact.h"

#include "image/kernels/levels.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "image/kernels/lookup.h"

struct tables {
	uint8_t channel[3][256];
};

static uint8_t *row_at(const struct image *i, uint32_t y)
{
	return i->rgb + (size_t)y * i->stride_bytes;
}

void levels_invert(struct image *i)
{
	size_t n = (size_t)i->width * 3; /* here, because a byte written could be the width */

	for (uint32_t y = 0; y < i->height; y++) {
		uint8_t *row = row_at(i, y);

		for (size_t x = 0; x < n; x++)
			row[x] = (uint8_t)~row[x];
	}
}

void levels_posterize(struct image *i, unsigned bits)
{
	uint8_t mask = (uint8_t)~((1u << (8 - bits)) - 1);
	size_t n = (size_t)i->width * 3;

	for (uint32_t y = 0; y < i->height; y++) {
		uint8_t *row = row_at(i, y);

		for (size_t x = 0; x < n; x++)
			row[x] &= mask;
	}
}

void levels_solarize(struct image *i, double threshold)
{
	size_t n = (size_t)i->width * 3;
	uint8_t first; /* the smallest value that is inverted */

	if (!(threshold <= 255.0))
		return;
	first = (uint8_t)(threshold <= 0.0 ? 0.0 : ceil(threshold));
	for (uint32_t y = 0; y < i->height; y++) {
		uint8_t *row = row_at(i, y);

		for (size_t x = 0; x < n; x++)
			row[x] = row[x] < first ? row[x] : (uint8_t)~row[x];
	}
}

static void levels_apply(struct image *i, const struct tables *t)
{
	for (uint32_t y = 0; y < i->height; y++)
		lookup_pixels(t->channel, row_at(i, y), i->width);
}

static uint8_t levels_clip(int v)
{
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

void levels_solarize_add(struct image *i, int add, int threshold)
{
	struct tables t;

	for (int v = 0; v < 256; v++)
		t.channel[0][v] = v < threshold ? levels_clip(v + add) : (uint8_t)v;
	memcpy(t.channel[1], t.channel[0], sizeof(t.channel[0]));
	memcpy(t.channel[2], t.channel[0], sizeof(t.channel[0]));
	levels_apply(i, &t);
}

struct histogram {
	uint32_t n[3][256];
};

/* Neighbours are counted in two histograms, because an addition to the same number as the one before has to wait for
 * it. */
static void levels_count(const struct image *i, struct histogram *h)
{
	struct histogram odd = { 0 };

	*h = (struct histogram){ 0 };
	for (uint32_t y = 0; y < i->height; y++) {
		const uint8_t *p = row_at(i, y);
		uint32_t x;

		for (x = 0; x + 1 < i->width; x += 2, p += 6)
			for (int c = 0; c < 3; c++) {
				h->n[c][p[c]]++;
				odd.n[c][p[3 + c]]++;
			}
		for (int c = 0; x < i->width && c < 3; c++)
			h->n[c][p[c]]++;
	}
	for (int c = 0; c < 3; c++)
		for (int v = 0; v < 256; v++)
			h->n[c][v] += odd.n[c][v];
}

static void levels_keep(uint8_t table[256])
{
	for (int v = 0; v < 256; v++)
		table[v] = (uint8_t)v;
}

static void levels_stretch(const uint32_t n[256], uint8_t table[256])
{
	int low = 0, high = 255;
	double scale, offset;

	while (low < 255 && n[low] == 0)
		low++;
	while (high > 0 && n[high] == 0)
		high--;
	if (high <= low) {
		levels_keep(table);
		return;
	}
	scale = 255.0 / (high - low);
	offset = -low * scale;
	for (int v = 0; v < 256; v++)
		table[v] = levels_clip((int)(v * scale + offset));
}

static void levels_spread(const uint32_t n[256], uint8_t table[256])
{
	uint64_t sum = 0, last = 0, step, so_far;
	unsigned used = 0;

	for (int v = 0; v < 256; v++) {
		sum += n[v];
		last = n[v] ? n[v] : last;
		used += n[v] != 0;
	}
	step = (sum - last) / 255;
	if (used <= 1 || step == 0) {
		levels_keep(table);
		return;
	}
	so_far = step / 2;
	for (int v = 0; v < 256; v++) {
		uint64_t level = so_far / step;

		table[v] = (uint8_t)(level < 255 ? level : 255);
		so_far += n[v];
	}
}

static void by_histogram(struct image *i, void (*make)(const uint32_t n[256], uint8_t table[256]))
{
	struct histogram h;
	struct tables t;

	levels_count(i, &h);
	for (int c = 0; c < 3; c++)
		make(h.n[c], t.channel[c]);
	levels_apply(i, &t);
}

void levels_autocontrast(struct image *i)
{
	by_histogram(i, levels_stretch);
}

void levels_equalize(struct image *i)
{
	by_histogram(i, levels_spread);
}
