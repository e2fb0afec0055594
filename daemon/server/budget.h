/* The memory budget: how much the daemon may use, how it is divided between batches, data, caches and working memory,
 * and the charges of each user.
 *
 * Everything else in the daemon that takes memory stands above this file, and this file knows none of it. The loop
 * thread starts it; afterwards any thread may charge and ask. */
#ifndef BATCHD_BUDGET_H
#define BATCHD_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"
#include "image/formats/decode.h"
#include "base/account.h"
#include "base/workspace.h"

struct cache;

struct budget {
	uint64_t total_bytes;    /* the whole budget */
	uint64_t bytes;          /* of which this is for batches, data and caches */
	struct work_memory work; /* the rest: working memory */
	uint64_t work_bytes;
	uint64_t decoded_bytes, index_bytes; /* upper limit of each tier of the cache */
	uint64_t squeezed_bytes;             /* of the caches' limits, left to other programs for now */
	struct cache *cache;
	struct accounts accounts;
};

/* Computes all sizes from the configuration and the machine, and makes the cache. b is zeroed. 0 or negative errno. */
int budget_init(struct budget *b, const struct config *c);
/* Call it when every charge, cache user and worker has ended. */
void budget_finish(struct budget *b);
/* Takes over the users' limits from the configuration. */
void budget_set_limits(struct budget *b, const struct config *c);

/* The limits of one decoder; decoders share the working memory. */
struct decode_limits budget_decode_limits(const struct budget *b, const struct config *c);

/* Charged by caches, all tiers. */
uint64_t budget_cache_bytes(const struct budget *b);
/* Charged to users, and by caches. */
uint64_t budget_used(const struct budget *b);
/* The number of slots has changed: caches get the memory that slots leave, up to their own sizes. */
void budget_balance(struct budget *b);
/* The machine lacks memory: the caches may have a quarter less than they have. Returns how much of what they have they
 * must give back (cache_give_back). */
uint64_t budget_squeeze(struct budget *b);
/* Memory has not been scarce for a while: the caches may have an eighth of their limits more again. */
void budget_relax(struct budget *b);
/* Charges ACCOUNT_DATA_BYTES if there is room beside the caches; as charge_begin, or as charge_grow for a c that has
 * been begun. */
int budget_charge_data(struct budget *b, uid_t uid, struct charge *c, uint64_t bytes);
/* Explains why a charge was refused (ACCOUNT_E_) to the client that asked: "what needs 40 MiB of memory, and ...; " and
 * then advice. */
void budget_explain(const struct budget *b, uid_t uid, int refusal, const char *what, uint64_t bytes,
		    const char *advice, char *text, size_t size);

#endif
