/* Ops that change colours where they are. */
#include "image/transform/op-types.h"

#include "image/kernels/color.h"

/* ColorJitter, with torchvision's numbers of its parts */

enum { JITTER_BRIGHTNESS, JITTER_CONTRAST, JITTER_SATURATION, JITTER_HUE, N_JITTERS };

struct jitter {
	bool given[N_JITTERS];
	double from[N_JITTERS], to[N_JITTERS];
};

enum { JITTER_ORDER, JITTER_FACTOR = N_JITTERS }; /* which comes first, second ...; factors of those given */

static const char *const jitter_args[] = { "brightness", "contrast", "saturation", "hue", NULL };

/* One number x means center - x .. center + x. A range without effect counts as not given. */
static int ops_color_read_part(struct arguments *a, unsigned i, struct jitter *x)
{
	double middle = i == JITTER_HUE ? 0.0 : 1.0, from = i == JITTER_HUE ? -0.5 : 0.0,
	       to = i == JITTER_HUE ? 0.5 : 1e6;
	double range[2] = { middle, middle };
	int rc = 0;

	if (json_is_number(a->values[i])) {
		double width = 0.0;

		rc = argument_number(a, i, 0, to, &width);
		range[0] = middle - width < from ? from : middle - width;
		range[1] = middle + width;
	} else if (a->values[i] && !json_is_null(a->values[i])) {
		rc = argument_range(a, i, from, to, range);
	}
	x->from[i] = range[0];
	x->to[i] = range[1];
	x->given[i] = range[0] != middle || range[1] != middle;
	return rc;
}

static int read_jitter(struct arguments *a, struct op *op)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < N_JITTERS; i++)
		rc = ops_color_read_part(a, i, op->args);
	return rc;
}

static json_t *write_jitter(const struct op *op)
{
	const struct jitter *x = op->args;
	json_t *out = json_object();

	for (unsigned i = 0; i < N_JITTERS; i++)
		json_object_set_new(out, jitter_args[i],
				    x->given[i] ? json_pack("[ff]", x->from[i], x->to[i]) : json_null());
	return out;
}

static int choose_jitter(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			 struct image_error *err)
{
	const struct jitter *x = op->args;
	double *order = out->drawn + JITTER_ORDER;

	(void)width;
	(void)height;
	(void)err;
	for (int i = 0; i < N_JITTERS; i++)
		order[i] = i;
	for (uint32_t i = 0; i < N_JITTERS - 1; i++) {
		uint32_t j = i + random_below(r, N_JITTERS - i);
		double first = order[i];

		order[i] = order[j];
		order[j] = first;
	}
	for (int i = 0; i < N_JITTERS; i++)
		out->drawn[JITTER_FACTOR + i] =
			x->given[i] ? (double)random_uniform(r, (float)x->from[i], (float)x->to[i]) : 0.0;
	out->n_drawn = 2 * N_JITTERS;
	return 0;
}

static int apply_jitter(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			struct image_error *err)
{
	const struct jitter *x = op->args;
	int rc = view_settle(v, run->worker, true, err);

	for (int i = 0; rc == 0 && i < N_JITTERS; i++) {
		int what = (int)choice->drawn[JITTER_ORDER + i];
		double factor = choice->drawn[JITTER_FACTOR + what];

		if (!x->given[what])
			continue;
		switch (what) {
		case JITTER_BRIGHTNESS:
			color_brightness(&v->image, (float)factor);
			break;
		case JITTER_CONTRAST:
			color_contrast(&v->image, (float)factor);
			break;
		case JITTER_SATURATION:
			color_saturation(&v->image, (float)factor);
			break;
		default:
			color_hue(&v->image, color_hue_steps(factor));
			break;
		}
	}
	return rc;
}

/* RandomGrayscale, Grayscale */

static const char *const random_grayscale_args[] = { "p", NULL };

static int read_random_grayscale(struct arguments *a, struct op *op)
{
	double *p = op->args;

	*p = 0.1;
	return argument_number(a, 0, 0, 1, p);
}

static json_t *write_random_grayscale(const struct op *op)
{
	const double *p = op->args;

	return json_pack("{s:f}", "p", *p);
}

static int choose_random_grayscale(const struct op *op, struct random *r, uint32_t width, uint32_t height,
				   struct op_choice *out, struct image_error *err)
{
	const double *p = op->args;

	(void)width;
	(void)height;
	(void)err;
	out->drawn[0] = random_chance(r, *p);
	out->n_drawn = 1;
	return 0;
}

static int make_grey(struct view *v, struct op_run *run, struct image_error *err)
{
	int rc = view_settle(v, run->worker, true, err);

	if (rc == 0)
		color_grayscale(&v->image);
	return rc;
}

static int apply_random_grayscale(const struct op *op, const struct op_choice *choice, struct op_run *run,
				  struct view *v, struct image_error *err)
{
	(void)op;
	return choice->drawn[0] != 0.0 ? make_grey(v, run, err) : 0;
}

static const char *const grayscale_args[] = { "num_output_channels", NULL };

static int read_grayscale(struct arguments *a, struct op *op)
{
	uint32_t *n_channels = op->args;

	*n_channels = 1;
	if (argument_count(a, 0, 1, 3, n_channels) < 0 || *n_channels == 2)
		return argument_wrong(a, 0, "1 or 3");
	return 0;
}

static json_t *write_grayscale(const struct op *op)
{
	const uint32_t *n_channels = op->args;

	return json_pack("{s:i}", "num_output_channels", (int)*n_channels);
}

static int follow_grayscale(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const uint32_t *n_channels = op->args;

	(void)err;
	f->n_channels = *n_channels;
	return 0;
}

static int apply_grayscale(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			   struct image_error *err)
{
	(void)op;
	(void)choice;
	return make_grey(v, run, err);
}

/* RGB: three channels; of a grey image, which has three equal ones, this is all that changes. */
static int read_rgb(struct arguments *a, struct op *op)
{
	(void)a;
	(void)op;
	return 0;
}

static int follow_rgb(const struct op *op, struct form *f, struct pipeline_error *err)
{
	(void)op;
	(void)err;
	f->n_channels = 3;
	return 0;
}

const struct op_type color_ops[] = {
	{ .name = "ColorJitter",
	  .args = jitter_args,
	  .args_bytes = sizeof(struct jitter),
	  .flags = OP_RANDOM,
	  .read = read_jitter,
	  .write = write_jitter,
	  .choose = choose_jitter,
	  .apply = apply_jitter },
	{ .name = "RandomGrayscale",
	  .args = random_grayscale_args,
	  .args_bytes = sizeof(double),
	  .flags = OP_RANDOM,
	  .read = read_random_grayscale,
	  .write = write_random_grayscale,
	  .choose = choose_random_grayscale,
	  .apply = apply_random_grayscale },
	{ .name = "Grayscale",
	  .args = grayscale_args,
	  .args_bytes = sizeof(uint32_t),
	  .read = read_grayscale,
	  .write = write_grayscale,
	  .follow = follow_grayscale,
	  .apply = apply_grayscale },
	{ .name = "RGB", .read = read_rgb, .follow = follow_rgb },
	{ .name = NULL },
};
