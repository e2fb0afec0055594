/* The ring: passes batches and releases between the daemon and a client without a system call. Shared by the daemon and
 * the client library.
 *
 * It is a small sealed memfd per session that both sides map and write. It holds two rings of packets, one per
 * direction, each with one producer and one consumer: batches (the daemon's `Batch`) and releases (the client's
 * `Release`). An entry is a length and the message as it would be on the socket. A side that is about to sleep sets a
 * flag in the page, and only then does the other side send a packet (`Wake`) on the socket. README.md has the layout
 * and the rules.
 *
 * Both sides can write the page, so neither trusts it. A side keeps its positions in private memory and only publishes
 * them. It checks the other side's values at each read, and copies an entry out before it looks at it. Whatever the
 * page holds, these functions touch nothing outside the page and the given buffers.
 *
 * Threads: one at a time per end (struct ring_end). The functions for sleeping and waking need no lock, nor do the
 * ends of different directions between them. */
#ifndef BATCHD_RING_H
#define BATCHD_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

enum {
	RING_LAYOUT = 1,         /* Open.ring, Opened.ring: the layout below */
	RING_ENTRIES = 64,       /* of each direction: a power of two; the most slots of a window */
	RING_BATCH_BYTES = 256,  /* an entry with its length; the largest Batch has 80 bytes */
	RING_RELEASE_BYTES = 64, /* the largest Release has 35 */
	RING_MAX_MESSAGE = RING_BATCH_BYTES - 4,
	RING_CONTROL_BYTES = 4096,
	RING_PAGE_BYTES = RING_CONTROL_BYTES + RING_ENTRIES * (RING_BATCH_BYTES + RING_RELEASE_BYTES)
};

/* The progress of a direction, in entries since the beginning, modulo 2^32. Each field has its own cache line. */
struct ring_lane {
	_Alignas(64) _Atomic uint32_t produced; /* written by the producer */
	_Alignas(64) _Atomic uint32_t taken;    /* written by the consumer */
};

/* What the client's trainer does. */
enum ring_state {
	RING_IDLE,  /* it has asked for nothing: before its first batch, and after an epoch's end */
	RING_WAITS, /* it has asked for a batch that was not there */
	RING_BUSY,  /* it has been given a batch */
	RING_ORDERS /* it chooses the indices of its own batches, which keeps it from its work as waiting does */
};

/* What it does, and what it was given. The client writes it, for statistics only. */
struct ring_trainer {
	_Alignas(64) uint64_t reserved[4];  /* were times until sampling came */
	_Atomic uint32_t state;             /* enum ring_state */
	_Atomic uint64_t n_batches, n_rows; /* that the trainer was given */
};

/* The page itself, as both map it. */
struct ring_page {
	struct ring_lane batches, releases;
	/* The client sets it to 1 before it sleeps: wake me at the next batch. The daemon resets it to 0 and sends
	 * Wake. */
	_Alignas(64) _Atomic uint32_t waiting;
	/* The daemon sets it to n > 0 before it sleeps: wake me when n releases wait, or when you have taken the last
	 * batch. The client resets it to 0 and sends Wake. */
	_Alignas(64) _Atomic uint32_t wake_at;
	/* The daemon sets it to 1 when it has sent a Notice that the client has not asked for: read the socket also while
	 * there are batches. The client resets it to 0. On the line that the client reads at each batch. */
	_Atomic uint32_t noticed;
	struct ring_trainer trainer;
	_Alignas(RING_CONTROL_BYTES) unsigned char batch[RING_ENTRIES][RING_BATCH_BYTES];
	unsigned char release[RING_ENTRIES][RING_RELEASE_BYTES];
};

/* One side's end of one direction. Private memory. */
struct ring_end {
	struct ring_lane *lane;
	unsigned char *entries;
	uint32_t entry_bytes;
	uint32_t at;   /* this end's position, as it last published it */
	uint32_t seen; /* the other end's position, as last read; never moves back */
	bool broken;   /* the other end has published an impossible position */
};

/* Both directions as one side sees them. */
struct ring {
	struct ring_page *page; /* NULL: none */
	struct ring_end batches, releases;
};

/* Creates the ring for the daemon: zeroed, sealed against SHRINK and GROW, mapped here. The caller sends *fd and closes
 * it. 0 or negative errno. */
int ring_create(struct ring *r, int *fd);
/* Maps the ring that the daemon sent to this client, and borrows fd. 0; -EPROTO: not sealed, or of another size; or
 * negative errno. */
int ring_map(struct ring *r, int fd);
void ring_unmap(struct ring *r);

/* ---- one entry ---- */

/* A position is impossible when it is more than RING_ENTRIES away, or before an earlier one. An end that has seen one
 * is broken permanently. */

/* 0; -EAGAIN: full; -EMSGSIZE: too large for an entry; -EPROTO: the other side's position is impossible. */
int ring_put(struct ring_end *e, const ProtobufCMessage *m);
/* Copies the next entry to buf, which has room for RING_MAX_MESSAGE bytes. 0; -EAGAIN: empty; -EPROTO: its length or
 * the other side's position is impossible. */
int ring_take(struct ring_end *e, void *buf, size_t *n_bytes);
/* For the producer: entries not taken yet. For the consumer: entries to take. An impossible position counts as none and
 * breaks the end. */
uint32_t ring_untaken(struct ring_end *e);
/* The same for a status, which breaks no end: an impossible position counts as the last one seen. */
uint32_t ring_peek_untaken(const struct ring_end *e);
uint32_t ring_waiting_entries(struct ring_end *e);

/* ---- sleeping and waking: a side that sets its flag looks again before it sleeps; a side that has put or taken an
 * entry then looks at the other side's flag ---- */

/* The client's loader thread has found no batch. After this call it looks once more, and may then sleep on the
 * socket. */
void ring_start_waiting(struct ring *r);
/* The client has found a batch after all. False: the daemon has sent a Wake, or is about to. */
bool ring_stop_waiting(struct ring *r);
bool ring_is_waited_for(const struct ring *r);
/* The daemon has put a batch. Returns whether it must send Wake. */
bool ring_wake_client(struct ring *r);

/* ---- what the trainer does ---- */

/* The client's loader thread. */
void ring_set_state(struct ring *r, enum ring_state to);
/* Either side. The client may write anything, so the daemon may get any number. */
enum ring_state ring_get_state(const struct ring *r);

struct ring_taken {
	uint64_t n_batches, n_rows;
};
/* The client's loader thread: the trainer is given a batch of n_rows. Batches that the client takes from the ring and
 * gives back unseen, as after a seek, do not count. */
void ring_count_batch(struct ring *r, uint32_t n_rows);
/* The daemon: what the client says, which may be anything. */
struct ring_taken ring_read_taken(const struct ring *r);

/* The daemon is about to sleep. After this call it looks once more at ring_untaken(batches) and
 * ring_waiting_entries(releases). wake_at 0: it need not be woken. */
void ring_arm(struct ring *r, uint32_t wake_at);
/* The client has taken a batch, or has put a release. Returns whether it must send Wake. */
bool ring_wake_daemon_taken(struct ring *r);
bool ring_wake_daemon_released(struct ring *r);

/* ---- notices, which lie on the socket ---- */

/* The daemon has sent one; or the client leaves some unread for now. */
void ring_note_notice(struct ring *r);
/* The client: whether there may be one since the last call. */
bool ring_take_notice(struct ring *r);

#endif
