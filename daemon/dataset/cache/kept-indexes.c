/* Keeps the indexes of a space over restarts: new entries are appended to its file periodically, and read when the
 * space is made. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/cache/impl.h"
#include "base/log.h"

enum { SYNC_BUFFER_BYTES = 1 << 20 };

static void complain(struct cache_space *s, const char *what, int error)
{
	if (!s->complained) {
		s->complained = true;
		log_record(LOG_LEVEL_WARNING, "cache-not-kept",
			   "%s: %s: %s; indexes will be made again after a restart", s->file.path, what,
			   strerror(-error));
	}
}

/* ---- reading ---- */

static int load_record(void *arg, const struct cache_record *r)
{
	struct cache_space *s = arg;
	struct file_bytes file = {
		.n_bytes = r->n_file_bytes, .mtime_ns = r->mtime_ns, .ctime_ns = r->ctime_ns, .ino = r->ino
	};

	return r->index < s->n && space_put_kept(s, r->index, &file, r->payload, r->n_payload) == CACHE_E_FULL;
}

void space_load_kept(struct cache_space *s)
{
	int r = cache_file_open(&s->file, s->cache->dir, s->dataset_id, s->cache->file_most_bytes);

	r = r < 0 ? r : cache_file_read(&s->file, load_record, s);
	if (r < 0)
		complain(s, "cannot read", r);
}

/* ---- writing ---- */

/* An entry to write, with a reference; NULL if there is none at this index. all: also entries already written. */
static struct entry *entry_to_write(struct cache_space *s, uint64_t index, bool all)
{
	struct shard *shard = shard_of(s, index);
	struct entry *e;

	pthread_mutex_lock(&shard->lock);
	e = s->table[index];
	if (e && (all || e->unsaved) && e->n_bytes && e->n_bytes <= CACHE_RECORD_MAX_BYTES) {
		e->unsaved = false;
		atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
	} else {
		e = NULL;
	}
	pthread_mutex_unlock(&shard->lock);
	return e;
}

struct writer {
	struct cache_file *file;
	unsigned char *buffer;
	size_t n, capacity;
};

static int flush(struct writer *w)
{
	int r = w->n ? cache_file_append(w->file, w->buffer, w->n) : 0;

	w->n = 0;
	return r;
}

static int write_entry(struct writer *w, uint64_t index, const struct entry *e)
{
	struct cache_record record = { index, e->mtime_ns, e->ctime_ns, e->ino, e->n_file_bytes, e->data, e->n_bytes };
	size_t n = cache_record_bytes(e->n_bytes);
	int r = w->n + n > SYNC_BUFFER_BYTES ? flush(w) : 0;

	if (r < 0)
		return r;
	if (w->n + n > w->capacity) {
		unsigned char *larger = realloc(w->buffer, w->n + n > SYNC_BUFFER_BYTES ? w->n + n : SYNC_BUFFER_BYTES);

		if (!larger)
			return -ENOMEM;
		w->buffer = larger;
		w->capacity = w->n + n > SYNC_BUFFER_BYTES ? w->n + n : SYNC_BUFFER_BYTES;
	}
	cache_record_make(w->buffer + w->n, &record);
	w->n += n;
	return 0;
}

static int write_entries(struct cache_space *s, struct cache_file *file, bool all)
{
	struct writer w = { .file = file };
	int r = 0;

	for (uint64_t i = 0; !r && i < s->n; i++) {
		struct entry *e = entry_to_write(s, i, all);

		if (e) {
			r = write_entry(&w, i, e);
			entry_unref(e);
		}
	}
	r = r < 0 ? r : flush(&w);
	free(w.buffer);
	return r;
}

/* Records of replaced indexes accumulate; when they outweigh the live ones the file is rewritten. So it stays below
 * about twice the budget. */
static int compact(struct cache_space *s)
{
	struct cache_file fresh;
	int r = cache_file_begin_new(&s->file, &fresh);

	if (r < 0)
		return r;
	r = write_entries(s, &fresh, true);
	if (r < 0) {
		cache_file_abandon(&fresh);
		return r;
	}
	return cache_file_replace(&s->file, &fresh);
}

int space_write_unsaved(struct cache_space *s)
{
	uint64_t live;
	int r = 0;

	if (pthread_mutex_trylock(&s->sync_lock))
		return 0;
	atomic_store(&s->dirty, false);
	if (s->file.fd >= 0 && s->file.writable) {
		r = write_entries(s, &s->file, false);
		live = atomic_load(&s->entry_bytes) + atomic_load(&s->n_entries) * (CACHE_RECORD_HEADER_BYTES + 8);
		if (!r && s->file.size_bytes > 2 * live + SYNC_BUFFER_BYTES)
			r = compact(s);
		if (r < 0)
			complain(s, "cannot write", r);
	}
	pthread_mutex_unlock(&s->sync_lock);
	return r;
}
