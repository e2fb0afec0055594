/* Error handling that a GPU's two threads share. */
#include "gpu/gpus-impl.h"

#include <stdio.h>

const char *gpu_note_error(struct gpu *gpu, int result, const char *call)
{
	const char *name = cuda_error_name(&gpu->all->driver, result);
	pthread_mutex_lock(&gpu->all->lock);
	gpu->stats.n_errors++;
	snprintf(gpu->stats.last_error, sizeof(gpu->stats.last_error), "%.70s in %.60s", name, call);
	pthread_mutex_unlock(&gpu->all->lock);
	return name;
}

/* A GPU on which no slab was ever open is written off: nothing depends on it, so the daemon continues without it. */
void gpu_lose(struct gpu *gpu, const char *call, const char *name)
{
	pthread_mutex_lock(&gpu->all->lock);
	if (!gpu->own.lost && gpu->worked) {
		gpu->lost = true;
		snprintf(gpu->lost_text, sizeof(gpu->lost_text),
			 "GPU %.95s failed: %.60s in %.60s; only a new process can use it again", gpu->stats.name, name,
			 call);
	} else if (!gpu->own.lost) {
		snprintf(gpu->written_off, sizeof(gpu->written_off),
			 "the daemon cannot use %.95s: %.60s in %.60s; restart the daemon to try again",
			 gpu->stats.name, name, call);
	}
	gpu->own.lost = true;
	pthread_mutex_unlock(&gpu->all->lock);
	uv_async_send(&gpu->all->async);
}
