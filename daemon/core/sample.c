/* See sample.h. */
#include "core/sample.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "pipeline/random.h"

struct sample_worker {
	struct decoder *decoder;
	struct pipeline_worker *pipeline;
	struct file_bytes file;
};

void recipe_finish(struct recipe *r)
{
	dataset_unref(r->dataset);
	pipeline_destroy(r->pipeline);
	*r = (struct recipe){ 0 };
}

struct sample_worker *sample_worker_create(const struct decode_limits *limits)
{
	struct sample_worker *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->decoder = decoder_create(limits);
	w->pipeline = pipeline_worker_create();
	if (w->decoder && w->pipeline)
		return w;
	sample_worker_destroy(w);
	return NULL;
}

void sample_worker_destroy(struct sample_worker *w)
{
	if (!w)
		return;
	decoder_destroy(w->decoder);
	pipeline_worker_destroy(w->pipeline);
	file_bytes_finish(&w->file);
	free(w);
}

void sample_fetch(const struct recipe *r, uint64_t index, struct sample_input *in)
{
	in->result = dataset_read(r->dataset, index, READ_WAIT, &in->bytes, &in->error);
}

static int bad(const struct recipe *r, uint64_t index, const char *why, struct sample_error *err)
{
	char name[256];
	dataset_name(r->dataset, index, name, sizeof(name));
	snprintf(err->text, sizeof(err->text), "%s: %s", name, why);
	return SAMPLE_E_BAD;
}

static int make_from_bytes(const struct recipe *r, struct sample_worker *w, uint64_t epoch, uint64_t index,
			   const struct file_bytes *file, void *row, struct sample_error *err)
{
	struct image_info info;
	struct image_error why;
	struct sample_key key = { r->seed, epoch, index };
	int result = decoder_open(w->decoder, file->data, file->n_bytes, r->apply_exif, &info, &why);
	if (result == 0)
		result = pipeline_run(r->pipeline, w->pipeline, w->decoder, &info, key, row, &why);
	decoder_close(w->decoder);
	return result > 0 ? bad(r, index, why.text, err) : result;
}

int sample_make(const struct recipe *r, struct sample_worker *w, uint64_t epoch, uint64_t index,
		const struct sample_input *in, bool may_wait, void *row, struct sample_error *err)
{
	if (in) {
		if (in->result)
			return bad(r, index, in->error.text, err);
		return make_from_bytes(r, w, epoch, index, &in->bytes, row, err);
	}
	struct dataset_error why;
	int result = dataset_read(r->dataset, index, READ_NOWAIT, &w->file, &why);
	if (result == -EAGAIN && !may_wait)
		return SAMPLE_E_WOULD_BLOCK;
	if (result == -EAGAIN)
		result = dataset_read(r->dataset, index, READ_WAIT, &w->file, &why);
	if (result == -ENOMEM)
		return result;
	if (result)
		return bad(r, index, why.text, err);
	return make_from_bytes(r, w, epoch, index, &w->file, row, err);
}

uint64_t sample_substitute(uint64_t seed, uint64_t epoch, uint64_t index, unsigned attempt, uint64_t n)
{
	enum { FIRST_OP = 192 }; /* beyond every op of a pipeline */
	struct random random;
	random_init(&random, (struct sample_key){ seed, epoch, index }, FIRST_OP + attempt % 64);
	uint64_t bits = (uint64_t)random_bits(&random) << 32 | random_bits(&random);
	return (uint64_t)(((unsigned __int128)bits * n) >> 64);
}
