/* Arbitrary text as a pipeline: either it is refused with a message, or its canonical text is a pipeline with the same
 * text and can be run on a small image. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline.h"

enum { WIDTH = 19, HEIGHT = 13, MOST_ROW_BYTES = 1 << 16 };

static void run_once(const struct pipeline *p)
{
	static struct pipeline_worker *worker; /* kept: the target is one thread */
	uint8_t *pixels = malloc(WIDTH * HEIGHT * 3), *row = malloc(pipeline_row_bytes(p));
	struct image image = { pixels, WIDTH * 3, WIDTH, HEIGHT };
	struct image_error err = { "" };

	if (!worker)
		worker = pipeline_worker_create();
	for (int i = 0; i < WIDTH * HEIGHT * 3; i++)
		pixels[i] = (uint8_t)(i * 37);
	if (pipeline_resume(p, worker, &image, (struct sample_key){ 1, 2, 3 }, row, &err) > 0 && !err.text[0])
		abort();
	free(row);
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

static void check_text(const struct pipeline *p, enum dtype dtype)
{
	struct pipeline_error err = { "" };
	struct pipeline *again;

	if (pipeline_parse(pipeline_text(p), dtype, LAYOUT_NHWC, &again, &err) != 0 ||
	    strcmp(pipeline_text(p), pipeline_text(again)) != 0)
		abort();
	pipeline_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	enum dtype dtype = n && data[0] & 1 ? DTYPE_FLOAT32 : DTYPE_UINT8;
	struct pipeline_error err = { "" };
	struct pipeline *p = NULL;
	char *text = malloc(n + 1);

	memcpy(text, data, n);
	text[n] = '\0';
	if (pipeline_parse(text, dtype, LAYOUT_NCHW, &p, &err) == 0) {
		check_text(p, dtype);
		if (pipeline_row_bytes(p) <= MOST_ROW_BYTES && !names_large_size(text))
			run_once(p);
		pipeline_destroy(p);
	} else if (!err.text[0] || strchr(err.text, '\n')) {
		abort();
	}
	free(text);
	return 0;
}
