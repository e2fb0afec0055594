/* The processor time of each augmentation's pixel function, for augment.py:
 *
 *     augment [SECONDS] <224x224.rgb
 *
 * One line an op: name, then the least microseconds of a call on each path, separated by tabs. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "image/kernels/blur.h"
#include "image/kernels/color.h"
#include "image/kernels/levels.h"
#include "image/kernels/processor.h"
#include "image/kernels/sharpen.h"
#include "image/kernels/warp.h"

enum { EDGE = 224, N_BYTES = EDGE * EDGE * 3 };

static struct scratch room;
static struct image original, work, made;

static void invert(void)
{
	levels_invert(&work);
}

static void posterize(void)
{
	levels_posterize(&work, 4);
}

static void solarize(void)
{
	levels_solarize(&work, 128);
}

static void autocontrast(void)
{
	levels_autocontrast(&work);
}

static void equalize(void)
{
	levels_equalize(&work);
}

static void brightness(void)
{
	color_brightness(&work, 1.4f);
}

static void contrast(void)
{
	color_contrast(&work, 1.4f);
}

static void color(void)
{
	color_saturation(&work, 1.4f);
}

static void sharpness(void)
{
	sharpen(&work, 1.4f, &room);
}

static void small_blur(void)
{
	blur_pillow(&work, 0.5f, 0.5f, &room);
}

static void large_blur(void)
{
	blur_pillow(&work, 2.0f, 2.0f, &room);
}

static void convolve(uint32_t edge)
{
	const uint32_t size[2] = { edge, edge };
	const double sigma[2] = { 1.0, 1.0 };

	blur_torchvision(&work, size, sigma, &room);
}

static void blur9(void)
{
	convolve(9);
}

static void blur23(void)
{
	convolve(23);
}

static const struct warp shear = { .m = { 1, 0.3, -30, 0, 1, 0 }, .fill = { 124, 116, 104 } };
static const struct warp turn = { .m = { 0.866025, 0.5, -41, -0.5, 0.866025, 71 }, .fill = { 124, 116, 104 } };
static const struct warp lens = { .m = { 1.1, 0.1, -9, 0.05, 1.2, -8, 0.0004, 0.0003 },
				  .perspective = true,
				  .fill = { 124, 116, 104 } };

static void warp_by(struct warp w, enum filter f)
{
	w.filter = f;
	warp(&w, &original, &made);
}

static void shift_bilinear(void)
{
	const struct warp shift = { .m = { 1, 0, -30, 0, 1, 7 } };

	warp_by(shift, FILTER_BILINEAR);
}

static void shear_nearest(void)
{
	warp_by(shear, FILTER_NEAREST);
}

static void shear_bilinear(void)
{
	warp_by(shear, FILTER_BILINEAR);
}

static void shear_bicubic(void)
{
	warp_by(shear, FILTER_BICUBIC);
}

static void shear_y_bicubic(void)
{
	const struct warp down = { .m = { 1, 0, 0, 0.3, 1, -30 }, .fill = { 124, 116, 104 } };

	warp_by(down, FILTER_BICUBIC);
}

static void move_x_bicubic(void)
{
	const struct warp move = { .m = { 1, 0, -30.4, 0, 1, 0 }, .fill = { 124, 116, 104 } };

	warp_by(move, FILTER_BICUBIC);
}

static void move_y_bicubic(void)
{
	const struct warp move = { .m = { 1, 0, 0, 0, 1, 30.4 }, .fill = { 124, 116, 104 } };

	warp_by(move, FILTER_BICUBIC);
}

static void turn_nearest(void)
{
	warp_by(turn, FILTER_NEAREST);
}

static void turn_bilinear(void)
{
	warp_by(turn, FILTER_BILINEAR);
}

static void turn_bicubic(void)
{
	warp_by(turn, FILTER_BICUBIC);
}

static void perspective_bilinear(void)
{
	warp_by(lens, FILTER_BILINEAR);
}

static const struct {
	const char *name;
	void (*run)(void);
} ops[] = {
	{ "invert", invert },
	{ "posterize", posterize },
	{ "solarize", solarize },
	{ "autocontrast", autocontrast },
	{ "equalize", equalize },
	{ "brightness", brightness },
	{ "contrast", contrast },
	{ "color", color },
	{ "sharpness", sharpness },
	{ "pillow blur 0.5", small_blur },
	{ "pillow blur 2", large_blur },
	{ "torchvision blur 9", blur9 },
	{ "torchvision blur 23", blur23 },
	{ "shift bilinear", shift_bilinear },
	{ "shear nearest", shear_nearest },
	{ "shear bilinear", shear_bilinear },
	{ "shear bicubic", shear_bicubic },
	{ "shear y bicubic", shear_y_bicubic },
	{ "move x bicubic", move_x_bicubic },
	{ "move y bicubic", move_y_bicubic },
	{ "turn nearest", turn_nearest },
	{ "turn bilinear", turn_bilinear },
	{ "turn bicubic", turn_bicubic },
	{ "perspective bilinear", perspective_bilinear },
};

static double now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double least_us(void (*run)(void), double seconds)
{
	double best = 1e18, end = now_ns(CLOCK_MONOTONIC) + seconds * 1e9;

	do {
		double start;

		memcpy(work.rgb, original.rgb, N_BYTES);
		start = now_ns(CLOCK_THREAD_CPUTIME_ID);
		run();
		start = now_ns(CLOCK_THREAD_CPUTIME_ID) - start;
		best = start < best ? start : best;
	} while (now_ns(CLOCK_MONOTONIC) < end);
	return best / 1000;
}

static struct image image_new(void)
{
	struct image i = { .stride_bytes = EDGE * 3, .width = EDGE, .height = EDGE };

	i.rgb = calloc(1, N_BYTES + 64);
	if (!i.rgb)
		exit(1);
	return i;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 0.3;

	original = image_new();
	work = image_new();
	made = image_new();
	if (fread(original.rgb, 1, N_BYTES, stdin) != N_BYTES) {
		fprintf(stderr, "augment: expected %d bytes of pixels on stdin\n", N_BYTES);
		return 1;
	}
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		printf("%s", ops[i].name);
		for (int path = PROCESSOR_PLAIN; path <= PROCESSOR_AVX512; path++) {
			processor_limit((enum processor_path)path);
			printf("\t%.1f", least_us(ops[i].run, seconds));
		}
		printf("\n");
	}
	scratch_finish(&room);
	free(original.rgb);
	free(work.rgb);
	free(made.rgb);
	return 0;
}
