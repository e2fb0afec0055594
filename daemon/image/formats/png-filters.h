/* Undoes the filters of PNG rows. */
#ifndef BATCHD_PNG_FILTERS_H
#define BATCHD_PNG_FILTERS_H

#include <stddef.h>
#include <stdint.h>

/* Readable and writable bytes after a row. */
enum { PNG_ROW_MARGIN = 16, PNG_N_FILTERS = 5 };

/* in[0..n): a row as stored, without its filter byte; filter: that byte, below PNG_N_FILTERS. above[0..n): the row
 * before, undone (zeros for the first row). pixel_bytes: 1 to 8, the distance to the left neighbour. Writes row[0..n);
 * all three have the margin after them. */
void png_unfilter(unsigned filter, const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n,
		  unsigned pixel_bytes);
/* The same by what runs on every processor, for tests. */
void png_unfilter_plain(unsigned filter, const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n,
			unsigned pixel_bytes);

#endif
