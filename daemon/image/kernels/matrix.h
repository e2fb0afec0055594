/* The matrices of struct warp, with torchvision's and Pillow's rounding. */
#ifndef BATCHD_MATRIX_H
#define BATCHD_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

struct matrix_affine {
	double angle, shear[2]; /* degrees, clockwise */
	double translate[2], scale;
	double center[2];
	bool first_generation; /* of torchvision.transforms, not .v2 */
};

/* torchvision's _get_inverse_affine_matrix. Its two generations add in another order, and where a place falls on the
 * middle of a pixel, as in a half turn, the last bit decides what Pillow truncates to. */
void matrix_affine(const struct matrix_affine *a, double m[6]);

enum matrix_turn { TURN_NONE, TURN_90, TURN_180, TURN_270, TURN_MATRIX };

/* Pillow's Image.rotate(angle, expand=..., center=...); center NULL: the middle. Returns whether the rotation only
 * moves pixels, counterclockwise, or m is to be applied. size: of the image, then of the result. */
enum matrix_turn matrix_rotation(double angle, bool expand, const double *center, uint32_t size[2], double m[6]);

/* torchvision's _get_perspective_coeffs: start and end are the corners (x, y) upper left, upper right, lower right,
 * lower left. False if there is no such transform. */
bool matrix_perspective(const int32_t start[4][2], const int32_t end[4][2], double m[8]);

#endif
