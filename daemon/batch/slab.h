/* A slab: a block of memory that trainers map once, divided into slots of one batch each.
 *
 * It is sealed shared memory. Trainers get a read-only descriptor of a memfd that can neither shrink nor be
 * mapped writable again, not even by the daemon; the daemon's mapping stays the only writable one, except in a slab
 * that a producer has mapped before slab_seal. The memfd ends where the pages end that are made: it has no holes, which
 * a trainer's reads would turn into memory. A slab that may grow has address space after that end, in which neither
 * the daemon nor a trainer may touch anything. Only the daemon can grow it (or a process that may open the daemon's
 * files for writing). Memory on GPUs mirrors a slab: see batch/device-slab.h. Any thread may create a slab (it blocks
 * while pages are made); afterwards it belongs to the loop thread. */
#ifndef BATCHD_SLAB_H
#define BATCHD_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct slab {
	uint8_t *base; /* bytes, mapped shared and writable in the daemon */
	size_t bytes;
	int fd;          /* read-only; sent to trainers */
	uid_t payer;     /* set by the owner: the user for which the slab is made, and whose time it is to free it */
	int writable_fd; /* until slab_seal: to grow the slab, or for the one other process that writes into it; then -1 */
};

/* Makes size_bytes (rounded up to pages) of which the first present_bytes are present. If that is not all, slab_extend
 * adds the rest on demand, until slab_seal; the rest costs only address space. 0 or negative errno. */
int slab_init(struct slab *s, size_t size_bytes, size_t present_bytes);
/* The same, where the pages have to lie in certain places: place is called before any page is made. */
struct slab_placing {
	void (*place)(void *arg, uint8_t *base, size_t bytes);
	void *arg;
};
int slab_init_placed(struct slab *s, size_t size_bytes, size_t present_bytes, const struct slab_placing *placing);
/* Makes the pages behind the present ones. Any thread, one at a time; processes that have the slab mapped are not
 * disturbed. 0 or negative errno, and then the slab is as before. */
int slab_extend(struct slab *s, size_t offset, size_t n_bytes);
/* Like slab_init, with every page present and open to another process, which makes a writable mapping of writable_fd.
 * No trainer may have fd before slab_seal. */
int slab_init_open(struct slab *s, size_t size_bytes);
/* Prevents growth and new writable mappings; existing mappings stay. 0 or negative errno. Any thread. */
int slab_seal(struct slab *s);
void slab_finish(struct slab *s); /* trainers' mappings stay theirs; see batch/slab-release.h */

enum { SLOT_MAX_FIELDS = 64 };

/* Where a field lies in a slot. Offsets in bytes from the slot's beginning; slot i begins at i * slot_bytes. */
struct slot_field {
	uint32_t number; /* the caller's own */
	bool ragged;
	size_t item_bytes;    /* of a row; ragged: of a value */
	uint64_t most_values; /* ragged: of a batch */
	size_t offset;        /* dense: batch_size rows; ragged: batch_size + 1 int64, where each row's values begin */
	size_t values_offset; /* ragged */
};

struct slot_layout {
	uint32_t batch_size, n_fields; /* batch_size: rows of the largest batch */
	bool any_ragged;
	struct slot_field field[SLOT_MAX_FIELDS];
	/* Of dense fields: bytes of a row of all of them; of the one that lies at 0 (0 if there is none); where what
	 * follows that begins. */
	size_t row_bytes, first_row_bytes, rest_offset;
	size_t indices_offset, slot_bytes;
};

/* Fills in the offsets: dense fields first, then int64 indices, then ragged fields, each 256-byte aligned, as GPUs like
 * it; slots are whole pages. fields: n of them, with number, ragged, item_bytes and most_values. 0 or -EOVERFLOW. */
int slot_layout_make(const struct slot_field *fields, unsigned n, uint32_t batch_size, struct slot_layout *out);

#endif
