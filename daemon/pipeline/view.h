/* A sample on its way through the ops, of which as little as possible has been computed.
 *
 * Crops, flips and the last resize are only noted; pixels are decoded and resampled when an op needs to see them or
 * when the row is written. So a crop of a resize of a crop decodes just what it needs, resamples just what is kept, and
 * no op knows about that. */
#ifndef BATCHD_VIEW_H
#define BATCHD_VIEW_H

#include <stdbool.h>

#include "decode/decode.h"
#include "image/convert.h"
#include "image/geometry.h"
#include "image/resample.h"
#include "pipeline/pipeline.h"
#include "util/cpu-budget.h"

enum {
	VIEW_MAX_EDGE = 1 << 20,   /* of a resized image, in pixels, whether or not all of it is computed */
	VIEW_MAX_PIXELS = 1 << 26, /* of an image held between two ops */
};

/* One thread's memory. */
struct pipeline_worker {
	struct resampler *resampler;
	struct scratch pixels[2]; /* images between ops, in turn */
	struct scratch columns;   /* image_window's */
	uint64_t max_ns;          /* for a sample */
	struct cpu_budget budget; /* of the one in hand */
};

struct view {
	struct decoder *decoder; /* where pixels come from; NULL: they are in image */
	struct image image;
	int held_in;          /* image is in worker->pixels[held_in]; -1: elsewhere */
	bool borrowed;        /* image may not be changed, wherever it is */
	struct region_px box; /* the part of the source that is left */
	bool resized;         /* then `box` becomes out_width x out_height, of which `keep` is left */
	uint32_t out_width, out_height;
	struct region_px keep;
	enum filter filter;
	enum pass_order order;
	bool flip_horizontal, flip_vertical; /* last of all */
};

void view_of_decoder(struct view *v, struct decoder *d, uint32_t width, uint32_t height);
/* The pixels are borrowed and not changed. They may be what an earlier view of w computed last. */
void view_of_image(struct view *v, const struct pipeline_worker *w, const struct image *i);

uint32_t view_width(const struct view *v);
uint32_t view_height(const struct view *v);

void view_flip_horizontal(struct view *v);
void view_flip_vertical(struct view *v);
/* part: inside the view. */
void view_crop(struct view *v, struct region_px part);

/* These may have to compute. They return 0, an IMAGE_E_ outcome with err->text, or -ENOMEM. */
int view_resize(struct view *v, struct pipeline_worker *w, uint32_t width, uint32_t height, enum filter f,
		enum pass_order order, struct image_error *err);
/* A window of width x height whose upper left corner is at (left, top), which may be outside. */
int view_window(struct view *v, struct pipeline_worker *w, int32_t left, int32_t top, uint32_t width, uint32_t height,
		enum pad_mode mode, const uint8_t fill[3], struct image_error *err);
/* Computes everything noted. v->image is then the view's pixels: in w's memory and free to change when `writable`,
 * otherwise perhaps where they came from. */
int view_settle(struct view *v, struct pipeline_worker *w, bool writable, struct image_error *err);
/* Writes the view as f says; IMAGE_E_CORRUPT when its size is not f's. */
int view_finish(struct view *v, struct pipeline_worker *w, const struct convert *f, void *row, struct image_error *err);

#endif
