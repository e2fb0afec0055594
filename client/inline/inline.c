/* See batchd-inline.h: the daemon's decoders and pipelines behind six functions.
 *
 * A decoder and a pipeline's scratch memory belong to one thread at a time. A call borrows a pair of them from its
 * pipeline, so that the tables and buffers of the previous image serve the next one. */
#include "batchd-inline.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batchd.h"
#include "image/transform/pipeline.h"

enum { KEPT = 16, KEEP_BYTES = 8 << 20 }; /* idle pairs of a pipeline; what the decoder of one may keep */

struct pair {
	struct decoder *decoder;
	struct pipeline_worker *worker;
	struct pair *next;
};

struct batchd_inline {
	struct pipeline *pipeline;
	pthread_mutex_t lock; /* of what follows */
	struct pair *idle;
	unsigned n_idle;
};

static int inline_fail(char *err, size_t err_size, int code, const char *text)
{
	if (err && err_size)
		snprintf(err, err_size, "%s", text);
	return code;
}

static struct decode_limits inline_limits(void)
{
	struct decode_limits limits = decode_limits_default;

	limits.keep_bytes = KEEP_BYTES;
	return limits;
}

static void pair_destroy(struct pair *p)
{
	decoder_destroy(p->decoder);
	pipeline_worker_destroy(p->worker);
	free(p);
}

static struct pair *pair_create(void)
{
	const struct decode_limits limits = inline_limits();
	struct pair *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->decoder = decoder_create(&limits);
	p->worker = pipeline_worker_create();
	if (p->worker)
		pipeline_worker_limit(p->worker, 2 * limits.max_ns);
	if (p->decoder && p->worker)
		return p;
	pair_destroy(p);
	return NULL;
}

static struct pair *pair_take(struct batchd_inline *of)
{
	struct pair *p;

	pthread_mutex_lock(&of->lock);
	p = of->idle;
	if (p) {
		of->idle = p->next;
		of->n_idle--;
	}
	pthread_mutex_unlock(&of->lock);
	return p ? p : pair_create();
}

static void pair_return(struct batchd_inline *of, struct pair *p)
{
	bool keep;

	pthread_mutex_lock(&of->lock);
	keep = of->n_idle < KEPT;
	if (keep) {
		p->next = of->idle;
		of->idle = p;
		of->n_idle++;
	}
	pthread_mutex_unlock(&of->lock);
	if (!keep)
		pair_destroy(p);
}

int batchd_inline_open(const char *transform, int dtype, int layout, batchd_inline **out, char *err, size_t err_size)
{
	struct pipeline_error why = { .text = "" };
	struct batchd_inline *p;
	int r;

	*out = NULL;
	bool known = (dtype >= DTYPE_UINT8 && dtype <= DTYPE_INT32) || dtype == DTYPE_UINT16;

	if (!known || layout < LAYOUT_NCHW || layout > LAYOUT_NHWC)
		return inline_fail(err, err_size, BATCHD_E_INVALID,
				   "an image is uint8, uint16, int32, float16 or float32, in NCHW or NHWC");
	p = calloc(1, sizeof *p);
	if (!p)
		return inline_fail(err, err_size, BATCHD_E_NOMEM, "out of memory");
	r = pipeline_parse(transform, (enum dtype)dtype, (enum layout)layout, &p->pipeline, &why);
	if (r < 0) {
		free(p);
		return r == -EINVAL ? inline_fail(err, err_size, BATCHD_E_INVALID, why.text)
				    : inline_fail(err, err_size, BATCHD_E_NOMEM, "out of memory");
	}
	pthread_mutex_init(&p->lock, NULL);
	*out = p;
	return 0;
}

void batchd_inline_close(batchd_inline *p)
{
	if (!p)
		return;
	while (p->idle) {
		struct pair *next = p->idle->next;

		pair_destroy(p->idle);
		p->idle = next;
	}
	pthread_mutex_destroy(&p->lock);
	pipeline_destroy(p->pipeline);
	free(p);
}

void batchd_inline_shape(const batchd_inline *p, uint32_t shape[3])
{
	pipeline_shape(p->pipeline, shape);
}

size_t batchd_inline_row_bytes(const batchd_inline *p)
{
	return pipeline_row_bytes(p->pipeline);
}

int batchd_inline_normalize(const batchd_inline *p, float mean[3], float std[3])
{
	return pipeline_normalize(p->pipeline, mean, std);
}

int batchd_inline_load(batchd_inline *p, const void *bytes, size_t n_bytes, int apply_exif, uint64_t seed,
		       uint64_t epoch, uint64_t index, void *row, char *err, size_t err_size)
{
	struct pair *pair = pair_take(p);
	struct image_error why = { .text = "" };
	struct image_info info;
	int r;

	if (!pair)
		return inline_fail(err, err_size, BATCHD_E_NOMEM, "out of memory");
	r = pipeline_open(p->pipeline, pair->decoder, bytes, n_bytes, apply_exif, &info, &why);
	if (r == 0) {
		r = pipeline_run(p->pipeline, pair->worker, pair->decoder, &info,
				 (struct sample_key){ .seed = seed, .epoch = epoch, .index = index }, row, &why);
		decoder_close(pair->decoder);
	}
	pair_return(p, pair);
	if (r == 0)
		return 0;
	return r < 0 ? inline_fail(err, err_size, BATCHD_E_NOMEM, "out of memory")
		     : inline_fail(err, err_size, BATCHD_E_BAD_DATA, why.text);
}
