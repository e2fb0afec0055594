/* The parser of pipelines: reads JSON into a list of ops, then checks their order and sizes.
 *
 * The output size must not depend on the image, because all rows of a batch have the same size. So the parser follows
 * the sizes through the ops, with "unknown" as a possible value. */
#include "image/transform/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/transform/op-list.h"
#include "image/transform/op-types.h"

static const char train224[] = "[[\"RandomResizedCrop\",224],\"RandomHorizontalFlip\",\"ToTensor\","
			       "[\"Normalize\",[0.485,0.456,0.406],[0.229,0.224,0.225]]]";
static const char val224[] = "[[\"Resize\",256],[\"CenterCrop\",224],\"ToTensor\","
			     "[\"Normalize\",[0.485,0.456,0.406],[0.229,0.224,0.225]]]";

static const char *name_of(json_t *entry)
{
	return json_string_value(json_is_array(entry) ? json_array_get(entry, 0) : entry);
}

/* Fills op, which is 0 but for its position and place. */
static int read_op(struct list_reader *r, json_t *entry, struct op *op, struct pipeline_error *err)
{
	const char *name = name_of(entry);
	struct arguments a = { .position = op->position, .reader = r, .err = err };
	int rc;

	if (!name) {
		snprintf(err->text, sizeof(err->text), "op %s is not \"Name\" or [\"Name\", arguments...]",
			 op->position);
		return -EINVAL;
	}
	op->type = op_type_find(name);
	if (!op->type)
		return op_type_unknown(op->position, name, err);
	a.op = op->type->name;
	a.names = op->type->args;
	rc = arguments_bind(&a, entry);
	if (rc == 0 && op->type->args_bytes) {
		op->args = calloc(1, op->type->args_bytes);
		rc = op->args ? 0 : -ENOMEM;
	}
	return rc == 0 ? op->type->read(&a, op) : rc;
}

/* Where the ops of a list are: in the pipeline itself (parent is NULL), or in a container. */
struct place {
	const struct op *parent;
	struct op **ops;
	unsigned *n_ops;
};

/* The op of {"decode": ["Draft", size]} or {"image_mode": ["Convert", mode]}: an option of the client's stands for it,
 * so it has no number in the list that the user wrote. NULL: another entry. */
static json_t *op_of_option(json_t *entry, const char **option)
{
	static const char *const ops[][2] = { { "decode", "Draft" }, { "image_mode", "Convert" } };

	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		json_t *op = json_object_get(entry, ops[i][0]);
		const char *name = name_of(op);

		if (name && strcmp(name, ops[i][1]) == 0) {
			*option = ops[i][0];
			return op;
		}
	}
	return NULL;
}

/* Ops of the pipeline itself have their number as place in the random key; those inside containers follow after all
 * possible ones of these, in the order of the text. */
static void name_op(const struct list_reader *r, struct place at, unsigned i, const char *option, struct op *op)
{
	op->place = at.parent ? SPEC_MAX_OPS + r->n_nested : *at.n_ops;
	if (option)
		snprintf(op->position, sizeof(op->position), "of %s=", option);
	else if (at.parent)
		snprintf(op->position, sizeof(op->position), "%.28s.%u", at.parent->position, i + 1);
	else
		snprintf(op->position, sizeof(op->position), "%u", i + 1);
}

/* An op without effect has no place in a list whose ops all run. */
static void drop_last(struct place at)
{
	struct op *op = &(*at.ops)[--*at.n_ops];

	free(op->args);
	*op = (struct op){ 0 };
}

/* An op takes its form on numbers after ToTensor, and one that the conversion does, after ops that change numbers. */
static void take_form(const struct op *before, unsigned n, struct op *op)
{
	bool on_numbers = op->type->flags & OP_NUMBERS, behind = false;

	for (unsigned i = 0; i < n; i++)
		behind |= on_numbers ? before[i].type->finish != NULL : (before[i].type->flags & OP_NUMBERS) != 0;
	if (op->type->on_numbers && behind)
		op->type = op->type->on_numbers;
}

static int spec_read_list(struct list_reader *r, json_t *list, struct place at, struct pipeline_error *err)
{
	bool all = at.parent && at.parent->type->flags & OP_ALTERNATIVES;
	unsigned n_options = 0;
	bool draws = false; /* an op up to here */
	int rc = 0;

	*at.ops = calloc(json_array_size(list), sizeof(**at.ops));
	if (!*at.ops)
		return -ENOMEM;
	for (unsigned i = 0; rc == 0 && i < json_array_size(list); i++) {
		struct op *op = &(*at.ops)[*at.n_ops];
		const char *option = NULL;
		json_t *entry = json_array_get(list, i), *meant = at.parent ? NULL : op_of_option(entry, &option);

		n_options += option != NULL;
		const bool first = !at.parent && !draws && r->n_nested == 0;
		name_op(r, at, i - n_options, option, op);
		++*at.n_ops;
		r->n_nested += at.parent != NULL;
		rc = read_op(r, meant ? meant : entry, op, err);
		/* So the ops inside have the same places in every view. */
		if (rc == 0 && op->type->flags & OP_EVERY_VIEW && !first)
			return op_wrong(op, err, "comes before all other ops that draw, in each view");
		draws = draws || (rc == 0 && op->type->flags & OP_RANDOM);
		if (rc == 0 && !at.parent)
			take_form(*at.ops, *at.n_ops - 1, op);
		if (rc == 0 && at.parent && op->type->flags & OP_NUMBERS)
			return op_wrong(op, err, "cannot be inside '%s': put it after it", at.parent->type->name);
		if (rc == 0 && op->type->flags & OP_NOTHING && !all)
			drop_last(at);
	}
	return rc;
}

static int read_nested(struct list_reader *r, struct arguments *a, unsigned i, struct op *op)
{
	json_t *list = a->values[i];
	int rc;

	if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > SPEC_MAX_OPS)
		return argument_wrong(a, i, "a list of 1 to 64 ops");
	if (r->n_nested + json_array_size(list) > SPEC_MAX_NESTED)
		return op_wrong(op, a->err, "has too many ops inside: a pipeline may have %d inside containers",
				SPEC_MAX_NESTED);
	if (r->depth == SPEC_MAX_DEPTH)
		return op_wrong(op, a->err, "is inside too many other ops: containers may be %d deep", SPEC_MAX_DEPTH);
	r->depth++;
	rc = spec_read_list(r, list, (struct place){ op, &op->children, &op->n_children }, a->err);
	r->depth--;
	return rc;
}

static int check_sizes(struct spec *s, const struct image_form *source, struct pipeline_error *err)
{
	struct form *f = &s->form;
	int rc;

	*f = (struct form){ .width = source->width,
			    .height = source->height,
			    .n_channels = source->n_channels,
			    .pixel = source->pixel,
			    .std = { 1.0f, 1.0f, 1.0f } };
	rc = op_list_follow(s->ops, s->n_ops, f, err);
	if (rc != 0)
		return rc;
	if ((f->width == 0 || f->height == 0) && f->blame)
		return op_wrong(f->blame, err,
				"gives images of different sizes, depending on what it draws; all rows of a batch must "
				"have one size: let each way through it give the same, or put a Resize to [height, "
				"width], a CenterCrop or a RandomCrop after it");
	if (f->width == 0 || f->height == 0) {
		snprintf(err->text, sizeof(err->text),
			 "the output size depends on the image; all rows of a batch must have one size: end with "
			 "CenterCrop, RandomCrop or RandomResizedCrop, or Resize to [height, width]");
		return -EINVAL;
	}
	if (s->draft.wanted && source->width) {
		snprintf(err->text, sizeof(err->text),
			 "'Draft' (decode) reads image files, and the samples are arrays of pixels: leave it out");
		return -EINVAL;
	}
	if (f->width > SPEC_MAX_EDGE || f->height > SPEC_MAX_EDGE) {
		snprintf(err->text, sizeof(err->text), "the output would be %u x %u pixels; at most %u per edge",
			 f->width, f->height, SPEC_MAX_EDGE);
		return -EINVAL;
	}
	if (s->draft.own_size) {
		s->draft.width = f->width;
		s->draft.height = f->height;
	}
	return 0;
}

/* The first n ops, and how files are read. */
static char *write_ops(const struct spec *s, unsigned n)
{
	json_t *list = op_list_json(s->ops, n);
	if (list && s->draft.wanted &&
	    json_array_insert_new(
		    list, 0, json_pack("[s{s:[ii]}]", "Draft", "size", (int)s->draft.height, (int)s->draft.width)) !=
		    0) {
		json_decref(list);
		list = NULL;
	}
	char *text = list ? json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;

	json_decref(list);
	return text;
}

static int write_texts(struct spec *s)
{
	while (s->n_pixel_ops < s->n_ops && !(s->ops[s->n_pixel_ops].type->flags & OP_NUMBERS))
		s->n_pixel_ops++;
	while (s->n_prefix < s->n_pixel_ops && !(s->ops[s->n_prefix].type->flags & OP_RANDOM))
		s->n_prefix++;
	s->text = write_ops(s, s->n_ops);
	s->prefix_text = write_ops(s, s->n_prefix);
	return s->text && s->prefix_text ? 0 : -ENOMEM;
}

/* The list of ["Compose", list] and ["Compose", {"transforms": list}]; otherwise NULL. */
static json_t *spec_composed(json_t *entry)
{
	json_t *argument = json_is_array(entry) && json_array_size(entry) == 2 ? json_array_get(entry, 1) : NULL;
	const char *name = name_of(entry);
	json_t *list = json_is_object(argument) ? json_object_get(argument, "transforms") : argument;

	return name && strcmp(name, "Compose") == 0 && json_is_array(list) ? list : NULL;
}

/* The ops that a name stands for; NULL if it is none. */
static const char *recipe_text(const char *name)
{
	return strcmp(name, "train224") == 0 ? train224 : strcmp(name, "val224") == 0 ? val224 : NULL;
}

/* Appends the entries of list to flat, in place of a Compose those of its list, and in place of a recipe's name its. */
static int spec_flatten(json_t *list, json_t *flat, unsigned depth)
{
	json_t *entry;
	size_t i;
	int rc = 0;

	json_array_foreach (list, i, entry) {
		json_t *inner = depth < SPEC_MAX_DEPTH ? spec_composed(entry) : NULL;
		const char *recipe = json_is_string(entry) ? recipe_text(json_string_value(entry)) : NULL;
		json_t *ops = recipe ? json_loads(recipe, 0, NULL) : NULL;

		rc = ops     ? json_array_extend(flat, ops)
		     : inner ? spec_flatten(inner, flat, depth + 1)
			     : json_array_append(flat, entry);
		json_decref(ops);
		if (rc != 0)
			break;
	}
	return rc;
}

static int read_flat(struct spec *s, json_t *flat, const struct image_form *source, struct pipeline_error *err)
{
	struct list_reader r = { .read = read_nested, .numbers = source->pixel != PIXEL_RGB };

	if (json_array_size(flat) == 0 || json_array_size(flat) > SPEC_MAX_OPS) {
		snprintf(err->text, sizeof(err->text),
			 "a pipeline is \"train224\", \"val224\" or a JSON array of 1 to %d ops", SPEC_MAX_OPS);
		return -EINVAL;
	}
	int rc = spec_read_list(&r, flat, (struct place){ NULL, &s->ops, &s->n_ops }, err);

	s->draft = r.draft;
	return rc;
}

static int read_ops(struct spec *s, json_t *list, const struct image_form *source, struct pipeline_error *err)
{
	json_t *flat = json_array();
	int rc = flat ? spec_flatten(list, flat, 0) : -1;

	rc = rc == 0 ? read_flat(s, flat, source, err) : -ENOMEM;
	json_decref(flat);
	return rc;
}

static int parse_json(const char *text, json_t **list, struct pipeline_error *err)
{
	json_error_t error;

	if (strlen(text) > SPEC_MAX_TEXT_BYTES) {
		snprintf(err->text, sizeof(err->text), "the pipeline's text is longer than %d bytes",
			 SPEC_MAX_TEXT_BYTES);
		return -EINVAL;
	}
	if (op_is_timms_text(text))
		return op_type_unknown("1", text, err);
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

int spec_parse(struct spec *s, const char *text, const struct image_form *source, struct pipeline_error *err)
{
	json_t *list;
	int rc;

	const char *recipe = recipe_text(text);
	text = recipe ? recipe : text;
	memset(s, 0, sizeof(*s));
	rc = parse_json(text, &list, err);
	if (rc != 0)
		return rc;
	rc = read_ops(s, list, source, err);
	json_decref(list);
	if (rc == 0)
		rc = check_sizes(s, source, err);
	if (rc == 0)
		rc = write_texts(s);
	if (rc != 0)
		spec_finish(s);
	return rc;
}

static void move_places(struct op *ops, unsigned n, unsigned view)
{
	for (unsigned i = 0; i < n; i++) {
		ops[i].place |= view << 16;
		if (ops[i].type->flags & OP_EVERY_VIEW)
			continue;
		move_places(ops[i].children, ops[i].n_children, view); /* SPEC_MAX_DEPTH deep */
	}
}

void spec_set_view(struct spec *s, unsigned view)
{
	move_places(s->ops, s->n_ops, view);
}

int spec_set_draft(struct spec *s, uint32_t width, uint32_t height)
{
	free(s->text);
	free(s->prefix_text);
	s->draft.width = width;
	s->draft.height = height;
	return write_texts(s);
}

int spec_drop_prefix(struct spec *s)
{
	char *text = write_ops(s, 0);

	if (!text)
		return -ENOMEM;
	free(s->prefix_text);
	s->prefix_text = text;
	s->n_prefix = 0;
	return 0;
}

void spec_finish(struct spec *s)
{
	op_list_destroy(s->ops, s->n_ops);
	free(s->text);
	free(s->prefix_text);
	*s = (struct spec){ 0 };
}
