#include "watch/stage-status.h"

#include "batch/source.h"

json_t *stage_status_json(const struct batch_source *s)
{
	static const char *const names[N_STAGES] = { [STAGE_READ] = "read",
						     [STAGE_DECODE] = "decode",
						     [STAGE_TRANSFORM] = "transform",
						     [STAGE_MEMORY] = "memory" };
	uint64_t n_rows = tally_sum(&s->sums, SOURCE_ROWS);
	if (!n_rows || s->ops->is_asked)
		return NULL;
	json_t *o = json_object();
	for (unsigned i = STAGE_READ; i < N_STAGES; i++)
		json_object_set_new(
			o, names[i],
			json_pack("{s:I, s:f}", "rows", (json_int_t)n_rows, "seconds", (double)s->stage_ns[i] / 1e9));
	return o;
}
