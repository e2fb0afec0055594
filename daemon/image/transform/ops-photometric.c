/* RandomChannelPermutation and RandomPhotometricDistort, as torchvision.transforms.v2 has them. */
#include "image/transform/op-types.h"

#include "image/kernels/color.h"

/* The drawn order of the channels: channel c becomes channel order[c] of the image. */
static void draw_permutation(struct random *r, double order[3])
{
	for (int i = 0; i < 3; i++)
		order[i] = i;
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t j = i + random_below(r, 3 - i);
		double first = order[i];

		order[i] = order[j];
		order[j] = first;
	}
}

static void ops_photometric_permute(struct image *i, const double order[3])
{
	size_t from[3] = { (size_t)order[0], (size_t)order[1], (size_t)order[2] };

	for (uint32_t y = 0; y < i->height; y++) {
		uint8_t *p = i->rgb + (size_t)y * i->stride_bytes;

		for (uint32_t x = 0; x < i->width; x++, p += 3) {
			uint8_t pixel[3] = { p[from[0]], p[from[1]], p[from[2]] };

			p[0] = pixel[0];
			p[1] = pixel[1];
			p[2] = pixel[2];
		}
	}
}

/* RandomChannelPermutation */

static int ops_photometric_read_nothing(struct arguments *a, struct op *op)
{
	(void)a;
	(void)op;
	return 0;
}

static int choose_permutation(const struct op *op, struct random *r, uint32_t width, uint32_t height,
			      struct op_choice *out, struct image_error *err)
{
	(void)op;
	(void)width;
	(void)height;
	(void)err;
	draw_permutation(r, out->drawn);
	out->n_drawn = 3;
	return 0;
}

static int apply_permutation(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			     struct image_error *err)
{
	int rc = view_settle(v, run->worker, true, err);

	(void)op;
	if (rc == 0)
		ops_photometric_permute(&v->image, choice->drawn);
	return rc;
}

/* RandomPhotometricDistort */

enum part { BRIGHTNESS, CONTRAST, SATURATION, HUE, N_PARTS };

struct distort {
	double range[N_PARTS][2], p;
};

enum { HAPPENS, FACTOR = N_PARTS, CONTRAST_FIRST = 2 * N_PARTS, PERMUTES, ORDER, N_DISTORT = ORDER + 3 };

static const char *const distort_args[] = { "brightness", "contrast", "saturation", "hue", "p", NULL };

static int read_distort(struct arguments *a, struct op *op)
{
	static const struct distort standard = { { { 0.875, 1.125 }, { 0.5, 1.5 }, { 0.5, 1.5 }, { -0.05, 0.05 } },
						 0.5 };
	struct distort *x = op->args;
	int rc = 0;

	*x = standard;
	for (unsigned i = 0; rc == 0 && i < N_PARTS; i++)
		rc = argument_range(a, i, i == HUE ? -0.5 : 0, i == HUE ? 0.5 : 1e6, x->range[i]);
	return rc == 0 ? argument_number(a, 4, 0, 1, &x->p) : rc;
}

static json_t *write_distort(const struct op *op)
{
	const struct distort *x = op->args;
	json_t *out = json_object();

	for (unsigned i = 0; i < N_PARTS; i++)
		json_object_set_new(out, distort_args[i], json_pack("[ff]", x->range[i][0], x->range[i][1]));
	json_object_set_new(out, "p", json_real(x->p));
	return out;
}

static int choose_distort(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			  struct image_error *err)
{
	const struct distort *x = op->args;
	double *d = out->drawn;

	(void)width;
	(void)height;
	(void)err;
	for (unsigned i = 0; i < N_PARTS; i++) {
		d[HAPPENS + i] = random_chance(r, x->p);
		d[FACTOR + i] = (double)random_uniform(r, (float)x->range[i][0], (float)x->range[i][1]);
	}
	d[CONTRAST_FIRST] = random_chance(r, 0.5);
	d[PERMUTES] = random_chance(r, x->p);
	draw_permutation(r, d + ORDER);
	out->n_drawn = N_DISTORT;
	return 0;
}

static void ops_photometric_distort(struct image *i, const double *d)
{
	bool contrast = d[HAPPENS + CONTRAST] != 0.0, first = d[CONTRAST_FIRST] != 0.0;

	if (d[HAPPENS + BRIGHTNESS] != 0.0)
		color_brightness(i, (float)d[FACTOR + BRIGHTNESS]);
	if (contrast && first)
		color_contrast(i, (float)d[FACTOR + CONTRAST]);
	if (d[HAPPENS + SATURATION] != 0.0)
		color_saturation(i, (float)d[FACTOR + SATURATION]);
	if (d[HAPPENS + HUE] != 0.0)
		color_hue(i, color_hue_steps(d[FACTOR + HUE]));
	if (contrast && !first)
		color_contrast(i, (float)d[FACTOR + CONTRAST]);
	if (d[PERMUTES] != 0.0)
		ops_photometric_permute(i, d + ORDER);
}

static int apply_distort(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			 struct image_error *err)
{
	int rc = view_settle(v, run->worker, true, err);

	(void)op;
	if (rc == 0)
		ops_photometric_distort(&v->image, choice->drawn);
	return rc;
}

const struct op_type photometric_ops[] = {
	{ .name = "RandomChannelPermutation",
	  .flags = OP_RANDOM,
	  .read = ops_photometric_read_nothing,
	  .choose = choose_permutation,
	  .apply = apply_permutation },
	{ .name = "RandomPhotometricDistort",
	  .args = distort_args,
	  .args_bytes = sizeof(struct distort),
	  .flags = OP_RANDOM,
	  .read = read_distort,
	  .write = write_distort,
	  .choose = choose_distort,
	  .apply = apply_distort },
	{ .name = NULL },
};
