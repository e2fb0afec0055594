/* Runs single pixel functions for the Python tests that compare with Pillow and torchvision. On stdin, repeatedly: a
 * line
 *
 *     OP PATH WIDTH HEIGHT N ARGUMENT...
 *
 * with N numbers, and WIDTH * HEIGHT RGB pixels. PATH is "plain" or "avx2". On stdout: a line "WIDTH HEIGHT" and the
 * result's pixels. Images lie in memory of exactly their size, so that a sanitizer sees any access past it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/kernels/blur.h"
#include "image/kernels/color.h"
#include "image/kernels/levels.h"
#include "image/kernels/matrix.h"
#include "image/kernels/processor.h"
#include "image/kernels/sharpen.h"
#include "image/kernels/warp.h"

enum { MAX_ARGS = 24 };

static struct scratch room;
static double arg[MAX_ARGS];

static void die(const char *why)
{
	fprintf(stderr, "pixels: %s\n", why);
	exit(1);
}

static struct image image_new(uint32_t width, uint32_t height)
{
	struct image i = { .stride_bytes = (size_t)width * 3, .width = width, .height = height };

	i.rgb = malloc(i.stride_bytes * height);
	if (!i.rgb)
		die("no memory");
	return i;
}

static void check(int rc)
{
	if (rc != 0)
		die("no memory");
}

static void invert(struct image *i)
{
	levels_invert(i);
}

static void posterize(struct image *i)
{
	levels_posterize(i, (unsigned)arg[0]);
}

static void solarize(struct image *i)
{
	levels_solarize(i, arg[0]);
}

static void solarize_add(struct image *i)
{
	levels_solarize_add(i, (int)arg[0], (int)arg[1]);
}

static void brightness(struct image *i)
{
	color_brightness(i, (float)arg[0]);
}

static void contrast(struct image *i)
{
	color_contrast(i, (float)arg[0]);
}

static void color(struct image *i)
{
	color_saturation(i, (float)arg[0]);
}

static void sharpness(struct image *i)
{
	check(sharpen(i, (float)arg[0], &room));
}

static void pillow_blur(struct image *i)
{
	check(blur_pillow(i, (float)arg[0], (float)arg[1], &room));
}

static void torchvision_blur(struct image *i)
{
	const uint32_t size[2] = { (uint32_t)arg[0], (uint32_t)arg[1] };

	check(blur_torchvision(i, size, arg + 2, &room));
}

static void replace(struct image *i, struct image made)
{
	free(i->rgb);
	*i = made;
}

/* width height perspective filter fill (3) matrix (8) */
static void transform(struct image *i)
{
	struct image made = image_new((uint32_t)arg[0], (uint32_t)arg[1]);
	struct warp w = { .perspective = arg[2] != 0, .filter = (enum filter)arg[3] };

	for (int c = 0; c < 3; c++)
		w.fill[c] = (uint8_t)arg[4 + c];
	memcpy(w.m, arg + 7, sizeof(w.m));
	warp(&w, i, &made);
	replace(i, made);
}

/* angle tx ty scale shear (2) center (2) filter fill (3) */
static void affine(struct image *i)
{
	struct matrix_affine a = { .angle = arg[0], .scale = arg[3] };
	struct warp w = { .filter = (enum filter)arg[8] };
	struct image made = image_new(i->width, i->height);

	for (int k = 0; k < 2; k++) {
		a.translate[k] = arg[1 + k];
		a.shear[k] = arg[4 + k];
		a.center[k] = arg[6 + k];
	}
	for (int c = 0; c < 3; c++)
		w.fill[c] = (uint8_t)arg[9 + c];
	matrix_affine(&a, w.m);
	warp(&w, i, &made);
	replace(i, made);
}

/* angle expand has_center center (2) filter fill (3) */
static void rotate(struct image *i)
{
	struct warp w = { .filter = (enum filter)arg[5] };
	uint32_t size[2] = { i->width, i->height };
	enum matrix_turn turn = matrix_rotation(arg[0], arg[1] != 0, arg[2] != 0 ? arg + 3 : NULL, size, w.m);
	struct image made = image_new(size[0], size[1]);

	for (int c = 0; c < 3; c++)
		w.fill[c] = (uint8_t)arg[6 + c];
	if (turn == TURN_MATRIX)
		warp(&w, i, &made);
	else
		warp_turn(turn, i, &made);
	replace(i, made);
}

/* start corners (8) end corners (8) filter fill (3) */
static void perspective(struct image *i)
{
	struct warp w = { .perspective = true, .filter = (enum filter)arg[16] };
	struct image made = image_new(i->width, i->height);
	int32_t start[4][2], end[4][2];

	for (int k = 0; k < 8; k++) {
		start[k / 2][k % 2] = (int32_t)arg[k];
		end[k / 2][k % 2] = (int32_t)arg[8 + k];
	}
	for (int c = 0; c < 3; c++)
		w.fill[c] = (uint8_t)arg[17 + c];
	if (!matrix_perspective(start, end, w.m))
		die("no such perspective");
	warp(&w, i, &made);
	replace(i, made);
}

static const struct {
	const char *name;
	void (*run)(struct image *i);
} ops[] = {
	{ "invert", invert },
	{ "posterize", posterize },
	{ "solarize", solarize },
	{ "solarize_add", solarize_add },
	{ "autocontrast", levels_autocontrast },
	{ "equalize", levels_equalize },
	{ "brightness", brightness },
	{ "contrast", contrast },
	{ "color", color },
	{ "gray", color_grayscale },
	{ "sharpness", sharpness },
	{ "pillow_blur", pillow_blur },
	{ "torchvision_blur", torchvision_blur },
	{ "transform", transform },
	{ "affine", affine },
	{ "rotate", rotate },
	{ "perspective", perspective },
};

static void run(const char *name, struct image *i)
{
	size_t k = 0, n = sizeof(ops) / sizeof(ops[0]);

	while (k < n && strcmp(ops[k].name, name) != 0)
		k++;
	if (k == n)
		die("no such op");
	ops[k].run(i);
}

int main(void)
{
	char name[32], path[16];
	uint32_t width, height;
	unsigned n;

	while (scanf("%31s %15s %u %u %u", name, path, &width, &height, &n) == 5 && n <= MAX_ARGS) {
		struct image i = image_new(width, height);

		for (unsigned k = 0; k < n; k++)
			if (scanf("%lf", &arg[k]) != 1)
				die("an argument is missing");
		if (getchar() != '\n' || fread(i.rgb, 1, i.stride_bytes * height, stdin) != i.stride_bytes * height)
			die("pixels are missing");
		processor_limit(strcmp(path, "avx512") == 0 ? PROCESSOR_AVX512
				: strcmp(path, "avx2") == 0 ? PROCESSOR_AVX2
							    : PROCESSOR_PLAIN);
		run(name, &i);
		printf("%u %u\n", i.width, i.height);
		fwrite(i.rgb, 1, i.stride_bytes * i.height, stdout);
		fflush(stdout);
		free(i.rgb);
	}
	scratch_finish(&room);
	return 0;
}
