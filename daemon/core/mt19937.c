/* MT19937 (Matsumoto and Nishimura, 1998), written so that the compiler vectorises it: a block of 624 words is renewed in loops whose
 * iterations are at least 227 apart, and tempered in one more. A shuffle of a million samples needs a million draws on the way to the
 * first batch, so the block matters; the odd corner is torch's own, a second kind of draw for very large n. */
#include "core/mt19937.h"

enum { M = 397 };

void mt19937_init(struct mt19937 *mt, uint64_t seed)
{
	mt->state[0] = (uint32_t)seed;
	for (uint32_t j = 1; j < MT19937_N; j++) {
		mt->state[j] = 1812433253u * (mt->state[j - 1] ^ (mt->state[j - 1] >> 30)) + j;
	}
	mt->next = MT19937_N;
}

static inline uint32_t twist(uint32_t u, uint32_t v)
{
	return (((u & 0x80000000u) | (v & 0x7fffffffu)) >> 1) ^ (-(v & 1u) & 0x9908b0dfu);
}

static void renew(uint32_t *restrict s)
{
	for (int j = 0; j < MT19937_N - M; j++) {
		s[j] = s[j + M] ^ twist(s[j], s[j + 1]);
	}
	for (int j = MT19937_N - M; j < MT19937_N - 1; j++) {
		s[j] = s[j + M - MT19937_N] ^ twist(s[j], s[j + 1]);
	}
	s[MT19937_N - 1] = s[M - 1] ^ twist(s[MT19937_N - 1], s[0]);
}

static inline uint32_t temper(uint32_t y)
{
	y ^= y >> 11;
	y ^= (y << 7) & 0x9d2c5680u;
	y ^= (y << 15) & 0xefc60000u;
	return y ^ (y >> 18);
}

void mt19937_block(struct mt19937 *mt, uint32_t out[MT19937_N])
{
	renew(mt->state);
	for (int j = 0; j < MT19937_N; j++) {
		out[j] = temper(mt->state[j]);
	}
	mt->next = MT19937_N;
}

uint32_t mt19937_next(struct mt19937 *mt)
{
	if (mt->next == MT19937_N) {
		renew(mt->state);
		mt->next = 0;
	}
	return temper(mt->state[mt->next++]);
}

uint64_t randperm_draw(struct mt19937 *mt, uint64_t n, uint64_t i)
{
	uint64_t draw = mt19937_next(mt);

	if (n >= RANDPERM_WIDE_FROM) {
		draw = draw << 32 | mt19937_next(mt);
	}
	return draw % (n - i);
}
