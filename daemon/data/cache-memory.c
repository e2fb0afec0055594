/* A bump allocator over mappings of some megabytes, with bins for the few blocks that are freed.
 *
 * Entries of a cache are put once and stay, so nearly all blocks come from the end of the newest mapping, without
 * headers between them. Blocks are freed when a file changed or an index grew. They wait in bins for an entry of about
 * their size and are then used whole, never split, so that memory does not fragment. All memory is freed together with
 * the data set. */
#include "data/cache-memory.h"

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
};

/* At the beginning of a block that was freed. */
struct free_block {
	struct free_block *next;
	size_t size_bytes;
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

static void put_in_bin(struct cache_memory *m, void *block, size_t size_bytes)
{
	struct free_block *f = block;
	unsigned bin;

	if (size_bytes < CACHE_MEMORY_ALIGN)
		return;
	bin = bin_of(size_bytes);
	f->size_bytes = size_bytes;
	f->next = m->bins[bin];
	m->bins[bin] = f;
}

static void *take_from_bins(struct cache_memory *m, size_t n, unsigned n_bins, size_t *block_bytes)
{
	for (unsigned bin = bin_of(n), end = bin + n_bins; bin < end && bin < CACHE_MEMORY_N_BINS; bin++) {
		struct free_block **link = &m->bins[bin];

		/* Only the first bin (and the last bin) can have blocks that are too small. */
		for (unsigned tries = 0; *link && tries < TRIES_PER_BIN; tries++, link = &(*link)->next) {
			struct free_block *f = *link;

			if (f->size_bytes >= n) {
				*link = f->next;
				*block_bytes = f->size_bytes;
				return f;
			}
		}
	}
	return NULL;
}

/* Sizes the mapping so that even a small budget loses little to partly filled mappings. */
static size_t mapping_bytes(const struct cache_memory *m, size_t n)
{
	uint64_t part = atomic_load(&m->budget->limit_bytes) / PARTS_OF_BUDGET;
	size_t usual = part > MAPPING_MAX_BYTES   ? MAPPING_MAX_BYTES
		       : part < MAPPING_MIN_BYTES ? MAPPING_MIN_BYTES
						  : round_up(part, PAGE_BYTES);
	size_t needed = round_up(n + CACHE_MEMORY_ALIGN, PAGE_BYTES);

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
	put_in_bin(m, m->at, (size_t)(m->end - m->at));
	*mapping = (struct cache_mapping){ m->mappings, size };
	m->mappings = mapping;
	m->at = (char *)mapping + CACHE_MEMORY_ALIGN;
	m->end = (char *)mapping + size;
	m->charged_bytes += size;
	return true;
}

void *cache_memory_alloc(struct cache_memory *m, size_t n, size_t *block_bytes)
{
	void *block;

	n = round_up(n ? n : 1, CACHE_MEMORY_ALIGN);
	pthread_mutex_lock(&m->lock);
	block = take_from_bins(m, n, 2, block_bytes);
	if (!block && ((size_t)(m->end - m->at) >= n || map_more(m, n))) {
		block = m->at;
		m->at += n;
		*block_bytes = n;
	}
	if (!block)
		block = take_from_bins(m, n, CACHE_MEMORY_N_BINS, block_bytes);
	pthread_mutex_unlock(&m->lock);
	return block;
}

bool cache_memory_has_room(struct cache_memory *m, size_t n)
{
	size_t needed = round_up(n + CACHE_MEMORY_ALIGN, PAGE_BYTES);
	bool fits;

	if (atomic_load(&m->budget->used_bytes) + needed <= atomic_load(&m->budget->limit_bytes))
		return true;
	pthread_mutex_lock(&m->lock);
	fits = (size_t)(m->end - m->at) >= round_up(n, CACHE_MEMORY_ALIGN);
	pthread_mutex_unlock(&m->lock);
	return fits;
}

void cache_memory_free(struct cache_memory *m, void *block, size_t block_bytes)
{
	pthread_mutex_lock(&m->lock);
	put_in_bin(m, block, block_bytes);
	pthread_mutex_unlock(&m->lock);
}
