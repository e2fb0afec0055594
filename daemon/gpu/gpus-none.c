/* Replaces gpus.c and gpu-*.c if batchd is built with CUDA=0: there are no GPUs, and a trainer that asks for one is
 * told why. */
#include "gpu/gpus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct gpus {
	uv_async_t async; /* only for its close callback */
	void (*on_closed)(void *arg);
	void *on_closed_arg;
};

const char *const gpu_size_class_names[GPU_SIZE_CLASSES] = { "64KiB", "1MiB", "16MiB", "256MiB", "larger" };
const char *const gpu_share_names[GPU_N_SHARES] = { "cuda-ipc", "cuda-vmm-fd" };

int gpus_create(uv_loop_t *loop, const struct gpus_params *params, struct gpus **out)
{
	(void)params;
	struct gpus *g = calloc(1, sizeof(*g));
	int r = g ? uv_async_init(loop, &g->async, NULL) : -ENOMEM;
	if (r) {
		free(g);
		return r;
	}
	g->async.data = g;
	*out = g;
	return 0;
}

static void gpus_none_on_async_closed(uv_handle_t *h)
{
	struct gpus *g = h->data;
	void (*on_closed)(void *) = g->on_closed;
	void *arg = g->on_closed_arg;
	free(g);
	if (on_closed)
		on_closed(arg);
}

void gpus_close(struct gpus *g, void (*on_closed)(void *arg), void *arg)
{
	g->on_closed = on_closed;
	g->on_closed_arg = arg;
	uv_close((uv_handle_t *)&g->async, gpus_none_on_async_closed);
}

int gpu_slab_open(struct gpus *g, const struct gpu_slab_params *params, char *why)
{
	(void)g;
	(void)params;
	snprintf(why, GPU_REASON_BYTES, "this batchd was built without CUDA (make CUDA=0)");
	return GPU_E_REFUSED;
}

void gpus_use_mps(struct gpus *g)
{
	(void)g;
}

/* There is never a slab to call these functions with. */
void gpu_slab_close(struct gpu_slab *slab, void (*on_closed)(void *arg, bool lost), void *arg)
{
	(void)slab;
	on_closed(arg, false);
}

void gpu_copy_begin(struct gpu_slab *slab, struct gpu_copy *copy)
{
	(void)slab;
	(void)copy;
	abort();
}

bool gpu_is_lost(const struct gpu *gpu)
{
	(void)gpu;
	return false;
}

bool gpu_has_uuid(const struct gpu *gpu, const unsigned char uuid[GPU_UUID_BYTES])
{
	(void)gpu;
	(void)uuid;
	return false;
}

unsigned gpus_get_stats(struct gpus *g, struct gpu_stats *stats, unsigned n)
{
	(void)g;
	(void)stats;
	(void)n;
	return 0;
}

uint64_t gpus_oldest_busy_ns(struct gpus *g)
{
	(void)g;
	return 0;
}

int gpus_driver_version(struct gpus *g)
{
	(void)g;
	return 0;
}
