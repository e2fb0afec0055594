/* An epoch's order: torch's DistributedSampler written as arithmetic on positions.
 *
 * Position p of the epoch's order holds sample order[p / repeats]; rank r's i-th row is position base + i * W + r. After
 * the last position the order begins again, which is DistributedSampler's padding, also when n < W and it has to repeat
 * several times. With drop_last nothing is padded because the rows stop earlier. A resumed epoch is the same with a base, so
 * resuming with another world size needs no case of its own. Only a shuffle needs memory: 4 bytes a sample while the
 * numbers fit. */
#include "batch/plan/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "batch/plan/mt19937.h"
#include "batch/plan/blend.h"
#include "batch/plan/window.h"

struct plan {
	atomic_uint refs;
	struct plan_spec spec;
	uint64_t n_per_rank;
	uint64_t length; /* positions of the whole epoch */
	uint64_t n_left; /* positions from base on; rows beyond are padding */
	/* The order; both NULL without shuffle. */
	uint32_t *order32; /* n_samples <= 2^32 */
	uint64_t *order64;
	struct charge charge;
};

uint64_t plan_length(uint64_t n_samples, uint32_t repeats, uint64_t n_rows)
{
	uint64_t all;

	if (__builtin_mul_overflow(n_samples, repeats ? repeats : 1, &all) || all > INT64_MAX)
		all = INT64_MAX;
	return n_rows && n_rows < all ? n_rows : all;
}

uint32_t plan_repeat(uint64_t position, uint64_t length, uint32_t repeats)
{
	return length ? (uint32_t)(position % length % repeats) : 0;
}

static uint64_t positions_left(const struct plan_spec *spec)
{
	uint64_t length = plan_length(spec->n_samples, spec->repeats, spec->n_rows);

	return spec->base < length ? length - spec->base : 0;
}

uint64_t plan_spec_n_per_rank(const struct plan_spec *spec)
{
	uint64_t left = positions_left(spec), w = spec->world_size;

	if (!w)
		return 0;
	return left / w + (!spec->drop_last && left % w ? 1 : 0);
}

static bool is_narrow(uint64_t n_samples)
{
	return n_samples <= (uint64_t)UINT32_MAX + 1;
}

uint64_t plan_spec_bytes(const struct plan_spec *spec)
{
	uint64_t bytes;

	uint64_t each = is_narrow(spec->n_samples) ? 4 : 8;

	if ((!spec->shuffle && !spec->blend) || !plan_spec_n_per_rank(spec))
		return sizeof(struct plan);
	if (spec->shuffle > 1 && !__builtin_mul_overflow(spec->n_samples, each, &bytes)) {
		uint64_t more = plan_window_bytes(spec);

		return bytes > UINT64_MAX - more ? UINT64_MAX : bytes + more;
	}
	return __builtin_mul_overflow(spec->n_samples, spec->blend ? 2 * each : each, &bytes) ? UINT64_MAX : bytes;
}

void plan_take_charge(struct plan *p, struct charge *charge)
{
	charge_move(&p->charge, charge);
}

static void plan_shuffle(struct plan *p)
{
	uint64_t n = p->spec.n_samples;
	struct mt19937 mt;

	mt19937_init(&mt, p->spec.seed + p->spec.epoch);
	if (n < RANDPERM_WIDE_FROM)
		randperm_narrow(&mt, p->order32, (uint32_t)n);
	else if (p->order32)
		randperm_wide32(&mt, p->order32, n);
	else
		randperm_wide64(&mt, p->order64, n);
}

static int make_order(struct plan *p)
{
	uint64_t n = p->spec.n_samples;

	if (is_narrow(n))
		p->order32 = malloc(n * sizeof(*p->order32));
	else if (n <= SIZE_MAX / sizeof(*p->order64))
		p->order64 = malloc(n * sizeof(*p->order64));
	if (!p->order32 && !p->order64)
		return -ENOMEM;
	if (p->spec.shuffle > 1)
		return plan_window(&p->spec, p->order32, p->order64);
	if (p->spec.shuffle)
		plan_shuffle(p);
	return p->spec.blend ? plan_blend(&p->spec, p->order32, p->order64) : 0;
}

int plan_create(const struct plan_spec *spec, struct plan **out)
{
	struct plan *p;

	if (!spec->world_size || spec->n_samples > INT64_MAX)
		return -EINVAL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	atomic_init(&p->refs, 1);
	p->spec = *spec;
	if (!p->spec.repeats)
		p->spec.repeats = 1;
	p->length = plan_length(spec->n_samples, spec->repeats, spec->n_rows);
	p->n_left = positions_left(spec);
	p->n_per_rank = plan_spec_n_per_rank(spec);
	if ((spec->shuffle || spec->blend) && p->n_per_rank) {
		int r = make_order(p);

		if (r < 0) {
			plan_unref(p);
			return r;
		}
	}
	p->spec.blend = NULL; /* borrowed */
	p->spec.shards = NULL;
	*out = p;
	return 0;
}

struct plan *plan_ref(struct plan *p)
{
	unsigned before = atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);

	assert(before > 0);
	(void)before;
	return p;
}

void plan_unref(struct plan *p)
{
	if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
		return;
	free(p->order32);
	free(p->order64);
	charge_release(&p->charge);
	free(p);
}

uint64_t plan_n_per_rank(const struct plan *p)
{
	return p->n_per_rank;
}

/* How far a row lies after base. */
static uint64_t row_offset(const struct plan *p, uint32_t rank, uint64_t i)
{
	return i * p->spec.world_size + rank;
}

uint64_t plan_at(const struct plan *p, uint32_t rank, uint64_t i)
{
	assert(rank < p->spec.world_size && i < p->n_per_rank);

	uint64_t offset = row_offset(p, rank, i);
	uint64_t at = offset < p->n_left ? p->spec.base + offset : (offset - p->n_left) % p->length;

	if (p->spec.repeats > 1)
		at /= p->spec.repeats;

	if (p->order32)
		return p->order32[at];
	return p->order64 ? p->order64[at] : at;
}

bool plan_is_padding(const struct plan *p, uint32_t rank, uint64_t i)
{
	return row_offset(p, rank, i) >= p->n_left;
}

uint64_t plan_n_batches(uint64_t n_per_rank, uint32_t batch_size, bool drop_last)
{
	if (!batch_size)
		return 0;
	return n_per_rank / batch_size + (!drop_last && n_per_rank % batch_size ? 1 : 0);
}
