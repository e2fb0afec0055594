/* timm's RandAugment and AutoAugment (timm.data.auto_augment), with the ops that its objects hold. */
#include "image/transform/op-types.h"

#include "image/transform/timm-ops.h"

enum { MAX_LAYERS = 16 };

static int follow_fill(const struct op *op, const struct timm_options *x, const struct form *f,
		       struct pipeline_error *err)
{
	if (f->n_channels == 1 && !x->fill.single)
		return op_wrong(op, err, "gets a grey image, so fill must be one number");
	return 0;
}

static int apply_steps(const struct timm_options *x, const struct op_choice *choice, struct op_run *run, struct view *v,
		       struct image_error *err)
{
	return augment_steps(choice->drawn, choice->n_drawn / STEP_NUMBERS, x->fill.color, v, run->worker, err);
}

/* TimmRandAugment */

struct timm_rand {
	struct timm_options options;
	struct timm_op ops[SPEC_MAX_OPS];
	double weights[SPEC_MAX_OPS];
	unsigned n;
	bool weighted; /* then an image gets no op twice */
	uint32_t num_layers;
};

static const char *const rand_args[] = { "ops", "num_layers", "choice_weights", TIMM_OPTIONS, NULL };

static int ops_timm_read_rand(struct arguments *a, struct op *op)
{
	struct timm_rand *x = op->args;
	unsigned n_possible = 0;
	int rc = timm_read_ops(a, 0, SPEC_MAX_OPS, x->ops, &x->n);

	x->num_layers = 2;
	if (rc == 0)
		rc = argument_count(a, 1, 0, MAX_LAYERS, &x->num_layers);
	if (rc == 0)
		rc = argument_weights(a, 2, x->n, x->weights, &x->weighted);
	for (unsigned i = 0; i < x->n; i++)
		n_possible += x->weights[i] > 0.0;
	if (rc == 0 && x->weighted && n_possible < x->num_layers)
		rc = argument_wrong(a, 2, "as many weights above 0 as num_layers at least");
	return rc == 0 ? timm_read_options(a, 3, x->ops, x->n, &x->options) : rc;
}

static json_t *ops_timm_write_rand(const struct op *op)
{
	const struct timm_rand *x = op->args;
	json_t *weights = x->weighted ? json_array() : json_null();

	for (unsigned i = 0; x->weighted && i < x->n; i++)
		json_array_append_new(weights, json_real(x->weights[i]));
	return timm_write_options(json_pack("{s:o, s:i, s:o}", "ops", timm_write_ops(x->ops, x->n), "num_layers",
					    (int)x->num_layers, "choice_weights", weights),
				  &x->options);
}

static int follow_rand(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct timm_rand *x = op->args;

	return follow_fill(op, &x->options, f, err);
}

/* One op by weight, without those that were taken before, as numpy.random.choice with replace=False. */
static unsigned draw_other(const struct timm_rand *x, struct random *r, uint64_t *taken)
{
	double sum = 0.0, at;
	unsigned last = 0;

	for (unsigned i = 0; i < x->n; i++)
		sum += *taken >> i & 1 ? 0.0 : x->weights[i];
	at = random_unit(r) * sum;
	for (unsigned i = 0; i < x->n; i++) {
		if (*taken >> i & 1 || x->weights[i] <= 0.0)
			continue;
		last = i;
		if (at < x->weights[i])
			break;
		at -= x->weights[i];
	}
	*taken |= UINT64_C(1) << last;
	return last;
}

static int ops_timm_choose_rand(const struct op *op, struct random *r, uint32_t width, uint32_t height,
				struct op_choice *out, struct image_error *err)
{
	const struct timm_rand *x = op->args;
	uint64_t taken = 0;

	(void)err;
	for (uint32_t i = 0; i < x->num_layers; i++) {
		unsigned which = x->weighted ? draw_other(x, r, &taken) : random_below(r, x->n);

		timm_draw(&x->ops[which], &x->options, r, width, height, out);
	}
	return 0;
}

static int apply_rand(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		      struct image_error *err)
{
	const struct timm_rand *x = op->args;

	return apply_steps(&x->options, choice, run, v, err);
}

/* TimmAutoAugment */

struct timm_auto {
	struct timm_options options;
	struct timm_op ops[TIMM_MAX_OPS];
	unsigned n_policies;
	unsigned begins[SPEC_MAX_OPS + 1]; /* of each sub-policy in ops */
};

static const char *const auto_args[] = { "policy", TIMM_OPTIONS, NULL };

static int ops_timm_read_auto(struct arguments *a, struct op *op)
{
	struct timm_auto *x = op->args;
	json_t *list = a->values[0], *ops, *one;
	size_t i, k;
	unsigned n = 0;
	bool right = json_is_array(list) && json_array_size(list) >= 1 && json_array_size(list) <= SPEC_MAX_OPS;

	json_array_foreach (list, i, ops) {
		right = right && json_is_array(ops) && json_array_size(ops) <= MAX_LAYERS &&
			n + json_array_size(ops) <= TIMM_MAX_OPS;
		if (!right)
			break;
		json_array_foreach (ops, k, one)
			right = right && timm_read_op(one, &x->ops[n++]);
		x->begins[++x->n_policies] = n;
	}
	if (!right)
		return argument_wrong(a, 0, "1 to 64 lists of [timm's name of an op, probability, magnitude]");
	return timm_read_options(a, 1, x->ops, n, &x->options);
}

static json_t *ops_timm_write_auto(const struct op *op)
{
	const struct timm_auto *x = op->args;
	json_t *policy = json_array();

	for (unsigned i = 0; i < x->n_policies; i++)
		json_array_append_new(policy, timm_write_ops(x->ops + x->begins[i], x->begins[i + 1] - x->begins[i]));
	return timm_write_options(json_pack("{s:o}", "policy", policy), &x->options);
}

static int follow_auto(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct timm_auto *x = op->args;

	return follow_fill(op, &x->options, f, err);
}

static int ops_timm_choose_auto(const struct op *op, struct random *r, uint32_t width, uint32_t height,
				struct op_choice *out, struct image_error *err)
{
	const struct timm_auto *x = op->args;
	uint32_t which = random_below(r, x->n_policies);

	(void)err;
	for (unsigned i = x->begins[which]; i < x->begins[which + 1]; i++)
		timm_draw(&x->ops[i], &x->options, r, width, height, out);
	return 0;
}

static int apply_auto(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		      struct image_error *err)
{
	const struct timm_auto *x = op->args;

	return apply_steps(&x->options, choice, run, v, err);
}

const struct op_type timm_ops[] = {
	{ .name = "TimmRandAugment",
	  .args = rand_args,
	  .args_bytes = sizeof(struct timm_rand),
	  .flags = OP_RANDOM,
	  .read = ops_timm_read_rand,
	  .write = ops_timm_write_rand,
	  .follow = follow_rand,
	  .choose = ops_timm_choose_rand,
	  .apply = apply_rand },
	{ .name = "TimmAutoAugment",
	  .args = auto_args,
	  .args_bytes = sizeof(struct timm_auto),
	  .flags = OP_RANDOM,
	  .read = ops_timm_read_auto,
	  .write = ops_timm_write_auto,
	  .follow = follow_auto,
	  .choose = ops_timm_choose_auto,
	  .apply = apply_auto },
	{ .name = NULL },
};
