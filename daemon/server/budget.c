/* See budget.h. Batches have priority: half of the budget is always for them, and the caches share the rest. */
#include "server/budget.h"

#include <assert.h>
#include <malloc.h>
#include <stdio.h>

#include "dataset/cache/sample-cache.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/size.h"

enum {
	AUTO_MEMORY_PERCENT = 25,
	MOST_MEMORY_PERCENT = 75,
	WORK_PART = 4,
	WORK_LEAST_BYTES = 40 << 20,
	WORK_KEEP_PART = 8, /* part of the working memory that all workers together may keep between samples */
	SQUEEZE_PART = 4,
	SQUEEZE_LEAST_BYTES = 32 << 20,
	RELAX_PART = 8,
	MMAP_BYTES = 1 << 20, /* from this size on, malloc maps memory from the kernel and returns it at once */
};

/* ---- sizes ---- */

/* A budget larger than the machine's memory would make the kernel kill the daemon, instead of giving a client an
 * error. */
static uint64_t total_bytes(const struct config *c)
{
	char wanted[32], have[32];
	uint64_t available = memory_available(NULL), most = available / 100 * MOST_MEMORY_PERCENT;
	if (!c->memory_bytes)
		return available / 100 * AUTO_MEMORY_PERCENT;
	if (!available || c->memory_bytes <= most)
		return c->memory_bytes;
	size_format(c->memory_bytes, wanted, sizeof(wanted));
	size_format(available, have, sizeof(have));
	log_record(LOG_LEVEL_WARNING, "memory-lowered",
		   "memory: %s is too much for the %s that this machine or control group has; using %d %% of that",
		   wanted, have, MOST_MEMORY_PERCENT);
	return most;
}

/* A quarter is working memory, but at least enough for a usual photograph. That minimum comes on top of the budget.
 * Buffers of that size come and go with samples, so malloc must not keep them. */
static void budget_split(struct budget *b)
{
	uint64_t part = b->total_bytes / WORK_PART;
	b->work_bytes = part > WORK_LEAST_BYTES ? part : WORK_LEAST_BYTES;
	b->bytes = b->total_bytes - (b->work_bytes - WORK_LEAST_BYTES);
	assert(b->bytes <= b->total_bytes);
	work_memory_init(&b->work, b->work_bytes);
	mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
}

static uint64_t budget_take(uint64_t *left_bytes, uint64_t want_bytes)
{
	uint64_t got = want_bytes < *left_bytes ? want_bytes : *left_bytes;
	*left_bytes -= got;
	return got;
}

/* The kernel's page cache keeps files, so the daemon keeps only what it has made of them. */
static int start_cache(struct budget *b, const struct config *c)
{
	uint64_t left = b->bytes / 2;
	b->index_bytes = budget_take(&left, c->cache_jpeg_bytes == CONFIG_AUTO ? left / 8 : c->cache_jpeg_bytes);
	b->decoded_bytes = budget_take(&left, c->cache_decoded_bytes); /* CONFIG_AUTO: all that is left */
	struct cache_config config = {
		.budget_bytes = { [CACHE_CHECKPOINTS] = b->index_bytes, [CACHE_DECODED] = b->decoded_bytes },
		.dir = c->cache_directory,
		.dir_limit_bytes = c->cache_disk_bytes
	};
	return cache_create(&config, &b->cache);
}

int budget_init(struct budget *b, const struct config *c)
{
	assert(!b->cache && !b->total_bytes);
	b->total_bytes = total_bytes(c);
	budget_split(b);
	return start_cache(b, c);
}

void budget_finish(struct budget *b)
{
	assert(b->cache);
	cache_destroy(b->cache);
	work_memory_finish(&b->work);
}

void budget_set_limits(struct budget *b, const struct config *c)
{
	const struct config_limits *l = &c->limits;
	uint64_t all[ACCOUNT_N_KINDS] = {
		[ACCOUNT_SESSIONS] = l->sessions,
		[ACCOUNT_LOADERS] = l->loaders,
	};
	uint64_t user[ACCOUNT_N_KINDS] = {
		[ACCOUNT_SESSIONS] = l->sessions_per_user,         [ACCOUNT_LOADERS] = l->loaders_per_user,
		[ACCOUNT_UNREAD_BYTES] = l->unread_per_user,       [ACCOUNT_FDS] = l->fds_per_user,
		[ACCOUNT_FILE_SYSTEMS] = l->file_systems_per_user,
	};
	/* 0 would mean no limit. */
	uint64_t memory_per_user = (uint64_t)(l->memory_per_user * (double)b->bytes) + 1;
	accounts_set_limits(&b->accounts, all, user, b->bytes, memory_per_user);
}

struct decode_limits budget_decode_limits(const struct budget *b, const struct config *c)
{
	struct decode_limits limits = decode_limits_default;
	limits.max_px = c->limits.image_pixels;
	limits.max_scans = c->limits.image_scans;
	limits.max_bytes = c->limits.file_bytes;
	limits.max_ns = c->limits.image_time_ns;
	limits.memory = (struct work_memory *)&b->work;
	limits.keep_bytes = b->work_bytes / WORK_KEEP_PART / config_max_workers(c);
	if (limits.keep_bytes > decode_limits_default.keep_bytes)
		limits.keep_bytes = decode_limits_default.keep_bytes;
	return limits;
}

/* ---- use ---- */

uint64_t budget_cache_bytes(const struct budget *b)
{
	uint64_t sum = 0;
	for (int tier = 0; tier < CACHE_N_TIERS; tier++) {
		struct cache_stats s;
		cache_get_stats(b->cache, (enum cache_tier)tier, &s);
		sum += s.charged_bytes;
	}
	return sum;
}

uint64_t budget_used(const struct budget *b)
{
	return accounts_memory_used(&b->accounts) + budget_cache_bytes(b);
}

void budget_balance(struct budget *b)
{
	uint64_t used = accounts_memory_used(&b->accounts);
	uint64_t left = b->bytes > used ? b->bytes - used : 0;
	uint64_t most = b->index_bytes + b->decoded_bytes - b->squeezed_bytes;
	left = left < most ? left : most;
	cache_set_budget(b->cache, CACHE_CHECKPOINTS, budget_take(&left, b->index_bytes));
	cache_set_budget(b->cache, CACHE_DECODED, budget_take(&left, b->decoded_bytes));
}

uint64_t budget_squeeze(struct budget *b)
{
	uint64_t have = budget_cache_bytes(b), all = b->index_bytes + b->decoded_bytes, give = have / SQUEEZE_PART;
	give = give < SQUEEZE_LEAST_BYTES ? SQUEEZE_LEAST_BYTES : give;
	give = give < have ? give : have;
	b->squeezed_bytes = have - give < all ? all - (have - give) : 0;
	budget_balance(b);
	return give;
}

void budget_relax(struct budget *b)
{
	uint64_t part = (b->index_bytes + b->decoded_bytes) / RELAX_PART + 1;
	if (!b->squeezed_bytes)
		return;
	b->squeezed_bytes -= part < b->squeezed_bytes ? part : b->squeezed_bytes;
	budget_balance(b);
}

int budget_charge_data(struct budget *b, uid_t uid, struct charge *c, uint64_t bytes)
{
	uint64_t used = budget_used(b);
	if (used > b->bytes || bytes > b->bytes - used)
		return account_memory_left(&b->accounts, uid) < bytes ? ACCOUNT_E_USER : ACCOUNT_E_ALL;
	int r = c->account ? charge_grow(c, bytes) : charge_begin(c, &b->accounts, uid, ACCOUNT_DATA_BYTES, bytes);
	if (r == 0)
		budget_balance(b);
	return r;
}

void budget_explain(const struct budget *b, uid_t uid, int refusal, const char *what, uint64_t bytes,
		    const char *advice, char *text, size_t size)
{
	assert(refusal > 0 && size > 0);
	char need[32], used[32], have[32];
	bool user = refusal == ACCOUNT_E_USER;
	size_format(bytes, need, sizeof(need));
	size_format(user ? account_memory_used(&b->accounts, uid) : budget_used(b), used, sizeof(used));
	size_format(user ? account_memory_limit(&b->accounts) : b->bytes, have, sizeof(have));
	if (user)
		snprintf(text, size,
			 "%s needs %s of memory, and this user has %s of the %s that one user may have "
			 "(limits.memory_per_user, a share of memory, in the daemon's configuration); %s",
			 what, need, used, have, advice);
	else
		snprintf(text, size,
			 "%s needs %s of memory, and %s of the budget of %s are in use (memory in the daemon's "
			 "configuration, or --memory); %s",
			 what, need, used, have, advice);
}
