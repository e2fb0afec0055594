/* The AVX-512 path of color_hue (with VBMI): 32 pixels at a time, by hue-avx2.c's calculation in whole numbers of 16
 * bits.
 *
 * A division by a byte is a product with its reciprocal in 65536ths, rounded down, which makes the quotient at most one
 * too small; its rest says whether. color.c's floats differ from exact numbers only where a hue is a whole number of
 * 255ths: rounding errors make some of these a step less, always the same ones. A test tries every colour. */
#if defined(__x86_64__)
#include "image/kernels/hue-paths.h"

#include <immintrin.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { PX_AT_ONCE = 32, SIXTH = 85 }; /* a sixth of the circle, in 510ths of it */

#define WORDS(n) _mm512_set1_epi16((short)(n))

/* 65536 / n, rounded down; 65535 for 0 and 1. */
#define RECIPROCAL(n) ((n) < 2 ? 65535u : 65536u / ((n) + !(n)))
#define LOW(n) (uint8_t)(RECIPROCAL(n) & 255)
#define HIGH(n) (uint8_t)(RECIPROCAL(n) >> 8)
#define FOUR(f, n) f(n), f((n) + 1), f((n) + 2), f((n) + 3)
#define SIXTEEN(f, n) FOUR(f, n), FOUR(f, (n) + 4), FOUR(f, (n) + 8), FOUR(f, (n) + 12)
#define SIXTY_FOUR(f, n) SIXTEEN(f, n), SIXTEEN(f, (n) + 16), SIXTEEN(f, (n) + 32), SIXTEEN(f, (n) + 48)
static const uint8_t reciprocal_low[256] = { SIXTY_FOUR(LOW, 0), SIXTY_FOUR(LOW, 64), SIXTY_FOUR(LOW, 128),
					     SIXTY_FOUR(LOW, 192) };
static const uint8_t reciprocal_high[256] = { SIXTY_FOUR(HIGH, 0), SIXTY_FOUR(HIGH, 64), SIXTY_FOUR(HIGH, 128),
					      SIXTY_FOUR(HIGH, 192) };

/* 64 bytes of a table of 256. */
INLINE __m512i look_up(const uint8_t table[256], __m512i places)
{
	__m512i below = _mm512_permutex2var_epi8(_mm512_loadu_si512(table), places, _mm512_loadu_si512(table + 64));
	__m512i above =
		_mm512_permutex2var_epi8(_mm512_loadu_si512(table + 128), places, _mm512_loadu_si512(table + 192));

	return _mm512_mask_mov_epi8(below, _mm512_movepi8_mask(places), above);
}

struct reciprocals {
	__m512i of_first, of_second;
};

INLINE struct reciprocals reciprocals_of(__m256i first, __m256i second)
{
	__m512i places = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
	__m512i low = look_up(reciprocal_low, places), high = look_up(reciprocal_high, places);
	/* Unpacking goes by 16 bytes: their halves are put where it brings them in order. */
	const __m512i halves = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);

	low = _mm512_permutexvar_epi64(halves, low);
	high = _mm512_permutexvar_epi64(halves, high);
	return (struct reciprocals){ _mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high) };
}

struct quotient {
	__m512i whole, rest;
};

/* n / d, with d's reciprocal; 1 where both are 0. */
INLINE struct quotient divided(__m512i n, __m512i d, __m512i reciprocal)
{
	__m512i q = _mm512_mulhi_epu16(n, reciprocal), rest = _mm512_sub_epi16(n, _mm512_mullo_epi16(q, d));
	__mmask32 small = _mm512_cmpge_epu16_mask(rest, d);

	return (struct quotient){ _mm512_mask_add_epi16(q, small, q, WORDS(1)),
				  _mm512_mask_sub_epi16(rest, small, rest, d) };
}

/* n / 255, rounded to the nearest; n at most 255 * 255 */
INLINE __m512i in_255ths(__m512i n)
{
	return _mm512_mulhi_epu16(_mm512_add_epi16(n, WORDS(128)), WORDS(257));
}

/* depth * height / (255 * 85), rounded to the nearest. */
INLINE __m512i part_of(__m512i depth, __m512i height)
{
	enum { PARTS = 255 * SIXTH, SCALE = 49538 /* 2^30 / PARTS */ };
	__m512i share = _mm512_mulhi_epu16(_mm512_slli_epi16(height, 9), WORDS(SCALE)); /* 2^23 / PARTS */
	__m512i q = _mm512_mulhi_epu16(depth, share), rest;

	/* At most one too small: 63 of 128 is a little less than half, as the share and its product are rounded down. */
	q = _mm512_srli_epi16(_mm512_add_epi16(q, WORDS(63)), 7);
	rest = _mm512_sub_epi16(_mm512_mullo_epi16(depth, height), _mm512_mullo_epi16(q, WORDS(PARTS)));
	rest = _mm512_add_epi16(rest, WORDS(PARTS / 2)); /* the difference alone has more than 16 bits */
	return _mm512_mask_add_epi16(q, _mm512_cmpge_epu16_mask(rest, WORDS(PARTS)), q, WORDS(1));
}

/* The whole hues that color.c has one less: bit n % 16 of word n / 16. */
static const uint16_t rounded_down[16] = { 0xfffe, 0xffff, 0,      0,      0,      0x1100, 0x0111, 0,
					   0xaaaa, 0x222a, 0x2222, 0x2323, 0x2222, 2,      0,      0x8000 };

/* 1 where color.c makes a whole hue one less. */
INLINE __mmask32 are_rounded_down(__m512i hue)
{
	__m512i words = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)rounded_down));
	__m512i word = _mm512_permutexvar_epi16(_mm512_srli_epi16(hue, 4), words);

	return _mm512_test_epi16_mask(word, _mm512_sllv_epi16(WORDS(1), _mm512_and_si512(hue, WORDS(15))));
}

/* The bytes of the hues. below: how far the channel between the two others is below the largest, of the range. */
INLINE __m512i hues_of(__m256i r, __m256i g, __m256i b, __m512i below, __m512i range, __m512i reciprocal)
{
	__mmask32 green = _mm256_cmpgt_epu8_mask(g, r), blue = _mm256_cmpgt_epu8_mask(b, g),
		  bluer = _mm256_cmpgt_epu8_mask(b, r);
	__m512i from = _mm512_maskz_mov_epi16(green & bluer, WORDS(SIXTH)), twice, hue;
	struct quotient share = divided(_mm512_maddubs_epi16(below, WORDS(SIXTH)), range, reciprocal);
	__mmask32 exact = _mm512_testn_epi16_mask(share.rest, share.rest);
	__m512i up = _mm512_mask_add_epi16(share.whole, (__mmask32)~exact, share.whole, WORDS(1));

	from = _mm512_mask_mov_epi16(from, blue & (__mmask32)~green, WORDS(2 * SIXTH));
	twice = _mm512_mask_add_epi16(_mm512_sub_epi16(WORDS(SIXTH), up), green ^ blue ^ bluer, share.whole,
				      WORDS(SIXTH));
	hue = _mm512_add_epi16(from, _mm512_srli_epi16(twice, 1));
	exact &= _mm512_testn_epi16_mask(twice, WORDS(1)) & are_rounded_down(hue);
	return _mm512_mask_sub_epi16(hue, exact, hue, WORDS(1));
}

#define ALL_PX(f) SIXTEEN(f, 0), SIXTEEN(f, 16)
#define RED(n) 3 * (n)
#define GREEN(n) 3 * (n) + 1
#define BLUE(n) 3 * (n) + 2
#define PX(n) (n), (n), (n)
#define CHANNELS(n) 0, 8, 16
static const uint8_t reds_greens[64] = { ALL_PX(RED), ALL_PX(GREEN) }, blues[64] = { ALL_PX(BLUE) };
/* For each byte of 32 pixels its pixel, and its channel in steps of 8; 128 bytes are read. */
static const uint8_t pixels[128] = { ALL_PX(PX) }, channels[128] = { ALL_PX(CHANNELS) };

/* Which of a pixel's levels a channel has, by sixth: the largest (0), the one between (32) or the lowest (64). */
static const uint8_t picks[64] = {
	0,  32, 64, 64, 32, 0,  0,  0, /* red */
	32, 0,  0,  32, 64, 64, 32, 0, /* green */
	64, 64, 32, 0,  0,  32, 64, 0, /* blue */
};

/* 64 bytes of pixels from byte `at` on. levels: the largest ones of 32 pixels, then those between; low: the lowest. */
INLINE __m512i pixels_of(__m512i levels, __m512i low, __m512i sixth, size_t at)
{
	__m512i px = _mm512_loadu_si512(pixels + at), pick;

	pick = _mm512_add_epi8(_mm512_permutexvar_epi8(px, sixth), _mm512_loadu_si512(channels + at));
	pick = _mm512_permutexvar_epi8(pick, _mm512_loadu_si512(picks));
	return _mm512_permutex2var_epi8(levels, _mm512_add_epi8(pick, px), low);
}

INLINE __m512i as_bytes(__m512i words)
{
	return _mm512_castsi256_si512(_mm512_cvtepi16_epi8(words));
}

/* 32 pixels: 64 bytes, and 32 in the lower half. */
struct group {
	__m512i first, last;
};

INLINE struct group turned(__m512i steps, struct group px)
{
	__m512i first = px.first, last = px.last;
	__m512i both = _mm512_permutex2var_epi8(first, _mm512_loadu_si512(reds_greens), last);
	__m256i r = _mm512_castsi512_si256(both), g = _mm512_extracti64x4_epi64(both, 1);
	__m256i b = _mm512_castsi512_si256(_mm512_permutex2var_epi8(first, _mm512_loadu_si512(blues), last));
	__m256i lower = _mm256_min_epu8(r, g), higher = _mm256_max_epu8(r, g), max = _mm256_max_epu8(higher, b);
	__m256i middle = _mm256_max_epu8(lower, _mm256_min_epu8(higher, b));
	__m256i span = _mm256_sub_epi8(max, _mm256_min_epu8(lower, b));
	struct reciprocals by = reciprocals_of(span, max);
	__m512i range = _mm512_cvtepu8_epi16(span), v = _mm512_cvtepu8_epi16(max);
	__m512i below = _mm512_sub_epi16(v, _mm512_cvtepu8_epi16(middle));
	__m512i full = _mm512_sub_epi16(_mm512_slli_epi16(range, 8), range); /* 255 * range */
	__m512i depth = _mm512_mullo_epi16(v, divided(full, v, by.of_second).whole);
	__m512i hue = hues_of(r, g, b, below, range, by.of_first), sixth, edge, height, levels, low;

	hue = _mm512_and_si512(_mm512_add_epi16(hue, steps), WORDS(255));
	sixth = _mm512_mulhi_epu16(hue, WORDS(1543)); /* hue * 6 / 255 */
	/* In 85ths of a sixth, how far a hue is from where the channel between is largest: an odd number of sixths. */
	edge = _mm512_maddubs_epi16(_mm512_or_si512(sixth, WORDS(1)), WORDS(SIXTH));
	height = _mm512_abs_epi16(_mm512_sub_epi16(_mm512_add_epi16(hue, hue), edge));
	low = as_bytes(_mm512_sub_epi16(v, in_255ths(depth)));
	levels = _mm512_inserti64x4(_mm512_castsi256_si512(max),
				    _mm512_cvtepi16_epi8(_mm512_sub_epi16(v, part_of(depth, height))), 1);
	sixth = as_bytes(sixth);
	return (struct group){ pixels_of(levels, low, sixth, 0), pixels_of(levels, low, sixth, 64) };
}

AVX512 void hue_turn_avx512(uint8_t steps, uint8_t *rgb, uint32_t n_px)
{
	__m512i by = WORDS(steps);
	struct group px;
	uint32_t n_rest = n_px % PX_AT_ONCE * 3;
	__mmask64 first = n_rest < 64 ? (1ull << n_rest) - 1 : ~0ull,
		  last = n_rest > 64 ? (1ull << (n_rest - 64)) - 1 : 0;

	for (uint32_t done = 0; n_px - done >= PX_AT_ONCE; done += PX_AT_ONCE, rgb += 3 * PX_AT_ONCE) {
		px.first = _mm512_loadu_si512(rgb);
		px.last = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(rgb + 64)));
		px = turned(by, px);
		_mm512_storeu_si512(rgb, px.first);
		_mm256_storeu_si256((void *)(rgb + 64), _mm512_castsi512_si256(px.last));
	}
	if (!n_rest)
		return;
	px.first = _mm512_maskz_loadu_epi8(first, rgb);
	px.last = _mm512_maskz_loadu_epi8(last, rgb + 64);
	px = turned(by, px);
	_mm512_mask_storeu_epi8(rgb, first, px.first);
	_mm512_mask_storeu_epi8(rgb + 64, last, px.last);
}
#endif
