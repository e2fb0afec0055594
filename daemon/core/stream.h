/* A stream: the batches of one rank (shard) or of everybody (share), in order, made ahead into the free slots of a
 * slab.
 *
 * Consumers attach to it, one per rank. Each says where it wants to begin (stream_seek) and is then given every batch
 * from there on, in order, through its publish callback. After the last batch of an epoch the stream goes on with the
 * next one by itself, so that an epoch's first batch is ready when the trainer asks for it. Free slots are the only
 * flow control.
 *
 * In share mode a batch stays until every rank of the group has had it: those attached, and those of world_size that
 * have not come yet; of an open group (a producer's) those that have begun. A rank that left is not waited for. A group
 * whose trainers need not keep step has several streams (core/group.h). The loader knows whether there is a group, so
 * that trainers attach, seek and leave by its functions.
 *
 * Loop thread only. */
#ifndef BATCHD_STREAM_H
#define BATCHD_STREAM_H

#include "core/slots.h"

struct batch_source;
struct consumer;
struct group;
struct loader_spec;
struct device_slab;
struct plan;
struct pool;
struct stream_host;

/* What a stream asks of what it belongs to (a loader). */
struct stream_host_ops {
	/* How many batches an epoch has for each rank, after base samples. */
	uint64_t (*n_batches)(const struct stream_host *h, uint64_t base);
	/* The order of an epoch; borrowed. NULL: it is being made, and streams are pumped when it is there. */
	struct plan *(*order)(struct stream_host *h, uint64_t epoch, uint64_t base);
	/* A batch went out; whether its trainer was waiting for it. */
	void (*published)(struct stream_host *h, const struct slot *slot, bool waited);
	/* A copy to that device slab has failed: no trainer finds batches there any more. */
	void (*device_slab_failed)(struct stream_host *h, const struct device_slab *device_slab, const char *why);
	/* A trainer cannot be served: why. Nothing more is made. */
	void (*failed)(struct stream_host *h, const char *why);
	/* One of n_in_flight has come back, and has been counted; the host and its streams may be freed in here. */
	void (*came_back)(struct stream_host *h);
};

/* What the streams of a loader have in common; embedded in it. */
struct stream_host {
	const struct stream_host_ops *ops;
	struct pool *pool;
	const struct loader_spec *spec;
	struct batch_source *source; /* what makes the batches; borrowed */
	uint64_t server;             /* by which the files come (dataset_server); 0: they are on local disks */
	unsigned n_in_flight;        /* jobs, tasks and copies to GPUs that still come back */
	uint32_t n_returned;         /* consumers that came back (consumer.returns) and have said where to go on, or
	                             * have left again */
	bool stopped;                /* no batch is begun or handed out any more */
};

struct consumer_ops {
	/* Tells the trainer of a ready batch. 0; -EAGAIN: not now, stream_pump will be called; other errors: the
	 * consumer is going away. */
	int (*publish)(struct consumer *c, const struct slot *slot);
	/* A batch could not be copied to the consumer's device_slab, which is of no use any more. Only for consumers that
	 * have one. */
	void (*device_slab_failed)(struct consumer *c, const char *why);
	/* Both NULL where the trainer sends every release by itself, and nothing is known of what it has taken. */
	/* Brings n_unread and waiting up to date, and takes in the releases that wait to be collected, with
	 * stream_take_back. */
	void (*look)(struct consumer *c);
	/* The stream is about to wait: its trainer shall wake it (stream_wake) when it has taken the last batch, or has
	 * left wake_at releases to be collected. True if that is so already, or has become so since `look`. */
	bool (*arm)(struct consumer *c, uint32_t wake_at);
};

struct consumer {
	const struct consumer_ops *ops;
	struct stream *stream; /* NULL: detached, or in a group and nowhere yet */
	struct stream *home;   /* through which its batches are asked for: its stream, or any cohort of its
	                             * group; NULL: detached */
	struct group *group;   /* whose member it is; NULL: of none, or gone */
	struct slots *slots;   /* what its trainer has mapped; a reference */
	struct device_slab
		*device_slab; /* of those slots; where its trainer looks for batches; NULL: only in host memory */
	uint32_t *leases;     /* per slot: how often the trainer has it (again after a seek); layout of `slots` */
	uint32_t n_leases;    /* their sum; at most consumer_max_leases */
	uint32_t rank;
	bool positioned;        /* has said where to begin */
	bool returns;           /* it was here before, and the others wait for it to get to where they are. Until
	                             * it has said where to begin */
	struct position cursor; /* the next batch it has to get */
	bool waiting;           /* its trainer has nothing left to take, and has said so */
	uint32_t n_unread;      /* batches it was given and, as far as is known, has not looked at yet */
	uint64_t seek;          /* the trainer's number for that */
	uint64_t n_published;
	bool follows;       /* in a group: gets nothing until another has been given the batch at `cursor` */
	bool stuck;         /* its trainer does not get on: nobody waits for it to reach an epoch. Whoever
	                             * watches trainers says so */
	uint32_t quota;     /* the most leases it may have; 0: twice as many as there are slots */
	uint64_t n_skipped; /* batches that it missed, in all */
	uint64_t n_missed;  /* those between the last it was given and the next */
};

/* The trainer's own index batches, waiting to be made. */
struct own_batch {
	struct own_batch *next;
	uint64_t step;
	uint32_t n;
	uint64_t index[];
};

struct stream {
	struct stream_host *host;
	/* How it gets a free slot for its next batch (NULL: none), and its turn. A group has its own for its
	 * cohorts. */
	struct slot *(*claim)(struct stream *s);
	void (*pump)(struct stream *s);
	struct group *group; /* whose cohort it is, or NULL; the group's, like the next three */
	uint32_t n_members;  /* a cohort's consumers */
	uint64_t members;    /* their places, a bit each */
	uint32_t n_held;     /* slots that one of them has, at least */
	uint32_t number;     /* the rank (shard), 0 (share in lockstep), or which cohort */
	uint32_t plan_rank;  /* in the plan: the rank (shard), 0 (share) */
	struct slots *slots; /* where batches are made now; a reference; NULL before the first attach */
	struct pool_queue queue;
	struct slot *first, *last; /* batches in order, FILLING and READY */
	uint32_t n_unheld;         /* of these, that nobody has */
	bool positioned;
	struct position next; /* the next batch to begin */
	uint64_t n_batches;   /* of next.epoch from next.base */
	struct plan *plan;    /* a reference: the order of plan_epoch from plan_base; NULL: none yet */
	uint64_t plan_epoch, plan_base;
	struct consumer **consumers; /* by rank; NULL: none attached */
	uint32_t n_consumers;        /* places in it: world_size (share) or 1 (shard) */
	uint64_t expected;           /* share: bits of ranks that have never been here */
	struct own_batch *own_first, *own_last;
	struct own_batch *own_partial; /* its last packet has not come yet */
	uint32_t n_own;
	struct pool_task next_turn; /* while has_next_turn: pumps it when the loop has come round */
	bool has_next_turn;
	bool fed;                /* the feed's own: its rank has been here */
	struct charge bytes;     /* of a rank's stream and its own batches; to its user */
	uint64_t *charged_bytes; /* the account that they are refunded to at the end; NULL: none */
};

enum {
	STREAM_E_BEHIND = 1,    /* share: the batch asked for has left the window */
	STREAM_E_TAKEN = 2,     /* that rank is attached already */
	STREAM_E_INVALID = 3,   /* makes no sense in this state: a protocol error */
	STREAM_E_ELSEWHERE = 4, /* share: the others have that epoch from another sample on, or will */
	STREAM_E_LIMIT = 5,     /* its user has all the memory that it may have */
};

/* 0 or -ENOMEM. */
int stream_init(struct stream *s, struct stream_host *host, uint32_t number, uint32_t n_consumers);
/* No consumer may be attached. Rows still in work keep their slots; the host waits for them. */
void stream_finish(struct stream *s);

/* Makes batches into these from now on (takes the reference); batches in the old ones are dropped or live on with their
 * holders. */
void stream_set_slots(struct stream *s, struct slots *slots);
/* Whether somebody who is not attached any more still holds slots: then a newcomer wants fresh ones. */
bool stream_has_strangers(const struct stream *s);

int stream_attach(struct stream *s, struct consumer *c, uint32_t rank); /* 0, STREAM_E_TAKEN, -ENOMEM */
/* No more batches for it, if it is attached; what it holds stays held until released. */
void stream_detach(struct consumer *c);
/* The first batch from which on nothing is missing: where one that joins others can begin. */
const struct position *stream_oldest(const struct stream *s);
/* 0; or others are there, and STREAM_E_BEHIND: past that; STREAM_E_ELSEWHERE: never there. */
int stream_seek(struct consumer *c, uint64_t seek, const struct position *to);
/* own batches: appends indices of batch `step`; 0, STREAM_E_INVALID, STREAM_E_LIMIT, -ENOMEM. Indices are checked by the
 * caller. */
int stream_push(struct consumer *c, uint64_t seek, uint64_t step, const uint64_t *indices, uint32_t n, bool more);
/* 0 or STREAM_E_INVALID: it does not hold that slot in that generation. */
int stream_release(struct consumer *c, uint32_t slot, uint64_t generation);
/* The trainer's process is gone, and it is detached: everything it holds is free. Also drops the reference to its slots.
 * May be called twice. */
void consumer_finish(struct consumer *c);

/* The same for consumer_ops.look: ends the lease and no more. */
int stream_take_back(struct consumer *c, uint32_t slot, uint64_t generation);

/* The trainer has taken all it was given and waits for the next batch. */
void stream_wait(struct consumer *c);
/* The most leases that the consumer is given. Without a quota a seek to a place where the stream is lends every slot
 * once more. The trainer itself holds at most one window of batches; all others are unread ones of earlier seeks, which
 * it gives back as it comes to them. So an honest trainer always gets on below this, and one that only seeks is lent no
 * more. */
static inline uint32_t consumer_max_leases(const struct consumer *c)
{
	return c->quota ? c->quota : 2 * c->slots->n_made;
}

/* What consumer_ops.arm asked for has happened. */
void stream_wake(struct consumer *c);

/* Begins what can be begun, publishes what can be published. Cheap when there is nothing to do. */
void stream_pump(struct stream *s);

/* For the source: `slot`, which is FILLING, will be the last of its epoch. What is being made behind it is for
 * the next epoch. */
void stream_end_epoch(struct stream *s, struct slot *slot);

/* For the host: the source is done with the slot. */
void stream_on_filled(struct stream *s, struct slot *slot);

struct stream_counts {
	uint32_t ready, making, held, window; /* ready: also those that the loop has not looked at yet */
	uint64_t waits_for;                   /* share: bits of the ranks that have still to get the oldest batch */
	bool full;                            /* no free slot */
};
void stream_count(const struct stream *s, struct stream_counts *out);

/* Whether there is a batch that the consumer has still to get, not counting those that are still to be made. */
bool stream_has_more(const struct consumer *c);

/* Of an epoch, after base samples. */
uint64_t stream_count_batches(const struct stream *s, uint64_t base);
/* How many batches lie between two positions, a first; 0 if b is not behind a. */
uint64_t stream_distance(const struct stream *s, const struct position *a, const struct position *b);

#endif
