/* Data sets' texts and messages. A text is refused with a reason, or becomes sources that print as a text which
 * gives the same ones. A message that the check lets through prints, and its descriptors can be counted. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch/plan/blend.h"
#include "sources.h"
#include "wire.h"

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* However the weights are, an epoch's samples are all given out. */
static void count(const struct Sources *all, uint64_t n)
{
	struct dataset_blend blend = { .n = (unsigned)all->n_source };
	uint64_t counts[SOURCES_MAX], sum = 0;

	for (unsigned k = 0; k < blend.n; k++)
		blend.part[k] = (struct dataset_part){ k, 1, all->source[k]->weight };
	plan_blend_counts(&blend, n, counts);
	for (unsigned k = 0; k < blend.n; k++)
		sum += counts[k];
	must(sum == n);
}

static void take_text(const char *text)
{
	struct Sources *all, *again, *copy;
	char why[400], *exact, *shown, *printed;
	int r = sources_parse(text, &all, why, sizeof(why));

	must(r == 0 || (!all && *why) || !*text);
	if (r < 0)
		return;
	must(all->n_source >= 1 && all->n_source <= SOURCES_MAX && (all->blend || all->n_source == 1));
	for (size_t k = 0; k < all->n_source; k++)
		must(!all->source[k]->weight == !all->source[0]->weight);
	if (all->source[0]->weight)
		count(all, strlen(text) * 7919);
	exact = sources_print(all, SOURCE_EXACT);
	shown = sources_print(all, SOURCE_SHOWN);
	copy = sources_copy(all);
	must(sources_are_equal(all, copy));
	must(sources_parse(exact, &again, why, sizeof(why)) == 0);
	printed = sources_print(again, SOURCE_EXACT);
	must(strcmp(printed, exact) == 0);
	free(printed);
	sources_free(again);
	sources_free(copy);
	sources_free(all);
	free(exact);
	free(shown);
}

static void take_message(const uint8_t *data, size_t size)
{
	struct Sources *all = sources__unpack(NULL, size, data);
	bool told[WIRE_MAX_FDS];
	char *text;

	if (!all)
		return;
	if (!sources_check(all)) {
		must(sources_n_fds(all) <= WIRE_MAX_FDS);
		sources_told(all, told);
		text = sources_print(all, SOURCE_EXACT);
		must(text && (*text || !*all->name));
		free(text);
	}
	sources_free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	if (data[0] == 0xff) {
		take_message(data + 1, size - 1);
		return 0;
	}
	text = strndup((const char *)data, size);
	take_text(text);
	free(text);
	return 0;
}
