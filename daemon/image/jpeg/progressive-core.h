/* The loops of a progressive scan. A .c file per instruction set includes this, after setting what entropy-core.h names
 * and, where there is one, BIT_DEPOSIT(source, mask), and wraps scan_decode in a function of its target. */
#ifndef BATCHD_PROGRESSIVE_CORE_H
#define BATCHD_PROGRESSIVE_CORE_H

#include "image/jpeg/entropy-core.h"
#include "image/jpeg/progressive-scan.h"
#include "image/jpeg/scan.h"

#define ALWAYS_INLINE ENTROPY_TARGET static inline __attribute__((always_inline))

/* ---- blocks ---- */

ALWAYS_INLINE uint64_t bits_between(uint32_t from, uint32_t to)
{
	return (~UINT64_C(0) >> (63 - to)) & (~UINT64_C(0) << from);
}

ALWAYS_INLINE uint32_t take_bits(struct entropy_state *s, uint32_t n)
{
	refill(s);
	uint32_t v = n ? (uint32_t)(s->window >> (64 - n)) : 0;

	consume(s, n);
	return v;
}

/* The next code's symbol, or -1. Leaves at least 40 bits. */
ALWAYS_INLINE int take_symbol(struct entropy_state *s, const struct ac_table *t)
{
	refill(s);
	uint32_t at = (uint32_t)(s->window >> (64 - PROGRESSIVE_AC_BITS)), length = t->code[at].length;
	int symbol = t->code[at].symbol;

	if (length == 0)
		symbol = code_slow(s->window, &t->codes, &length);
	consume(s, length);
	return symbol;
}

ALWAYS_INLINE bool dc_first(struct scan_run *r, uint32_t i, int16_t *values)
{
	int32_t *predictor = &r->state.dc[i];

	refill(&r->state);
	if (dc_decode(&r->state, r->dc[i], predictor) < 0)
		return false;
	int32_t v = (int32_t)((uint32_t)*predictor << r->scan.low);
	values[0] = (int16_t)v;
	return values[0] == v;
}

ENTROPY_TARGET static bool ac_first(struct scan_run *r, int16_t *values, uint64_t *mask)
{
	const struct ac_table *t = r->ac;
	struct entropy_state s = r->state;
	const uint32_t to = r->scan.to, low = r->scan.low;

	if (r->end_run > 0) {
		r->end_run--;
		return true;
	}
	for (uint32_t k = r->scan.from; k <= to; k++) {
		refill(&s);
		uint32_t at = (uint32_t)(s.window >> (64 - PROGRESSIVE_AC_BITS));

		if (t->fast[at].length) {
			k += t->fast[at].run;
			if (k > to)
				return false;
			values[k] = (int16_t)((uint32_t)t->fast[at].value << low);
			*mask |= UINT64_C(1) << k;
			consume(&s, t->fast[at].length);
			continue;
		}
		int symbol = take_symbol(&s, t);
		if (symbol < 0)
			return false;
		uint32_t run = (uint32_t)symbol >> 4, size = (uint32_t)symbol & 15;
		if (size > 0) {
			k += run;
			if (k > to)
				return false;
			int32_t v = value_at(s.window, size, size);
			consume(&s, size);
			values[k] = (int16_t)((uint32_t)v << low);
			*mask |= UINT64_C(1) << k;
		} else if (run == 15) {
			k += 15;
		} else {
			r->end_run = (1u << run) - 1 + take_bits(&s, run);
			break;
		}
	}
	r->state = s;
	return true;
}

/* Takes one more bit for each of the coefficients in `set`, from the lowest on. Returns those for which it is one. */
ALWAYS_INLINE uint64_t corrections(struct entropy_state *s, uint64_t set)
{
	uint64_t ones = 0;

#ifdef BIT_DEPOSIT
	uint32_t n = (uint32_t)__builtin_popcountll(set);
	if (__builtin_expect(n <= 32, 1)) {
		refill(s);
		uint64_t v = __builtin_bswap64(s->window); /* the first bit becomes the lowest */

		consume(s, n);
		v = (v >> 4 & 0x0f0f0f0f0f0f0f0f) | (v & 0x0f0f0f0f0f0f0f0f) << 4;
		v = (v >> 2 & 0x3333333333333333) | (v & 0x3333333333333333) << 2;
		v = (v >> 1 & 0x5555555555555555) | (v & 0x5555555555555555) << 1;
		return BIT_DEPOSIT(v, set);
	}
#endif
	for (; set; set &= set - 1)
		if (take_bits(s, 1))
			ones |= set & -set;
	return ones;
}

/* Adds `bit` to the size of the coefficients in `set`. Earlier scans left it zero. */
ALWAYS_INLINE void enlarge(int16_t *values, uint64_t set, int32_t bit)
{
#ifdef BIT_DEPOSIT
	const __m256i place =
		_mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, INT16_MIN);
	const __m256i add = _mm256_set1_epi16((int16_t)bit);

	for (; set; set >>= 16, values += 16) {
		__m256i v = _mm256_loadu_si256((const __m256i *)values);
		__m256i in = _mm256_and_si256(_mm256_set1_epi16((int16_t)set), place);

		in = _mm256_and_si256(_mm256_cmpeq_epi16(in, place), add);
		_mm256_storeu_si256((__m256i *)values, _mm256_add_epi16(v, _mm256_sign_epi16(in, v)));
	}
#else
	for (; set; set &= set - 1) {
		int16_t *v = &values[__builtin_ctzll(set)];

		*v = (int16_t)(*v >= 0 ? *v + bit : *v - bit);
	}
#endif
}

/* The set bit after n others, or 0. */
ALWAYS_INLINE uint64_t bit_number(uint64_t set, uint32_t n)
{
#ifdef BIT_DEPOSIT
	return BIT_DEPOSIT(UINT64_C(1) << n, set);
#else
	for (; n > 0 && set; n--)
		set &= set - 1;
	return set & -set;
#endif
}

ENTROPY_TARGET static bool ac_refine(struct scan_run *r, int16_t *values, uint64_t *mask)
{
	struct entropy_state s = r->state;
	const int32_t bit = 1 << r->scan.low;
	const uint32_t to = r->scan.to;
	uint32_t k = r->scan.from;
	uint64_t larger = 0;

	while (r->end_run == 0 && k <= to) {
		int symbol = take_symbol(&s, r->ac);
		if (symbol < 0)
			return false;
		uint32_t run = (uint32_t)symbol >> 4, size = (uint32_t)symbol & 15, sign = 0;

		if (size > 1)
			return false;
		if (size == 1) {
			sign = (uint32_t)(s.window >> 63);
			consume(&s, 1);
		} else if (run < 15) {
			r->end_run = (1u << run) + take_bits(&s, run);
			break;
		}
		/* The place after `run` zeros; the coefficients on the way there are refined. */
		uint64_t zeros = ~*mask & bits_between(k, to);
		zeros = bit_number(zeros, run);
		if (!zeros && size == 1)
			return false;
		uint32_t place = zeros ? (uint32_t)__builtin_ctzll(zeros) : to + 1;

		if (place > k)
			larger |= corrections(&s, *mask & bits_between(k, place - 1));
		if (size == 1) {
			values[place] = (int16_t)(sign ? bit : -bit);
			*mask |= UINT64_C(1) << place;
		}
		k = place + 1;
	}
	if (r->end_run > 0) {
		if (k <= to)
			larger |= corrections(&s, *mask & bits_between(k, to));
		r->end_run--;
	}
	enlarge(values, larger, bit);
	r->state = s;
	return true;
}

ALWAYS_INLINE bool decode_block(struct scan_run *r, uint32_t i, size_t block)
{
	int16_t *values = (int16_t *)(void *)r->p->values.data + block * DCTSIZE2;
	uint64_t *mask = (uint64_t *)(void *)r->p->masks.data + block;
	bool sound = true;

	if (r->scan.from > 0)
		sound = r->scan.high ? ac_refine(r, values, mask) : ac_first(r, values, mask);
	else if (r->scan.high == 0)
		sound = dc_first(r, i, values);
	else if (take_bits(&r->state, 1))
		values[0] = (int16_t)(values[0] | 1 << r->scan.low);
	return sound && (r->interval_end - r->state.next) * 8 + (int64_t)r->state.n_bits >= 0;
}

/* ---- a scan ---- */

ALWAYS_INLINE void begin_interval(struct scan_run *r, uint32_t interval)
{
	const uint32_t *starts = (const uint32_t *)(const void *)r->p->starts.data;
	const uint8_t *stream = r->p->stream.data;

	entropy_seek(&r->state, stream, (uint64_t)starts[interval] * 8);
	memset(r->state.dc, 0, sizeof(r->state.dc));
	r->interval_end = stream + starts[interval + 1];
	r->end_run = 0;
}

/* The blocks of an MCU: one if the scan has one component. */
ALWAYS_INLINE bool decode_mcu(struct scan_run *r, uint32_t x, uint32_t y)
{
	const struct scan_header *h = &r->scan;

	if (h->n_components == 1) {
		const struct progressive_component *c = &r->p->frame.component[h->component[0]];

		return decode_block(r, 0, c->first_block + (size_t)y * c->stride + x);
	}
	for (uint32_t i = 0; i < h->n_components; i++) {
		const struct progressive_component *c = &r->p->frame.component[h->component[i]];

		for (uint32_t b = 0; b < c->h * c->v; b++)
			if (!decode_block(r, i,
					  c->first_block + (size_t)(y * c->v + b / c->h) * c->stride + x * c->h +
						  b % c->h))
				return false;
	}
	return true;
}

ALWAYS_INLINE int scan_decode(struct scan_run *r, uint32_t columns, uint32_t needed)
{
	const struct progressive_component *c = &r->p->frame.component[r->scan.component[0]];
	uint32_t in_interval = 0, interval = 0, px = columns * DCTSIZE2;

	px *= r->scan.n_components > 1 ? c->h * c->v : 1;
	begin_interval(r, 0);
	for (uint32_t y = 0; y < needed; y++) {
		if (!cpu_budget_spend(r->budget, px))
			return SCAN_E_UNSURE;
		for (uint32_t x = 0; x < columns; x++) {
			if (r->restart_interval && in_interval++ == r->restart_interval) {
				begin_interval(r, ++interval);
				in_interval = 1;
			}
			if (!decode_mcu(r, x, y))
				return SCAN_E_UNSURE;
		}
	}
	return 0;
}

#undef ALWAYS_INLINE

#endif
