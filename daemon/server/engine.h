/* The engine: state that all parts of the daemon share. It has the loop, the threads, the budget, the configuration,
 * and the lists of jobs, sessions and producers. Data only. The daemon's root owns it; every part stands above it and
 * reaches it by its `engine`.
 *
 * Loop thread only, except where the types in it say otherwise. */
#ifndef BATCHD_ENGINE_H
#define BATCHD_ENGINE_H

#include <uv.h>

#include "server/budget.h"
#include "config/config.h"
#include "batch/pool/tuner.h"

struct gpus;
struct job;
struct job_ops;
struct message_rule;
struct nodes;
struct opening;
struct pool;
struct producer;
struct recent_errors;
struct status_cache;
struct session;
struct spare;

struct sampler { /* sampler.c's */
	uv_timer_t timer;
	uint64_t at_ns, due_ns; /* of the last look; of the next one */
	uint32_t random;
};

struct engine {
	uv_loop_t loop;
	struct config *config;
	struct budget budget;
	struct pool *pool;   /* NULL: closed, during shutdown */
	struct nodes *nodes; /* NULL: the machine has one NUMA node, or they are left to the kernel */
	struct tuner tuner;
	struct gpus *gpus;
	struct job *jobs;
	struct spare *spares;
	uint64_t spare_least_bytes; /* fewer are made again as soon */
	uint64_t n_jobs;            /* so far */
	struct session *sessions;
	struct producer *producers;
	struct status_cache *status_cache;
	struct recent_errors *errors; /* NULL: they are not kept */
	unsigned n_loads; /* clients of single images, and those that have gone while workers are in their jobs */
	uv_timer_t stall; /* stall.c's clock */
	struct sampler sampler;
	bool stopping;
	const struct job_ops *job_ops;
	const struct message_rule *reader; /* of clients that ask (session-message.h) */
	/* Callbacks of the root: */
	void (*on_activity)(struct engine *e); /* a session came or went */
	void (*on_ended)(struct engine *e);    /* a session or a job has gone */
	/* For messages and status: */
	const char *version, *socket_path, *config_path; /* config_path may be NULL */
	uint64_t started_ns;
};

#endif
