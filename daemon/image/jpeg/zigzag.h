/* The order of coefficients in a JPEG's data. */
#ifndef BATCHD_ZIGZAG_H
#define BATCHD_ZIGZAG_H

#include <stdint.h>

#include "image/jpeg/entropy.h" /* layout of coefficients */

/* Place of the k-th coefficient in zigzag order, in interleaved rows; from 64 on, the storage pad. k is below 64 + 32 +
 * 128. */
static const uint8_t zigzag[256] = {
#define AT(row, column) (row) * COEF_ROW + (column)
	AT(0, 0),
	AT(0, 1),
	AT(1, 0),
	AT(2, 0),
	AT(1, 1),
	AT(0, 2),
	AT(0, 3),
	AT(1, 2),
	AT(2, 1),
	AT(3, 0),
	AT(4, 0),
	AT(3, 1),
	AT(2, 2),
	AT(1, 3),
	AT(0, 4),
	AT(0, 5),
	AT(1, 4),
	AT(2, 3),
	AT(3, 2),
	AT(4, 1),
	AT(5, 0),
	AT(6, 0),
	AT(5, 1),
	AT(4, 2),
	AT(3, 3),
	AT(2, 4),
	AT(1, 5),
	AT(0, 6),
	AT(0, 7),
	AT(1, 6),
	AT(2, 5),
	AT(3, 4),
	AT(4, 3),
	AT(5, 2),
	AT(6, 1),
	AT(7, 0),
	AT(7, 1),
	AT(6, 2),
	AT(5, 3),
	AT(4, 4),
	AT(3, 5),
	AT(2, 6),
	AT(1, 7),
	AT(2, 7),
	AT(3, 6),
	AT(4, 5),
	AT(5, 4),
	AT(6, 3),
	AT(7, 2),
	AT(7, 3),
	AT(6, 4),
	AT(5, 5),
	AT(4, 6),
	AT(3, 7),
	AT(4, 7),
	AT(5, 6),
	AT(6, 5),
	AT(7, 4),
	AT(7, 5),
	AT(6, 6),
	AT(5, 7),
	AT(6, 7),
	AT(7, 6),
	AT(7, 7),
#undef AT
	[64 ... 255] = COEF_PAIR,
};

#endif
