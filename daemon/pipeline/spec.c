/* The parser of pipelines. A table says what each op is called, which arguments it has (torchvision's, in torchvision's order), how it is read
 * and how it is written; everything else is order and sizes.
 *
 * The output size must not depend on the image, because rows of a batch are equally large: the sizes are followed through the ops with
 * "unknown" as a possible value. */
#include "pipeline/spec.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/arguments.h"

static const char *const filter_names[] = { "nearest", "bilinear", "bicubic", NULL };
static const enum filter filters[] = { FILTER_NEAREST, FILTER_BILINEAR, FILTER_BICUBIC };
static const char *const pad_names[] = { "constant", "edge", "reflect", "symmetric", NULL };

static const char train224[] = "[[\"RandomResizedCrop\",224],\"RandomHorizontalFlip\",\"ToTensor\","
	"[\"Normalize\",[0.485,0.456,0.406],[0.229,0.224,0.225]]]";
static const char val224[] = "[[\"Resize\",256],[\"CenterCrop\",224],\"ToTensor\","
	"[\"Normalize\",[0.485,0.456,0.406],[0.229,0.224,0.225]]]";

/* Reading: each fills op from a; 0 or -EINVAL. */

static int read_resampling(struct arguments *a, unsigned interpolation, unsigned antialias, unsigned pillow, struct op *op)
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

static const char *const random_resized_crop_args[] = { "size", "scale", "ratio", "interpolation", "antialias", "pillow", NULL };

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

/* One number x means center - x .. center + x. Without effect is the same as not given. */
static int read_jitter(struct arguments *a, unsigned i, struct op *op)
{
	double center = i == JITTER_HUE ? 0.0 : 1.0, from = i == JITTER_HUE ? -0.5 : 0.0, to = i == JITTER_HUE ? 0.5 : 1e6;
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
	return op->size.single ? json_integer(op->size.height) : json_pack("[ii]", (int)op->size.height, (int)op->size.width);
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
	return op->pad.one_fill ? json_integer(op->pad.fill[0]) :
	       json_pack("[iii]", op->pad.fill[0], op->pad.fill[1], op->pad.fill[2]);
}

static json_t *write_padding(const struct op *op)
{
	return json_pack("[iiii]", (int)op->pad.left, (int)op->pad.top, (int)op->pad.right, (int)op->pad.bottom);
}

static json_t *write_resize(const struct op *op)
{
	return json_pack("{s:o, s:s, s:o, s:b, s:i}", "size", write_size(op), "interpolation", filter_name(op->resample.filter),
			 "max_size", op->max_size ? json_integer(op->max_size) : json_null(), "antialias", 1, "pillow",
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
	return json_pack("{s:[ii], s:[ff], s:[ff], s:s, s:b, s:i}", "size", (int)op->size.height, (int)op->size.width, "scale",
			 op->crop.scale[0], op->crop.scale[1], "ratio", op->crop.ratio[0], op->crop.ratio[1], "interpolation",
			 filter_name(op->resample.filter), "antialias", 1, "pillow", pillow_version(op));
}

static json_t *write_p(const struct op *op)
{
	return json_pack("{s:f}", "p", op->p);
}

static json_t *write_color_jitter(const struct op *op)
{
	json_t *out = json_object();

	for (unsigned i = 0; i < N_JITTERS; i++)
		json_object_set_new(out, jitter_args[i], !op->jitter.given[i] ? json_null() :
				    json_pack("[ff]", op->jitter.from[i], op->jitter.to[i]));
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

static const struct op_type {
	const char *name;
	const char *const *args;
	int (*read)(struct arguments *a, struct op *op);
	json_t *(*write)(const struct op *op);
	bool random;
} types[] = {
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
enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

bool op_is_random(enum op_kind k)
{
	return types[k].random;
}

/* How many letters differ, insertions and deletions included; both at most 63 letters. */
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

static int unknown_op(unsigned position, const char *name, struct pipeline_error *err)
{
	unsigned best = 0, nearest = 64;

	for (unsigned i = 0; i < N_TYPES && strlen(name) < 64; i++) {
		unsigned d = distance(name, types[i].name);

		if (d < nearest) {
			nearest = d;
			best = i;
		}
	}
	if (nearest <= strlen(types[best].name) / 3 + 1) {
		snprintf(err->text, sizeof(err->text), "op %u '%.60s' is not known; did you mean '%s'?", position, name, types[best].name);
	} else {
		size_t n = (size_t)snprintf(err->text, sizeof(err->text), "op %u '%.30s' is not known; ops are", position, name);

		for (unsigned i = 0; i < N_TYPES && n < sizeof(err->text); i++)
			n += (size_t)snprintf(err->text + n, sizeof(err->text) - n, "%s %s", i ? "," : "", types[i].name);
	}
	return -EINVAL;
}

static int read_op(unsigned position, json_t *entry, struct op *op, struct pipeline_error *err)
{
	json_t *name = json_is_array(entry) ? json_array_get(entry, 0) : entry;
	struct arguments a = { .position = position, .err = err };
	unsigned kind = 0;
	int rc;

	if (!json_is_string(name)) {
		snprintf(err->text, sizeof(err->text), "op %u is not \"Name\" or [\"Name\", arguments...]", position);
		return -EINVAL;
	}
	while (kind < N_TYPES && strcmp(types[kind].name, json_string_value(name)) != 0)
		kind++;
	if (kind == N_TYPES)
		return unknown_op(position, json_string_value(name), err);
	op->kind = (enum op_kind)kind;
	a.op = types[kind].name;
	a.names = types[kind].args;
	rc = arguments_bind(&a, entry);
	return rc == 0 ? types[kind].read(&a, op) : rc;
}

/* Order: pixel ops, then ToTensor, then Normalize. */
static int check_order(struct spec *s, struct pipeline_error *err)
{
	const char *complaint = NULL;
	unsigned i;

	s->normalize = -1;
	for (i = 0; !complaint && i < s->n_ops; i++) {
		enum op_kind k = s->ops[i].kind;

		if (k == OP_TO_TENSOR) {
			complaint = s->has_to_tensor ? "is there twice" : NULL;
			s->has_to_tensor = true;
		} else if (k == OP_NORMALIZE) {
			complaint = !s->has_to_tensor ? "needs ToTensor before it" : s->normalize >= 0 ? "is there twice" : NULL;
			s->normalize = (int)i;
		} else {
			complaint = s->has_to_tensor ? "works on pixels: move it before ToTensor" : NULL;
			s->n_pixel_ops = i + 1;
		}
	}
	if (!complaint)
		return 0;
	snprintf(err->text, sizeof(err->text), "op %u '%s' %s", i, types[s->ops[i - 1].kind].name, complaint);
	return -EINVAL;
}

static int too_small(struct spec *s, unsigned i, struct pipeline_error *err)
{
	snprintf(err->text, sizeof(err->text), "op %u 'RandomCrop' of %u x %u does not fit into the %u x %u pixels it gets; "
		 "use a smaller size, padding or pad_if_needed", i + 1, s->ops[i].size.width, s->ops[i].size.height, s->width, s->height);
	return -EINVAL;
}

/* What one op makes of the size so far; 0 is unknown. */
static int follow_size(struct spec *s, unsigned i, struct pipeline_error *err)
{
	const struct op *op = &s->ops[i];
	uint32_t across = op->pad.left + op->pad.right, down = op->pad.top + op->pad.bottom;

	switch (op->kind) {
	case OP_RESIZE:
		if (!op->size.single || (s->width && s->width == s->height)) {
			s->width = op->size.width;
			s->height = op->size.height;
		} else { /* computable when the size is known, but then two numbers say it better */
			s->width = s->height = 0;
		}
		break;
	case OP_RANDOM_CROP:
		if (s->width && !op->pad_if_needed && (s->width + across < op->size.width || s->height + down < op->size.height))
			return too_small(s, i, err);
		s->width = op->size.width;
		s->height = op->size.height;
		break;
	case OP_CENTER_CROP:
	case OP_RANDOM_RESIZED_CROP:
		s->width = op->size.width;
		s->height = op->size.height;
		break;
	case OP_PAD:
		s->width = s->width ? s->width + across : 0;
		s->height = s->height ? s->height + down : 0;
		break;
	case OP_GRAYSCALE:
		s->n_channels = op->n_channels;
		break;
	default:
		break;
	}
	if (s->n_channels == 1 && (op->kind == OP_PAD || op->kind == OP_RANDOM_CROP) && !op->pad.one_fill) {
		snprintf(err->text, sizeof(err->text), "op %u '%s': the image is grey here, so fill must be one number", i + 1,
			 types[op->kind].name);
		return -EINVAL;
	}
	return 0;
}

static int check_sizes(struct spec *s, struct pipeline_error *err)
{
	int rc = 0;

	s->width = s->height = 0;
	s->n_channels = 3;
	for (unsigned i = 0; rc == 0 && i < s->n_pixel_ops; i++)
		rc = follow_size(s, i, err);
	if (rc != 0)
		return rc;
	if (s->width == 0 || s->height == 0) {
		snprintf(err->text, sizeof(err->text), "the output size depends on the image; all rows of a batch must have one size: end with "
			 "CenterCrop, RandomCrop or RandomResizedCrop, or Resize to [height, width]");
		return -EINVAL;
	}
	if (s->width > SPEC_MAX_EDGE || s->height > SPEC_MAX_EDGE) {
		snprintf(err->text, sizeof(err->text), "the output would be %u x %u pixels; at most %u per edge", s->width, s->height,
			 SPEC_MAX_EDGE);
		return -EINVAL;
	}
	if (s->normalize >= 0 && s->n_channels == 1) {
		const struct op *op = &s->ops[s->normalize];

		if (op->normalize.n_means == 3 || op->normalize.n_stds == 3) {
			snprintf(err->text, sizeof(err->text), "op %d 'Normalize': the image has one channel, so mean and std must be one number",
				 s->normalize + 1);
			return -EINVAL;
		}
	}
	return 0;
}

static char *write_ops(const struct spec *s, unsigned n)
{
	json_t *list = json_array();
	char *text;

	for (unsigned i = 0; i < n; i++) {
		const struct op_type *t = &types[s->ops[i].kind];

		json_array_append_new(list, json_pack("[so]", t->name, t->write(&s->ops[i])));
	}
	text = json_array_size(list) == n ? json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
	json_decref(list);
	return text;
}

static int write_texts(struct spec *s)
{
	s->n_prefix = 0;
	while (s->n_prefix < s->n_pixel_ops && !op_is_random(s->ops[s->n_prefix].kind))
		s->n_prefix++;
	s->text = write_ops(s, s->n_ops);
	s->prefix_text = write_ops(s, s->n_prefix);
	return s->text && s->prefix_text ? 0 : -ENOMEM;
}

static int read_ops(struct spec *s, json_t *list, struct pipeline_error *err)
{
	int rc = 0;

	if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > SPEC_MAX_OPS) {
		snprintf(err->text, sizeof(err->text), "a pipeline is \"train224\", \"val224\" or a JSON array of 1 to %d ops", SPEC_MAX_OPS);
		return -EINVAL;
	}
	for (; rc == 0 && s->n_ops < json_array_size(list); s->n_ops++)
		rc = read_op(s->n_ops + 1, json_array_get(list, s->n_ops), &s->ops[s->n_ops], err);
	if (rc == 0)
		rc = check_order(s, err);
	return rc == 0 ? check_sizes(s, err) : rc;
}

static int parse_json(const char *text, json_t **list, struct pipeline_error *err)
{
	json_error_t error;

	if (strlen(text) > SPEC_MAX_TEXT_BYTES) {
		snprintf(err->text, sizeof(err->text), "the pipeline's text is longer than %d bytes", SPEC_MAX_TEXT_BYTES);
		return -EINVAL;
	}
	if (text[strspn(text, " \t\r\n")] != '[') {
		snprintf(err->text, sizeof(err->text), "pipeline '%.40s' is not known: it is \"train224\", \"val224\" or a JSON array of ops", text);
		return -EINVAL;
	}
	*list = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	if (!*list) {
		snprintf(err->text, sizeof(err->text), "the pipeline is not valid JSON: line %d, column %d: %.150s", error.line, error.column,
			 error.text);
		return -EINVAL;
	}
	return 0;
}

int spec_parse(struct spec *s, const char *text, struct pipeline_error *err)
{
	json_t *list;
	int rc;

	if (strcmp(text, "train224") == 0)
		text = train224;
	else if (strcmp(text, "val224") == 0)
		text = val224;
	memset(s, 0, sizeof(*s));
	rc = parse_json(text, &list, err);
	if (rc != 0)
		return rc;
	rc = read_ops(s, list, err);
	json_decref(list);
	if (rc == 0)
		rc = write_texts(s);
	if (rc != 0)
		spec_finish(s);
	return rc;
}

void spec_finish(struct spec *s)
{
	free(s->text);
	free(s->prefix_text);
	s->text = s->prefix_text = NULL;
}
