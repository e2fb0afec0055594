/* See flat.h. */
#include "dataset/arrow/flat.h"

int64_t flat_number(const uint8_t *bytes, unsigned n_bytes)
{
	uint64_t value = 0;
	unsigned shift = 64 - 8 * n_bytes;

	for (unsigned i = n_bytes; i-- > 0;)
		value = value << 8 | bytes[i];
	return (int64_t)(value << shift) >> shift;
}

/* NULL, and the buffer is broken: n bytes do not fit there. */
static const uint8_t *flat_place(struct flat *f, uint64_t at, uint64_t n)
{
	if (f->broken || at > f->n_bytes || n > f->n_bytes - at) {
		f->broken = true;
		return NULL;
	}
	return f->bytes + at;
}

static uint64_t flat_unsigned(struct flat *f, uint64_t at, unsigned n_bytes)
{
	const uint8_t *bytes = flat_place(f, at, n_bytes);

	return !bytes ? 0 : (uint64_t)flat_number(bytes, n_bytes) & (n_bytes == 2 ? 0xffff : 0xffffffff);
}

static struct flat_table flat_table_at(struct flat *f, uint64_t at)
{
	struct flat_table t = { 0 };
	const uint8_t *bytes = flat_place(f, at, 4);
	int64_t slots = bytes ? (int64_t)at - flat_number(bytes, 4) : -1;
	uint64_t n_bytes;

	if (slots < 0) {
		f->broken = true;
		return t;
	}
	n_bytes = flat_unsigned(f, (uint64_t)slots, 2);
	if (n_bytes < 4 || !flat_place(f, (uint64_t)slots, n_bytes)) {
		f->broken = true;
		return t;
	}
	return (struct flat_table){ f, (uint32_t)at, (uint32_t)slots + 4, (uint32_t)(n_bytes - 4) / 2 };
}

struct flat_table flat_root(struct flat *f)
{
	return flat_table_at(f, flat_unsigned(f, 0, 4));
}

/* Where the slot's value is; 0: absent. */
static uint64_t flat_slot(const struct flat_table *t, unsigned slot)
{
	uint64_t offset;

	if (!t->in || t->in->broken || slot >= t->n_slots)
		return 0;
	offset = flat_unsigned(t->in, t->slots + 2 * (uint64_t)slot, 2);
	return offset ? t->at + offset : 0;
}

bool flat_has(const struct flat_table *t, unsigned slot)
{
	return flat_slot(t, slot) != 0;
}

int64_t flat_int(const struct flat_table *t, unsigned slot, unsigned n_bytes, int64_t absent)
{
	uint64_t at = flat_slot(t, slot);
	const uint8_t *bytes = at ? flat_place(t->in, at, n_bytes) : NULL;

	return bytes ? flat_number(bytes, n_bytes) : absent;
}

struct flat_table flat_child(const struct flat_table *t, unsigned slot)
{
	uint64_t at = flat_slot(t, slot);

	return at ? flat_table_at(t->in, at + flat_unsigned(t->in, at, 4)) : (struct flat_table){ 0 };
}

struct flat_vector flat_vector(const struct flat_table *t, unsigned slot, unsigned item_bytes)
{
	uint64_t at = flat_slot(t, slot), n;
	struct flat_vector v = { 0 };

	if (!at)
		return v;
	at += flat_unsigned(t->in, at, 4);
	n = flat_unsigned(t->in, at, 4);
	v.items = flat_place(t->in, at + 4, n * item_bytes);
	if (v.items) {
		v.at = (uint32_t)at + 4;
		v.n = (uint32_t)n;
	}
	return v;
}

struct flat_table flat_item(const struct flat_table *t, const struct flat_vector *v, uint32_t i)
{
	uint64_t at = v->at + 4 * (uint64_t)i;

	return flat_table_at(t->in, at + flat_unsigned(t->in, at, 4));
}

struct flat_vector flat_string(const struct flat_table *t, unsigned slot)
{
	return flat_vector(t, slot, 1);
}
