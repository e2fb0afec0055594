/* The ops by name: the arguments of each (torchvision's, in torchvision's order, with its defaults), and the functions
 * that read and write them. */
#include "pipeline/op-types.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const filter_names[] = { "nearest", "bilinear", "bicubic", NULL };
static const enum filter filters[] = { FILTER_NEAREST, FILTER_BILINEAR, FILTER_BICUBIC };
static const char *const pad_names[] = { "constant", "edge", "reflect", "symmetric", NULL };

/* Reading: each fills op from a; 0 or -EINVAL. */

static int read_resampling(struct arguments *a, unsigned interpolation, unsigned antialias, unsigned pillow,
			   struct op *op)
{
	unsigned choice = 1;
	bool smooth = true;
	uint32_t version = 13;
	int rc = argument_choice(a, interpolation, filter_names, &choice);

	if (rc == 0)
		rc = argument_bool(a, antialias, &smooth);
	if (rc == 0 && !smooth)
		rc = argument_wrong(a, antialias, "true: images are always antialiased, as Pillow does");
	if (rc == 0)
		rc = argument_count(a, pillow, 12, 13, &version);
	op->resample.filter = filters[choice];
	op->resample.order = version == 12 ? PASS_ORDER_PILLOW_12 : PASS_ORDER_PILLOW_13;
	return rc;
}

static int read_pad(struct arguments *a, unsigned fill, unsigned mode, struct op *op)
{
	double colors[3] = { 0 };
	uint32_t n = 1;
	unsigned choice = PAD_CONSTANT;
	int rc = argument_colors(a, fill, 0, 255, colors, &n);

	if (rc == 0)
		rc = argument_choice(a, mode, pad_names, &choice);
	for (int c = 0; c < 3; c++)
		op->pad.fill[c] = (uint8_t)colors[c];
	op->pad.one_fill = n == 1;
	op->pad.mode = (enum pad_mode)choice;
	return rc;
}

static const char *const resize_args[] = { "size", "interpolation", "max_size", "antialias", "pillow", NULL };

static int read_resize(struct arguments *a, struct op *op)
{
	int rc = argument_size(a, 0, &op->size);

	if (rc == 0)
		rc = argument_count(a, 2, 1, SPEC_MAX_EDGE, &op->max_size);
	if (rc == 0 && op->max_size && (!op->size.single || op->max_size <= op->size.height))
		rc = argument_wrong(a, 2, "more than size, which must be one number");
	return rc == 0 ? read_resampling(a, 1, 3, 4, op) : rc;
}

static const char *const center_crop_args[] = { "size", NULL };

static int read_center_crop(struct arguments *a, struct op *op)
{
	return argument_size(a, 0, &op->size);
}

static const char *const random_crop_args[] = { "size", "padding", "pad_if_needed", "fill", "padding_mode", NULL };

static int read_random_crop(struct arguments *a, struct op *op)
{
	bool given = false;
	int rc = argument_size(a, 0, &op->size);

	if (rc == 0)
		rc = argument_padding(a, 1, &op->pad, &given);
	if (rc == 0)
		rc = argument_bool(a, 2, &op->pad_if_needed);
	return rc == 0 ? read_pad(a, 3, 4, op) : rc;
}

static const char *const random_resized_crop_args[] = { "size",      "scale",  "ratio", "interpolation",
							"antialias", "pillow", NULL };

static int read_random_resized_crop(struct arguments *a, struct op *op)
{
	int rc = argument_size(a, 0, &op->size);

	op->crop.scale[0] = 0.08;
	op->crop.scale[1] = 1.0;
	op->crop.ratio[0] = 3.0 / 4.0;
	op->crop.ratio[1] = 4.0 / 3.0;
	if (rc == 0)
		rc = argument_range(a, 1, 0, 1, op->crop.scale);
	if (rc == 0)
		rc = argument_range(a, 2, 1e-3, 1e3, op->crop.ratio);
	for (int i = 0; i < 2; i++) /* of float32, as torch.log(torch.tensor(ratio)) */
		op->crop.log_ratio[i] = logf((float)op->crop.ratio[i]);
	return rc == 0 ? read_resampling(a, 3, 4, 5, op) : rc;
}

static const char *const p_args[] = { "p", NULL };

static int read_flip(struct arguments *a, struct op *op)
{
	op->p = 0.5;
	return argument_number(a, 0, 0, 1, &op->p);
}

static int read_random_grayscale(struct arguments *a, struct op *op)
{
	op->p = 0.1;
	return argument_number(a, 0, 0, 1, &op->p);
}

static const char *const jitter_args[] = { "brightness", "contrast", "saturation", "hue", NULL };

/* One number x means center - x .. center + x. A range without effect counts as not given. */
static int read_jitter(struct arguments *a, unsigned i, struct op *op)
{
	double center = i == JITTER_HUE ? 0.0 : 1.0, from = i == JITTER_HUE ? -0.5 : 0.0,
	       to = i == JITTER_HUE ? 0.5 : 1e6;
	double range[2] = { center, center };
	int rc = 0;

	if (json_is_number(a->values[i])) {
		double x = 0.0;

		rc = argument_number(a, i, 0, to, &x);
		range[0] = center - x < from ? from : center - x;
		range[1] = center + x;
	} else if (a->values[i] && !json_is_null(a->values[i])) {
		rc = argument_range(a, i, from, to, range);
	}
	op->jitter.from[i] = range[0];
	op->jitter.to[i] = range[1];
	op->jitter.given[i] = range[0] != center || range[1] != center;
	return rc;
}

static int read_color_jitter(struct arguments *a, struct op *op)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < N_JITTERS; i++)
		rc = read_jitter(a, i, op);
	return rc;
}

static const char *const pad_args[] = { "padding", "fill", "padding_mode", NULL };

static int read_pad_op(struct arguments *a, struct op *op)
{
	bool given = false;
	int rc = argument_padding(a, 0, &op->pad, &given);

	if (rc == 0 && !given)
		rc = argument_wrong(a, 0, "one number, [left/right, top/bottom] or [left, top, right, bottom]");
	return rc == 0 ? read_pad(a, 1, 2, op) : rc;
}

static const char *const grayscale_args[] = { "num_output_channels", NULL };

static int read_grayscale(struct arguments *a, struct op *op)
{
	op->n_channels = 1;
	if (argument_count(a, 0, 1, 3, &op->n_channels) < 0 || op->n_channels == 2)
		return argument_wrong(a, 0, "1 or 3");
	return 0;
}

static const char *const no_args[] = { NULL };

static int read_nothing(struct arguments *a, struct op *op)
{
	(void)a;
	(void)op;
	return 0;
}

static const char *const normalize_args[] = { "mean", "std", "inplace", NULL };

static int read_normalize(struct arguments *a, struct op *op)
{
	bool inplace;
	int rc;

	for (unsigned i = 0; i < 2; i++)
		if (!a->values[i])
			return argument_wrong(a, i, "one number per channel");
	rc = argument_colors(a, 0, -1e6, 1e6, op->normalize.mean, &op->normalize.n_means);
	if (rc == 0)
		rc = argument_colors(a, 1, 1e-6, 1e6, op->normalize.std, &op->normalize.n_stds);
	return rc == 0 ? argument_bool(a, 2, &inplace) : rc;
}

/* Writing: each returns a new object of arguments, NULL when memory is short. */

static json_t *write_size(const struct op *op)
{
	return op->size.single ? json_integer(op->size.height)
			       : json_pack("[ii]", (int)op->size.height, (int)op->size.width);
}

static const char *filter_name(enum filter f)
{
	return f == FILTER_NEAREST ? "nearest" : f == FILTER_BILINEAR ? "bilinear" : "bicubic";
}

static int pillow_version(const struct op *op)
{
	return op->resample.order == PASS_ORDER_PILLOW_12 ? 12 : 13;
}

static json_t *write_fill(const struct op *op)
{
	return op->pad.one_fill ? json_integer(op->pad.fill[0])
				: json_pack("[iii]", op->pad.fill[0], op->pad.fill[1], op->pad.fill[2]);
}

static json_t *write_padding(const struct op *op)
{
	return json_pack("[iiii]", (int)op->pad.left, (int)op->pad.top, (int)op->pad.right, (int)op->pad.bottom);
}

static json_t *write_resize(const struct op *op)
{
	return json_pack("{s:o, s:s, s:o, s:b, s:i}", "size", write_size(op), "interpolation",
			 filter_name(op->resample.filter), "max_size",
			 op->max_size ? json_integer(op->max_size) : json_null(), "antialias", 1, "pillow",
			 pillow_version(op));
}

static json_t *write_center_crop(const struct op *op)
{
	return json_pack("{s:[ii]}", "size", (int)op->size.height, (int)op->size.width);
}

static json_t *write_random_crop(const struct op *op)
{
	return json_pack("{s:[ii], s:o, s:b, s:o, s:s}", "size", (int)op->size.height, (int)op->size.width, "padding",
			 write_padding(op), "pad_if_needed", op->pad_if_needed, "fill", write_fill(op), "padding_mode",
			 pad_names[op->pad.mode]);
}

static json_t *write_random_resized_crop(const struct op *op)
{
	return json_pack("{s:[ii], s:[ff], s:[ff], s:s, s:b, s:i}", "size", (int)op->size.height, (int)op->size.width,
			 "scale", op->crop.scale[0], op->crop.scale[1], "ratio", op->crop.ratio[0], op->crop.ratio[1],
			 "interpolation", filter_name(op->resample.filter), "antialias", 1, "pillow",
			 pillow_version(op));
}

static json_t *write_p(const struct op *op)
{
	return json_pack("{s:f}", "p", op->p);
}

static json_t *write_color_jitter(const struct op *op)
{
	json_t *out = json_object();

	for (unsigned i = 0; i < N_JITTERS; i++)
		json_object_set_new(out, jitter_args[i],
				    !op->jitter.given[i] ? json_null()
							 : json_pack("[ff]", op->jitter.from[i], op->jitter.to[i]));
	return out;
}

static json_t *write_pad(const struct op *op)
{
	return json_pack("{s:o, s:o, s:s}", "padding", write_padding(op), "fill", write_fill(op), "padding_mode",
			 pad_names[op->pad.mode]);
}

static json_t *write_grayscale(const struct op *op)
{
	return json_pack("{s:i}", "num_output_channels", (int)op->n_channels);
}

static json_t *write_nothing(const struct op *op)
{
	(void)op;
	return json_object();
}

static json_t *write_normalize(const struct op *op)
{
	const double *m = op->normalize.mean, *s = op->normalize.std;

	if (op->normalize.n_means == 1 && op->normalize.n_stds == 1)
		return json_pack("{s:[f], s:[f]}", "mean", m[0], "std", s[0]);
	return json_pack("{s:[fff], s:[fff]}", "mean", m[0], m[1], m[2], "std", s[0], s[1], s[2]);
}

const struct op_type op_types[N_OP_TYPES] = {
	[OP_RESIZE] = { "Resize", resize_args, read_resize, write_resize, false },
	[OP_CENTER_CROP] = { "CenterCrop", center_crop_args, read_center_crop, write_center_crop, false },
	[OP_RANDOM_CROP] = { "RandomCrop", random_crop_args, read_random_crop, write_random_crop, true },
	[OP_RANDOM_RESIZED_CROP] = { "RandomResizedCrop", random_resized_crop_args, read_random_resized_crop,
				     write_random_resized_crop, true },
	[OP_RANDOM_HORIZONTAL_FLIP] = { "RandomHorizontalFlip", p_args, read_flip, write_p, true },
	[OP_RANDOM_VERTICAL_FLIP] = { "RandomVerticalFlip", p_args, read_flip, write_p, true },
	[OP_COLOR_JITTER] = { "ColorJitter", jitter_args, read_color_jitter, write_color_jitter, true },
	[OP_RANDOM_GRAYSCALE] = { "RandomGrayscale", p_args, read_random_grayscale, write_p, true },
	[OP_PAD] = { "Pad", pad_args, read_pad_op, write_pad, false },
	[OP_GRAYSCALE] = { "Grayscale", grayscale_args, read_grayscale, write_grayscale, false },
	[OP_TO_TENSOR] = { "ToTensor", no_args, read_nothing, write_nothing, false },
	[OP_NORMALIZE] = { "Normalize", normalize_args, read_normalize, write_normalize, false },
};
bool op_is_random(enum op_kind k)
{
	return op_types[k].random;
}

/* Edit distance of two names, insertions and deletions included; both at most 63 letters. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[64], n = (unsigned)strlen(b);

	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; *a; a++, i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= n; j++) {
			unsigned change = diagonal + (tolower((unsigned char)*a) != tolower((unsigned char)b[j - 1]));
			unsigned skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = change < skip ? change : skip;
		}
	}
	return row[n];
}

int op_type_unknown(unsigned position, const char *name, struct pipeline_error *err)
{
	unsigned best = 0, nearest = 64;

	for (unsigned i = 0; i < N_OP_TYPES && strlen(name) < 64; i++) {
		unsigned d = distance(name, op_types[i].name);

		if (d < nearest) {
			nearest = d;
			best = i;
		}
	}
	if (nearest <= strlen(op_types[best].name) / 5 + 1) { /* a typing error; a larger distance means another op */
		snprintf(err->text, sizeof(err->text), "op %u '%.60s' is not known; did you mean '%s'?", position, name,
			 op_types[best].name);
	} else {
		size_t n = (size_t)snprintf(err->text, sizeof(err->text), "op %u '%.30s' is not known; ops are",
					    position, name);

		for (unsigned i = 0; i < N_OP_TYPES && n < sizeof(err->text); i++)
			n += (size_t)snprintf(err->text + n, sizeof(err->text) - n, "%s %s", i ? "," : "",
					      op_types[i].name);
		if (n < sizeof(err->text))
			snprintf(err->text + n, sizeof(err->text) - n,
				 "; do other ones in the training loop, or share a DataLoader of yours that does them "
				 "(batchd.serve)");
	}
	return -EINVAL;
}
