/* The parser of pipelines: reads JSON into a list of ops, then checks their order and sizes.
 *
 * The output size must not depend on the image, because all rows of a batch have the same size. So the parser follows
 * the sizes through the ops, with "unknown" as a possible value. */
#include "pipeline/spec.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/op-types.h"

static const char train224[] = "[[\"RandomResizedCrop\",224],\"RandomHorizontalFlip\",\"ToTensor\","
			       "[\"Normalize\",[0.485,0.456,0.406],[0.229,0.224,0.225]]]";
static const char val224[] = "[[\"Resize\",256],[\"CenterCrop\",224],\"ToTensor\","
			     "[\"Normalize\",[0.485,0.456,0.406],[0.229,0.224,0.225]]]";

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
	while (kind < N_OP_TYPES && strcmp(op_types[kind].name, json_string_value(name)) != 0)
		kind++;
	if (kind == N_OP_TYPES)
		return op_type_unknown(position, json_string_value(name), err);
	op->kind = (enum op_kind)kind;
	a.op = op_types[kind].name;
	a.names = op_types[kind].args;
	rc = arguments_bind(&a, entry);
	return rc == 0 ? op_types[kind].read(&a, op) : rc;
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
			complaint = !s->has_to_tensor   ? "needs ToTensor before it"
				    : s->normalize >= 0 ? "is there twice"
							: NULL;
			s->normalize = (int)i;
		} else {
			complaint = s->has_to_tensor ? "works on pixels: move it before ToTensor" : NULL;
			s->n_pixel_ops = i + 1;
		}
	}
	if (!complaint)
		return 0;
	snprintf(err->text, sizeof(err->text), "op %u '%s' %s", i, op_types[s->ops[i - 1].kind].name, complaint);
	return -EINVAL;
}

static int too_small(struct spec *s, unsigned i, struct pipeline_error *err)
{
	snprintf(err->text, sizeof(err->text),
		 "op %u 'RandomCrop' of %u x %u does not fit into the %u x %u pixels it gets; "
		 "use a smaller size, padding or pad_if_needed",
		 i + 1, s->ops[i].size.width, s->ops[i].size.height, s->width, s->height);
	return -EINVAL;
}

/* The shorter edge becomes size; the other one follows, truncated to whole pixels. */
void op_resized_size(const struct op *op, uint32_t width, uint32_t height, uint32_t *new_width, uint32_t *new_height)
{
	double shorter = width <= height ? width : height, longer = width <= height ? height : width;
	double new_shorter = op->size.height, new_longer;

	*new_width = op->size.width;
	*new_height = op->size.height;
	if (!op->size.single)
		return;
	new_longer = floor(op->size.height * longer / shorter);
	if (op->max_size && new_longer > op->max_size) {
		new_shorter = floor(op->max_size * new_shorter / new_longer);
		new_longer = op->max_size;
	}
	*new_width = (uint32_t)(width <= height ? new_shorter : new_longer);
	*new_height = (uint32_t)(width <= height ? new_longer : new_shorter);
}

/* Computes the size after one op; 0 is unknown. */
static int follow_size(struct spec *s, unsigned i, struct pipeline_error *err)
{
	const struct op *op = &s->ops[i];
	uint32_t across = op->pad.left + op->pad.right, down = op->pad.top + op->pad.bottom;

	switch (op->kind) {
	case OP_RESIZE:
		if (s->width || !op->size.single)
			op_resized_size(op, s->width, s->height, &s->width, &s->height);
		break;
	case OP_RANDOM_CROP:
		if (s->width && !op->pad_if_needed &&
		    (s->width + across < op->size.width || s->height + down < op->size.height))
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
		snprintf(err->text, sizeof(err->text), "op %u '%s': the image is grey here, so fill must be one number",
			 i + 1, op_types[op->kind].name);
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
		snprintf(err->text, sizeof(err->text),
			 "the output size depends on the image; all rows of a batch must have one size: end with "
			 "CenterCrop, RandomCrop or RandomResizedCrop, or Resize to [height, width]");
		return -EINVAL;
	}
	if (s->width > SPEC_MAX_EDGE || s->height > SPEC_MAX_EDGE) {
		snprintf(err->text, sizeof(err->text), "the output would be %u x %u pixels; at most %u per edge",
			 s->width, s->height, SPEC_MAX_EDGE);
		return -EINVAL;
	}
	if (s->normalize >= 0 && s->n_channels == 1) {
		const struct op *op = &s->ops[s->normalize];

		if (op->normalize.n_means == 3 || op->normalize.n_stds == 3) {
			snprintf(err->text, sizeof(err->text),
				 "op %d 'Normalize': the image has one channel, so mean and std must be one number",
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
		const struct op_type *t = &op_types[s->ops[i].kind];

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
		snprintf(err->text, sizeof(err->text),
			 "a pipeline is \"train224\", \"val224\" or a JSON array of 1 to %d ops", SPEC_MAX_OPS);
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
		snprintf(err->text, sizeof(err->text), "the pipeline's text is longer than %d bytes",
			 SPEC_MAX_TEXT_BYTES);
		return -EINVAL;
	}
	if (text[strspn(text, " \t\r\n")] != '[') {
		snprintf(err->text, sizeof(err->text),
			 "pipeline '%.40s' is not known: it is \"train224\", \"val224\" or a JSON array of ops", text);
		return -EINVAL;
	}
	*list = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	if (!*list) {
		snprintf(err->text, sizeof(err->text), "the pipeline is not valid JSON: line %d, column %d: %.150s",
			 error.line, error.column, error.text);
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
