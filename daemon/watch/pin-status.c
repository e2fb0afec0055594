/* See pin-status.h. gpu/thread.c decides, when a slab is opened for a GPU; this file repeats the rule for what is
 * left now. */
#include "watch/pin-status.h"

#include <stdio.h>

#include "batch/slots.h"
#include "gpu/gpus.h"
#include "server/engine.h"
#include "base/memory.h"
#include "base/size.h"

struct pinning {
	unsigned n_in_use; /* GPUs with a context */
	uint64_t pinned_bytes, may_bytes;
	char note[GPU_REASON_BYTES]; /* why something is not pinned, from a GPU that has such a reason */
};

static void pin_look(const struct engine *e, struct pinning *p)
{
	static struct gpu_stats stats[SLOTS_MAX_MIRRORS]; /* loop thread only */
	unsigned n = e->gpus ? gpus_get_stats(e->gpus, stats, SLOTS_MAX_MIRRORS) : 0;
	*p = (struct pinning){ 0 };
	for (unsigned i = 0; i < n; i++) {
		p->n_in_use += stats[i].context;
		p->pinned_bytes += stats[i].pinned_bytes;
		if (*stats[i].pin_note)
			snprintf(p->note, sizeof(p->note), "%s", stats[i].pin_note);
	}
	double all = e->config->pin_limit * (double)(p->pinned_bytes + memory_left(NULL)),
	       used = (double)p->pinned_bytes;
	p->may_bytes = e->config->pin_memory != CONFIG_OFF && all > used ? (uint64_t)(all - used) : 0;
}

static void explain(const struct engine *e, struct pinning *p, char *text, size_t size)
{
	char pinned[32], may[32], machine[32];
	uint64_t bytes = memory_available(NULL);
	bool small = e->config->pin_memory == CONFIG_SWITCH_AUTO && bytes && bytes < GPU_PIN_LEAST_BYTES;
	size_format(p->pinned_bytes, pinned, sizeof(pinned));
	if (small)
		p->may_bytes = 0;
	size_format(p->may_bytes, may, sizeof(may));
	if (e->config->pin_memory == CONFIG_OFF)
		snprintf(text, size, "nothing is pinned: pin_memory is off in the configuration");
	else if (small)
		snprintf(
			text, size,
			"nothing is pinned: this machine or control group has %s, and pin_memory: auto pins nothing below 8 GiB",
			size_format(bytes, machine, sizeof(machine)));
	else if (!p->n_in_use)
		snprintf(text, size, "nothing is pinned: no trainer has its batches on a GPU; up to %s would be", may);
	else
		snprintf(text, size,
			 "%s pinned; %s more may be, which leaves %.0f %% of the memory that is left (pin_limit)%s%s",
			 pinned, may, 100 - 100 * e->config->pin_limit, *p->note ? "; " : "", p->note);
}

json_t *pin_status_json(const struct engine *e)
{
	static const char *const asked[] = { [CONFIG_SWITCH_AUTO] = "auto", [CONFIG_ON] = "on", [CONFIG_OFF] = "off" };
	struct pinning p;
	char text[GPU_REASON_BYTES + 256];
	pin_look(e, &p);
	explain(e, &p, text, sizeof(text));
	return json_pack("{s:s, s:f, s:I, s:I, s:o*}", "asked", asked[e->config->pin_memory], "limit",
			 e->config->pin_limit, "may_pin_bytes", (json_int_t)p.may_bytes, "pinned_bytes",
			 (json_int_t)p.pinned_bytes, "text", json_string(text));
}
