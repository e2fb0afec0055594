/* Matrices of transforms. Each expression has the order of operations of the function that it reproduces. */
#include "image/kernels/exact.h"

#include "image/kernels/matrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Python's math.radians */
static double matrix_radians(double degrees)
{
	return degrees * (M_PI / 180.0);
}

static void matrix_affine_v1(const struct matrix_affine *in, double rot, double sx, double sy, double m[6])
{
	double cx = in->center[0], cy = in->center[1];
	double to_x = -cx - in->translate[0], to_y = -cy - in->translate[1];
	double a = cos(rot - sy) / cos(sy), b = -cos(rot - sy) * tan(sx) / cos(sy) - sin(rot);
	double c = sin(rot - sy) / cos(sy), d = -sin(rot - sy) * tan(sx) / cos(sy) + cos(rot);

	m[0] = d / in->scale;
	m[1] = -b / in->scale;
	m[3] = -c / in->scale;
	m[4] = a / in->scale;
	m[2] = m[0] * to_x + m[1] * to_y + cx;
	m[5] = m[3] * to_x + m[4] * to_y + cy;
}

static void matrix_affine_v2(const struct matrix_affine *in, double rot, double sx, double sy, double m[6])
{
	double cx = in->center[0], cy = in->center[1];
	double cos_sy = cos(sy), tan_sx = tan(sx), rot_minus_sy = rot - sy;
	double cx_plus_tx = cx + in->translate[0], cy_plus_ty = cy + in->translate[1];
	double a = cos(rot_minus_sy) / cos_sy, b = -(a * tan_sx + sin(rot));
	double c = sin(rot_minus_sy) / cos_sy, d = cos(rot) - c * tan_sx;

	m[0] = d / in->scale;
	m[1] = -b / in->scale;
	m[3] = -c / in->scale;
	m[4] = a / in->scale;
	m[2] = 0.0 + (cx - m[0] * cx_plus_tx - m[1] * cy_plus_ty);
	m[5] = 0.0 + (cy - m[3] * cx_plus_tx - m[4] * cy_plus_ty);
}

void matrix_affine(const struct matrix_affine *in, double m[6])
{
	double rot = matrix_radians(in->angle), sx = matrix_radians(in->shear[0]), sy = matrix_radians(in->shear[1]);

	if (in->first_generation)
		matrix_affine_v1(in, rot, sx, sy, m);
	else
		matrix_affine_v2(in, rot, sx, sy, m);
}

/* Python's round(v, 15): through the decimal digits, which glibc rounds exactly. */
static double matrix_rounded(double v)
{
	char digits[32];

	snprintf(digits, sizeof(digits), "%.15f", v);
	return strtod(digits, NULL);
}

static void matrix_apply(const double m[6], double x, double y, double *out_x, double *out_y)
{
	double new_x = m[0] * x + m[1] * y + m[2], new_y = m[3] * x + m[4] * y + m[5];

	*out_x = new_x;
	*out_y = new_y;
}

/* The size that holds all of the rotated image; the matrix then maps its middle to the image's middle. */
static void expand_to_fit(uint32_t size[2], double m[6])
{
	double w = size[0], h = size[1], x[4], y[4], x_min, x_max, y_min, y_max;

	matrix_apply(m, 0, 0, &x[0], &y[0]);
	matrix_apply(m, w, 0, &x[1], &y[1]);
	matrix_apply(m, w, h, &x[2], &y[2]);
	matrix_apply(m, 0, h, &x[3], &y[3]);
	x_min = fmin(fmin(x[0], x[1]), fmin(x[2], x[3]));
	x_max = fmax(fmax(x[0], x[1]), fmax(x[2], x[3]));
	y_min = fmin(fmin(y[0], y[1]), fmin(y[2], y[3]));
	y_max = fmax(fmax(y[0], y[1]), fmax(y[2], y[3]));
	size[0] = (uint32_t)(ceil(x_max) - floor(x_min));
	size[1] = (uint32_t)(ceil(y_max) - floor(y_min));
	matrix_apply(m, -(size[0] - w) / 2.0, -(size[1] - h) / 2.0, &m[2], &m[5]);
}

/* Python's angle % 360.0 */
static double below_turn(double angle)
{
	double rest = fmod(angle, 360.0);

	if (rest < 0)
		rest += 360.0;
	return rest;
}

enum matrix_turn matrix_rotation(double angle, bool expand, const double *center, uint32_t size[2], double m[6])
{
	double middle[2] = { size[0] / 2.0, size[1] / 2.0 };

	angle = below_turn(angle);
	if (!center && angle == 0)
		return TURN_NONE;
	if (!center && angle == 180)
		return TURN_180;
	if (!center && (angle == 90 || angle == 270) && (expand || size[0] == size[1])) {
		uint32_t width = size[0];

		size[0] = size[1];
		size[1] = width;
		return angle == 90 ? TURN_90 : TURN_270;
	}
	center = center ? center : middle;
	angle = -matrix_radians(angle);
	m[0] = m[4] = matrix_rounded(cos(angle));
	m[1] = matrix_rounded(sin(angle));
	m[3] = matrix_rounded(-sin(angle));
	m[2] = m[5] = 0.0;
	matrix_apply(m, -center[0], -center[1], &m[2], &m[5]);
	m[2] += center[0];
	m[5] += center[1];
	if (expand)
		expand_to_fit(size, m);
	return TURN_MATRIX;
}

enum { N_UNKNOWN = 8 };

/* Gaussian elimination with pivots; a's last column is the right-hand side, then the result. */
static bool matrix_solve(double a[N_UNKNOWN][N_UNKNOWN + 1])
{
	for (int i = 0; i < N_UNKNOWN; i++) {
		int pivot = i;

		for (int row = i + 1; row < N_UNKNOWN; row++)
			if (fabs(a[row][i]) > fabs(a[pivot][i]))
				pivot = row;
		if (a[pivot][i] == 0.0)
			return false;
		for (int k = 0; k <= N_UNKNOWN; k++) {
			double v = a[i][k];

			a[i][k] = a[pivot][k];
			a[pivot][k] = v;
		}
		for (int row = 0; row < N_UNKNOWN; row++) {
			double share = row == i ? 0.0 : a[row][i] / a[i][i];

			for (int k = i; share != 0.0 && k <= N_UNKNOWN; k++)
				a[row][k] -= share * a[i][k];
		}
	}
	for (int i = 0; i < N_UNKNOWN; i++)
		a[i][N_UNKNOWN] /= a[i][i];
	return true;
}

bool matrix_perspective(const int32_t start[4][2], const int32_t end[4][2], double m[8])
{
	double a[N_UNKNOWN][N_UNKNOWN + 1];

	for (int i = 0; i < 4; i++) {
		double x = end[i][0], y = end[i][1], to_x = start[i][0], to_y = start[i][1];
		double rows[2][N_UNKNOWN + 1] = { { x, y, 1, 0, 0, 0, -to_x * x, -to_x * y, to_x },
						  { 0, 0, 0, x, y, 1, -to_y * x, -to_y * y, to_y } };

		for (int k = 0; k <= N_UNKNOWN; k++) {
			a[2 * i][k] = rows[0][k];
			a[2 * i + 1][k] = rows[1][k];
		}
	}
	if (!matrix_solve(a))
		return false;
	for (int i = 0; i < N_UNKNOWN; i++)
		m[i] = (double)(float)a[i][N_UNKNOWN]; /* torchvision rounds the solution to float32 */
	return true;
}
