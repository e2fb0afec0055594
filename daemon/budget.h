/* The memory budget: how much the daemon may use, what of it is for batches and data, for caches and to work in, and
 * what each user is charged for.
 *
 * Everything else in the daemon that takes memory stands above this file, and this file knows none of it. The loop
 * thread starts it; afterwards any thread may charge and ask, but slots_bytes is the loop thread's. */
#ifndef BATCHD_BUDGET_H
#define BATCHD_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config.h"
#include "decode/decode.h"
#include "util/account.h"
#include "util/workspace.h"

struct cache;

struct budget {
	uint64_t total_bytes;    /* all of it */
	uint64_t bytes;          /* of which this is for batches, data and caches, */
	struct work_memory work; /* and the rest to work in */
	uint64_t work_bytes;
	uint64_t decoded_bytes, index_bytes, file_bytes; /* the most that each tier of the cache may take */
	struct cache *cache;
	struct accounts accounts;
	uint64_t slots_bytes; /* charged for slots, streams and rings */
};

/* Sizes everything from the configuration and the machine, and makes the cache. b is zeroed. 0 or negative errno. */
int budget_init(struct budget *b, const struct config *c);
/* Everything that is charged, attached to the cache or working has ended. */
void budget_finish(struct budget *b);
/* Takes over what the configuration says of users; n_io: threads that open data sets. */
void budget_set_limits(struct budget *b, const struct config *c, unsigned n_io);

/* How much a decoder may do and take; several decoders share the memory to work in. */
struct decode_limits budget_decode_limits(const struct budget *b, const struct config *c);

/* Charged by caches, all tiers. */
uint64_t budget_cache_bytes(const struct budget *b);
/* Charged to users, and by caches. */
uint64_t budget_used(const struct budget *b);
/* Slots came or went: caches get what slots leave, up to their own sizes. */
void budget_balance(struct budget *b);
/* Charges ACCOUNT_DATA_BYTES if there is room beside the caches; as charge_begin, or charge_grow where c has been
 * begun. */
int budget_charge_data(struct budget *b, uid_t uid, struct charge *c, uint64_t bytes);
/* Why a charge was refused (ACCOUNT_E_), for the client that asked: "what needs 40 MiB of memory, and ...; " and then
 * advice. */
void budget_explain(const struct budget *b, uid_t uid, int refusal, const char *what, uint64_t bytes,
		    const char *advice, char *text, size_t size);

#endif
