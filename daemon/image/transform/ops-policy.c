/* torchvision's policies: RandAugment, TrivialAugmentWide, AutoAugment. Each draws its changes and their amounts first,
 * as steps, and then does them. */
#include "image/transform/op-types.h"

#include "image/transform/augment.h"
#include "image/transform/policy-tables.h"

enum { MAX_STEPS = 16, MAX_BINS = 1000 };

struct policy {
	uint32_t num_ops, magnitude, n_bins;
	enum policy_name name;
	struct augment_style style;
	struct op_fill fill;
	bool first_generation; /* torchvision.transforms, not .v2: thresholds of Solarize are rounded in another way */
};

static const char *const policy_names[] = { "imagenet", "cifar10", "svhn", NULL };

static int ops_policy_read_style(struct arguments *a, unsigned interpolation, unsigned fill, unsigned v1,
				 struct policy *x)
{
	int rc = argument_move_filter(a, interpolation, &x->style.filter);

	if (a->values[fill] && json_is_null(a->values[fill]))
		a->values[fill] = NULL;
	x->fill.single = true;
	if (rc == 0)
		rc = argument_fill(a, fill, &x->fill);
	for (int c = 0; c < 3; c++)
		x->style.fill[c] = x->fill.color[c];
	return rc == 0 ? argument_bool(a, v1, &x->first_generation) : rc;
}

/* Appends the arguments that all have. */
static json_t *with_style(json_t *out, const struct policy *x)
{
	if (out && (json_object_set_new(out, "interpolation", json_string(filter_name(x->style.filter))) < 0 ||
		    json_object_set_new(out, "fill", json_fill(&x->fill)) < 0 ||
		    json_object_set_new(out, "v1", json_boolean(x->first_generation)) < 0)) {
		json_decref(out);
		return NULL;
	}
	return out;
}

static int follow_policy(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct policy *x = op->args;

	if (f->n_channels == 1 && !x->fill.single)
		return op_wrong(op, err, "gets a grey image, so fill must be one number");
	return 0;
}

static void ops_policy_note(const struct policy *x, const struct policy_space *space, unsigned member, unsigned bin,
			    bool negative, uint32_t width, uint32_t height, struct op_choice *out)
{
	const struct policy_member *m = &space->members[member];

	augment_note(out, m->what, policy_amount(m, x->n_bins, bin, negative, x->first_generation, width, height),
		     x->style.filter);
}

static bool draw_sign(const struct policy_member *m, struct random *r)
{
	return policy_signed(m) && random_below(r, 2);
}

static int apply_policy(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			struct image_error *err)
{
	const struct policy *x = op->args;

	return augment_steps(choice->drawn, choice->n_drawn / STEP_NUMBERS, x->style.fill, v, run->worker, err);
}

/* RandAugment */

static const char *const rand_args[] = { "num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill",
					 "v1",      NULL };

static int ops_policy_read_rand(struct arguments *a, struct op *op)
{
	struct policy *x = op->args;
	int rc;

	x->num_ops = 2;
	x->magnitude = 9;
	x->n_bins = 31;
	rc = argument_count(a, 0, 0, MAX_STEPS, &x->num_ops);
	if (rc == 0)
		rc = argument_count(a, 2, 2, MAX_BINS, &x->n_bins);
	if (rc == 0)
		rc = argument_count(a, 1, 0, x->n_bins - 1, &x->magnitude);
	return rc == 0 ? ops_policy_read_style(a, 3, 4, 5, x) : rc;
}

static json_t *ops_policy_write_rand(const struct op *op)
{
	const struct policy *x = op->args;

	return with_style(json_pack("{s:i, s:i, s:i}", "num_ops", (int)x->num_ops, "magnitude", (int)x->magnitude,
				    "num_magnitude_bins", (int)x->n_bins),
			  x);
}

static int ops_policy_choose_rand(const struct op *op, struct random *r, uint32_t width, uint32_t height,
				  struct op_choice *out, struct image_error *err)
{
	const struct policy *x = op->args;

	(void)err;
	for (uint32_t i = 0; i < x->num_ops; i++) {
		uint32_t member = random_below(r, space_rand.n);

		ops_policy_note(x, &space_rand, member, x->magnitude, draw_sign(&space_rand.members[member], r), width,
				height, out);
	}
	return 0;
}

/* TrivialAugmentWide */

static const char *const wide_args[] = { "num_magnitude_bins", "interpolation", "fill", "v1", NULL };

static int read_wide(struct arguments *a, struct op *op)
{
	struct policy *x = op->args;
	int rc;

	x->n_bins = 31;
	rc = argument_count(a, 0, 2, MAX_BINS, &x->n_bins);
	return rc == 0 ? ops_policy_read_style(a, 1, 2, 3, x) : rc;
}

static json_t *write_wide(const struct op *op)
{
	const struct policy *x = op->args;

	return with_style(json_pack("{s:i}", "num_magnitude_bins", (int)x->n_bins), x);
}

static int choose_wide(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
		       struct image_error *err)
{
	const struct policy *x = op->args;
	uint32_t member = random_below(r, space_wide.n), bin = random_below(r, x->n_bins);

	(void)err;
	ops_policy_note(x, &space_wide, member, bin, draw_sign(&space_wide.members[member], r), width, height, out);
	return 0;
}

/* AutoAugment */

static const char *const auto_args[] = { "policy", "interpolation", "fill", "v1", NULL };

static int ops_policy_read_auto(struct arguments *a, struct op *op)
{
	struct policy *x = op->args;
	unsigned name = POLICY_IMAGENET;
	int rc = argument_choice(a, 0, policy_names, &name);

	x->name = (enum policy_name)name;
	x->n_bins = 10;
	return rc == 0 ? ops_policy_read_style(a, 1, 2, 3, x) : rc;
}

static json_t *ops_policy_write_auto(const struct op *op)
{
	const struct policy *x = op->args;

	return with_style(json_pack("{s:s}", "policy", policy_names[x->name]), x);
}

static int ops_policy_choose_auto(const struct op *op, struct random *r, uint32_t width, uint32_t height,
				  struct op_choice *out, struct image_error *err)
{
	const struct policy *x = op->args;
	const struct subpolicy_step *steps = subpolicies[x->name][random_below(r, N_SUBPOLICIES)];

	(void)err;
	for (int i = 0; i < 2; i++) {
		bool happens = random_chance(r, steps[i].tenths / 10.0);
		bool negative = draw_sign(&space_auto.members[steps[i].member], r);

		if (happens)
			ops_policy_note(x, &space_auto, steps[i].member, steps[i].bin < 0 ? 0 : (unsigned)steps[i].bin,
					negative, width, height, out);
	}
	return 0;
}

const struct op_type policy_ops[] = {
	{ .name = "RandAugment",
	  .args = rand_args,
	  .args_bytes = sizeof(struct policy),
	  .flags = OP_RANDOM,
	  .read = ops_policy_read_rand,
	  .write = ops_policy_write_rand,
	  .follow = follow_policy,
	  .choose = ops_policy_choose_rand,
	  .apply = apply_policy },
	{ .name = "TrivialAugmentWide",
	  .args = wide_args,
	  .args_bytes = sizeof(struct policy),
	  .flags = OP_RANDOM,
	  .read = read_wide,
	  .write = write_wide,
	  .follow = follow_policy,
	  .choose = choose_wide,
	  .apply = apply_policy },
	{ .name = "AutoAugment",
	  .args = auto_args,
	  .args_bytes = sizeof(struct policy),
	  .flags = OP_RANDOM,
	  .read = ops_policy_read_auto,
	  .write = ops_policy_write_auto,
	  .follow = follow_policy,
	  .choose = ops_policy_choose_auto,
	  .apply = apply_policy },
	{ .name = NULL },
};
