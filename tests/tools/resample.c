/* Resamples images for the Python tests that compare with Pillow. On stdin, repeatedly: one line
 *
 *     PATH FILTER ORDER WIDTH HEIGHT BOX_X BOX_Y BOX_W BOX_H OUT_W OUT_H KEEP_X KEEP_Y KEEP_W KEEP_H FLIP
 *
 * and WIDTH * HEIGHT RGB pixels. On stdout: KEEP_W * KEEP_H pixels. The resampler is given only the part that
 * resample_needs names, in memory of exactly that size, so that a sanitizer sees any other read. Without input it lists
 * the paths of this processor (argument --paths). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/kernels/resample/resample.h"

struct job {
	char path[16];
	struct resample_request request;
	uint32_t width, height;
	struct region_px box;
};

static int read_job(struct job *j)
{
	struct resample_request *q = &j->request;
	int filter, order, flip;
	int n = scanf("%15s %d %d %u %u %u %u %u %u %u %u %u %u %u %u %d", j->path, &filter, &order, &j->width,
		      &j->height, &q->box.x, &q->box.y, &q->box.width, &q->box.height, &q->out_width, &q->out_height,
		      &q->keep.x, &q->keep.y, &q->keep.width, &q->keep.height, &flip);

	if (n != 16 || getchar() != '\n')
		return 0;
	q->filter = (enum filter)filter;
	q->order = (enum pass_order)order;
	q->flip = flip;
	return 1;
}

static void die(const char *why)
{
	fprintf(stderr, "resample: %s\n", why);
	exit(1);
}

/* The needed part alone, without a byte after it. */
static struct image cut(const uint8_t *pixels, const struct job *j, struct region_px needs)
{
	struct image part = { .stride_bytes = (size_t)needs.width * 3, .width = needs.width, .height = needs.height };

	part.rgb = malloc(part.stride_bytes * part.height);
	if (!part.rgb)
		die("no memory");
	for (uint32_t y = 0; y < needs.height; y++)
		memcpy(part.rgb + y * part.stride_bytes, pixels + ((size_t)(needs.y + y) * j->width + needs.x) * 3,
		       part.stride_bytes);
	return part;
}

static void run_job(struct resampler *r, const struct job *j)
{
	size_t n_bytes = (size_t)j->width * j->height * 3;
	uint8_t *pixels = malloc(n_bytes);
	struct region_px needs = resample_needs(&j->request);
	struct image out = { .stride_bytes = (size_t)j->request.keep.width * 3,
			     .width = j->request.keep.width,
			     .height = j->request.keep.height };
	struct image part;

	if (!pixels || fread(pixels, 1, n_bytes, stdin) != n_bytes)
		die("pixels are missing");
	part = cut(pixels, j, needs);
	out.rgb = malloc(out.stride_bytes * out.height);
	if (!out.rgb || resampler_set_path(r, j->path) < 0 || resample(r, &j->request, &part, needs, &out) < 0)
		die("no such path, or no memory");
	fwrite(out.rgb, 1, out.stride_bytes * out.height, stdout);
	fflush(stdout);
	free(out.rgb);
	free(part.rgb);
	free(pixels);
}

int main(int argc, char **argv)
{
	struct resampler *r = resampler_create();
	struct job j;

	if (argc > 1 && strcmp(argv[1], "--paths") == 0)
		for (const char *const *name = resample_paths(); *name; name++)
			puts(*name);
	else
		while (r && read_job(&j))
			run_job(r, &j);
	resampler_destroy(r);
	return 0;
}
