/* Rotation, affine and perspective transforms, with torchvision's draws and matrices. */
#include "image/transform/op-types.h"

#include <math.h>

#include "image/kernels/matrix.h"
#include "image/kernels/warp.h"

static const char *const filter_choices[] = { "nearest", "bilinear", "bicubic", "nearest-exact", NULL };
static const enum filter filters[] = { FILTER_NEAREST, FILTER_BILINEAR, FILTER_BICUBIC, FILTER_NEAREST };

/* How pixels are moved; the same for all ops here. */
struct style {
	enum filter filter;
	struct op_fill fill;
};

static int ops_warp_read_style(struct arguments *a, unsigned interpolation, unsigned fill, enum filter standard,
			       struct style *out)
{
	unsigned choice = standard == FILTER_NEAREST ? 0 : 1;
	int rc = argument_choice(a, interpolation, filter_choices, &choice);

	out->filter = filters[choice];
	out->fill = (struct op_fill){ .single = true };
	if (rc == 0 && !json_is_null(a->values[fill])) /* null is black */
		rc = argument_fill(a, fill, &out->fill);
	return rc;
}

static int check_style(const struct op *op, const struct style *x, const struct form *f, struct pipeline_error *err)
{
	if (f->n_channels == 1 && !x->fill.single)
		return op_wrong(op, err, "gets a grey image, so fill must be one number");
	return 0;
}

static int apply_warp(const struct style *x, const double *m, unsigned n, const uint32_t size[2], struct op_run *run,
		      struct view *v, struct image_error *err)
{
	struct warp w = { .perspective = n == 8, .filter = x->filter };
	struct image made;
	int rc = view_make(v, run->worker, size[0], size[1], &made, err);

	for (unsigned i = 0; i < n; i++)
		w.m[i] = m[i];
	for (int c = 0; c < 3; c++)
		w.fill[c] = x->fill.color[c];
	if (rc != 0)
		return rc;
	warp(&w, &v->image, &made);
	view_take(v, &made);
	return 0;
}

/* n numbers; *given unless it is null. */
static int read_numbers(struct arguments *a, unsigned i, unsigned n, double from, double to, double *out, bool *given)
{
	json_t *v = a->values[i];
	bool right = json_is_array(v) && json_array_size(v) == n;

	*given = v && !json_is_null(v);
	for (unsigned k = 0; *given && right && k < n; k++) {
		json_t *number = json_array_get(v, k);

		out[k] = json_is_number(number) ? json_number_value(number) : NAN;
		right = out[k] >= from && out[k] <= to;
	}
	return *given && !right ? argument_wrong(a, i, n == 2 ? "two numbers in range" : "four numbers in range") : 0;
}

/* One number d means -d .. d. */
static int read_angles(struct arguments *a, unsigned i, double out[2])
{
	int rc;

	if (json_is_array(a->values[i]))
		return argument_range(a, i, -1e6, 1e6, out);
	rc = argument_number(a, i, 0, 1e6, &out[1]);
	out[0] = -out[1];
	return rc;
}

static double ops_warp_draw(struct random *r, const double range[2])
{
	return (double)random_uniform(r, (float)range[0], (float)range[1]);
}

/* RandomRotation */

struct rotation {
	double degrees[2], center[2];
	bool expand, centered; /* centered: about center */
	struct style style;
};

static const char *const rotation_args[] = { "degrees", "interpolation", "expand", "center", "fill", NULL };

static int read_rotation(struct arguments *a, struct op *op)
{
	struct rotation *x = op->args;
	int rc;

	if (!a->values[0])
		return argument_wrong(a, 0, "one number, or [min, max]");
	rc = read_angles(a, 0, x->degrees);
	if (rc == 0)
		rc = argument_bool(a, 2, &x->expand);
	if (rc == 0)
		rc = read_numbers(a, 3, 2, -1e6, 1e6, x->center, &x->centered);
	return rc == 0 ? ops_warp_read_style(a, 1, 4, FILTER_NEAREST, &x->style) : rc;
}

static json_t *json_center(bool given, const double center[2])
{
	return given ? json_pack("[ff]", center[0], center[1]) : json_null();
}

static json_t *write_rotation(const struct op *op)
{
	const struct rotation *x = op->args;

	return json_pack("{s:[ff], s:s, s:b, s:o, s:o}", "degrees", x->degrees[0], x->degrees[1], "interpolation",
			 filter_name(x->style.filter), "expand", x->expand, "center",
			 json_center(x->centered, x->center), "fill", json_fill(&x->style.fill));
}

static int follow_rotation(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct rotation *x = op->args;

	if (x->expand) {
		f->width = f->height = 0;
		f->blame = op;
	}
	return check_style(op, &x->style, f, err);
}

static int choose_rotation(const struct op *op, struct random *r, uint32_t width, uint32_t height,
			   struct op_choice *out, struct image_error *err)
{
	const struct rotation *x = op->args;

	(void)width;
	(void)height;
	(void)err;
	out->drawn[0] = ops_warp_draw(r, x->degrees);
	out->n_drawn = 1;
	return 0;
}

static int ops_warp_apply_rotation(const struct op *op, const struct op_choice *choice, struct op_run *run,
				   struct view *v, struct image_error *err)
{
	const struct rotation *x = op->args;
	uint32_t size[2] = { view_width(v), view_height(v) };
	double m[6];
	enum matrix_turn turn = matrix_rotation(choice->drawn[0], x->expand, x->centered ? x->center : NULL, size, m);
	struct image made;
	int rc;

	if (turn == TURN_NONE)
		return 0;
	if (turn == TURN_MATRIX)
		return apply_warp(&x->style, m, 6, size, run, v, err);
	rc = view_make(v, run->worker, size[0], size[1], &made, err);
	if (rc != 0)
		return rc;
	warp_turn(turn, &v->image, &made);
	view_take(v, &made);
	return 0;
}

/* RandomAffine */

struct affine {
	double degrees[2], translate[2], scale[2], shear[4], center[2];
	bool translated, scaled, sheared[2], centered;
	bool first_generation; /* torchvision.transforms, not .v2: the matrix is rounded in another way */
	struct style style;
};

enum { AFFINE_ANGLE, AFFINE_X, AFFINE_Y, AFFINE_SCALE, AFFINE_SHEAR_X, AFFINE_SHEAR_Y, N_AFFINE };

static const char *const affine_args[] = { "degrees", "translate", "scale", "shear", "interpolation",
					   "fill",    "center",    "v1",    NULL };

/* One number, [min, max] along x, or [x_min, x_max, y_min, y_max]. */
static int read_shear(struct arguments *a, unsigned i, struct affine *x)
{
	json_t *v = a->values[i];
	bool given = v && !json_is_null(v);
	int rc = 0;

	x->sheared[0] = given;
	x->sheared[1] = json_array_size(v) == 4;
	if (x->sheared[1])
		rc = read_numbers(a, i, 4, -1e6, 1e6, x->shear, &given);
	else if (given)
		rc = read_angles(a, i, x->shear);
	if (rc == 0 && (x->shear[0] > x->shear[1] || x->shear[2] > x->shear[3]))
		rc = argument_wrong(a, i, "ranges with min <= max");
	return rc;
}

static int read_affine(struct arguments *a, struct op *op)
{
	struct affine *x = op->args;
	int rc;

	if (!a->values[0])
		return argument_wrong(a, 0, "one number, or [min, max]");
	rc = read_angles(a, 0, x->degrees);
	if (rc == 0)
		rc = read_numbers(a, 1, 2, 0, 1, x->translate, &x->translated);
	if (rc == 0)
		rc = read_numbers(a, 2, 2, 1e-6, 1e6, x->scale, &x->scaled);
	if (rc == 0 && x->scaled)
		rc = argument_range(a, 2, 1e-6, 1e6, x->scale);
	if (rc == 0)
		rc = read_shear(a, 3, x);
	if (rc == 0)
		rc = read_numbers(a, 6, 2, -1e6, 1e6, x->center, &x->centered);
	if (rc == 0)
		rc = argument_bool(a, 7, &x->first_generation);
	return rc == 0 ? ops_warp_read_style(a, 4, 5, FILTER_NEAREST, &x->style) : rc;
}

static json_t *write_affine(const struct op *op)
{
	const struct affine *x = op->args;
	const double *s = x->shear;
	json_t *shear = !x->sheared[0]  ? json_null()
			: x->sheared[1] ? json_pack("[ffff]", s[0], s[1], s[2], s[3])
					: json_pack("[ff]", s[0], s[1]);

	return json_pack("{s:[ff], s:o, s:o, s:o, s:s, s:o, s:o, s:b}", "degrees", x->degrees[0], x->degrees[1],
			 "translate", json_center(x->translated, x->translate), "scale",
			 json_center(x->scaled, x->scale), "shear", shear, "interpolation",
			 filter_name(x->style.filter), "fill", json_fill(&x->style.fill), "center",
			 json_center(x->centered, x->center), "v1", x->first_generation);
}

static int follow_affine(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct affine *x = op->args;

	return check_style(op, &x->style, f, err);
}

/* Whole pixels, up to a share of the edge in both directions. */
static double draw_shift(struct random *r, double share, uint32_t edge)
{
	double most = share * edge;

	return rint((double)random_uniform(r, (float)-most, (float)most));
}

static int choose_affine(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			 struct image_error *err)
{
	const struct affine *x = op->args;
	double *d = out->drawn;

	(void)err;
	d[AFFINE_ANGLE] = ops_warp_draw(r, x->degrees);
	d[AFFINE_X] = x->translated ? draw_shift(r, x->translate[0], width) : 0.0;
	d[AFFINE_Y] = x->translated ? draw_shift(r, x->translate[1], height) : 0.0;
	d[AFFINE_SCALE] = x->scaled ? ops_warp_draw(r, x->scale) : 1.0;
	d[AFFINE_SHEAR_X] = x->sheared[0] ? ops_warp_draw(r, x->shear) : 0.0;
	d[AFFINE_SHEAR_Y] = x->sheared[1] ? ops_warp_draw(r, x->shear + 2) : 0.0;
	out->n_drawn = N_AFFINE;
	return 0;
}

static int ops_warp_apply_affine(const struct op *op, const struct op_choice *choice, struct op_run *run,
				 struct view *v, struct image_error *err)
{
	const struct affine *x = op->args;
	const double *d = choice->drawn;
	uint32_t size[2] = { view_width(v), view_height(v) };
	struct matrix_affine a = {
		.angle = d[AFFINE_ANGLE],
		.shear = { d[AFFINE_SHEAR_X], d[AFFINE_SHEAR_Y] },
		.translate = { d[AFFINE_X], d[AFFINE_Y] },
		.scale = d[AFFINE_SCALE],
		.first_generation = x->first_generation,
	};
	double m[6];

	for (int i = 0; i < 2; i++)
		a.center[i] = x->centered ? x->center[i] : size[i] * 0.5;
	matrix_affine(&a, m);
	return apply_warp(&x->style, m, 6, size, run, v, err);
}

/* RandomPerspective */

struct perspective {
	double distortion, p;
	struct style style;
};

enum { PERSPECTIVE_HAPPENS, PERSPECTIVE_CORNERS, N_PERSPECTIVE = PERSPECTIVE_CORNERS + 8 };

static const char *const perspective_args[] = { "distortion_scale", "p", "interpolation", "fill", NULL };

static int read_perspective(struct arguments *a, struct op *op)
{
	struct perspective *x = op->args;
	int rc;

	x->distortion = x->p = 0.5;
	rc = argument_number(a, 0, 0, 1, &x->distortion);
	if (rc == 0)
		rc = argument_number(a, 1, 0, 1, &x->p);
	return rc == 0 ? ops_warp_read_style(a, 2, 3, FILTER_BILINEAR, &x->style) : rc;
}

static json_t *write_perspective(const struct op *op)
{
	const struct perspective *x = op->args;

	return json_pack("{s:f, s:f, s:s, s:o}", "distortion_scale", x->distortion, "p", x->p, "interpolation",
			 filter_name(x->style.filter), "fill", json_fill(&x->style.fill));
}

static int follow_perspective(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct perspective *x = op->args;

	return check_style(op, &x->style, f, err);
}

/* The upper left, upper right, lower right and lower left corner move inwards. */
static int choose_perspective(const struct op *op, struct random *r, uint32_t width, uint32_t height,
			      struct op_choice *out, struct image_error *err)
{
	const struct perspective *x = op->args;
	uint32_t most_x = (uint32_t)(x->distortion * (width / 2)) + 1;
	uint32_t most_y = (uint32_t)(x->distortion * (height / 2)) + 1;
	double *d = out->drawn + PERSPECTIVE_CORNERS;

	(void)err;
	out->drawn[PERSPECTIVE_HAPPENS] = random_chance(r, x->p);
	for (int i = 0; i < 4; i++) {
		bool right = i == 1 || i == 2, lower = i >= 2;

		d[2 * i] = (right ? width - most_x : 0) + random_below(r, most_x);
		d[2 * i + 1] = (lower ? height - most_y : 0) + random_below(r, most_y);
	}
	out->n_drawn = N_PERSPECTIVE;
	return 0;
}

static int apply_perspective(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			     struct image_error *err)
{
	const struct perspective *x = op->args;
	const double *d = choice->drawn + PERSPECTIVE_CORNERS;
	uint32_t size[2] = { view_width(v), view_height(v) };
	int32_t right = (int32_t)size[0] - 1, low = (int32_t)size[1] - 1;
	const int32_t start[4][2] = { { 0, 0 }, { right, 0 }, { right, low }, { 0, low } };
	int32_t end[4][2];
	double m[8];

	for (int i = 0; i < 8; i++)
		end[i / 2][i % 2] = (int32_t)d[i];
	/* Corners of an image of one row or column have no perspective. */
	if (choice->drawn[PERSPECTIVE_HAPPENS] == 0.0 || !matrix_perspective(start, end, m))
		return 0;
	return apply_warp(&x->style, m, 8, size, run, v, err);
}

const struct op_type warp_ops[] = {
	{ .name = "RandomRotation",
	  .args = rotation_args,
	  .args_bytes = sizeof(struct rotation),
	  .flags = OP_RANDOM,
	  .read = read_rotation,
	  .write = write_rotation,
	  .follow = follow_rotation,
	  .choose = choose_rotation,
	  .apply = ops_warp_apply_rotation },
	{ .name = "RandomAffine",
	  .args = affine_args,
	  .args_bytes = sizeof(struct affine),
	  .flags = OP_RANDOM,
	  .read = read_affine,
	  .write = write_affine,
	  .follow = follow_affine,
	  .choose = choose_affine,
	  .apply = ops_warp_apply_affine },
	{ .name = "RandomPerspective",
	  .args = perspective_args,
	  .args_bytes = sizeof(struct perspective),
	  .flags = OP_RANDOM,
	  .read = read_perspective,
	  .write = write_perspective,
	  .follow = follow_perspective,
	  .choose = choose_perspective,
	  .apply = apply_perspective },
	{ .name = NULL },
};
