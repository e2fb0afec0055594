/* Passing work between the loop thread and a GPU's threads: the threads' side. */
#include "gpu/gpus-impl.h"

#include <assert.h>

#include "base/thread-kind.h"

struct gpu_work *gpu_next_work(struct gpu_thread *t, unsigned n_under_way, unsigned most)
{
	assert(!is_loop_thread());
	struct gpu *gpu = t->gpu;
	struct gpu_work *w = NULL;
	pthread_mutex_lock(&gpu->all->lock);
	t->n_under_way = n_under_way;
	while (!t->first && !n_under_way && !gpu->stop) {
		t->busy_since_ns = 0;
		pthread_cond_wait(&t->asked, &gpu->all->lock);
	}
	if (n_under_way < most && (w = t->first))
		t->first = w->next;
	t->busy_since_ns = clock_now_ns();
	pthread_mutex_unlock(&gpu->all->lock);
	return w;
}

void gpu_finish_work(struct gpu *gpu, struct gpu_work *w, int result)
{
	assert(!is_loop_thread());
	struct gpus *g = gpu->all;
	w->result = result;
	w->next = NULL;
	pthread_mutex_lock(&g->lock);
	if (g->done)
		g->done_last->next = w;
	else
		g->done = w;
	g->done_last = w;
	pthread_mutex_unlock(&g->lock);
	uv_async_send(&g->async);
}

void gpu_touch(struct gpu_thread *t)
{
	struct gpus *g = t->gpu->all;
	pthread_mutex_lock(&g->lock);
	t->busy_since_ns = clock_now_ns();
	pthread_mutex_unlock(&g->lock);
}

void gpu_thread_ends(struct gpu_thread *t)
{
	assert(!is_loop_thread());
	struct gpus *g = t->gpu->all;
	pthread_mutex_lock(&g->lock);
	t->busy_since_ns = 0;
	t->ended = true;
	uv_async_send(&g->async); /* under the lock: the loop may free the GPU as soon as it gets the lock */
	pthread_mutex_unlock(&g->lock);
}
