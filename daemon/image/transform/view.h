/* A sample on its way through the ops, computed as little as possible.
 *
 * Crops, flips and the last resize are only noted. Pixels are decoded and resampled when an op needs to see them or
 * when the row is written. So a crop of a resize of a crop decodes only the pixels it needs and resamples only the
 * pixels it keeps, without any work in the ops. */
#ifndef BATCHD_VIEW_H
#define BATCHD_VIEW_H

#include <stdbool.h>

#include "image/formats/decode.h"
#include "image/kernels/convert.h"
#include "image/kernels/geometry.h"
#include "image/kernels/numbers.h"
#include "image/kernels/resample/resample.h"
#include "image/transform/pipeline.h"
#include "base/cpu-budget.h"

enum {
	VIEW_MAX_EDGE = 1 << 20,   /* of a resized image, in pixels, even if it is only partly computed */
	VIEW_MAX_PIXELS = 1 << 26, /* of an image held between two ops */
};

/* One thread's memory. */
struct pipeline_worker {
	struct resampler *resampler;
	struct scratch pixels[2];  /* images between ops, in turn */
	struct scratch columns;    /* image_window's */
	struct scratch room;       /* of one op, while it works */
	struct scratch chains[2];  /* AugMix: the image before, the sum of its chains */
	struct scratch source;     /* what several views are made of */
	struct scratch numbers[2]; /* numbers_resample's */
	struct scratch rgb;        /* a grey source, when an op needs its pixels */
	uint64_t max_ns;           /* for each sample */
	struct cpu_budget budget;  /* of the present sample */
};

/* The part of a source that several views need. Until it is there, a view that needs pixels adds to `region` what it
 * needs, and its op returns VIEW_E_LATER. */
struct view_part {
	bool is_there;
	struct region_px region; /* empty: nothing is needed yet */
	struct image image;      /* the pixels of region; not changed */
};

enum { VIEW_E_LATER = 100 }; /* beside the IMAGE_E_ outcomes */

struct view {
	enum pixel pixel;        /* what it consists of. Anything but RGB is for ops with OP_ANY_PIXEL only */
	struct decoder *decoder; /* the source of pixels; NULL: they are in part or image */
	struct view_part *part;  /* the source of pixels; NULL: they are in image, unless there is a decoder */
	struct image image;
	int held_in;          /* image is in worker->pixels[held_in]; -1: elsewhere */
	bool borrowed;        /* image may not be changed, wherever it is */
	bool gray;            /* image has one byte a pixel, and counts as three equal channels */
	struct region_px box; /* the remaining part of the source */
	bool resized;         /* then `box` becomes out_width x out_height, of which `keep` remains */
	uint32_t out_width, out_height;
	struct region_px keep;
	enum filter filter;
	enum pass_order order;
	bool flip_horizontal, flip_vertical; /* applied last */
};

/* These begin with RGB; for other pixels set v->pixel after them. */
void view_of_decoder(struct view *v, struct decoder *d, uint32_t width, uint32_t height);
void view_of_part(struct view *v, struct view_part *part, uint32_t width, uint32_t height);
/* Adds what the view needs to a part that is not there yet. */
void view_note(const struct view *v);
/* The pixels are borrowed and not changed. They may be the last result of an earlier view of w. */
void view_of_image(struct view *v, const struct pipeline_worker *w, const struct image *i);
/* The same of one byte a pixel. */
void view_of_gray(struct view *v, const struct pipeline_worker *w, const struct image *i);

uint32_t view_width(const struct view *v);
uint32_t view_height(const struct view *v);

void view_flip_horizontal(struct view *v);
void view_flip_vertical(struct view *v);
/* part: inside the view. */
void view_crop(struct view *v, struct region_px part);

/* These functions may compute. They return 0, an IMAGE_E_ outcome with err->text, or -ENOMEM. */
int view_resize(struct view *v, struct pipeline_worker *w, uint32_t width, uint32_t height, enum filter f,
		enum pass_order order, struct image_error *err);
/* A window of width x height with its upper left corner at (left, top), which may be outside. */
int view_window(struct view *v, struct pipeline_worker *w, int32_t left, int32_t top, uint32_t width, uint32_t height,
		enum pad_mode mode, const uint8_t fill[3], struct image_error *err);
/* The same for pixels of one number, where the fill is such a number. */
int view_window_number(struct view *v, struct pipeline_worker *w, int32_t left, int32_t top, uint32_t width,
		       uint32_t height, enum pad_mode mode, double fill, struct image_error *err);
/* Computes everything noted. v->image then holds the view's pixels: with `writable`, in w's memory and free to change;
 * otherwise possibly still in their source. */
int view_settle(struct view *v, struct pipeline_worker *w, bool writable, struct image_error *err);
/* For ops that make a new image from the view's: settles it and reserves memory for the other one. */
int view_make(struct view *v, struct pipeline_worker *w, uint32_t width, uint32_t height, struct image *made,
	      struct image_error *err);
/* Replaces the view's image by made, from the last view_make. */
void view_take(struct view *v, const struct image *made);
/* Writes the view as f says; IMAGE_E_CORRUPT when its size is not f's. */
int view_finish(struct view *v, struct pipeline_worker *w, const struct convert *f, void *row, struct image_error *err);

#endif
