/* A daemon outlives the trainer that starts it and serves other trainers, so variables that configure CUDA for that one
 * trainer are left out of its environment:
 *
 *   CUDA_VISIBLE_DEVICES    names the trainer's GPUs; another trainer's would be missing in the daemon. The daemon
 *                           finds GPUs by UUID and makes a context only where a trainer asks, so seeing all of them
 *                           costs nothing. It stays when it names a MIG instance: a process sees one instance at most,
 *                           and without the variable CUDA may choose another one.
 *   CUDA_LAUNCH_BLOCKING    makes each copy block.
 *   *_INJECTION64_PATH      load a profiler into the process. The profiler of one trainer then waits for the daemon.
 *
 * CUDA_DEVICE_ORDER stays: it only changes ordinals, and no ordinal is passed between processes. */
#include "cuda/inherit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The value, if the entry of an environment has this name; else NULL. */
static const char *value_of(const char *entry, const char *name)
{
	size_t n = strlen(name);

	return strncmp(entry, name, n) == 0 && entry[n] == '=' ? entry + n + 1 : NULL;
}

static bool is_inherited(const char *entry)
{
	static const char *const trainers_own[] = { "CUDA_LAUNCH_BLOCKING", "CUDA_INJECTION64_PATH",
						    "NVTX_INJECTION64_PATH" };
	const char *visible = value_of(entry, "CUDA_VISIBLE_DEVICES");

	if (visible)
		return strncmp(visible, "MIG-", 4) == 0;
	for (size_t i = 0; i < sizeof trainers_own / sizeof *trainers_own; i++)
		if (value_of(entry, trainers_own[i]))
			return false;
	return true;
}

char **cuda_daemon_environment(char *const from[])
{
	size_t n = 0, n_kept = 0;
	char **kept;

	while (from && from[n])
		n++;
	kept = malloc((n + 1) * sizeof *kept);
	if (!kept)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (is_inherited(from[i]))
			kept[n_kept++] = from[i];
	kept[n_kept] = NULL;
	return kept;
}
