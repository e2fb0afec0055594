/* Texts of blends: any text is refused with a reason, or becomes parts that lie in it, all with a weight or none. */
#include <stdlib.h>
#include <string.h>

#include "batch/plan/blend.h"
#include "dataset/blend-spec.h"

/* However the weights are, an epoch's samples are all given out. */
static void count(const struct blend_spec *spec, uint64_t n)
{
	struct dataset_blend blend = { .n = spec->n };
	uint64_t counts[BLEND_MAX_PARTS], sum = 0;

	for (unsigned k = 0; k < spec->n; k++) {
		blend.part[k] = (struct dataset_part){ k, 1, spec->part[k].weight };
	}
	plan_blend_counts(&blend, n, counts);
	for (unsigned k = 0; k < spec->n; k++) {
		sum += counts[k];
	}
	if (sum != n) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dataset_error err = { "", 0 };
	struct blend_spec spec;
	char *text = malloc(size + 7);
	const char *first;

	if (!text) {
		return 0;
	}
	memcpy(text, "blend:", 6);
	memcpy(text + 6, data, size);
	text[size + 6] = '\0';
	first = blend_spec_first(text);
	if (first < text || first > text + size + 6) {
		abort();
	}
	if (blend_spec_parse(text + 6, &spec, &err) < 0) {
		if (!err.text[0]) {
			abort();
		}
	} else {
		if (!spec.n || spec.n > BLEND_MAX_PARTS || spec.part[0].spec != first) {
			abort();
		}
		for (unsigned k = 0; k < spec.n; k++) {
			if (!*spec.part[k].spec || (spec.part[k].weight > 0) != spec.has_weights) {
				abort();
			}
		}
		if (spec.has_weights) {
			count(&spec, size * 7919);
		}
	}
	free(text);
	return 0;
}
