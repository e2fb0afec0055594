/* A bump allocator over mappings of some megabytes, with bins for the few blocks that are freed.
 *
 * Entries of a cache are put once and stay, so nearly all blocks come from the end of the newest mapping, without
 * headers between them. Blocks are freed when a file changed or an index grew. They wait in bins for an entry of about
 * their size and are then used whole, never split, so that memory does not fragment. Memory is freed together with the
 * data set, or a mapping at a time where another user's data set needs room: then the blocks of one mapping leave, which
 * is why they are linked, instead of as many in all mappings. */
#include "dataset/cache/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
	MAPPING_MAX_BYTES = 4 << 20,
	MAPPING_MIN_BYTES = 64 << 10,
	PARTS_OF_BUDGET = 64,
	PAGE_BYTES = 4096,
	TRIES_PER_BIN = 8
};

/* At the beginning of each mapping. */
struct cache_mapping {
	struct cache_mapping *next;
	size_t size_bytes;
	struct cache_block *blocks; /* in use */
	size_t n_blocks;
	atomic_bool retired;
};
_Static_assert(sizeof(struct cache_mapping) <= CACHE_MEMORY_ALIGN, "blocks begin after it");

/* At the beginning of a block that was freed. */
struct free_block {
	struct free_block *next;
	size_t size_bytes;
	struct cache_mapping *mapping;
};

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* Four bins to a power of two, so that sizes in a bin differ by less than a quarter. size_bytes >= 64. */
static unsigned bin_of(size_t size_bytes)
{
	unsigned log2 = 63 - (unsigned)__builtin_clzll(size_bytes);
	unsigned bin = (log2 - 6) * 4 + (unsigned)(size_bytes >> (log2 - 2) & 3);

	return bin < CACHE_MEMORY_N_BINS ? bin : CACHE_MEMORY_N_BINS - 1;
}

void cache_memory_init(struct cache_memory *m, struct cache_budget *budget)
{
	*m = (struct cache_memory){ .budget = budget };
	pthread_mutex_init(&m->lock, NULL);
}

void cache_memory_finish(struct cache_memory *m)
{
	for (struct cache_mapping *mapping = m->mappings, *next; mapping; mapping = next) {
		next = mapping->next;
		munmap(mapping, mapping->size_bytes);
	}
	atomic_fetch_sub(&m->budget->used_bytes, m->charged_bytes);
	pthread_mutex_destroy(&m->lock);
}

static bool cache_memory_charge(struct cache_budget *b, uint64_t n)
{
	uint_fast64_t used = atomic_load(&b->used_bytes);

	do {
		uint64_t limit = atomic_load(&b->limit_bytes);

		if (n > limit || used > limit - n)
			return false;
	} while (!atomic_compare_exchange_weak(&b->used_bytes, &used, used + n));
	return true;
}

static void put_in_bin(struct cache_memory *m, struct cache_mapping *mapping, void *block, size_t size_bytes)
{
	struct free_block *f = block;
	unsigned bin;

	if (size_bytes < CACHE_MEMORY_ALIGN)
		return;
	bin = bin_of(size_bytes);
	f->size_bytes = size_bytes;
	f->mapping = mapping;
	f->next = m->bins[bin];
	m->bins[bin] = f;
}

static struct free_block *take_from_bins(struct cache_memory *m, size_t n, unsigned n_bins)
{
	for (unsigned bin = bin_of(n), end = bin + n_bins; bin < end && bin < CACHE_MEMORY_N_BINS; bin++) {
		struct free_block **link = &m->bins[bin];

		/* Only the first bin (and the last bin) can have blocks that are too small. */
		for (unsigned tries = 0; *link && tries < TRIES_PER_BIN; tries++, link = &(*link)->next) {
			struct free_block *f = *link;

			if (f->size_bytes >= n) {
				*link = f->next;
				return f;
			}
		}
	}
	return NULL;
}

/* So that even a small budget loses little to partly filled mappings. */
size_t cache_mapping_bytes(const struct cache_budget *budget)
{
	uint64_t part = atomic_load(&budget->limit_bytes) / PARTS_OF_BUDGET;

	return part > MAPPING_MAX_BYTES   ? MAPPING_MAX_BYTES
	       : part < MAPPING_MIN_BYTES ? MAPPING_MIN_BYTES
					  : round_up(part, PAGE_BYTES);
}

static size_t mapping_bytes(const struct cache_memory *m, size_t n)
{
	size_t usual = cache_mapping_bytes(m->budget), needed = round_up(n + CACHE_MEMORY_ALIGN, PAGE_BYTES);

	return needed > usual ? needed : usual;
}

static bool map_more(struct cache_memory *m, size_t n)
{
	size_t size = mapping_bytes(m, n);
	struct cache_mapping *mapping;

	/* Near the limit a mapping for this block alone may still fit. */
	if (!cache_memory_charge(m->budget, size)) {
		size = round_up(n + CACHE_MEMORY_ALIGN, PAGE_BYTES);
		if (!cache_memory_charge(m->budget, size))
			return false;
	}
	mapping = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapping == MAP_FAILED) {
		atomic_fetch_sub(&m->budget->used_bytes, size);
		return false;
	}
	if (m->mappings && !atomic_load(&m->mappings->retired))
		put_in_bin(m, m->mappings, m->at, (size_t)(m->end - m->at));
	*mapping = (struct cache_mapping){ .next = m->mappings, .size_bytes = size };
	m->mappings = mapping;
	m->at = (char *)mapping + CACHE_MEMORY_ALIGN;
	m->end = (char *)mapping + size;
	m->charged_bytes += size;
	return true;
}

static struct cache_block *block_begin(struct cache_mapping *mapping, void *at, size_t n_bytes, uint64_t tag)
{
	struct cache_block *b = at;

	*b = (struct cache_block){ .mapping = mapping, .next = mapping->blocks, .n_bytes = n_bytes, .tag = tag };
	if (b->next)
		b->next->previous = b;
	mapping->blocks = b;
	mapping->n_blocks++;
	return b;
}

static void block_end(struct cache_block *b)
{
	*(b->previous ? &b->previous->next : &b->mapping->blocks) = b->next;
	if (b->next)
		b->next->previous = b->previous;
	b->mapping->n_blocks--;
}

struct cache_block *cache_memory_alloc(struct cache_memory *m, size_t n, uint64_t tag, bool may_grow)
{
	struct cache_block *block = NULL;
	struct free_block *freed;

	n = round_up(n ? n : 1, CACHE_MEMORY_ALIGN);
	pthread_mutex_lock(&m->lock);
	freed = take_from_bins(m, n, 2);
	if (!freed && ((size_t)(m->end - m->at) >= n || (may_grow && map_more(m, n)))) {
		block = block_begin(m->mappings, m->at, n, tag);
		m->at += n;
	}
	if (!freed && !block)
		freed = take_from_bins(m, n, CACHE_MEMORY_N_BINS);
	if (freed)
		block = block_begin(freed->mapping, freed, freed->size_bytes, tag);
	pthread_mutex_unlock(&m->lock);
	return block;
}

bool cache_memory_has_room(struct cache_memory *m, size_t n, bool may_grow)
{
	size_t needed = round_up(n + CACHE_MEMORY_ALIGN, PAGE_BYTES);
	bool fits;

	if (may_grow && atomic_load(&m->budget->used_bytes) + needed <= atomic_load(&m->budget->limit_bytes))
		return true;
	pthread_mutex_lock(&m->lock);
	fits = (size_t)(m->end - m->at) >= round_up(n, CACHE_MEMORY_ALIGN);
	pthread_mutex_unlock(&m->lock);
	return fits;
}

uint64_t cache_memory_charged(struct cache_memory *m)
{
	pthread_mutex_lock(&m->lock);
	uint64_t n = m->charged_bytes;
	pthread_mutex_unlock(&m->lock);
	return n;
}

/* ---- giving mappings back ---- */

/* Once it is retired and has no blocks. Under the lock. */
static void unmap(struct cache_memory *m, struct cache_mapping *mapping)
{
	struct cache_mapping **link = &m->mappings;
	size_t size = mapping->size_bytes;

	while (*link != mapping)
		link = &(*link)->next;
	*link = mapping->next;
	m->charged_bytes -= size;
	munmap(mapping, size);
	atomic_fetch_sub(&m->budget->used_bytes, size);
}

void cache_memory_free(struct cache_memory *m, struct cache_block *block)
{
	struct cache_mapping *mapping = block->mapping;

	pthread_mutex_lock(&m->lock);
	block_end(block);
	if (!atomic_load(&mapping->retired))
		put_in_bin(m, mapping, block, block->n_bytes);
	else if (!mapping->n_blocks)
		unmap(m, mapping);
	pthread_mutex_unlock(&m->lock);
}

bool cache_block_is_retired(const struct cache_block *block)
{
	return atomic_load(&block->mapping->retired);
}

/* The newest mapping has the blocks that are taken next. */
static void leave_mapping(struct cache_memory *m, struct cache_mapping *mapping)
{
	atomic_store(&mapping->retired, true);
	if (mapping == m->mappings)
		m->at = m->end = NULL;
	for (unsigned bin = 0; bin < CACHE_MEMORY_N_BINS; bin++) {
		for (struct free_block **link = &m->bins[bin]; *link;) {
			if ((*link)->mapping == mapping)
				*link = (*link)->next;
			else
				link = &(*link)->next;
		}
	}
}

bool cache_memory_retire(struct cache_memory *m, uint64_t **tags, size_t *n)
{
	struct cache_mapping *oldest = NULL;

	*tags = NULL;
	*n = 0;
	pthread_mutex_lock(&m->lock);
	for (struct cache_mapping *mapping = m->mappings; mapping; mapping = mapping->next) {
		if (!atomic_load(&mapping->retired))
			oldest = mapping;
	}
	if (oldest && (!oldest->n_blocks || (*tags = malloc(oldest->n_blocks * sizeof(**tags))))) {
		for (struct cache_block *b = oldest->blocks; b; b = b->next)
			(*tags)[(*n)++] = b->tag;
		leave_mapping(m, oldest);
		if (!oldest->n_blocks)
			unmap(m, oldest);
	} else {
		oldest = NULL;
	}
	pthread_mutex_unlock(&m->lock);
	return oldest;
}
