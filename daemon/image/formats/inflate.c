/* See inflate.h.
 *
 * A code is decoded by one look-up in a first table of 11 (8) bits, or two for a longer code: its entry then names a
 * second table for the rest of the bits. An entry has everything that the decoder needs:
 *
 *     bits 0..7    bits to consume: of the code in this table, and the extra bits of a length or distance
 *     bits 8..14   bits of the code in this table alone, where there may be extra bits; size of the second table
 *     bit 15       exceptional: a second table, the end of the block, or an invalid code
 *     bits 16..30  literal, base of the length or distance, or start of the second table
 *     bit 31       literal
 *
 * The stream is padded, so that a refill is one unaligned load; what was consumed is compared with the end after every
 * few symbols. Copies are done by whole words that may write beyond the copied bytes, into the slack. */
#include "image/formats/inflate.h"

#include <string.h>

#define LITERAL UINT32_C(0x80000000)

enum {
	EXCEPTIONAL = 0x8000,
	SECOND_TABLE = 0x4000 | EXCEPTIONAL,
	END_OF_BLOCK = 0x2000 | EXCEPTIONAL,
	INVALID = 0x1000 | EXCEPTIONAL,
	MAX_BITS = 15,
	N_LITERALS = 288,
	N_DISTANCES = 32,
	N_PRECODE = 19,
	PRECODE_BITS = 7,
	/* A block costs the making of its tables, whether it has any bytes or not. */
	SPARE_BLOCKS = 1000,
	BLOCK_LEAST_BYTES = 64,
};

/* ---- bits ---- */

static inline uint64_t inflate_load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

/* The state in registers. */
struct window {
	const uint8_t *next;
	uint64_t bits;
	unsigned n;
};

/* Leaves at least 56 bits. Bits above w->n are those of the byte at w->next: another refill gives the same. */
static inline void inflate_refill(struct window *w)
{
	w->bits |= inflate_load64(w->next) << w->n;
	w->next += (63 - w->n) >> 3;
	w->n |= 56;
}

static inline void inflate_consume(struct window *w, unsigned n)
{
	w->bits >>= n & 63;
	w->n -= n & 63;
}

/* The next n bits, at most 16. */
static inline uint32_t inflate_take(struct window *w, unsigned n)
{
	inflate_refill(w);
	uint32_t v = (uint32_t)w->bits & ((1u << n) - 1);
	inflate_consume(w, n);
	return v;
}

/* More bits were consumed than the stream has. */
static inline bool inflate_is_over(const struct window *w, const uint8_t *end)
{
	return w->next - (w->n >> 3) > end;
}

/* ---- tables ---- */

static uint32_t inflate_reverse(uint32_t code, unsigned n)
{
	uint32_t r = 0;

	for (unsigned i = 0; i < n; i++)
		r |= (code >> i & 1) << (n - 1 - i);
	return r;
}

/* The codes of one alphabet, and what each of its symbols decodes to: an entry without the numbers of bits, and the
 * symbol's extra bits. */
struct alphabet {
	const uint8_t *length_of;
	unsigned n, first_bits, room;
	uint32_t (*entry_of)(unsigned symbol, unsigned *extra);
};

static uint32_t entry_with(const struct alphabet *a, unsigned symbol, unsigned n_bits)
{
	unsigned extra = 0;
	uint32_t e = a->entry_of(symbol, &extra);

	return e & EXCEPTIONAL ? e | n_bits : e | n_bits << 8 | (n_bits + extra);
}

/* The size of the second table for the codes from sorted[at] on that begin alike: as many bits as the longest needs. */
static unsigned second_bits(const uint16_t count[MAX_BITS + 1], unsigned length, unsigned first_bits)
{
	unsigned n = length - first_bits, room = count[length];

	while (room < 1u << n) {
		if (++n + first_bits > MAX_BITS)
			return MAX_BITS - first_bits;
		room = (room << 1) + count[n + first_bits];
	}
	return n;
}

/* Returns false for a code that is neither complete nor, where `single` allows it, empty or of one symbol. */
static bool inflate_build(uint32_t *table, const struct alphabet *a, bool single)
{
	uint16_t count[MAX_BITS + 1] = { 0 }, at[MAX_BITS + 2] = { 0 }, sorted[N_LITERALS];
	const unsigned first_size = 1u << a->first_bits;
	int32_t open = 1;

	for (unsigned i = 0; i < a->n; i++)
		count[a->length_of[i]]++;
	const unsigned n_used = a->n - count[0];
	count[0] = 0;
	for (unsigned length = 1; length <= MAX_BITS; length++) {
		open = 2 * open - count[length];
		if (open < 0)
			return false;
		at[length + 1] = (uint16_t)(at[length] + count[length]);
	}
	if (open > 0 && !(single && (n_used == 0 || (n_used == 1 && count[1] == 1))))
		return false;
	for (unsigned i = 0; i < first_size && open > 0; i++)
		table[i] = INVALID;
	for (unsigned i = 0; i < a->n; i++)
		if (a->length_of[i])
			sorted[at[a->length_of[i]]++] = (uint16_t)i;

	uint32_t code = 0, end = first_size, start = 0, prefix = UINT32_MAX;
	unsigned next = 0, second = 0;
	for (unsigned length = 1; length <= MAX_BITS; length++, code <<= 1)
		for (unsigned left = count[length]; left > 0; left--, count[length]--, code++) {
			uint32_t key = inflate_reverse(code, length);

			if (length <= a->first_bits) {
				uint32_t e = entry_with(a, sorted[next++], length);

				for (uint32_t i = key; i < first_size; i += 1u << length)
					table[i] = e;
				continue;
			}
			if ((key & (first_size - 1)) != prefix) {
				prefix = key & (first_size - 1);
				second = second_bits(count, length, a->first_bits);
				start = end;
				end += 1u << second;
				if (end > a->room)
					return false;
				table[prefix] = SECOND_TABLE | start << 16 | second << 8 | a->first_bits;
			}
			uint32_t e = entry_with(a, sorted[next++], length - a->first_bits);
			for (uint32_t i = key >> a->first_bits; i < 1u << second; i += 1u << (length - a->first_bits))
				table[start + i] = e;
		}
	return true;
}

static uint32_t literal_entry(unsigned symbol, unsigned *extra)
{
	static const uint16_t base[] = { 3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
					 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258 };
	static const uint8_t bits[] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
					2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0 };

	if (symbol < 256)
		return LITERAL | symbol << 16;
	if (symbol == 256)
		return END_OF_BLOCK;
	if (symbol > 285)
		return INVALID;
	*extra = bits[symbol - 257];
	return (uint32_t)base[symbol - 257] << 16;
}

static uint32_t distance_entry(unsigned symbol, unsigned *extra)
{
	static const uint16_t base[] = { 1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
					 33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
					 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577 };

	if (symbol > 29)
		return INVALID;
	*extra = symbol < 4 ? 0 : symbol / 2 - 1;
	return (uint32_t)base[symbol] << 16;
}

static uint32_t precode_entry(unsigned symbol, unsigned *extra)
{
	(void)extra;
	return symbol << 16;
}

static bool build_codes(struct inflate *s, const uint8_t *lengths, unsigned n_literals, unsigned n_distances)
{
	struct alphabet literals = { lengths, n_literals, INFLATE_LITERAL_BITS, INFLATE_LITERAL_ENTRIES,
				     literal_entry };
	struct alphabet distances = { lengths + n_literals, n_distances, INFLATE_DISTANCE_BITS,
				      INFLATE_DISTANCE_ENTRIES, distance_entry };

	return lengths[256] && inflate_build(s->literal, &literals, false) &&
	       inflate_build(s->distance, &distances, true);
}

static bool fixed_codes(struct inflate *s)
{
	uint8_t lengths[N_LITERALS + N_DISTANCES];

	memset(lengths, 8, 144);
	memset(lengths + 144, 9, 112);
	memset(lengths + 256, 7, 24);
	memset(lengths + 280, 8, 8);
	memset(lengths + N_LITERALS, 5, N_DISTANCES);
	return build_codes(s, lengths, N_LITERALS, N_DISTANCES);
}

static bool inflate_read_lengths(struct window *w, const uint8_t *end, const uint32_t *table, uint8_t *lengths,
				 unsigned n)
{
	for (unsigned at = 0; at < n && !inflate_is_over(w, end);) {
		inflate_refill(w);
		uint32_t e = table[w->bits & ((1u << PRECODE_BITS) - 1)], symbol = e >> 16, repeat = 1;
		uint8_t length = (uint8_t)symbol;

		inflate_consume(w, e & 0xff);
		if (symbol >= 16) {
			length = symbol == 16 && at > 0 ? lengths[at - 1] : 0;
			if (symbol == 16 && at == 0)
				return false;
			repeat = symbol == 16   ? 3 + inflate_take(w, 2)
				 : symbol == 17 ? 3 + inflate_take(w, 3)
						: 11 + inflate_take(w, 7);
		}
		if (repeat > n - at)
			return false;
		memset(lengths + at, length, repeat);
		at += repeat;
	}
	return !inflate_is_over(w, end);
}

static bool dynamic_codes(struct inflate *s, struct window *w)
{
	static const uint8_t order[N_PRECODE] = { 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15 };
	uint8_t lengths[N_LITERALS + N_DISTANCES], of_lengths[N_PRECODE] = { 0 };
	uint32_t table[1 << PRECODE_BITS];
	unsigned n_literals = 257 + inflate_take(w, 5), n_distances = 1 + inflate_take(w, 5),
		 n_precode = 4 + inflate_take(w, 4);
	struct alphabet precode = { of_lengths, N_PRECODE, PRECODE_BITS, 1 << PRECODE_BITS, precode_entry };

	if (n_literals > 286 || n_distances > 30)
		return false;
	for (unsigned i = 0; i < n_precode; i++)
		of_lengths[order[i]] = (uint8_t)inflate_take(w, 3);
	return inflate_build(table, &precode, false) &&
	       inflate_read_lengths(w, s->end, table, lengths, n_literals + n_distances) &&
	       build_codes(s, lengths, n_literals, n_distances);
}

/* ---- blocks ---- */

static bool begin_stored(struct inflate *s, struct window *w)
{
	w->next -= w->n / 8;
	w->bits = 0;
	w->n = 0;
	if (s->end - w->next < 4)
		return false;
	uint32_t n = w->next[0] | (uint32_t)w->next[1] << 8, check = w->next[2] | (uint32_t)w->next[3] << 8;

	w->next += 4;
	s->stored = n;
	s->state = INFLATE_IN_STORED;
	return n == (~check & 0xffff);
}

static bool begin_block(struct inflate *s, struct window *w)
{
	if (s->last) {
		s->state = INFLATE_AT_END;
		return true;
	}
	if (s->n_blocks++ > SPARE_BLOCKS + s->n_out / BLOCK_LEAST_BYTES)
		return false;
	s->last = inflate_take(w, 1);
	s->state = INFLATE_IN_CODES;
	switch (inflate_take(w, 2)) {
	case 0:
		return begin_stored(s, w);
	case 1:
		return fixed_codes(s);
	case 2:
		return dynamic_codes(s, w);
	default:
		return false;
	}
}

static bool copy_stored(struct inflate *s, struct window *w, uint8_t **out, const uint8_t *limit)
{
	size_t n = s->stored, room = (size_t)(limit - *out);

	n = n < room ? n : room;
	if ((size_t)(s->end - w->next) < n)
		return false;
	memcpy(*out, w->next, n);
	*out += n;
	w->next += n;
	s->stored -= (uint32_t)n;
	if (s->stored == 0)
		s->state = INFLATE_AT_BLOCK;
	return true;
}

/* Copies `length` bytes from `distance` before, and writes up to 31 more. */
static inline void copy_match(uint8_t *out, uint32_t distance, uint32_t length)
{
	const uint8_t *from = out - distance, *end = out + length;

	if (__builtin_expect(distance >= 16, 1)) {
		do {
			memcpy(out, from, 16);
			out += 16;
			from += 16;
		} while (out < end);
	} else if (distance == 1) {
		memset(out, *from, length);
	} else {
		do
			*out++ = *from++;
		while (out < end);
	}
}

/* What an entry of a length or distance stands for, with its extra bits; consumes them. */
static inline uint32_t inflate_value(struct window *w, uint32_t e)
{
	uint32_t n_code = e >> 8 & 0x1f, n_all = e & 0xff;
	uint32_t v = (e >> 16) + (uint32_t)(w->bits >> n_code & ((1u << (n_all - n_code)) - 1));

	inflate_consume(w, n_all);
	return v;
}

/* The entry of a code that is longer than its first table; consumes the first table's bits. */
static inline uint32_t second_entry(struct window *w, const uint32_t *table, uint32_t e)
{
	inflate_consume(w, e & 0xff);
	return table[(e >> 16) + (w->bits & ((1u << (e >> 8 & 0xf)) - 1))];
}

/* Takes a literal whose entry is e. Returns the next entry. */
static inline uint32_t take_literal(struct window *w, const uint32_t *table, uint32_t e, uint8_t *out)
{
	inflate_consume(w, e & 0xff);
	*out = (uint8_t)(e >> 16);
	return table[w->bits & ((1u << INFLATE_LITERAL_BITS) - 1)];
}

/* Returns false for invalid codes and distances. Each turn is up to five literals, or up to four and a match. A refill
 * is enough for five literals in the first table, or for a length and a distance. */
static inline __attribute__((always_inline)) bool run_codes(struct inflate *s, struct window *window, uint8_t **to,
							    const uint8_t *limit)
{
	const uint32_t *literal = s->literal, *distances = s->distance;
	const uint8_t *end = s->end;
	struct window w = *window;
	uint8_t *const from = *to, *out = from;
	bool sound = true;

	while (out < limit && !inflate_is_over(&w, end)) {
		inflate_refill(&w);
		uint32_t e = literal[w.bits & ((1u << INFLATE_LITERAL_BITS) - 1)];

		if (e & LITERAL) {
			e = take_literal(&w, literal, e, out++);
			if (e & LITERAL) {
				e = take_literal(&w, literal, e, out++);
				if (e & LITERAL) {
					e = take_literal(&w, literal, e, out++);
					if (e & LITERAL) {
						e = take_literal(&w, literal, e, out++);
						if (e & LITERAL) {
							inflate_consume(&w, e & 0xff);
							*out++ = (uint8_t)(e >> 16);
							continue;
						}
					}
				}
			}
			inflate_refill(&w);
		}
		if (e & EXCEPTIONAL) { /* a literal has no such bits */
			if ((e & SECOND_TABLE) == SECOND_TABLE) {
				e = second_entry(&w, literal, e);
				if (e & LITERAL) {
					inflate_consume(&w, e & 0xff);
					*out++ = (uint8_t)(e >> 16);
					continue;
				}
			}
			if (e & EXCEPTIONAL) {
				sound = (e & END_OF_BLOCK) == END_OF_BLOCK;
				inflate_consume(&w, e & 0xff);
				s->state = INFLATE_AT_BLOCK;
				break;
			}
		}
		uint32_t length = inflate_value(&w, e);

		e = distances[w.bits & ((1u << INFLATE_DISTANCE_BITS) - 1)];
		if (e & EXCEPTIONAL) {
			if ((e & SECOND_TABLE) == SECOND_TABLE)
				e = second_entry(&w, distances, e);
			if (e & EXCEPTIONAL) {
				sound = false;
				break;
			}
		}
		uint32_t distance = inflate_value(&w, e);

		if (distance > s->n_out + (size_t)(out - from)) {
			sound = false;
			break;
		}
		copy_match(out, distance, length);
		out += length;
	}
	*window = w;
	*to = out;
	return sound && !inflate_is_over(&w, end);
}

static bool run_codes_plain(struct inflate *s, struct window *w, uint8_t **to, const uint8_t *limit)
{
	return run_codes(s, w, to, limit);
}

/* The same with BMI2's shifts, which need no fixed register. */
#if defined(__x86_64__)
__attribute__((target("bmi,bmi2"))) static bool run_codes_bmi2(struct inflate *s, struct window *w, uint8_t **to,
							       const uint8_t *limit)
{
	return run_codes(s, w, to, limit);
}
#endif

static bool (*run_codes_best(bool plain))(struct inflate *, struct window *, uint8_t **, const uint8_t *)
{
	(void)plain;
#if defined(__x86_64__)
	if (!plain && __builtin_cpu_supports("bmi2"))
		return run_codes_bmi2;
#endif
	return run_codes_plain;
}

enum inflate_outcome inflate_begin(struct inflate *s, const uint8_t *stream, size_t n)
{
	s->next = stream + 2;
	s->end = stream + n;
	s->bits = 0;
	s->n_bits = 0;
	s->state = INFLATE_AT_BLOCK;
	s->last = false;
	s->n_out = 0;
	s->n_blocks = 0;
	s->plain = false;
	/* Deflate, a window that exists, no dictionary, and the header's own check. */
	if (n < 2 || (stream[0] & 0x0f) != 8 || stream[0] >> 4 > 7 || (stream[1] & 0x20) ||
	    ((uint32_t)stream[0] << 8 | stream[1]) % 31 != 0)
		return INFLATE_UNSURE;
	return INFLATE_MORE;
}

enum inflate_outcome inflate_run(struct inflate *s, uint8_t **out, uint8_t *limit)
{
	struct window w = { s->next, s->bits, s->n_bits };
	bool sound = true;

	while (sound && *out < limit && s->state != INFLATE_AT_END) {
		uint8_t *before = *out;

		if (s->state == INFLATE_AT_BLOCK)
			sound = begin_block(s, &w) && !inflate_is_over(&w, s->end);
		else if (s->state == INFLATE_IN_STORED)
			sound = copy_stored(s, &w, out, limit);
		else
			sound = run_codes_best(s->plain)(s, &w, out, limit);
		s->n_out += (size_t)(*out - before);
	}
	s->next = w.next;
	s->bits = w.bits;
	s->n_bits = w.n;
	if (!sound)
		return INFLATE_UNSURE;
	return s->state == INFLATE_AT_END && *out < limit ? INFLATE_END : INFLATE_MORE;
}

bool inflate_checksum_is(const struct inflate *s, uint32_t adler)
{
	const uint8_t *p = s->next - s->n_bits / 8;

	return s->end - p >= 4 && ((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]) == adler;
}
