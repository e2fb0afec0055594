/* A slab: one piece of memory that trainers map once, divided into slots of a batch each.
 *
 * Kind memfd: the recipe of sealed shared memory. The daemon's mapping is the only writable one there will ever be;
 * what trainers get is a read-only descriptor of a memfd that can neither shrink nor be mapped writable again, also by
 * us. Later kinds (CUDA IPC, CUDA VMM) will sit behind the same struct. Any thread may create one (it blocks while
 * pages are made); afterwards it belongs to the loop thread. */
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
	int writable_fd; /* between slab_init_open and slab_seal: for the one other process that writes into it;
	                       * else -1 */
};

/* Makes size_bytes (rounded up to pages), the first present_bytes of it present; slab_extend adds the rest as it is
 * needed. Until then it costs address space only. 0 or negative errno. */
int slab_init(struct slab *s, size_t size_bytes, size_t present_bytes);
/* Makes these pages present. Any thread; whoever has the slab mapped meanwhile notices nothing. 0 or negative errno. */
int slab_extend(struct slab *s, size_t offset, size_t n_bytes);
/* The same with every page present, and another process can be let in: with writable_fd it makes a writable mapping. No
 * trainer may have fd before slab_seal. */
int slab_init_open(struct slab *s, size_t size_bytes);
/* Nobody makes a writable mapping any more; those that exist stay. 0 or negative errno. Any thread. */
int slab_seal(struct slab *s);
void slab_finish(struct slab *s); /* trainers' mappings stay theirs */

/* Where things are in a slot. Offsets in bytes from the slot's begin; slot i begins at i * slot_bytes. */
struct slot_layout {
	size_t row_bytes, label_bytes; /* of one sample, of one label */
	uint32_t batch_size;           /* rows of the largest batch */
	size_t labels_offset, indices_offset, slot_bytes;
};

/* Fills in the offsets: data first, then labels, then int64 indices, each 256-byte aligned, as GPUs like it; slots are
 * whole pages. 0 or -EOVERFLOW. */
int slot_layout_make(size_t row_bytes, size_t label_bytes, uint32_t batch_size, struct slot_layout *out);

#endif
