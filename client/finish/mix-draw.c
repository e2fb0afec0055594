/* The draws of a mix, and the targets that follow from them.
 *
 * Each batch has a key of its own, made of (seed; epoch, position), and each row draws from a counter of its own under
 * that key; what belongs to the whole batch is drawn by row 0. Distributions are torchvision's or, for timm's Mixup,
 * timm's, with the formulas of these libraries from the drawn numbers on. */
#include "../daemon/image/kernels/exact.h"

#include "finish/mix.h"

#include <Random123/philox.h>
#include <math.h>

enum { MIX_DOMAIN = 0x6d697862 }; /* no sample's numbers have this in their counter (daemon/image/transform/random.h) */

struct mix_random {
	philox4x32_key_t key;
	philox4x32_ctr_t counter, made;
	unsigned n_left;
};

static philox4x32_key_t key_from(philox4x32_ctr_t made)
{
	return (philox4x32_key_t){ { made.v[0], made.v[1] } };
}

static philox4x32_key_t batch_key(const struct mix_place *p)
{
	philox4x32_key_t seed = { { (uint32_t)p->seed, (uint32_t)(p->seed >> 32) } };
	philox4x32_ctr_t domain = { { 0, MIX_DOMAIN, 0, 0 } };
	philox4x32_ctr_t at = { { (uint32_t)p->position, (uint32_t)(p->position >> 32), (uint32_t)p->epoch,
				  (uint32_t)(p->epoch >> 32) } };

	return key_from(philox4x32(at, key_from(philox4x32(domain, seed))));
}

static struct mix_random row_random(philox4x32_key_t key, uint32_t row)
{
	return (struct mix_random){ .key = key, .counter = { { row, 0, 0, 0 } } };
}

static uint32_t mix_bits(struct mix_random *r)
{
	if (!r->n_left) {
		r->made = philox4x32(r->counter, r->key);
		r->counter.v[3]++;
		r->n_left = 4;
	}
	return r->made.v[4 - r->n_left--];
}

/* In (0, 1), with 53 random bits. */
static double mix_unit(struct mix_random *r)
{
	uint64_t low = mix_bits(r) >> 5;

	return ((double)((uint64_t)(mix_bits(r) >> 6) << 27 | low) + 0.5) * 0x1p-53;
}

/* 0 to n - 1, without bias; n at least 1. */
static uint32_t mix_below(struct mix_random *r, uint32_t n)
{
	uint64_t product = (uint64_t)mix_bits(r) * n;
	uint32_t threshold = -n % n;

	while ((uint32_t)product < threshold)
		product = (uint64_t)mix_bits(r) * n;
	return (uint32_t)(product >> 32);
}

/* ---- the Beta distribution ---- */

static double mix_normal(struct mix_random *r)
{
	double radius = sqrt(-2 * log(mix_unit(r)));

	return radius * cos(6.283185307179586 * mix_unit(r));
}

/* The logarithm of a Gamma(alpha, 1) number: Marsaglia and Tsang, 2000. Below 1 by their power of a uniform number, which
 * for small alpha is less than a double can hold; hence the logarithm. */
static double log_gamma_draw(struct mix_random *r, double alpha)
{
	double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d), x, v;

	do {
		do {
			x = mix_normal(r);
			v = 1 + c * x;
		} while (v <= 0);
		v = v * v * v;
	} while (log(mix_unit(r)) >= 0.5 * x * x + d - d * v + d * log(v));
	return log(d) + log(v) + (alpha < 1 ? log(mix_unit(r)) / alpha : 0);
}

static double mix_beta(struct mix_random *r, double alpha)
{
	double a = log_gamma_draw(r, alpha), b = log_gamma_draw(r, alpha);

	return 1 / (1 + exp(b - a));
}

/* ---- records ---- */

static uint32_t clip(int64_t v, uint32_t most)
{
	return v < 0 ? 0 : v > most ? most : (uint32_t)v;
}

struct image_size {
	uint32_t height, width;
};

static double covered(const struct batchd_mix_row *r, struct image_size size)
{
	return (double)((uint64_t)(r->bottom - r->top) * (r->right - r->left)) /
	       (double)((uint64_t)size.height * size.width);
}

/* torchvision's CutMix.make_params. */
static double torch_box(struct mix_random *random, double lam, struct image_size size, struct batchd_mix_row *out)
{
	int64_t x = mix_below(random, size.width), y = mix_below(random, size.height);
	double half = 0.5 * sqrt(1 - lam);
	int64_t half_w = (int64_t)(half * size.width), half_h = (int64_t)(half * size.height);

	out->kind = BATCHD_MIX_BOX;
	out->left = clip(x - half_w, size.width);
	out->top = clip(y - half_h, size.height);
	out->right = clip(x + half_w, size.width);
	out->bottom = clip(y + half_h, size.height);
	return 1 - covered(out, size);
}

/* timm's rand_bbox_minmax: numpy's randint excludes its end, and refuses an empty range. */
static void timm_minmax_side(struct mix_random *random, const double minmax[2], uint32_t n, uint32_t *from,
			     uint32_t *to)
{
	uint32_t least = (uint32_t)(n * minmax[0]), end = (uint32_t)(n * minmax[1]);
	uint32_t side = least + (end > least ? mix_below(random, end - least) : 0);

	*from = mix_below(random, n - side + 1);
	*to = *from + side;
}

/* timm's rand_bbox for one dimension. */
static void timm_side(struct mix_random *random, double ratio, uint32_t n, uint32_t *from, uint32_t *to)
{
	int64_t cut = (int64_t)(n * ratio), centre = mix_below(random, n);

	*from = clip(centre - cut / 2, n);
	*to = clip(centre + (cut + 1) / 2, n);
}

/* timm's cutmix_bbox_and_lam. */
static double timm_box(struct mix_random *random, const struct mix_timm *t, double lam, struct image_size size,
		       struct batchd_mix_row *out)
{
	out->kind = BATCHD_MIX_BOX;
	if (t->has_minmax) {
		timm_minmax_side(random, t->minmax, size.height, &out->top, &out->bottom);
		timm_minmax_side(random, t->minmax, size.width, &out->left, &out->right);
	} else {
		timm_side(random, sqrt(1 - lam), size.height, &out->top, &out->bottom);
		timm_side(random, sqrt(1 - lam), size.width, &out->left, &out->right);
	}
	return t->correct_lam || t->has_minmax ? 1 - covered(out, size) : lam;
}

/* Weights as torch makes them of a Python number: 1 - lam in double precision, then each rounded. */
static void set_weights(struct batchd_mix_row *r, double lam)
{
	r->weight = (float)lam;
	r->partner_weight = (float)(1 - lam);
}

static struct batchd_mix_row clean_row(void)
{
	return (struct batchd_mix_row){ .kind = BATCHD_MIX_NONE, .weight = 1 };
}

/* timm's parameters of a batch, a pair or a row: whether there is anything to mix, how, and how much. */
static struct batchd_mix_row timm_row(struct mix_random *random, const struct mix_timm *t, struct image_size size)
{
	struct batchd_mix_row r = clean_row();
	bool both = t->mixup_alpha > 0 && t->cutmix_alpha > 0, cutmix;
	double lam;

	if (mix_unit(random) >= t->prob)
		return r;
	cutmix = both ? mix_unit(random) < t->switch_prob : t->cutmix_alpha > 0;
	lam = mix_beta(random, cutmix ? t->cutmix_alpha : t->mixup_alpha);
	if (t->mode != MIX_BATCH)
		lam = (float)lam; /* timm keeps rows' numbers in float32 */
	if (lam == 1)
		return r;
	r.kind = BATCHD_MIX_BLEND;
	if (cutmix)
		lam = timm_box(random, t, lam, size, &r);
	set_weights(&r, lam);
	if (t->mode != MIX_BATCH)
		r.partner_weight = 1.0f - r.weight;
	return r;
}

static void draw_timm(const struct mix_timm *t, philox4x32_key_t key, struct mix_random *random, uint32_t n_rows,
		      struct image_size size, struct batchd_mix_row *rows)
{
	uint32_t n_drawn = t->mode == MIX_ELEM ? n_rows : (n_rows + 1) / 2;
	struct batchd_mix_row whole = clean_row();

	if (t->mode == MIX_BATCH)
		whole = timm_row(random, t, size);
	for (uint32_t i = 0; i < n_rows; i++) {
		/* Row 0's own counter has given the choice of the step, so rows begin after it. */
		struct mix_random own = row_random(key, i + 1);

		if (t->mode == MIX_BATCH)
			rows[i] = whole;
		else
			rows[i] = i < n_drawn ? timm_row(&own, t, size) : rows[n_rows - 1 - i];
		rows[i].partner = n_rows - 1 - i;
	}
}

/* torchvision's MixUp and CutMix: one record for all rows, whose partners are the rows before them. */
static void draw_torch(const struct mix_step *s, struct mix_random *random, uint32_t n_rows, struct image_size size,
		       struct batchd_mix_row *rows)
{
	struct batchd_mix_row whole = clean_row();
	double lam;

	if (s->kind != MIX_STEP_NONE) {
		whole.kind = BATCHD_MIX_BLEND;
		lam = mix_beta(random, s->alpha);
		set_weights(&whole, s->kind == MIX_STEP_CUTMIX ? torch_box(random, lam, size, &whole) : lam);
	}
	for (uint32_t i = 0; i < n_rows; i++) {
		rows[i] = whole;
		rows[i].partner = s->kind == MIX_STEP_NONE ? i : i ? i - 1 : n_rows - 1;
	}
}

static const struct mix_step *choose(const struct mix *m, struct mix_random *random)
{
	double all = 0, at;

	for (uint32_t i = 0; i < m->n_steps; i++)
		all += m->step[i].weight;
	at = m->n_steps > 1 ? mix_unit(random) * all : 0;
	for (uint32_t i = 0; i + 1 < m->n_steps; i++) {
		if (at < m->step[i].weight)
			return &m->step[i];
		at -= m->step[i].weight;
	}
	return &m->step[m->n_steps - 1];
}

void mix_draw(const struct mix *m, const struct mix_place *place, uint32_t n_rows, uint32_t height, uint32_t width,
	      struct batchd_mix_row *rows)
{
	static const struct mix_step nothing = { .kind = MIX_STEP_NONE };
	philox4x32_key_t key = batch_key(place);
	struct mix_random random = row_random(key, 0);
	bool is_off = place->is_off || (m->off_epoch && place->epoch >= m->off_epoch);
	const struct mix_step *step = is_off ? &nothing : choose(m, &random);
	struct image_size size = { height, width };

	if (step->kind == MIX_STEP_TIMM)
		draw_timm(&step->timm, key, &random, n_rows, size, rows);
	else
		draw_torch(step, &random, n_rows, size, rows);
}

/* ---- targets ---- */

void mix_target_values(const struct mix *m, float *on, float *off)
{
	double spread = m->smoothing / m->n_classes;

	*off = (float)spread;
	*on = (float)(1 - m->smoothing + spread);
}

void mix_targets(const struct mix *m, const struct batchd_mix_row *rows, uint32_t n_rows, const int64_t *labels,
		 float *to)
{
	float on, off;

	mix_target_values(m, &on, &off);
	for (uint32_t i = 0; i < n_rows; i++) {
		const struct batchd_mix_row *r = &rows[i];
		int64_t own = labels[i], other = labels[r->partner];
		/* Products first, as torch rounds them. */
		float own_on = on * r->weight, own_off = off * r->weight;
		float other_on = on * r->partner_weight, other_off = off * r->partner_weight;

		for (uint32_t c = 0; c < m->n_classes; c++)
			to[(size_t)i * m->n_classes + c] = own_off + other_off;
		if (own >= 0 && own < m->n_classes)
			to[(size_t)i * m->n_classes + (size_t)own] = own_on + (own == other ? other_on : other_off);
		if (other >= 0 && other < m->n_classes && other != own)
			to[(size_t)i * m->n_classes + (size_t)other] = own_off + other_on;
	}
}
