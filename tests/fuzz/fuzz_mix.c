/* Descriptions of a mix: any text is refused with a reason, or draws records that stay inside the batch and the image. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "finish/mix.h"

enum { ROWS = 6, HEIGHT = 5, WIDTH = 7 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mix_place place = { .seed = size };
	struct batchd_mix_row rows[ROWS];
	char *text = malloc(size + 1), why[256] = "";
	struct mix mix;
	bool ok;

	memcpy(text, data, size);
	text[size] = '\0';
	ok = mix_parse(text, &mix, why, sizeof why);
	free(text);
	if (!ok && (!why[0] || !memchr(why, '\0', sizeof why)))
		abort();
	for (place.epoch = 0; ok && place.epoch < 4; place.epoch++) {
		mix_draw(&mix, &place, ROWS, HEIGHT, WIDTH, rows);
		for (unsigned i = 0; i < ROWS; i++)
			if (rows[i].partner >= ROWS || rows[i].top > rows[i].bottom || rows[i].bottom > HEIGHT ||
			    rows[i].left > rows[i].right || rows[i].right > WIDTH ||
			    !(rows[i].weight >= 0 && rows[i].weight <= 1) || !isfinite(rows[i].partner_weight))
				abort();
	}
	return 0;
}
