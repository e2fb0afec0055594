/* A stream: the batches of one rank (shard) or of all ranks (share), in order, made ahead into the free slots of a
 * slab.
 *
 * Consumers attach to it, one per rank. Each says where it wants to begin (stream_seek) and then receives every batch
 * from there on, in order, through its publish callback. After the last batch of an epoch the stream continues with the
 * next epoch by itself, so that an epoch's first batch is ready when the trainer asks for it. Free slots are the only
 * flow control.
 *
 * In share mode a batch stays until every rank of the group has had it: the ranks attached, and those of world_size
 * that have not come yet; in an open group (a producer's) the ranks that have begun. A rank that left is not waited
 * for. A group whose trainers need not keep step has several streams (batch/group.h). The loader knows whether there is
 * a group, so trainers attach, seek and leave through the loader's functions.
 *
 * Loop thread only. */
#ifndef BATCHD_STREAM_H
#define BATCHD_STREAM_H

#include "batch/slots.h"

struct batch_source;
struct consumer;
struct group;
struct loader_spec;
struct device_slab;
struct plan;
struct pool;
struct stream_host;

/* What a stream asks of its host (a loader). */
struct stream_host_ops {
	/* How many batches an epoch has for each rank, after base samples. */
	uint64_t (*n_batches)(const struct stream_host *h, uint64_t base);
	/* The order of an epoch; borrowed. NULL: it is being made, and streams are pumped when it is ready. */
	struct plan *(*order)(struct stream_host *h, uint64_t epoch, uint64_t base);
	/* A batch was published; whether its trainer was waiting for it. */
	void (*published)(struct stream_host *h, bool waited);
	/* A copy to that device slab has failed: no trainer will find further batches there. */
	void (*device_slab_failed)(struct stream_host *h, const struct device_slab *device_slab, const char *why);
	/* A trainer cannot be served, for the reason in why. No more batches are made. */
	void (*failed)(struct stream_host *h, const char *why);
	/* One of n_in_flight has completed and has been counted; this call may free the host and its streams. */
	void (*came_back)(struct stream_host *h);
};

/* State that the streams of a loader share; embedded in the loader. */
struct stream_host {
	const struct stream_host_ops *ops;
	struct pool *pool;
	const struct loader_spec *spec;
	struct batch_source *source; /* what makes the batches; borrowed */
	struct pool_lane_user *lane; /* of the file system that a server provides; NULL: the files are on local disks */
	unsigned n_in_flight;        /* jobs, tasks and copies to GPUs that have not completed */
	bool stopped;                /* no batch is begun or published any more */
};

struct consumer_ops {
	/* Tells the trainer of a ready batch. 0; -EAGAIN: not now, stream_pump will be called later; other errors: the
	 * consumer is going away. */
	int (*publish)(struct consumer *c, const struct slot *slot);
	/* A batch could not be copied to the consumer's device_slab, which is unusable from now on. Only for consumers
	 * that have one. */
	void (*device_slab_failed)(struct consumer *c, const char *why);
	/* Updates n_unread and waiting, and collects pending releases with stream_take_back. */
	void (*look)(struct consumer *c);
	/* The stream is about to wait: the trainer must wake it (stream_wake) after taking the last batch, or after
	 * leaving wake_at releases to be collected. True if that is so already, or has become so since `look`. */
	bool (*arm)(struct consumer *c, uint32_t wake_at);
};

/* Where a consumer is in its stream, or in its group:
 *
 *     NEW <--> RETURNED          before it has said where to begin
 *      |          |
 *      +--seek----+--> PLACED <--> AWAITING
 *
 * A seek may follow at any time after that; leaving makes it NEW. consumer_move makes each change. */
enum consumer_state {
	CONSUMER_NEW,
	CONSUMER_RETURNED, /* it was here before, and the others wait for it to reach their position */
	CONSUMER_PLACED,   /* `cursor` is the next batch that it has to get */
	CONSUMER_AWAITING, /* the same, in a group: gets nothing until another consumer has been given the batch there */
};

struct consumer {
	const struct consumer_ops *ops;
	struct stream *stream; /* NULL: detached, or in a group and in no cohort yet */
	struct stream *home;   /* the stream through which its batches are asked for: its own, or any cohort of its
	                        * group; NULL: detached */
	struct group *group;   /* the group that it belongs to; NULL: none, or it has left */
	struct slots *slots;   /* the slots that its trainer has mapped; a reference */
	struct device_slab
		*device_slab; /* of those slots; its trainer looks for batches there; NULL: only in host memory */
	uint32_t *leases;     /* per slot: how often the trainer has it (again after a seek); indexed like `slots` */
	uint32_t n_leases;    /* their sum; at most consumer_max_leases */
	uint32_t rank;
	enum consumer_state state;
	bool comes_again;       /* leaves, and attaches once more at once */
	struct position cursor; /* the next batch it has to get */
	bool waiting;           /* its trainer has nothing left to take, and says so */
	uint32_t n_unread;      /* batches it was given and, as far as is known, has not taken yet */
	uint64_t seek;          /* the trainer's number of its last seek */
	uint64_t n_published, n_rows_published;
	bool stalled;       /* its trainer makes no progress: the others do not wait for it to reach an epoch. Set by
	                     * the code that watches trainers */
	uint32_t quota;     /* the most leases it may have; 0: twice as many as there are slots */
	uint64_t n_skipped; /* batches that it missed, in total */
	uint64_t n_missed;  /* batches that it missed between the last it was given and the next */
};

/* The trainer's own index batch, waiting to be made. */
struct own_batch {
	struct own_batch *next;
	uint64_t step;
	uint32_t n;
	uint64_t index[];
};

struct stream {
	struct stream_host *host;
	/* How it gets a free slot for its next batch (NULL: none), and its pump. A group sets its own functions for its
	 * cohorts. */
	struct slot *(*claim)(struct stream *s);
	void (*pump)(struct stream *s);
	struct group *group; /* the group that it is a cohort of, or NULL; the group's, like the next three */
	uint32_t n_members;  /* a cohort's consumers */
	uint64_t members;    /* their places, a bit each */
	uint32_t n_held;     /* slots that at least one of them holds */
	uint32_t number;     /* the rank (shard), 0 (share in lockstep), or the cohort's number */
	uint32_t plan_rank;  /* in the plan: the rank (shard), 0 (share) */
	struct slots *slots; /* batches are made in these now; a reference; NULL before the first attach */
	struct pool_queue queue;
	struct slot *first, *last; /* batches in order, FILLING and READY */
	uint32_t n_unheld;         /* of these, slots that no consumer holds */
	bool positioned;
	struct position next; /* the next batch to begin */
	uint64_t n_batches;   /* of next.epoch from next.base */
	struct plan *plan;    /* a reference: the order of plan_epoch from plan_base; NULL: none yet */
	uint64_t plan_epoch, plan_base;
	struct consumer **consumers; /* by rank; NULL: none attached */
	uint32_t n_consumers;        /* size of that array: 1 (shard), or the places of the group (share) */
	uint64_t expected;           /* share: bits of ranks that have never been here */
	struct own_batch *own_first, *own_last;
	struct own_batch *own_partial; /* its last packet has not arrived yet */
	uint32_t n_own;
	struct pool_task next_turn; /* while has_next_turn: pumps it in the loop's next iteration */
	bool has_next_turn;
	bool fed;            /* a producer source's own: its rank has been here before */
	struct charge bytes; /* for a rank's stream and its own batches; charged to its user */
};

enum {
	STREAM_E_BEHIND = 1,    /* share: the batch asked for has left the window */
	STREAM_E_TAKEN = 2,     /* that rank is attached already */
	STREAM_E_INVALID = 3,   /* not valid in this state: a protocol error */
	STREAM_E_ELSEWHERE = 4, /* share: the others have, or will have, that epoch from another sample on */
	STREAM_E_LIMIT = 5,     /* its user has reached the memory limit */
};

/* 0 or -ENOMEM. */
int stream_init(struct stream *s, struct stream_host *host, uint32_t number, uint32_t n_consumers);
/* The only way in which a consumer's state changes. */
void consumer_move(struct consumer *c, enum consumer_state to);
/* Whether it has said where to begin. */
static inline bool consumer_is_placed(const struct consumer *c)
{
	return c->state >= CONSUMER_PLACED;
}

/* No consumer may be attached. Rows still in work keep their slots; the host waits for them. */
void stream_finish(struct stream *s);

/* Makes batches into these slots from now on (takes the reference); batches in the old ones are dropped or stay with
 * their holders. */
void stream_set_slots(struct stream *s, struct slots *slots);

int stream_attach(struct stream *s, struct consumer *c, uint32_t rank); /* 0, STREAM_E_TAKEN, -ENOMEM */
/* Ends delivery to the consumer, if it is attached; slots that it holds stay held until released. Where the others wait
 * for it to come, they go on waiting if it comes again. */
void stream_detach(struct consumer *c);
/* 0; or, if other consumers are attached: STREAM_E_BEHIND: they are past that position; STREAM_E_ELSEWHERE: they will
 * never reach it. */
int stream_seek(struct consumer *c, uint64_t seek, const struct position *to);
/* own batches: appends indices of batch `step`; 0, STREAM_E_INVALID, STREAM_E_LIMIT, -ENOMEM. The caller checks the
 * indices. */
int stream_push(struct consumer *c, uint64_t seek, uint64_t step, const uint64_t *indices, uint32_t n, bool more);
/* 0 or STREAM_E_INVALID: the consumer does not hold that slot in that generation. */
int stream_release(struct consumer *c, uint32_t slot, uint64_t generation);
/* The trainer's process has ended, and the consumer is detached: frees everything it holds, and drops the reference to
 * its slots. May be called twice. */
void consumer_finish(struct consumer *c);

/* The most leases that the consumer is given. Without a quota, a seek to the stream's position lends every slot once
 * more. The trainer itself holds at most one window of batches; the other leases are unread batches of earlier seeks,
 * which it returns when it comes to them. So an honest trainer always makes progress below this limit, and a trainer
 * that only seeks is lent no more. */
static inline uint32_t consumer_max_leases(const struct consumer *c)
{
	return c->quota ? c->quota : 2 * c->slots->n_made;
}

/* The condition that consumer_ops.arm asked for has occurred. */
void stream_wake(struct consumer *c);

/* Whether the workers have taken all rows for which there are slots: with more slots they would go on. For a stream
 * whose slots may grow; before the trainer's releases are collected. */
bool stream_rests(const struct stream *s);

/* Begins and publishes every batch that it can. Cheap when there is nothing to do. */
void stream_pump(struct stream *s);

/* For the source: `slot`, which is FILLING, will be the last of its epoch. Batches being made after it belong to the
 * next epoch. */
void stream_end_epoch(struct stream *s, struct slot *slot);

/* For the host: the source has finished with the slot. */
void stream_on_filled(struct stream *s, struct slot *slot);

struct stream_counts {
	uint32_t ready, making, held, window; /* ready: including those that the loop has not looked at yet */
	uint64_t waits_for;                   /* share: bits of the ranks that have not got the oldest batch yet */
	bool full;                            /* no free slot */
};
void stream_count(const struct stream *s, struct stream_counts *out);

/* Whether there is a batch that the consumer has still to get; batches not yet made do not count. */
bool stream_has_more(const struct consumer *c);

#endif
