/* Views: several results of one image, each by a pipeline of its own.
 *
 * The first view's struct pipeline has the others, so what is said of a pipeline (pipeline_text, pipeline_prefix_text,
 * pipeline_prefix) is said of all of them together. A sample is decoded once, for the smallest rectangle that has what
 * every view needs. View v draws from keys of its own: the places of its ops (random.h) have v in bits 16 and above. So a
 * view's bytes depend on its number and its pipeline, not on the other views. */
#ifndef BATCHD_VIEWS_H
#define BATCHD_VIEWS_H

#include "image/transform/pipeline.h"

enum {
	VIEWS_MAX = 64,
	VIEWS_MAX_PIXELS = 1 << 27,        /* of the finished views of one image together */
	VIEWS_MAX_TEXT_BYTES = 256 * 1024, /* of all views, with every default filled in */
};

/* text: as pipeline_parse has it, or a JSON object of views in order: {"NAME": pipeline, ...}, where a pipeline is
 * "train224", "val224" or a list of ops. {"NAME": {"views": [pipeline, ...], "n": k}} stands for a list of views that is
 * repeated k times (1 when left out) and named NAME, NAME.1, NAME.2 and so on. A name that is empty or begins with a dot
 * is put after the name of the data set's first field. Returns as pipeline_parse. */
int views_parse(const char *text, const struct image_form *source, enum dtype dtype, enum layout layout,
		struct pipeline **out, struct pipeline_error *err);

unsigned views_n(const struct pipeline *p);                            /* 1 to VIEWS_MAX */
const struct pipeline *views_at(const struct pipeline *p, unsigned k); /* for pipeline_shape, pipeline_row_bytes ... */
/* The name of view k where the first field of the data set is `field`. False: it is not valid as a field's name. */
bool views_name(const struct pipeline *p, unsigned k, const char *field, char *name, size_t size);

/* As pipeline_run and pipeline_resume; rows: one for each view. The processor time of pipeline_worker_limit is for all
 * views together. views_run_image: from pixels, which are not changed and must outlive the call; gray: they are of one
 * byte each, and count as three equal channels. */
int views_run(const struct pipeline *p, struct pipeline_worker *w, struct decoder *d, const struct image_info *info,
	      struct sample_key key, void *const rows[], struct image_error *err);
int views_run_image(const struct pipeline *p, struct pipeline_worker *w, const struct image *source, bool gray,
		    struct sample_key key, void *const rows[], struct image_error *err);
/* What the decoded cache would keep of an image of this size, without making it: the size of the deterministic prefix's
 * result, or of the whole image where that follows from pixels. */
uint64_t views_prefix_bytes(const struct pipeline *p, struct pipeline_worker *w, uint32_t width, uint32_t height);
int views_resume(const struct pipeline *p, struct pipeline_worker *w, const struct image *prefix, struct sample_key key,
		 void *const rows[], struct image_error *err);

#endif
