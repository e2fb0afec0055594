#include "stage-status.h"

#include "core/source.h"

json_t *stage_status_json(const struct batch_source *s)
{
	static const char *const names[SOURCE_N_STAGES] = { [SOURCE_READ] = "read",
							    [SOURCE_DECODE] = "decode",
							    [SOURCE_TRANSFORM] = "transform",
							    [SOURCE_MEMORY] = "memory" };
	const struct source_costs c = source_get_costs(s);
	if (!c.n_rows)
		return NULL;
	json_t *o = json_object();
	for (int i = 0; i < SOURCE_N_STAGES; i++)
		json_object_set_new(
			o, names[i],
			json_pack("{s:I, s:f}", "rows", (json_int_t)c.n_rows, "seconds", (double)c.ns[i] / 1e9));
	return o;
}
