/* Entropy decoding alone: what the scan decoder does, beside ways that might be faster.
 *
 *     entropy [DIR [ROUNDS [THREADS]]]
 *
 *     DIR      an image folder, ../shared/data/photos if not given; baseline files without restart markers count
 *     THREADS  that many threads do the same at once, such as one for each hardware thread of a core
 *
 * Every way passes over the whole of each picture's data, and must end at the same bit with the same predictors. Medians
 * over rounds, in each of which every way has its turn: nanoseconds of CPU time per block, and the ratio to the first
 * way of its kind. */
#include <dirent.h>
#include <pthread.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define ENTROPY_TARGET __attribute__((target("bmi,bmi2")))
#define BITS_LOW(v, n) _bzhi_u32(v, n)
#endif
#include "image/jpeg/entropy-core.h"
#include "image/jpeg/scan.h"
#include "image/jpeg/stuffing.h"
#include "support/jpegs.h"

#ifndef ALWAYS_INLINE
#define ALWAYS_INLINE ENTROPY_TARGET static inline __attribute__((always_inline))
#endif

enum { MAX_FILES = 4096, MAX_ROUNDS = 50, MAX_THREADS = 64, MAX_WIDTH = 13, LOOKUP_BITS = HUFF_AC_LENGTH };

/* For skipping, one load has all: bits | coefficients << 8, as huff_ac has them. */
struct skip_table {
	uint16_t entries[1 << MAX_WIDTH];
};

/* DC and what follows it, for skipping: bits | coefficients << 8 | difference << 16. 0: not in the window. */
struct joined_table {
	uint32_t entries[1 << MAX_WIDTH];
};

struct photo {
	uint8_t *stream;
	uint32_t n_bytes, n_mcus;
	uint64_t n_blocks, end_bit;
	int32_t end_dc[3];
	struct mcu_layout layout;
	struct huff_dc dc[3];
	struct huff_ac ac[3];
	uint8_t dc_bits[3][17], dc_values[3][256], ac_bits[3][17], ac_values[3][256];
	struct entropy_state half; /* before the MCU in the middle */
};

/* One thread's. */
struct bench {
	struct skip_table skip[3];
	struct joined_table joined[3];
	const struct skip_table *skip_of[ENTROPY_MAX_BLOCKS];
	const struct joined_table *joined_of[ENTROPY_MAX_BLOCKS];
	_Alignas(64) int16_t coef[2][ENTROPY_MAX_BLOCKS][COEF_PAIR_STORAGE];
	uint8_t last[ENTROPY_MAX_BLOCKS];
	double took[32][MAX_ROUNDS];
	double table_ns;
};

static struct photo *photos[MAX_FILES];
static unsigned n_photos, n_rounds = 7;
static uint64_t all_blocks, all_bits;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void start(const struct photo *p, struct entropy_state *s)
{
	memset(s, 0, sizeof(*s));
	entropy_seek(s, p->stream, 0);
}

static void expect_end(const struct photo *p, const struct entropy_state *s, const char *way)
{
	if (entropy_tell(s, p->stream) == p->end_bit && memcmp(s->dc, p->end_dc, sizeof(s->dc)) == 0)
		return;
	fprintf(stderr, "entropy: %s ends elsewhere, at %ju of %ju\n", way, (uintmax_t)entropy_tell(s, p->stream),
		(uintmax_t)p->end_bit);
	exit(EXIT_FAILURE);
}

/* ---- what the scan decoder does ---- */

static void decode_today(const struct photo *p, struct bench *b)
{
	int16_t *const coef[ENTROPY_MAX_BLOCKS] = { b->coef[0][0], b->coef[0][1], b->coef[0][2],
						    b->coef[0][3], b->coef[0][4], b->coef[0][5] };
	struct entropy_state s;

	start(p, &s);
	for (uint32_t i = 0; i < p->n_mcus; i++)
		entropy_best()->decode(&s, &p->layout, 63, coef, b->last);
	expect_end(p, &s, "decoding");
}

static void skip_today(const struct photo *p, struct bench *b)
{
	struct entropy_state s;

	(void)b;
	start(p, &s);
	entropy_best()->skip(&s, &p->layout, p->n_mcus, p->stream + p->n_bytes);
	expect_end(p, &s, "skipping");
}

/* ---- skipping with wider look-ups ---- */

/* One code of `bits`, at the top of a window of which `n` bits are known: its length, or 0. */
static unsigned code_at(const struct huff_codes *c, unsigned window, unsigned n, unsigned *symbol)
{
	unsigned at = window << (16 - n);

	for (unsigned length = 1; length <= n; length++)
		if ((int32_t)at < c->limit[length]) {
			*symbol = c->values[(int32_t)(at >> (16 - length)) + c->offset[length]];
			return length;
		}
	return 0;
}

/* Symbols after `used` of the window's n bits: at most n_symbols, LOOKUP_BITS in all. */
static unsigned symbols_at(const struct huff_codes *ac, unsigned v, unsigned n, unsigned used, unsigned n_symbols,
			   unsigned *forward)
{
	unsigned symbol, done = 0;

	*forward = 0;
	for (; done < n_symbols && used < n; done++) {
		unsigned length = code_at(ac, v & ((1u << (n - used)) - 1), n - used, &symbol);
		unsigned run = symbol >> 4, size = symbol & 15;

		if (length == 0 || used + length + size > LOOKUP_BITS)
			break;
		used += length + size;
		*forward += size == 0 && run != 15 ? HUFF_AC_END : run + 1;
		if (*forward >= HUFF_AC_END)
			break;
	}
	return used;
}

static void skip_tables(const struct photo *p, struct bench *b, unsigned width, unsigned n_symbols, bool joined)
{
	for (unsigned i = 0; i < p->layout.n_blocks; i++) {
		b->skip_of[i] = &b->skip[p->layout.component[i] > 0];
		b->joined_of[i] = &b->joined[p->layout.component[i] > 0];
	}
	for (unsigned t = 0; t < 2; t++)
		for (unsigned v = 0; v < 1u << width; v++) {
			unsigned forward, size, used = symbols_at(&p->ac[t].codes, v, width, 0, n_symbols, &forward);

			b->skip[t].entries[v] = (uint16_t)(used ? used | forward << 8 : HUFF_AC_LONG << 8);
			if (!joined)
				continue;
			unsigned length = code_at(&p->dc[t].codes, v, width, &size);
			b->joined[t].entries[v] = 0;
			if (length == 0 || length + size > width)
				continue;
			int32_t low =
				(int32_t)((v >> (width - length - size)) & ((1u << size) - 1)) + below_range[size];
			int32_t high = low - below_range[size];
			int32_t difference = high + low < 0 ? low : high;

			used = symbols_at(&p->ac[t].codes, v, width, length + size, n_symbols, &forward);
			b->joined[t].entries[v] = used | forward << 8 | (uint32_t)difference << 16;
		}
}

/* Coefficients after the k-th. At least one look-up fits into the window. */
ALWAYS_INLINE int skip_rest(struct entropy_state *s, const struct skip_table *t, const struct huff_ac *ac, uint32_t k,
			    unsigned width)
{
	uint64_t window = s->window;
	uint32_t e = t->entries[window >> (64 - width)];

	consume(s, e & 63);
	k += e >> 8;
	for (;;) {
		while (k < 63) {
			refill(s);
			for (unsigned i = 0; i < 3; i++) {
				window = s->window;
				e = t->entries[window >> (64 - width)];
				consume(s, e & 63);
				k += e >> 8;
				if (k >= 63)
					break;
			}
		}
		if (__builtin_expect(k - HUFF_AC_END < 63, 1))
			return 0;
		s->window = window;
		s->n_bits += e & 63;
		int r = ac_slow(s, ac, k - (e >> 8), NULL, false);
		if (r < 0 || r >= 63)
			return r;
		k = (uint32_t)r;
	}
}

ALWAYS_INLINE void skip_wide(const struct photo *p, struct bench *b, unsigned width)
{
	struct entropy_state s;

	start(p, &s);
	for (uint32_t i = 0; i < p->n_mcus; i++)
		for (uint32_t j = 0; j < p->layout.n_blocks; j++) {
			refill(&s);
			dc_decode(&s, p->layout.dc[j], &s.dc[p->layout.component[j]]);
			skip_rest(&s, b->skip_of[j], p->layout.ac[j], 0, width);
		}
	expect_end(p, &s, "skipping by wide look-ups");
}

ALWAYS_INLINE void skip_joined(const struct photo *p, struct bench *b, unsigned width)
{
	struct entropy_state s;

	start(p, &s);
	for (uint32_t i = 0; i < p->n_mcus; i++)
		for (uint32_t j = 0; j < p->layout.n_blocks; j++) {
			refill(&s);
			uint32_t e = b->joined_of[j]->entries[s.window >> (64 - width)];
			uint32_t k = e >> 8 & 255;

			if (__builtin_expect(e == 0, 0)) {
				dc_decode(&s, p->layout.dc[j], &s.dc[p->layout.component[j]]);
			} else {
				s.dc[p->layout.component[j]] += (int32_t)e >> 16;
				consume(&s, e & 63);
				if (k >= HUFF_AC_END)
					continue;
			}
			skip_rest(&s, b->skip_of[j], p->layout.ac[j], k, width);
		}
	expect_end(p, &s, "skipping with DC joined");
}

#define SKIP(HOW, WIDTH) \
	ENTROPY_TARGET static void skip_##HOW##_##WIDTH(const struct photo *p, struct bench *b) \
	{ \
		skip_##HOW(p, b, WIDTH); \
	}
SKIP(wide, 9)
SKIP(wide, 10)
SKIP(wide, 11)
SKIP(wide, 12)
SKIP(wide, 13)
SKIP(joined, 10)
SKIP(joined, 11)
SKIP(joined, 12)

/* ---- two pieces of a picture, look-up by look-up ---- */

/* A block of one of the two. While the other's has look-ups left, this one's go on beyond its end, into the pad. */
struct lane {
	struct entropy_state s;
	uint32_t k, end_k, used, last;
	uint64_t at;
};

enum { DEAD = 200 };
static uint8_t place[512];

ALWAYS_INLINE int lane_begin(struct lane *l, const struct huff_dc *t, int32_t *predictor, int16_t *coef)
{
	refill(&l->s);
	if (dc_decode(&l->s, t, predictor) < 0)
		return -1;
	coef[0] = (int16_t)*predictor;
	l->k = l->end_k = l->used = 0;
	return 0;
}

ALWAYS_INLINE void lane_step(struct lane *l, const struct huff_ac *t, int16_t *coef)
{
	uint64_t at = l->s.window >> (64 - HUFF_AC_BITS), length = t->length[at];
	bool live = l->k < 63;
	uint32_t k = live ? l->k : DEAD, to = k + t->forward[at];

	coef[place[to]] = (int16_t)value_at(l->s.window, length, t->size[at]);
	coef[place[k + t->first[at]]] = (int8_t)t->value[at];
	l->used += live ? (uint32_t)length : 0;
	l->at = live ? at : l->at;
	l->end_k = live ? to : l->end_k;
	l->k = to;
	consume(&l->s, length);
}

/* Alone, after the k-th coefficient. */
ALWAYS_INLINE int ac_rest(struct entropy_state *s, const struct huff_ac *t, uint32_t k, int16_t *coef)
{
	const uint8_t *z = zigzag + k;

	for (;;) {
		uint64_t window = 0, at = 0;

		while (z < zigzag + 63) {
			refill(s);
			window = s->window;
			at = ac_step(s, t, &z, coef, true);
		}
		k = (uint32_t)(z - zigzag);
		if (k - HUFF_AC_END < 63)
			return 0;
		s->window = window;
		s->n_bits += t->length[at];
		int r = ac_slow(s, t, k - t->forward[at], coef, true);
		if (r < 0 || r >= 63)
			return r;
		z = zigzag + r;
	}
}

ALWAYS_INLINE int lane_end(struct lane *l, const uint8_t *base, uint64_t bit, const struct huff_ac *t, int16_t *coef)
{
	int r;

	if (__builtin_expect(l->end_k - HUFF_AC_END < 63, 1)) {
		bit += l->used;
		l->s.next = base + bit / 8;
		l->s.window = (uint64_t)*l->s.next++ << 56 << bit % 8;
		l->s.n_bits = 8 - bit % 8;
		return 0;
	}
	entropy_seek(&l->s, base, bit + l->used - t->length[l->at]);
	r = ac_slow(&l->s, t, l->end_k - t->forward[l->at], coef, true);
	return r < 0 || r >= 63 ? r : ac_rest(&l->s, t, (uint32_t)r, coef);
}

ALWAYS_INLINE int pair_of_blocks(struct lane *a, struct lane *b, const struct photo *p, uint32_t i, int16_t *coef_a,
				 int16_t *coef_b)
{
	const struct huff_ac *t = p->layout.ac[i];
	uint64_t bit_a, bit_b;

	if (lane_begin(a, p->layout.dc[i], &a->s.dc[p->layout.component[i]], coef_a) < 0 ||
	    lane_begin(b, p->layout.dc[i], &b->s.dc[p->layout.component[i]], coef_b) < 0)
		return -1;
	bit_a = entropy_tell(&a->s, p->stream);
	bit_b = entropy_tell(&b->s, p->stream);
	lane_step(a, t, coef_a);
	lane_step(b, t, coef_b);
	while (a->k < 63 || b->k < 63) {
		refill(&a->s);
		refill(&b->s);
		lane_step(a, t, coef_a);
		lane_step(b, t, coef_b);
		if (a->k >= 63 && b->k >= 63)
			break;
		lane_step(a, t, coef_a);
		lane_step(b, t, coef_b);
	}
	return lane_end(a, p->stream, bit_a, t, coef_a) | lane_end(b, p->stream, bit_b, t, coef_b);
}

ENTROPY_TARGET static void decode_pieces(const struct photo *p, struct bench *b)
{
	struct lane first = { 0 }, second = { 0 };
	uint32_t half = p->n_mcus / 2;

	start(p, &first.s);
	second.s = p->half;
	for (uint32_t i = 0; i < half; i++)
		for (uint32_t j = 0; j < p->layout.n_blocks; j++)
			pair_of_blocks(&first, &second, p, j, b->coef[0][j], b->coef[1][j]);
	for (uint32_t j = 0; p->n_mcus % 2 && j < p->layout.n_blocks; j++)
		block_decode(&second.s, &p->layout, j, b->coef[1][j], true);
	expect_end(p, &second.s, "decoding two pieces");
	if (entropy_tell(&first.s, p->stream) != entropy_tell(&p->half, p->stream))
		expect_end(p, &first.s, "decoding two pieces");
}

/* ---- two pieces, each at its own block ---- */

struct walker {
	struct entropy_state s;
	const uint8_t *z;
	int16_t *coef;
	const struct huff_ac *t;
	uint32_t block, n_left; /* n_left: blocks, with this one */
	int16_t (*coefs)[COEF_PAIR_STORAGE];
};

ALWAYS_INLINE void walker_begin(struct walker *w, const struct mcu_layout *l)
{
	int32_t *predictor = &w->s.dc[l->component[w->block]];

	w->t = l->ac[w->block];
	w->coef = w->coefs[w->block];
	w->z = zigzag;
	refill(&w->s);
	dc_decode(&w->s, l->dc[w->block], predictor);
	w->coef[0] = (int16_t)*predictor;
}

/* The end of the block, or of what the table can do. at: the last look-up. False after the last block. */
ALWAYS_INLINE bool walker_turn(struct walker *w, const struct mcu_layout *l, uint64_t at)
{
	uint32_t k = (uint32_t)(w->z - zigzag);

	if (__builtin_expect(k - HUFF_AC_END >= 63, 0)) {
		struct entropy_state *s = &w->s;
		int r;

		s->n_bits += w->t->length[at];
		s->next -= (s->n_bits + 7) / 8;
		s->n_bits = 8 - (-s->n_bits & 7);
		s->window = (uint64_t)*s->next++ << 56 << (8 - s->n_bits);
		r = ac_slow(s, w->t, k - w->t->forward[at], w->coef, true);
		if (r >= 0 && r < 63) {
			w->z = zigzag + r;
			return true;
		}
	}
	w->block = w->block + 1 == l->n_blocks ? 0 : w->block + 1;
	if (--w->n_left == 0)
		return false;
	walker_begin(w, l);
	return true;
}

ENTROPY_TARGET static void decode_walking(const struct photo *p, struct bench *b)
{
	struct walker first = { .coefs = b->coef[0] }, second = { .coefs = b->coef[1] };
	const struct mcu_layout *l = &p->layout;
	const uint8_t *const full = zigzag + 63;
	uint32_t half = p->n_mcus / 2;
	uint64_t at;

	start(p, &first.s);
	second.s = p->half;
	first.n_left = half * l->n_blocks;
	second.n_left = (p->n_mcus - half) * l->n_blocks;
	walker_begin(&first, l);
	walker_begin(&second, l);
	for (;;) {
		refill(&first.s);
		refill(&second.s);
#define STEP(W) \
	at = ac_step(&(W).s, (W).t, &(W).z, (W).coef, true); \
	if ((W).z >= full) { \
		if (!walker_turn(&(W), l, at)) \
			break; \
		continue; \
	}
		STEP(first)
		STEP(second)
		STEP(first)
		STEP(second)
		STEP(first)
		STEP(second)
	}
#undef STEP
	struct walker *rest = first.n_left ? &first : &second;
	while (rest->n_left) {
		refill(&rest->s);
		at = ac_step(&rest->s, rest->t, &rest->z, rest->coef, true);
		if (rest->z >= full)
			walker_turn(rest, l, at);
	}
	expect_end(p, &second.s, "decoding two pieces");
	if (entropy_tell(&first.s, p->stream) != entropy_tell(&p->half, p->stream))
		expect_end(p, &first.s, "decoding two pieces");
}

/* ---- the run ---- */

static const struct way {
	const char *name;
	void (*run)(const struct photo *, struct bench *);
	unsigned width, n_symbols; /* of the tables that it needs */
	bool joined;
	unsigned beside; /* the way that it is compared with */
} ways[] = {
	{ "decode, as the scan decoder", decode_today, 0, 0, false, 0 },
	{ "decode, two pieces in lockstep", decode_pieces, 0, 0, false, 0 },
	{ "decode, two pieces, own blocks", decode_walking, 0, 0, false, 0 },
	{ "skip, as the decoder does", skip_today, 0, 0, false, 3 },
	{ "skip,  9 bits, 3 symbols", skip_wide_9, 9, 3, false, 3 },
	{ "skip, 10 bits, 3 symbols", skip_wide_10, 10, 3, false, 3 },
	{ "skip, 11 bits, 2 symbols", skip_wide_11, 11, 2, false, 3 },
	{ "skip, 11 bits, 3 symbols", skip_wide_11, 11, 3, false, 3 },
	{ "skip, 12 bits, 2 symbols", skip_wide_12, 12, 2, false, 3 },
	{ "skip, 12 bits, 3 symbols", skip_wide_12, 12, 3, false, 3 },
	{ "skip, 12 bits, 4 symbols", skip_wide_12, 12, 4, false, 3 },
	{ "skip, 13 bits, 4 symbols", skip_wide_13, 13, 4, false, 3 },
	{ "skip, 10 bits, 3, DC joined", skip_joined_10, 10, 3, true, 3 },
	{ "skip, 11 bits, 3, DC joined", skip_joined_11, 11, 3, true, 3 },
	{ "skip, 12 bits, 4, DC joined", skip_joined_12, 12, 4, true, 3 },
};
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };

static void *rounds(void *arg)
{
	struct bench *b = arg;

	for (unsigned round = 0; round < n_rounds; round++)
		for (unsigned way = 0; way < N_WAYS; way++) {
			double took = 0;

			for (unsigned i = 0; i < n_photos; i++) {
				if (ways[way].width)
					skip_tables(photos[i], b, ways[way].width, ways[way].n_symbols,
						    ways[way].joined);
				double begin = now_ns();

				ways[way].run(photos[i], b);
				took += now_ns() - begin;
			}
			b->took[way][round] = took / (double)all_blocks;
		}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* ---- the pictures ---- */

static void load_tables(struct photo *p, const struct jpeg_decompress_struct *c)
{
	struct mcu_layout *l = &p->layout;

	for (int i = 0; i < c->num_components; i++) {
		const jpeg_component_info *k = &c->comp_info[i];
		const JHUFF_TBL *dc = c->dc_huff_tbl_ptrs[k->dc_tbl_no], *ac = c->ac_huff_tbl_ptrs[k->ac_tbl_no];

		if (huff_dc_build(&p->dc[i], dc->bits, dc->huffval) < 0 ||
		    huff_ac_build(&p->ac[i], ac->bits, ac->huffval) < 0)
			exit(EXIT_FAILURE);
		for (int n = 0; n < k->h_samp_factor * k->v_samp_factor && c->num_components > 1; n++) {
			l->component[l->n_blocks] = (uint8_t)i;
			l->dc[l->n_blocks] = &p->dc[i > 0];
			l->ac[l->n_blocks++] = &p->ac[i > 0];
		}
	}
}

static void add_photo(const char *path)
{
	struct photo *p = aligned_alloc(64, (sizeof(*p) + 63) / 64 * 64);
	struct entropy_state s;
	struct jpeg_in in;
	uint32_t starts[2];
	size_t n;
	uint8_t *bytes = jpeg_read_file(path, &n);

	if (!p || !bytes || n_photos == MAX_FILES || jpeg_in_open(&in, bytes, n) < 0)
		return;
	memset(p, 0, sizeof(*p));
	if (!scan_supported(&in.c) || in.c.num_components != 3 || in.c.restart_interval ||
	    in.c.comp_info[1].dc_tbl_no != in.c.comp_info[2].dc_tbl_no ||
	    in.c.comp_info[1].ac_tbl_no != in.c.comp_info[2].ac_tbl_no)
		return;
	load_tables(p, &in.c);
	p->n_mcus = ((in.c.image_width + in.c.max_h_samp_factor * 8u - 1) / (in.c.max_h_samp_factor * 8u)) *
		    ((in.c.image_height + in.c.max_v_samp_factor * 8u - 1) / (in.c.max_v_samp_factor * 8u));
	p->n_blocks = (uint64_t)p->n_mcus * p->layout.n_blocks;
	p->stream = calloc(1, n + ENTROPY_PAD_BYTES);
	if (unstuff(in.c.src->next_input_byte, in.c.src->bytes_in_buffer, p->stream, starts, 1) < 0)
		return;
	p->n_bytes = starts[1];
	memset(p->stream + p->n_bytes, 0, ENTROPY_PAD_BYTES);
	start(p, &s);
	entropy_c.skip(&s, &p->layout, p->n_mcus / 2, p->stream + p->n_bytes);
	p->half = s;
	entropy_c.skip(&s, &p->layout, p->n_mcus - p->n_mcus / 2, p->stream + p->n_bytes);
	p->end_bit = entropy_tell(&s, p->stream);
	memcpy(p->end_dc, s.dc, sizeof(s.dc));
	all_blocks += p->n_blocks;
	all_bits += p->end_bit;
	photos[n_photos++] = p;
	jpeg_in_close(&in);
	free(bytes);
}

static void add_folder(const char *path, int depth)
{
	DIR *d = opendir(path);
	struct dirent *e;
	char name[2048];

	if (!d) {
		add_photo(path);
		return;
	}
	while (depth < 3 && (e = readdir(d)))
		if (e->d_name[0] != '.' &&
		    (size_t)snprintf(name, sizeof(name), "%s/%s", path, e->d_name) < sizeof(name))
			add_folder(name, depth + 1);
	closedir(d);
}

int main(int argc, char **argv)
{
	unsigned n_threads = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
	static struct bench *benches[MAX_THREADS];
	pthread_t threads[MAX_THREADS];

	n_rounds = argc > 2 && atoi(argv[2]) > 0 && atoi(argv[2]) <= MAX_ROUNDS ? (unsigned)atoi(argv[2]) : n_rounds;
	n_threads = n_threads < 1 ? 1 : n_threads > MAX_THREADS ? MAX_THREADS : n_threads;
	memset(place, 8 * COEF_ROW, sizeof(place));
	memcpy(place, zigzag, 64);
	add_folder(argc > 1 ? argv[1] : "../shared/data/photos", 0);
	if (!n_photos) {
		fprintf(stderr, "entropy: no plain JPEGs there\n");
		return EXIT_FAILURE;
	}
	for (unsigned i = 0; i < n_threads; i++) {
		benches[i] = aligned_alloc(64, (sizeof(struct bench) + 63) / 64 * 64);
		memset(benches[i], 0, sizeof(struct bench));
		pthread_create(&threads[i], NULL, rounds, benches[i]);
	}
	for (unsigned i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	printf("%u pictures, %.1f bits a block; ns per block\n", n_photos, (double)all_bits / (double)all_blocks);
	for (unsigned way = 0; way < N_WAYS; way++)
		qsort(benches[0]->took[way], n_rounds, sizeof(double), compare);
	for (unsigned way = 0; way < N_WAYS; way++)
		printf("%-32s %7.2f %6.3f\n", ways[way].name, benches[0]->took[way][n_rounds / 2],
		       benches[0]->took[way][n_rounds / 2] / benches[0]->took[ways[way].beside][n_rounds / 2]);
	return EXIT_SUCCESS;
}
