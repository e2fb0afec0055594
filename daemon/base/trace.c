/* See trace.h. A thread that has seen the recording begin may write a moment after its end, so the memory is mapped at
 * the first recording and stays; its pages go back to the kernel when a recording ends. */
#include "base/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

_Atomic uint32_t trace_recording;

static struct trace_memory *memory; /* NULL: none yet. The client may write to it: nothing is read back from it */
static int memory_fd = -1;
static uint32_t n_recordings;
static _Atomic uint32_t n_taken; /* rings of this recording that have a thread */

/* The thread's own account of its ring. */
static _Thread_local struct {
	uint32_t recording, number, n, n_lost;
} mine;

static struct trace_ring *trace_ring_of_thread(uint32_t recording)
{
	if (mine.recording != recording) {
		mine.recording = recording;
		mine.number = atomic_fetch_add(&n_taken, 1);
		mine.n = mine.n_lost = 0;
		if (mine.number < TRACE_RINGS)
			pthread_getname_np(pthread_self(), memory->ring[mine.number].name, TRACE_NAME_BYTES);
	}
	return mine.number < TRACE_RINGS ? &memory->ring[mine.number] : NULL;
}

void trace_add(enum trace_kind kind, uint64_t begin_ns, uint64_t end_ns, uint64_t a, uint64_t b, uint64_t c)
{
	uint32_t recording = atomic_load_explicit(&trace_recording, memory_order_acquire);
	struct trace_ring *ring = recording ? trace_ring_of_thread(recording) : NULL;

	if (!ring)
		return;
	if (mine.n == TRACE_EVENTS) {
		atomic_store_explicit(&ring->n_lost, ++mine.n_lost, memory_order_relaxed);
		return;
	}
	if (!begin_ns)
		begin_ns = clock_now_ns();
	ring->event[mine.n] = (struct trace_event){
		.begin_ns = begin_ns, .end_ns = end_ns ? end_ns : begin_ns, .a = a, .b = b, .c = c, .kind = kind
	};
	atomic_store_explicit(&ring->n, ++mine.n, memory_order_release);
}

static int trace_map(void)
{
	int e;

	memory_fd = memfd_create("batchd-trace", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory_fd < 0)
		return -errno;
	if (ftruncate(memory_fd, sizeof *memory) == 0 &&
	    fcntl(memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
		void *at = mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);

		if (at != MAP_FAILED) {
			memory = at;
			return 0;
		}
	}
	e = errno;
	close(memory_fd);
	return -e;
}

static void trace_forget(void)
{
	fallocate(memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof *memory);
}

int trace_start(int *fd)
{
	int r = atomic_load(&trace_recording) ? -EBUSY : memory ? 0 : trace_map();

	if (r < 0)
		return r;
	trace_forget(); /* what an earlier recording has left */
	/* Where memory is short this fails; without it a worker's first write to a page would raise a signal. */
	if (fallocate(memory_fd, 0, 0, sizeof *memory) < 0) {
		r = -errno;
		trace_forget();
		return r;
	}
	memory->magic = TRACE_MAGIC;
	memory->n_rings = TRACE_RINGS;
	atomic_store(&n_taken, 0);
	n_recordings += n_recordings + 1 ? 1 : 2; /* never 0 */
	atomic_store(&trace_recording, n_recordings);
	*fd = memory_fd;
	return 0;
}

/* The client's own mapping keeps the pages' contents only until here, so it copies before it hangs up. */
void trace_stop(void)
{
	atomic_store(&trace_recording, 0);
	trace_forget();
}
