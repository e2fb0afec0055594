/* A pipeline: the processing of one image from its file to its row of the batch, in terms of torchvision.transforms.v2.
 *
 * Parsed once per loader from a name ("train224", "val224") or from JSON text, checked, and then read-only: any thread
 * may run it, each with its own pipeline_worker. The bytes of a row depend only on its sample_key (seed, epoch, sample
 * index) and the pipeline. */
#ifndef BATCHD_PIPELINE_H
#define BATCHD_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "image/formats/decode.h"
#include "base/dtype.h"

enum layout { LAYOUT_NCHW, LAYOUT_NHWC, LAYOUT_AS_STORED }; /* numbers as in proto/batchd.proto */

/* What pixels are in memory. */
enum dtype dtype_of_pixel(enum pixel p);

struct pipeline;

/* An error of pipeline_parse: which op and argument is wrong and what was expected. */
struct pipeline_error {
	char text[512];
};

/* text: "train224", "val224" or a JSON array of ops: "ToTensor", ["Resize", 256], ["Resize", {"size": 256,
 * "interpolation": "bicubic"}], ["RandomResizedCrop", 224, ...positional as torchvision], both kinds mixed as in
 * Python. Ops, arguments and defaults are torchvision.transforms.v2's on PIL images; Resize and RandomResizedCrop also
 * have "pillow": 12 or 13 (default), because Pillow 13 changed the order of its two passes for some shapes. Pixel ops
 * come first, then ToTensor, then Normalize. Containers have lists of pixel ops as an argument: ["RandomApply",
 * ["RandomGrayscale"], 0.8]. At most 64 ops, and 64 in each container, 512 in containers all together, 8 containers
 * deep; 16 KiB of text and 8192 pixels per edge. Ops on numbers come after ToTensor, in any order.
 *
 * dtype: uint8, float16 or float32; with uint8 a final ToTensor scaling and Normalize are left to the trainer
 * (pipeline_normalize tells them), floats need a ToTensor. The output size must be the same for every image. ["Draft",
 * size] as the first op reads JPEGs in the size that Pillow's Image.draft gives them; size is that of the results
 * unless given. ["Convert", mode] as the first op after it reads images of one number a pixel in Pillow's mode I;16, I
 * or F: their dtype is uint16, int32 or float32 as they are, or a float after ["ToDtype", "float32", true]. A client
 * that has the two as options writes {"decode": ["Draft", size]} and {"image_mode": ["Convert", mode]}: errors do not
 * count those as ops of the list.
 *
 * 0, -EINVAL with one line in err->text, -ENOMEM. The caller destroys *out. */
int pipeline_parse(const char *text, enum dtype dtype, enum layout layout, struct pipeline **out,
		   struct pipeline_error *err);

/* What all images of a data set are, where that is known. With one channel, 1 channel comes out unless the ops make
 * more. */
struct image_form {
	uint32_t width, height, n_channels;
	enum pixel pixel;
};
/* The same for such a data set: its images may keep their size. */
int pipeline_parse_for(const char *text, const struct image_form *source, enum dtype dtype, enum layout layout,
		       struct pipeline **out, struct pipeline_error *err);
void pipeline_destroy(struct pipeline *p);

/* The pipeline as canonical JSON, every default filled in: equal text means equal pixels. Owned by the pipeline. */
const char *pipeline_text(const struct pipeline *p);
/* The canonical JSON of the deterministic prefix (ops before the first random one, and before ToTensor); "[]" if it has
 * no ops. */
const char *pipeline_prefix_text(const struct pipeline *p);

void pipeline_shape(const struct pipeline *p, uint32_t shape[3]); /* in memory order, e.g. {3, 224, 224} */
size_t pipeline_row_bytes(const struct pipeline *p);
/* What images are between ops, and in the caches. */
enum pixel pipeline_pixel(const struct pipeline *p);
bool pipeline_to_tensor(const struct pipeline *p); /* whether the text has a ToTensor, which floats require */
/* True when dtype is uint8 and the text had a Normalize; mean and std in units of ToTensor's 0..1. */
bool pipeline_normalize(const struct pipeline *p, float mean[3], float std[3]);

/* A row as pixels, RGB, without ToTensor and Normalize, to look at. For uint8 and float32 in NHWC, and for images of one
 * number a pixel but float16: their numbers from the least to the greatest become 0 to 255. */
void pipeline_picture(const struct pipeline *p, const void *row, uint8_t *rgb);

struct sample_key {
	uint64_t seed;         /* the loader's, or for a caller's own order that of the row (random_seed_at) */
	uint64_t epoch, index; /* only the low 44 bits of epoch count */
};

/* Scratch memory and resampler of one thread. NULL when memory is short. */
struct pipeline_worker;
struct pipeline_worker *pipeline_worker_create(void);
/* Limits the processor time that decoding and ops of one sample may take together; 0 (the initial value): no limit. */
void pipeline_worker_limit(struct pipeline_worker *w, uint64_t max_ns);
void pipeline_worker_trim(struct pipeline_worker *w); /* frees its memory */
void pipeline_worker_destroy(struct pipeline_worker *w);

/* decoder_open, and decoder_draft if the pipeline begins with Draft. */
int pipeline_open(const struct pipeline *p, struct decoder *d, const uint8_t *bytes, size_t n_bytes, bool apply_exif,
		  struct image_info *info, struct image_error *err);
/* Makes one row from an image whose header d has just read (pipeline_open; info is its result). row: pipeline_row_bytes,
 * any alignment of the dtype. Returns 0, an IMAGE_E_ outcome, -ENOMEM. */
int pipeline_run(const struct pipeline *p, struct pipeline_worker *w, struct decoder *d, const struct image_info *info,
		 struct sample_key key, void *row, struct image_error *err);

/* The two halves for the decoded cache. pipeline_prefix: decodes and runs only the deterministic prefix; *out points
 * into w or d until their next use. pipeline_resume: makes a row from the result of a prefix, which is either still in
 * w or d, or a copy, which is not changed; same bytes as pipeline_run. IMAGE_E_CORRUPT when the prefix has a size that
 * this pipeline cannot give. */
int pipeline_prefix(const struct pipeline *p, struct pipeline_worker *w, struct decoder *d,
		    const struct image_info *info, struct image *out, struct image_error *err);
int pipeline_resume(const struct pipeline *p, struct pipeline_worker *w, const struct image *prefix,
		    struct sample_key key, void *row, struct image_error *err);

#endif
