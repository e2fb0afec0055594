/* The time of each pixel kernel, on every path that this processor can run:
 *
 *     kernels [RUNS]
 *
 * Each figure is the median of RUNS runs (default 101) on data that is in the cache: nanoseconds per output pixel, and
 * microseconds for the whole operation. Medians, because machines that run benchmarks usually do other work as well. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "image/kernels/blur.h"
#include "image/kernels/color.h"
#include "image/kernels/convert.h"
#include "image/kernels/resample/resample.h"

static int n_runs = 101;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median_ns(void (*once)(void *), void *arg)
{
	double *runs = malloc((size_t)n_runs * sizeof(*runs)), median;

	if (!runs)
		exit(1);
	once(arg);
	for (int i = 0; i < n_runs; i++) {
		double start = now_ns();

		once(arg);
		runs[i] = now_ns() - start;
	}
	qsort(runs, (size_t)n_runs, sizeof(*runs), ascending);
	median = runs[n_runs / 2];
	free(runs);
	return median;
}

static void report(const char *what, const char *path, double ns, size_t n_px)
{
	printf("%-44s %-8s %8.2f ns/px %9.1f us\n", what, path, ns / (double)n_px, ns / 1000);
}

static struct image noise(uint32_t width, uint32_t height)
{
	struct image i = { .stride_bytes = (size_t)width * 3, .width = width, .height = height };
	uint32_t state = 1;

	i.rgb = malloc(i.stride_bytes * height + 64);
	if (!i.rgb)
		exit(1);
	for (size_t b = 0; b < i.stride_bytes * height; b++) {
		state = state * 1664525u + 1013904223u;
		i.rgb[b] = (uint8_t)(state >> 24);
	}
	return i;
}

struct resample_bench {
	struct resampler *r;
	struct resample_request q;
	struct image src, dst;
	bool new_size; /* every run has another size, as random crops have, so weights are made each time */
};

static void resample_once(void *arg)
{
	struct resample_bench *b = arg;
	struct region_px origin = { 0, 0, b->src.width, b->src.height };

	if (b->new_size) { /* alternates by one pixel */
		uint32_t odd = b->q.box.width == b->src.width;

		b->q.box.width -= odd ? 1 : (uint32_t)-1;
		b->q.box.height -= odd ? 1 : (uint32_t)-1;
	}
	resample(b->r, &b->q, &b->src, origin, &b->dst);
}

static void bench_resample(const char *what, enum filter f, uint32_t w, uint32_t h, uint32_t out_w, uint32_t out_h,
			   struct region_px keep)
{
	struct resample_bench b = {
		.r = resampler_create(), .src = noise(w, h), .dst = noise(keep.width, keep.height), .new_size = true
	};

	b.q = (struct resample_request){
		.filter = f, .box = { 0, 0, w, h }, .out_width = out_w, .out_height = out_h, .keep = keep
	};
	for (const char *const *path = resample_paths(); *path; path++) {
		resampler_set_path(b.r, *path);
		report(what, *path, median_ns(resample_once, &b), (size_t)keep.width * keep.height);
	}
	resampler_destroy(b.r);
	free(b.src.rgb);
	free(b.dst.rgb);
}

struct convert_bench {
	struct convert f;
	struct image src;
	void *out;
	size_t n_places, next; /* results go to many places in turn, as rows of a batch do, so that they are not in the
	                        * cache */
};

static void convert_once(void *arg)
{
	struct convert_bench *b = arg;
	uint8_t *out = (uint8_t *)b->out + b->next++ % b->n_places * convert_bytes(&b->f);

	for (uint32_t y = 0; y < b->f.height; y++)
		convert_row(&b->f, b->src.rgb + y * b->src.stride_bytes, y, out);
}

static void bench_finish(const char *what, enum convert_type type, bool planar, size_t n_places)
{
	const float mean[3] = { 0.485f, 0.456f, 0.406f }, std[3] = { 0.229f, 0.224f, 0.225f };
	struct convert_bench b = { .src = noise(224, 224), .n_places = n_places };

	convert_init(&b.f, type, planar, 3, 224, 224, mean, std);
	b.out = aligned_alloc(64, convert_bytes(&b.f) * n_places);
	if (!b.out)
		exit(1);
	memset(b.out, 1, convert_bytes(&b.f) * n_places);
	for (const char *const *path = convert_paths(); *path; path++)
		if (convert_set_path(&b.f, *path) == 0)
			report(what, *path, median_ns(convert_once, &b), 224 * 224);
	free(b.out);
	free(b.src.rgb);
}

struct color_bench {
	struct image i;
	int op;
};

static void color_once(void *arg)
{
	struct color_bench *b = arg;

	switch (b->op) {
	case 0:
		color_brightness(&b->i, 1.01f);
		break;
	case 1:
		color_contrast(&b->i, 1.01f);
		break;
	case 2:
		color_saturation(&b->i, 1.01f);
		break;
	case 3:
		color_hue(&b->i, 3);
		break;
	default:
		color_grayscale(&b->i);
		break;
	}
}

static void bench_color(void)
{
	static const char *const names[] = { "brightness 224x224", "contrast 224x224", "saturation 224x224",
					     "hue 224x224", "grayscale 224x224" };
	struct color_bench b = { .i = noise(224, 224) };

	for (b.op = 0; b.op < 5; b.op++)
		report(names[b.op], "", median_ns(color_once, &b), 224 * 224);
	free(b.i.rgb);
}

struct blur_bench {
	struct image i;
	struct scratch room;
};

static void blur_once(void *arg)
{
	struct blur_bench *b = arg;

	if (blur_pillow(&b->i, 1.0f, 1.0f, &b->room))
		exit(1);
}

static void bench_blur(const char *what, uint32_t size)
{
	struct blur_bench b = { .i = noise(size, size) };

	report(what, "", median_ns(blur_once, &b), (size_t)size * size);
	free(b.i.rgb);
	scratch_finish(&b.room);
}

int main(int argc, char **argv)
{
	const struct region_px square = { 0, 0, 224, 224 }, middle = { 58, 16, 224, 224 };

	if (argc > 1)
		n_runs = atoi(argv[1]) > 0 ? atoi(argv[1]) : n_runs;
	bench_resample("bilinear 350x270 -> 224x224", FILTER_BILINEAR, 350, 270, 224, 224, square);
	bench_resample("bilinear 270x350 -> 224x224", FILTER_BILINEAR, 270, 350, 224, 224, square);
	bench_resample("bilinear 500x375 -> 341x256, centre 224x224", FILTER_BILINEAR, 500, 375, 341, 256, middle);
	bench_resample("bilinear 120x100 -> 224x224", FILTER_BILINEAR, 120, 100, 224, 224, square);
	bench_resample("bilinear 2000x1500 -> 224x224", FILTER_BILINEAR, 2000, 1500, 224, 224, square);
	bench_resample("bicubic 350x270 -> 224x224", FILTER_BICUBIC, 350, 270, 224, 224, square);
	bench_finish("finish float32 NCHW, in cache", CONVERT_FLOAT32, true, 1);
	bench_finish("finish float32 NCHW, 128 places", CONVERT_FLOAT32, true, 128);
	bench_finish("finish float32 NHWC, 128 places", CONVERT_FLOAT32, false, 128);
	bench_finish("finish float16 NCHW, 128 places", CONVERT_FLOAT16, true, 128);
	bench_finish("finish uint8 NCHW, 128 places", CONVERT_UINT8, true, 128);
	bench_color();
	bench_blur("blur of sigma 1, 224x224", 224);
	bench_blur("blur of sigma 1, 96x96", 96);
	return 0;
}
