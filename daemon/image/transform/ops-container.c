/* Ops that run other ops. Each op inside has random numbers of its own, so what one draws does not depend on whether
 * another one runs. */
#include "image/transform/op-types.h"

#include <string.h>

#include "image/transform/op-list.h"
#include "image/transform/ops.h"

static int ops_container_read_transforms(struct arguments *a, struct op *op)
{
	return argument_ops(a, 0, op);
}

static json_t *write_transforms(const struct op *op)
{
	return json_pack("{s:o}", "transforms", op_list_json(op->children, op->n_children));
}

/* Compose: at the top level of a pipeline its ops take its place; inside another container it is an op. */

static const char *const transforms_args[] = { "transforms", NULL };

static int follow_all(const struct op *op, struct form *f, struct pipeline_error *err)
{
	return op_list_follow(op->children, op->n_children, f, err);
}

static int apply_all(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		     struct image_error *err)
{
	(void)choice;
	return ops_run(run, op->children, op->n_children, v, err);
}

/* SharedByViews: a Compose whose ops draw the same numbers in every view (spec_set_view). Nothing that draws comes
 * before it (spec_read_list). */

/* RandomApply: all or none */

static const char *const apply_args[] = { "transforms", "p", NULL };

static int read_apply(struct arguments *a, struct op *op)
{
	double *p = op->args;
	int rc = argument_ops(a, 0, op);

	*p = 0.5;
	return rc == 0 ? argument_number(a, 1, 0, 1, p) : rc;
}

static json_t *write_apply(const struct op *op)
{
	const double *p = op->args;

	return json_pack("{s:o, s:f}", "transforms", op_list_json(op->children, op->n_children), "p", *p);
}

static int follow_apply(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const double *p = op->args;
	struct form before = *f;
	int rc = *p > 0.0 ? op_list_follow(op->children, op->n_children, f, err) : 0;

	return rc == 0 && *p < 1.0 ? form_either(f, &before, op, err) : rc;
}

static int choose_apply(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			struct image_error *err)
{
	const double *p = op->args;

	(void)width;
	(void)height;
	(void)err;
	out->drawn[0] = random_chance(r, *p);
	out->n_drawn = 1;
	return 0;
}

static int apply_apply(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		       struct image_error *err)
{
	return choice->drawn[0] != 0.0 ? ops_run(run, op->children, op->n_children, v, err) : 0;
}

/* RandomChoice: one of them */

struct choice {
	bool weighted;
	double weights[SPEC_MAX_OPS], sum;
};

static const char *const choice_args[] = { "transforms", "p", NULL };

static int read_choice(struct arguments *a, struct op *op)
{
	struct choice *x = op->args;
	int rc = argument_ops(a, 0, op);

	if (rc == 0)
		rc = argument_weights(a, 1, op->n_children, x->weights, &x->weighted);
	for (unsigned i = 0; i < op->n_children; i++)
		x->sum += x->weights[i];
	if (rc == 0 && x->weighted && x->sum <= 0.0)
		return argument_wrong(a, 1, "weights of which at least one is more than 0");
	return rc;
}

static json_t *write_choice(const struct op *op)
{
	const struct choice *x = op->args;
	json_t *weights = x->weighted ? json_array() : json_null();

	for (unsigned i = 0; x->weighted && i < op->n_children; i++)
		json_array_append_new(weights, json_real(x->weights[i]));
	return json_pack("{s:o, s:o}", "transforms", op_list_json(op->children, op->n_children), "p", weights);
}

static int follow_choice(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct choice *x = op->args;
	struct form before = *f;
	bool first = true;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < op->n_children; i++) {
		struct form one = before;

		if (x->weighted && x->weights[i] <= 0.0)
			continue;
		rc = op_list_follow(&op->children[i], 1, &one, err);
		if (rc == 0 && first)
			*f = one;
		else if (rc == 0)
			rc = form_either(f, &one, op, err);
		first = false;
	}
	return rc;
}

static int choose_choice(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			 struct image_error *err)
{
	const struct choice *x = op->args;
	unsigned which = 0;

	(void)width;
	(void)height;
	(void)err;
	if (x->weighted) {
		double at = random_unit(r) * x->sum;

		/* The last one with a weight takes what rounding leaves over. */
		for (unsigned i = 0; i < op->n_children; i++) {
			if (x->weights[i] <= 0.0)
				continue;
			which = i;
			if (at < x->weights[i])
				break;
			at -= x->weights[i];
		}
	} else {
		which = random_below(r, op->n_children);
	}
	out->drawn[0] = which;
	out->n_drawn = 1;
	return 0;
}

static int apply_choice(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			struct image_error *err)
{
	return ops_run(run, &op->children[(unsigned)choice->drawn[0]], 1, v, err);
}

/* RandomOrder: all, in any order */

enum { MAX_ORDERED = 16 };

static int ops_container_read_order(struct arguments *a, struct op *op)
{
	int rc = argument_ops(a, 0, op);

	if (rc == 0 && op->n_children > MAX_ORDERED)
		return argument_wrong(a, 0, "a list of at most 16 ops");
	return rc;
}

/* Nothing is known of the size if any of several ops changes it. */
static int follow_order(const struct op *op, struct form *f, struct pipeline_error *err)
{
	struct form before = *f;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < op->n_children; i++) {
		struct form one = before;

		rc = op_list_follow(&op->children[i], 1, &one, err);
		if (rc == 0)
			rc = form_either(f, &one, op, err);
	}
	return rc;
}

static int choose_order(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			struct image_error *err)
{
	double *order = out->drawn;

	(void)width;
	(void)height;
	(void)err;
	out->n_drawn = op->n_children;
	for (unsigned i = 0; i < out->n_drawn; i++)
		order[i] = i;
	for (unsigned i = 0; i + 1 < out->n_drawn; i++) {
		uint32_t j = i + random_below(r, out->n_drawn - i);
		double first = order[i];

		order[i] = order[j];
		order[j] = first;
	}
	return 0;
}

static int apply_order(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		       struct image_error *err)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < choice->n_drawn; i++)
		rc = ops_run(run, &op->children[(unsigned)choice->drawn[i]], 1, v, err);
	return rc;
}

/* Identity */

static int ops_container_read_nothing(struct arguments *a, struct op *op)
{
	(void)a;
	(void)op;
	return 0;
}

const struct op_type container_ops[] = {
	{ .name = "Compose",
	  .args = transforms_args,
	  .flags = OP_ANY_PIXEL,
	  .read = ops_container_read_transforms,
	  .write = write_transforms,
	  .follow = follow_all,
	  .apply = apply_all },
	{ .name = "SharedByViews",
	  .args = transforms_args,
	  .flags = OP_RANDOM | OP_EVERY_VIEW,
	  .read = ops_container_read_transforms,
	  .write = write_transforms,
	  .follow = follow_all,
	  .apply = apply_all },
	{ .name = "RandomApply",
	  .args = apply_args,
	  .args_bytes = sizeof(double),
	  .flags = OP_RANDOM | OP_ANY_PIXEL,
	  .read = read_apply,
	  .write = write_apply,
	  .follow = follow_apply,
	  .choose = choose_apply,
	  .apply = apply_apply },
	{ .name = "RandomChoice",
	  .args = choice_args,
	  .args_bytes = sizeof(struct choice),
	  .flags = OP_RANDOM | OP_ALTERNATIVES | OP_ANY_PIXEL,
	  .read = read_choice,
	  .write = write_choice,
	  .follow = follow_choice,
	  .choose = choose_choice,
	  .apply = apply_choice },
	{ .name = "RandomOrder",
	  .args = transforms_args,
	  .flags = OP_RANDOM | OP_ANY_PIXEL,
	  .read = ops_container_read_order,
	  .write = write_transforms,
	  .follow = follow_order,
	  .choose = choose_order,
	  .apply = apply_order },
	{ .name = "Identity", .flags = OP_NOTHING | OP_ANY_PIXEL, .read = ops_container_read_nothing },
	{ .name = NULL },
};
