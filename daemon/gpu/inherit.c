/* A daemon outlives the trainer that starts it and serves other trainers, so it gets those variables alone that it, its
 * libraries and the loader of programs read: no token or key that a script was given, which would stay in the daemon's
 * /proc/PID/environ and its cores. Of CUDA's variables these configure it for one trainer, and are left out, too:
 *
 *   CUDA_VISIBLE_DEVICES    names the trainer's GPUs; another trainer's would be missing in the daemon. The daemon
 *                           finds GPUs by UUID and makes a context only where a trainer asks, so seeing all of them
 *                           costs nothing. It stays when it names a MIG instance: a process sees one instance at most,
 *                           and without the variable CUDA may choose another one.
 *   CUDA_LAUNCH_BLOCKING    makes each copy block.
 *   *_INJECTION64_PATH, LD_PRELOAD, LD_AUDIT
 *                           load a profiler or another tool into the process. The profiler of one trainer then waits
 *                           for the daemon.
 *   CUDA_MPS_*              but for CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY: a share of the GPU for one
 *                           client of MPS.
 *   CUDA_*COREDUMP*         debug the trainer's kernels; the daemon has none.
 *
 * CUDA_DEVICE_ORDER stays: it only changes ordinals, and no ordinal is passed between processes. */
#include "gpu/inherit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* NAME, or with * at the end all names that begin so. JSIMD_ is libjpeg-turbo's, UV_ libuv's, GLIBC_TUNABLES, MALLOC_ and
 * LD_ the C library's, FAKECUDA_ that of the driver which the tests put in the place of NVIDIA's. daemon/man/batchd.8 has
 * this list, too. */
static const char *const inherited[] = { "PATH",
					 "HOME",
					 "LANG",
					 "LC_*",
					 "TZ",
					 "TMPDIR",
					 "XDG_CACHE_HOME",
					 "XDG_CONFIG_HOME",
					 "XDG_RUNTIME_DIR",
					 "BATCHD_*",
					 "MEMORY_PRESSURE_*",
					 "CUDA_*",
					 "NVIDIA_*",
					 "LD_*",
					 "GLIBC_TUNABLES",
					 "MALLOC_*",
					 "JSIMD_*",
					 "UV_*",
					 "ASAN_OPTIONS",
					 "LSAN_OPTIONS",
					 "TSAN_OPTIONS",
					 "UBSAN_OPTIONS",
					 "FAKECUDA_*" };
static const char *const trainers_own[] = { "CUDA_LAUNCH_BLOCKING",
					    "CUDA_INJECTION64_PATH",
					    "LD_PRELOAD",
					    "LD_AUDIT",
					    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
					    "CUDA_MPS_CLIENT_PRIORITY",
					    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
					    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
					    "CUDA_COREDUMP_*",
					    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
					    "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION",
					    "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
					    "CUDA_ENABLE_USER_TRIGGERED_COREDUMP" };

static bool has_name(const char *entry, const char *name)
{
	size_t n = strcspn(name, "*");

	return strncmp(entry, name, n) == 0 && (name[n] || entry[n] == '=');
}

static bool is_listed(const char *entry, const char *const names[], size_t n)
{
	while (n && !has_name(entry, names[n - 1]))
		n--;
	return n > 0;
}

static bool is_inherited(const char *entry)
{
	static const char visible[] = "CUDA_VISIBLE_DEVICES=";

	if (strncmp(entry, visible, sizeof visible - 1) == 0)
		return strncmp(entry + sizeof visible - 1, "MIG-", 4) == 0;
	return strchr(entry, '=') && is_listed(entry, inherited, sizeof inherited / sizeof *inherited) &&
	       !is_listed(entry, trainers_own, sizeof trainers_own / sizeof *trainers_own);
}

char **inherit_environment(char *const from[])
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
