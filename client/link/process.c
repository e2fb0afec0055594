/* One lock for the little state that belongs to the process and not to a loader, held across fork so that a child never
 * finds it taken, and a count of forks. The handlers are registered when the library is loaded: registration on first
 * use would miss a fork before that use. */
#include "link/process.h"

#include <pthread.h>
#include <stdatomic.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint generation;

void process_lock(void)
{
	pthread_mutex_lock(&lock);
}

void process_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	atomic_fetch_add(&generation, 1);
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void on_load(void)
{
	pthread_atfork(process_lock, process_unlock, in_child);
}

unsigned process_generation(void)
{
	return atomic_load_explicit(&generation, memory_order_relaxed);
}
