/* See extents.h. As in manifest.c, the checks on offsets do not rely on the checksum: a block that passes them is safe to
 * use, whatever its source. */
#include "dataset/shards/extents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define EXTENTS_MAGIC 0x544e545848435442ull /* "BTCHXTNT" in memory on a little-endian machine */
#define EXTENTS_VERSION 6u
#define EXTENTS_MAX (1ull << 40) /* of counts, so that sums of sizes do not overflow */

struct header {
	struct block_header block;
	uint64_t n, n_text, n_column_bytes;
	uint32_t n_shards, has_content, has_turned_real, reserved;
};

struct places {
	uint64_t shards, at, name, columns, n_bytes, shard, content, text, end;
};

static bool extents_lay_out(const struct header *h, struct places *p)
{
	if (h->n > EXTENTS_MAX || h->n_text > EXTENTS_MAX || h->n_column_bytes > EXTENTS_MAX || h->n_column_bytes % 8 ||
	    h->has_content > 1 || h->has_turned_real > 1)
		return false;
	p->shards = sizeof(*h);
	p->at = p->shards + h->n_shards * (uint64_t)sizeof(struct extents_shard);
	p->name = p->at + h->n * 8;
	p->columns = p->name + h->n * 8;
	p->n_bytes = p->columns + h->n_column_bytes;
	p->shard = p->n_bytes + h->n * 4;
	p->content = p->shard + h->n * 4;
	p->text = p->content + h->has_content * h->n * sizeof(struct extent_content);
	p->end = p->text + h->n_text;
	return true;
}

static int extents_point_into(struct extents *ix, const struct header *h, const struct places *p)
{
	char *base = ix->block;

	ix->block_bytes = p->end;
	ix->n = h->n;
	ix->n_shards = h->n_shards;
	ix->shards = (const void *)(base + p->shards);
	ix->at = (const void *)(base + p->at);
	ix->name = (const void *)(base + p->name);
	ix->n_bytes = (const void *)(base + p->n_bytes);
	ix->shard = (const void *)(base + p->shard);
	ix->content = h->has_content ? (const void *)(base + p->content) : NULL;
	ix->text = base + p->text;
	ix->has_turned_real = h->has_turned_real;
	return columns_parse(base + p->columns, h->n_column_bytes, h->n, &ix->columns);
}

struct shard_stamp shard_stamp_of(const struct stat *st)
{
	return (struct shard_stamp){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.n_bytes = (uint64_t)st->st_size,
		.mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec,
		.ctime_ns = (uint64_t)st->st_ctim.tv_sec * 1000000000u + (uint64_t)st->st_ctim.tv_nsec,
	};
}

void extents_finish(struct extents *ix)
{
	free(ix->block);
	*ix = (struct extents){ 0 };
}

void extents_name(const struct extents *ix, uint64_t i, char *buf, size_t size)
{
	snprintf(buf, size, "%s: %s", extents_shard_name(ix, ix->shard[i]), ix->text + ix->name[i]);
}

uint64_t extents_hash(const struct extents *ix, uint64_t seed)
{
	XXH3_state_t *state = XXH3_createState();
	uint64_t hash;

	if (!state)
		return 0;
	XXH3_64bits_reset_withSeed(state, seed);
	for (uint32_t i = 0; i < ix->n_shards; i++) {
		const char *name = extents_shard_name(ix, i);

		XXH3_64bits_update(state, name, strlen(name) + 1);
		XXH3_64bits_update(state, &ix->shards[i].n, sizeof(ix->shards[i].n));
	}
	/* Where names stand in the text differs between an index that is read and one that is kept. */
	XXH3_64bits_update(state, ix->at, ix->n * sizeof(*ix->at));
	for (uint64_t i = 0; i < ix->n; i++)
		XXH3_64bits_update(state, ix->text + ix->name[i], strlen(ix->text + ix->name[i]) + 1);
	XXH3_64bits_update(state, ix->name + ix->n, (size_t)(ix->text - (const char *)(ix->name + ix->n)));
	hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return hash;
}

/* ---- building ---- */

int extents_add_shard(struct extents_builder *b, const char *name, const struct shard_stamp *stamp)
{
	struct extents_shard s = { .stamp = *stamp, .first = b->n };
	int r = block_grow(b->meter, &b->shards, &b->shards_capacity, b->n_shards + 1, sizeof(*b->shards));

	b->text.meter = b->meter;
	r = r ? r : text_add(&b->text, name, strlen(name), &s.name);
	if (!r)
		b->shards[b->n_shards++] = s;
	return r;
}

int extents_add(struct extents_builder *b, uint64_t at, uint32_t n_bytes, const struct extent_content *content,
		const char *name, size_t n_name)
{
	int r = block_grow(b->meter, &b->at, &b->at_capacity, b->n + 1, sizeof(*b->at));

	r = r ? r : block_grow(b->meter, &b->name, &b->name_capacity, b->n + 1, sizeof(*b->name));
	r = r ? r : block_grow(b->meter, &b->n_bytes, &b->bytes_capacity, b->n + 1, sizeof(*b->n_bytes));
	r = r ? r : block_grow(b->meter, &b->shard, &b->shard_capacity, b->n + 1, sizeof(*b->shard));
	if (!r && b->has_content)
		r = block_grow(b->meter, &b->content, &b->content_capacity, b->n + 1, sizeof(*b->content));
	r = r ? r : text_add(&b->text, name, n_name, &b->name[b->n]);
	if (r)
		return r;
	if (b->has_content)
		b->content[b->n] = *content;
	b->at[b->n] = at;
	b->n_bytes[b->n] = n_bytes;
	b->shard[b->n] = (uint32_t)(b->n_shards - 1);
	b->shards[b->n_shards - 1].n++;
	b->n++;
	return 0;
}

int extents_leave_out(struct extents_builder *b, const char *name, size_t n_name, const char *reason)
{
	struct extents_shard *s = &b->shards[b->n_shards - 1];
	int r;

	if (s->n_left_out++)
		return 0;
	r = text_add(&b->text, name, n_name, &s->first_left_out);
	return r ? r : text_add(&b->text, reason, strlen(reason), &s->reason);
}

int extents_copy_shard(struct extents_builder *b, const struct extents *from, uint32_t shard)
{
	const struct extents_shard *s = &from->shards[shard];
	const char *left_out = from->text + s->first_left_out;
	int r = s->n_left_out ? extents_leave_out(b, left_out, strlen(left_out), from->text + s->reason) : 0;

	if (!r && s->extensions)
		r = text_add(&b->text, from->text + s->extensions, strlen(from->text + s->extensions),
			     &b->shards[b->n_shards - 1].extensions);
	b->has_turned_real |= from->has_turned_real;
	b->shards[b->n_shards - 1].n_left_out = s->n_left_out;
	b->shards[b->n_shards - 1].lacks_end = s->lacks_end;
	for (uint64_t i = s->first; !r && i < s->first + s->n; i++) {
		const char *name = from->text + from->name[i];

		r = extents_add(b, from->at[i], from->n_bytes[i], from->content ? &from->content[i] : NULL, name,
				strlen(name));
		r = r ? r : columns_copy_row(&b->columns, &from->columns, i);
	}
	return r;
}

static void extents_copy_array(char *to, const void *from, size_t n_bytes)
{
	if (n_bytes)
		memcpy(to, from, n_bytes);
}

static void extents_fill_block(const struct extents_builder *b, char *base, const struct header *h,
			       const struct places *p)
{
	memcpy(base, h, sizeof(*h));
	extents_copy_array(base + p->shards, b->shards, b->n_shards * sizeof(*b->shards));
	extents_copy_array(base + p->at, b->at, b->n * 8);
	extents_copy_array(base + p->name, b->name, b->n * 8);
	columns_write(&b->columns, base + p->columns);
	extents_copy_array(base + p->n_bytes, b->n_bytes, b->n * 4);
	extents_copy_array(base + p->shard, b->shard, b->n * 4);
	extents_copy_array(base + p->content, b->content, h->has_content * b->n * sizeof(*b->content));
	extents_copy_array(base + p->text, b->text.bytes, b->text.n);
	block_seal(base);
}

int extents_build(struct extents_builder *b, struct extents *out)
{
	struct header h = { .block = { .magic = EXTENTS_MAGIC, .version = EXTENTS_VERSION },
			    .n = b->n,
			    .n_text = b->text.n,
			    .n_column_bytes = columns_size(&b->columns),
			    .n_shards = (uint32_t)b->n_shards,
			    .has_content = b->has_content,
			    .has_turned_real = b->has_turned_real };
	struct places p;
	int r = b->n_shards < UINT32_MAX && extents_lay_out(&h, &p) ? 0 : -EFBIG;

	r = r ? r : meter_take(b->meter, p.end);
	out->block = r ? NULL : malloc(p.end);
	r = r ? r : out->block ? 0 : -ENOMEM;
	if (!r) {
		h.block.block_bytes = p.end;
		extents_fill_block(b, out->block, &h, &p);
		r = extents_point_into(out, &h, &p);
	}
	extents_builder_finish(b);
	return r;
}

void extents_builder_finish(struct extents_builder *b)
{
	struct meter *meter = b->meter;

	meter_give(meter, b->shards_capacity * sizeof(*b->shards) + b->at_capacity * sizeof(*b->at) +
				  b->name_capacity * sizeof(*b->name) + b->bytes_capacity * sizeof(*b->n_bytes) +
				  b->shard_capacity * sizeof(*b->shard) + b->content_capacity * sizeof(*b->content) +
				  b->text.capacity);
	columns_builder_finish(&b->columns);
	free(b->shards);
	free(b->at);
	free(b->name);
	free(b->n_bytes);
	free(b->shard);
	free(b->content);
	free(b->text.bytes);
	*b = (struct extents_builder){ 0 };
}

/* ---- reading back ---- */

static bool shards_are_sound(const struct extents *ix, uint64_t n_text)
{
	uint64_t next = 0;

	for (uint32_t i = 0; i < ix->n_shards; i++) {
		const struct extents_shard *s = &ix->shards[i];

		if (s->name >= n_text || s->first_left_out >= n_text || s->reason >= n_text ||
		    s->extensions >= n_text || s->first != next || s->n > ix->n - next || s->lacks_end > 1)
			return false;
		next += s->n;
	}
	return next == ix->n;
}

static bool content_is_sound(const struct extents *ix, uint64_t i)
{
	const struct extent_content *c = ix->content ? &ix->content[i] : NULL;

	return !c || (c->deflated ? c->deflated == 1 : c->n_bytes == ix->n_bytes[i]);
}

static bool samples_are_sound(const struct extents *ix, uint64_t n_text)
{
	for (uint64_t i = 0; i < ix->n; i++) {
		const struct extents_shard *s;

		if (ix->shard[i] >= ix->n_shards || ix->name[i] >= n_text)
			return false;
		s = &ix->shards[ix->shard[i]];
		if (i - s->first >= s->n || ix->n_bytes[i] > s->stamp.n_bytes ||
		    ix->at[i] > s->stamp.n_bytes - ix->n_bytes[i] || !content_is_sound(ix, i))
			return false;
	}
	return true;
}

int extents_parse(void *block, size_t block_bytes, struct extents *out)
{
	struct extents ix = { .block = block };
	struct places p;
	struct header h;

	if (block_bytes < sizeof(h))
		return -EINVAL;
	memcpy(&h, block, sizeof(h));
	if (!block_is_sealed(block, block_bytes, EXTENTS_MAGIC, EXTENTS_VERSION) || !extents_lay_out(&h, &p) ||
	    p.end != block_bytes || !h.n_text || ((char *)block)[block_bytes - 1] ||
	    extents_point_into(&ix, &h, &p) < 0 || !shards_are_sound(&ix, h.n_text) ||
	    !samples_are_sound(&ix, h.n_text))
		return -EINVAL;
	*out = ix;
	return 0;
}

int extents_load(const char *path, struct meter *meter, struct extents *out)
{
	size_t n_bytes;
	void *block;
	int r = block_load(path, EXTENTS_MAGIC, EXTENTS_VERSION, meter, &block, &n_bytes);

	if (r < 0)
		return r;
	r = extents_parse(block, n_bytes, out);
	if (r < 0) {
		meter_give(meter, n_bytes);
		free(block);
	}
	return r;
}

int extents_save(const char *path, const struct extents *ix)
{
	return block_save(path, ix->block, ix->block_bytes);
}
