/* Arbitrary text as a pipeline: either it is refused with a message, or its canonical text is a pipeline with the same
 * text and can be run on a small image. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/transform/views.h"

static const struct image_form unknown = { .n_channels = 3 };

enum { WIDTH = 19, HEIGHT = 13, MOST_ROW_BYTES = 1 << 16 };

static void run_once(const struct pipeline *p)
{
	static struct pipeline_worker *worker; /* kept: the target is one thread */
	size_t px = pixel_bytes(pipeline_pixel(p));
	uint8_t *pixels = malloc(WIDTH * HEIGHT * px);
	void *rows[VIEWS_MAX];
	struct image image = { pixels, WIDTH * px, WIDTH, HEIGHT };
	struct image_error err = { "" };

	if (!worker)
		worker = pipeline_worker_create();
	for (size_t i = 0; i < WIDTH * HEIGHT * px; i++)
		pixels[i] = (uint8_t)(i * 37);
	for (unsigned k = 0; k < views_n(p); k++)
		rows[k] = malloc(pipeline_row_bytes(views_at(p, k)));
	if (views_resume(p, worker, &image, (struct sample_key){ 1, 2, 3 }, rows, &err) > 0 && !err.text[0])
		abort();
	for (unsigned k = 0; k < views_n(p); k++)
		free(rows[k]);
	free(pixels);
}

/* Sizes of three digits and more are parsed, but running them would take most of the fuzzer's time. */
static int names_large_size(const char *text)
{
	for (size_t digits = 0; *text; text++) {
		digits = *text >= '0' && *text <= '9' ? digits + 1 : 0;
		if (digits >= 3)
			return 1;
	}
	return 0;
}

static size_t all_row_bytes(const struct pipeline *p)
{
	size_t n = 0;

	for (unsigned k = 0; k < views_n(p); k++)
		n += pipeline_row_bytes(views_at(p, k));
	return n;
}

static void check_text(const struct pipeline *p, enum dtype dtype)
{
	struct pipeline_error err = { "" };
	struct pipeline *again;
	int r = views_parse(pipeline_text(p), &unknown, dtype, LAYOUT_NHWC, &again, &err);

	if (r == -EINVAL && strlen(pipeline_text(p)) > 16 * 1024)
		return; /* with every default filled in, it may be longer than what a client may send */
	if (r != 0 || strcmp(pipeline_text(p), pipeline_text(again)) != 0)
		abort();
	pipeline_destroy(again);
}

/* White space may come before a text. */
static enum dtype dtype_of(uint8_t first)
{
	return first == '\n' ? DTYPE_UINT16 : first == '\t' ? DTYPE_INT32 : first & 1 ? DTYPE_FLOAT32 : DTYPE_UINT8;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	enum dtype dtype = dtype_of(n ? data[0] : 0);
	struct pipeline_error err = { "" };
	struct pipeline *p = NULL;
	char *text = malloc(n + 1);

	memcpy(text, data, n);
	text[n] = '\0';
	if (views_parse(text, &unknown, dtype, LAYOUT_NCHW, &p, &err) == 0) {
		check_text(p, dtype);
		if (all_row_bytes(p) <= MOST_ROW_BYTES && !names_large_size(text))
			run_once(p);
		pipeline_destroy(p);
	} else if (!err.text[0] || strchr(err.text, '\n')) {
		abort();
	}
	free(text);
	return 0;
}
