#include "batch/slot-copies.h"

#include <assert.h>
#include <stdlib.h>

#include "base/thread-kind.h"

void slot_copies_begin(struct device_slab *m, uint32_t slot)
{
	assert(is_loop_thread());
	assert(m->copy[slot].state != COPY_RUNNING);
	m->copy[slot].state = COPY_NONE;
}

void slot_copies_close(struct device_slab *m, void (*closed)(void *arg, bool lost), void *arg)
{
	assert(is_loop_thread());
	assert(m->slab && closed);
	struct gpu_slab *slab = m->slab;
	slab->left = m->left;
	charge_release(&m->fd);
	free(m->copy);
	free(m);
	gpu_slab_close(slab, closed, arg);
}
