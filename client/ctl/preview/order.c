/* See order.h. */
#include "ctl/preview/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "batch/plan/plan.h"
#include "ctl/ctl.h"
#include "ctl/term/options.h"

int preview_order_listed(const struct dataset *ds, const char *list, uint64_t **order, uint64_t *n)
{
	uint64_t last = dataset_n(ds) - 1, i = 0;
	char *copy = strdup(list), *rest = copy;
	int code = CTL_OK;

	*n = 1;
	for (const char *c = list; *c; c++)
		*n += *c == ',';
	*order = calloc(*n, sizeof **order);
	if (!copy || !*order)
		code = CTL_FAILED;
	for (char *one; code == CTL_OK && (one = strsep(&rest, ",")); i++)
		if (!options_number(one, 0, last, &(*order)[i])) {
			ctl_complain("preview",
				     "--indices wants sample numbers such as 3,17,4, each from 0 to %" PRIu64
				     ", not '%s'",
				     last, one);
			code = CTL_USAGE;
		}
	free(copy);
	return code;
}

int preview_order_first(const struct dataset *ds, uint64_t seed, uint64_t epoch, uint64_t **order, uint64_t *n)
{
	struct plan *plan;
	int r = plan_create(
		&(struct plan_spec){
			.n_samples = dataset_n(ds), .seed = seed, .epoch = epoch, .world_size = 1, .shuffle = true },
		&plan);

	if (r < 0) {
		ctl_complain("preview", "cannot make the epoch's order: %s", strerror(-r));
		return CTL_FAILED;
	}
	if (*n > plan_n_per_rank(plan))
		*n = plan_n_per_rank(plan);
	*order = calloc(*n, sizeof **order);
	for (uint64_t i = 0; *order && i < *n; i++)
		(*order)[i] = plan_at(plan, 0, i);
	plan_unref(plan);
	return *order ? CTL_OK : CTL_FAILED;
}
