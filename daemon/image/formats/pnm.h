/* Portable bitmaps, graymaps, pixmaps and float maps: P1 to P6 and Pf. */
#ifndef BATCHD_PNM_H
#define BATCHD_PNM_H

#include "image/formats/raw-rows.h"

struct pnm {
	struct raw_rows rows; /* its data: the file's, NULL where numbers in text are to be read */
	size_t data_at;       /* in the file */
	uint32_t max_value;
	bool text;
};

struct pnm_text {
	struct scratch values, block;
};

/* Whether these bytes begin such a file. */
bool pnm_begins(const uint8_t *bytes, size_t n_bytes);
/* Returns 0 or an IMAGE_E_ outcome. The rows are the file's, borrowed. */
int pnm_read(const uint8_t *bytes, size_t n_bytes, struct pnm *p, struct image_error *err);
/* Reads numbers in text into t->values. Returns 0, an IMAGE_E_ outcome, -ENOMEM, or IMAGE_E_TIME without a text. */
int pnm_read_text(struct pnm *p, const uint8_t *bytes, size_t n_bytes, struct pnm_text *t, struct cpu_budget *budget,
		  struct image_error *err);

#endif
