/* MT19937 (Matsumoto and Nishimura, 1998), written so that the compiler vectorises it: a block of 624 words is renewed
 * in loops whose dependent iterations are at least 227 apart, and tempered in another loop. A shuffle of a million
 * samples needs a million draws before the first batch, so the block matters. The odd corner is torch's own: another
 * shuffle with wider draws for very large n. */
#include "batch/plan/mt19937.h"

enum { M = 397 };

void mt19937_init(struct mt19937 *mt, uint64_t seed)
{
	mt->state[0] = (uint32_t)seed;
	for (uint32_t j = 1; j < MT19937_N; j++)
		mt->state[j] = 1812433253u * (mt->state[j - 1] ^ (mt->state[j - 1] >> 30)) + j;
}

static inline uint32_t mt19937_twist(uint32_t u, uint32_t v)
{
	return (((u & 0x80000000u) | (v & 0x7fffffffu)) >> 1) ^ (-(v & 1u) & 0x9908b0dfu);
}

static void mt19937_renew(uint32_t *restrict s)
{
	for (int j = 0; j < MT19937_N - M; j++)
		s[j] = s[j + M] ^ mt19937_twist(s[j], s[j + 1]);
	for (int j = MT19937_N - M; j < MT19937_N - 1; j++)
		s[j] = s[j + M - MT19937_N] ^ mt19937_twist(s[j], s[j + 1]);
	s[MT19937_N - 1] = s[M - 1] ^ mt19937_twist(s[MT19937_N - 1], s[0]);
}

static inline uint32_t mt19937_temper(uint32_t y)
{
	y ^= y >> 11;
	y ^= (y << 7) & 0x9d2c5680u;
	y ^= (y << 15) & 0xefc60000u;
	return y ^ (y >> 18);
}

void mt19937_block(struct mt19937 *mt, uint32_t out[MT19937_N])
{
	mt19937_renew(mt->state);
	for (int j = 0; j < MT19937_N; j++)
		out[j] = mt19937_temper(mt->state[j]);
}

/* The shuffles below compute a block's partners, and prefetch their cache lines, before the swaps that need them: each
 * partner is a random place in an array larger than the caches. */
void randperm_narrow(struct mt19937 *mt, uint32_t *order, uint32_t n)
{
	uint32_t draws[MT19937_N];

	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	for (uint32_t begin = 0; begin + 1 < n; begin += MT19937_N) {
		uint32_t n_block = n - 1 - begin < MT19937_N ? n - 1 - begin : MT19937_N;

		mt19937_block(mt, draws);
		for (uint32_t k = 0; k < n_block; k++) {
			draws[k] = begin + k + draws[k] % (n - begin - k);
			__builtin_prefetch(&order[draws[k]], 1);
		}
		for (uint32_t k = 0; k < n_block; k++) {
			uint32_t t = order[begin + k];

			order[begin + k] = order[draws[k]];
			order[draws[k]] = t;
		}
	}
}

enum { N_WIDE = MT19937_N / 2 };

/* Partners for elements begin .. begin + N_WIDE - 1: any place up to the element's own, by the "inside-out" shuffle. */
static void wide_block(struct mt19937 *mt, uint64_t begin, uint64_t partners[N_WIDE])
{
	uint32_t draws[MT19937_N];

	mt19937_block(mt, draws);
	for (unsigned k = 0; k < N_WIDE; k++)
		partners[k] = ((uint64_t)draws[2 * k] << 32 | draws[2 * k + 1]) % (begin + k + 1);
}

void randperm_wide32(struct mt19937 *mt, uint32_t *order, uint64_t n)
{
	uint64_t partners[N_WIDE];

	for (uint64_t begin = 0; begin < n; begin += N_WIDE) {
		uint64_t n_block = n - begin < N_WIDE ? n - begin : N_WIDE;

		wide_block(mt, begin, partners);
		for (uint64_t k = 0; k < n_block; k++)
			__builtin_prefetch(&order[partners[k]], 1);
		for (uint64_t k = 0; k < n_block; k++) {
			order[begin + k] = (uint32_t)(begin + k); /* may be its own partner */
			order[begin + k] = order[partners[k]];
			order[partners[k]] = (uint32_t)(begin + k);
		}
	}
}

void randperm_wide64(struct mt19937 *mt, uint64_t *order, uint64_t n)
{
	uint64_t partners[N_WIDE];

	for (uint64_t begin = 0; begin < n; begin += N_WIDE) {
		uint64_t n_block = n - begin < N_WIDE ? n - begin : N_WIDE;

		wide_block(mt, begin, partners);
		for (uint64_t k = 0; k < n_block; k++)
			__builtin_prefetch(&order[partners[k]], 1);
		for (uint64_t k = 0; k < n_block; k++) {
			order[begin + k] = begin + k;
			order[begin + k] = order[partners[k]];
			order[partners[k]] = begin + k;
		}
	}
}
