/* A slab: a block of memory that trainers map once, divided into slots of one batch each.
 *
 * Kind memfd: sealed shared memory. Trainers get a read-only descriptor of a memfd that can neither shrink nor be
 * mapped writable again, not even by the daemon; the daemon's mapping stays the only writable one, except in a slab
 * that a producer has mapped before slab_seal. Memory on GPUs mirrors a slab: see core/device-slab.h. Any thread may
 * create a slab (it blocks while pages are made); afterwards it belongs to the loop thread. */
#ifndef BATCHD_SLAB_H
#define BATCHD_SLAB_H

#include <stddef.h>
#include <stdint.h>

enum slab_kind { SLAB_MEMFD = 0 }; /* numbers as in proto/batchd.proto */

struct slab {
	enum slab_kind kind;
	uint8_t *base; /* bytes, mapped shared and writable in the daemon */
	size_t bytes;
	int fd;          /* read-only; sent to trainers */
	int writable_fd; /* between slab_init_open and slab_seal: for the one other process that writes into the slab;
	                  * otherwise -1 */
};

/* Makes size_bytes (rounded up to pages) of which the first present_bytes are present; slab_extend adds the rest on
 * demand. Until then the rest costs only address space. 0 or negative errno. */
int slab_init(struct slab *s, size_t size_bytes, size_t present_bytes);
/* Makes these pages present. Any thread; processes that have the slab mapped are not disturbed. 0 or negative errno. */
int slab_extend(struct slab *s, size_t offset, size_t n_bytes);
/* Like slab_init, with every page present and open to another process, which makes a writable mapping of writable_fd.
 * No trainer may have fd before slab_seal. */
int slab_init_open(struct slab *s, size_t size_bytes);
/* Prevents new writable mappings; existing ones stay. 0 or negative errno. Any thread. */
int slab_seal(struct slab *s);
void slab_finish(struct slab *s); /* trainers' mappings stay theirs */

/* Where data lies in a slot. Offsets in bytes from the slot's beginning; slot i begins at i * slot_bytes. */
struct slot_layout {
	size_t row_bytes, label_bytes; /* of one sample, of one label */
	uint32_t batch_size;           /* rows of the largest batch */
	size_t labels_offset, indices_offset, slot_bytes;
};

/* Fills in the offsets: data first, then labels, then int64 indices, each 256-byte aligned, as GPUs like it; slots are
 * whole pages. 0 or -EOVERFLOW. */
int slot_layout_make(size_t row_bytes, size_t label_bytes, uint32_t batch_size, struct slot_layout *out);

#endif
