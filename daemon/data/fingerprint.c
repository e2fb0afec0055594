#include "data/fingerprint.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "data/manifest.h"

enum { VERSION = 1, HASHES = 3, COARSE_SHIFT = 58, MAX_FOUND = FINGERPRINT_FINE };

/* Sums modulo their size, so that states can be subtracted. */
struct cell {
	int32_t n;
	uint64_t name;
	uint32_t label, check;
};

struct table {
	struct cell fine[FINGERPRINT_FINE], coarse[FINGERPRINT_COARSE];
};

static uint64_t fingerprint_mix(struct fingerprint_sample s)
{
	return XXH3_64bits_withSeed(&s.name, sizeof(s.name), s.label);
}

static void fingerprint_add(struct cell *cells, unsigned n_cells, struct fingerprint_sample s, int sign)
{
	uint64_t key = fingerprint_mix(s);
	unsigned part = n_cells / HASHES;

	for (unsigned k = 0; k < HASHES; k++) {
		struct cell *c = &cells[k * part + (uint32_t)(key >> (k * 16) & 0xffff) % part];

		c->n += sign;
		c->name += (uint64_t)sign * s.name;
		c->label += (uint32_t)sign * s.label;
		c->check += (uint32_t)sign * (uint32_t)(key * 0x9e3779b97f4a7c15 >> 32);
	}
}

static void add_both(struct table *t, struct fingerprint_sample s, int sign)
{
	fingerprint_add(t->fine, FINGERPRINT_FINE, s, sign);
	if (fingerprint_mix(s) >> COARSE_SHIFT == 0)
		fingerprint_add(t->coarse, FINGERPRINT_COARSE, s, sign);
}

static void make_table(const struct fingerprint_samples *all, struct table *t)
{
	*t = (struct table){ 0 };
	for (uint64_t i = 0; i < all->n; i++)
		add_both(t, all->sample(all->arg, i), 1);
}

/* ---- bytes ---- */

static uint8_t *fingerprint_put(uint8_t *at, uint64_t value, unsigned n_bytes)
{
	for (unsigned i = 0; i < n_bytes; i++)
		*at++ = (uint8_t)(value >> (8 * i));
	return at;
}

static uint64_t fingerprint_take(const uint8_t **at, unsigned n_bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < n_bytes; i++)
		value |= (uint64_t)*(*at)++ << (8 * i);
	return value;
}

static uint8_t *put_cells(uint8_t *at, const struct cell *c, unsigned n)
{
	for (; n > 0; n--, c++) {
		at = fingerprint_put(at, (uint32_t)c->n, 4);
		at = fingerprint_put(at, c->name, 8);
		at = fingerprint_put(at, c->label, 4);
		at = fingerprint_put(at, c->check, 4);
	}
	return at;
}

static void subtract_cells(const uint8_t **at, struct cell *c, unsigned n)
{
	for (; n > 0; n--, c++) {
		c->n = (int32_t)((uint32_t)c->n - (uint32_t)fingerprint_take(at, 4));
		c->name -= fingerprint_take(at, 8);
		c->label -= (uint32_t)fingerprint_take(at, 4);
		c->check -= (uint32_t)fingerprint_take(at, 4);
	}
}

void fingerprint_make_samples(const struct fingerprint_samples *all, uint8_t out[FINGERPRINT_BYTES])
{
	struct table t;

	make_table(all, &t);
	out = fingerprint_put(out, VERSION, 4);
	out = put_cells(out, t.fine, FINGERPRINT_FINE);
	put_cells(out, t.coarse, FINGERPRINT_COARSE);
}

/* ---- reading the difference back ---- */

struct found {
	struct fingerprint_sample sample;
	bool added;
};

struct difference {
	struct found found[MAX_FOUND];
	unsigned n;
	bool complete;
};

/* Whether the cell holds exactly one sample, and which one. */
static bool is_pure(const struct cell *c, struct found *f)
{
	uint32_t sign = (uint32_t)c->n;

	if (c->n != 1 && c->n != -1)
		return false;
	*f = (struct found){ { c->name * (uint64_t)(int64_t)c->n, c->label * sign }, c->n == 1 };
	return c->check * sign == (uint32_t)(fingerprint_mix(f->sample) * 0x9e3779b97f4a7c15 >> 32);
}

static void fingerprint_peel(struct cell *cells, unsigned n_cells, struct difference *d)
{
	struct found f;

	*d = (struct difference){ 0 };
	for (unsigned i = 0; i < n_cells && d->n < MAX_FOUND; i++) {
		if (!is_pure(&cells[i], &f))
			continue;
		d->found[d->n++] = f;
		fingerprint_add(cells, n_cells, f.sample, f.added ? -1 : 1);
		i = UINT32_MAX; /* start again: other cells may have become pure */
	}
	d->complete = true;
	for (unsigned i = 0; i < n_cells; i++)
		d->complete &= !cells[i].n && !cells[i].name && !cells[i].check;
}

/* A sample that is present with another label. */
static bool is_relabelled(const struct difference *d, uint64_t name)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->n; i++)
		n += d->found[i].sample.name == name;
	return n > 1;
}

struct tally {
	uint64_t n_new, n_gone, n_relabelled;
	char first_new[320], first_relabelled[320];
};

static void fingerprint_count(const struct difference *d, struct tally *t)
{
	for (unsigned i = 0; i < d->n; i++) {
		bool other_label = is_relabelled(d, d->found[i].sample.name);

		t->n_relabelled += other_label && d->found[i].added;
		t->n_new += !other_label && d->found[i].added;
		t->n_gone += !other_label && !d->found[i].added;
	}
}

static const struct found *find_added(const struct difference *d, struct fingerprint_sample s)
{
	for (unsigned i = 0; i < d->n; i++) {
		if (d->found[i].added && d->found[i].sample.name == s.name && d->found[i].sample.label == s.label)
			return &d->found[i];
	}
	return NULL;
}

/* Finds the first sample of each kind, in the data set's order. */
static void name_firsts(const struct fingerprint_samples *all, const struct difference *d, struct tally *t)
{
	for (uint64_t i = 0; i < all->n; i++) {
		const struct found *f = find_added(d, all->sample(all->arg, i));

		if (!f)
			continue;
		char *name = is_relabelled(d, f->sample.name) ? t->first_relabelled : t->first_new;
		if (!name[0])
			all->name(all->arg, i, name, sizeof(t->first_new));
	}
}

/* ---- in words ---- */

static size_t say_totals(const struct fingerprint_samples *all, uint64_t old_n, char *text, size_t size)
{
	unsigned long long now = all->n, then = old_n;

	if (!old_n)
		return (size_t)snprintf(text, size, "other files than before");
	if (now == then)
		return (size_t)snprintf(text, size, "as many files as before (%llu), but not the same", now);
	return (size_t)snprintf(
		text, size, "%llu file%s %s than before (%llu instead of %llu)", now > then ? now - then : then - now,
		(now > then ? now - then : then - now) == 1 ? "" : "s", now > then ? "more" : "fewer", now, then);
}

static size_t say_part(char *text, size_t size, size_t used, bool *any, const char *about, uint64_t n, const char *what,
		       const char *first)
{
	if (!n || used >= size)
		return used;
	used += (size_t)snprintf(text + used, size - used, "%s%s%llu %s", *any ? "; " : ": ", about,
				 (unsigned long long)n, what);
	if (first[0] && used < size)
		used += (size_t)snprintf(text + used, size - used, ", the first %s", first);
	*any = true;
	return used;
}

static void fingerprint_say(const struct fingerprint_samples *all, const struct difference *d, unsigned scale,
			    uint64_t old_n, char *text, size_t size)
{
	struct tally t = { 0 };
	const char *about = scale > 1 ? "about " : "";
	bool any = false;
	size_t used = say_totals(all, old_n, text, size);

	fingerprint_count(d, &t);
	name_firsts(all, d, &t);
	used = say_part(text, size, used, &any, about, t.n_new * scale, "new", t.first_new);
	used = say_part(text, size, used, &any, about, t.n_gone * scale, "gone", "");
	used = say_part(text, size, used, &any, about, t.n_relabelled * scale, "with another label",
			t.first_relabelled);
	if (!any && used < size)
		snprintf(text + used, size - used,
			 d->complete ? ": the same files in another order or with other class names"
				     : ": too many changes to name");
}

void fingerprint_compare_samples(const struct fingerprint_samples *all, const uint8_t *old, size_t n_old_bytes,
				 uint64_t old_n, char *text, size_t size)
{
	struct difference fine, coarse;
	struct table t;

	if (n_old_bytes != FINGERPRINT_BYTES || fingerprint_take(&old, 4) != VERSION) {
		say_totals(all, old_n, text, size);
		return;
	}
	make_table(all, &t);
	subtract_cells(&old, t.fine, FINGERPRINT_FINE);
	subtract_cells(&old, t.coarse, FINGERPRINT_COARSE);
	fingerprint_peel(t.fine, FINGERPRINT_FINE, &fine);
	fingerprint_peel(t.coarse, FINGERPRINT_COARSE, &coarse);
	if (fine.complete)
		fingerprint_say(all, &fine, 1, old_n, text, size);
	else
		fingerprint_say(all, coarse.complete && coarse.n ? &coarse : &(struct difference){ 0 },
				1u << (64 - COARSE_SHIFT), old_n, text, size);
}

/* ---- of a manifest ---- */

static uint64_t hash_text(const char *text, uint64_t seed)
{
	return XXH3_64bits_withSeed(text, strlen(text), seed);
}

static struct fingerprint_sample sample_at(const void *arg, uint64_t i)
{
	const struct manifest *ix = arg;
	int64_t label = manifest_label(ix, i);

	return (struct fingerprint_sample){ hash_text(manifest_file_name(ix, i),
						      hash_text(manifest_dir_path(ix, ix->file_dir[i]), 0)),
					    (uint32_t)XXH3_64bits(&label, sizeof(label)) };
}

static void name_at(const void *arg, uint64_t i, char *buf, size_t size)
{
	manifest_name(arg, i, buf, size);
}

void fingerprint_make(const struct manifest *ix, uint8_t out[FINGERPRINT_BYTES])
{
	fingerprint_make_samples(&(struct fingerprint_samples){ ix->n_files, ix, sample_at, name_at }, out);
}

void fingerprint_compare(const struct manifest *ix, const uint8_t *old, size_t n_old_bytes, uint64_t old_n, char *text,
			 size_t size)
{
	fingerprint_compare_samples(&(struct fingerprint_samples){ ix->n_files, ix, sample_at, name_at }, old,
				    n_old_bytes, old_n, text, size);
}
