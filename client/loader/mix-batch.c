/* A batch on loan, mixed: its table, images and targets. These calls take no turn: another thread may be waiting for
 * the next batch. */
#include <stdlib.h>
#include <string.h>

#include "finish/finish.h"
#include "loader/links.h"
#include "loader/mix-loader.h"

/* The caller's batch, which may be of an older and shorter version, and the link that lent it. 0 or a code with f. */
static int find_batch(struct batchd_loader *l, const struct batchd_batch *given, struct batchd_batch *b,
		      struct link **out, struct fault *f)
{
	struct link *k;

	*b = (struct batchd_batch){ 0 };
	memcpy(b, given, given->size_bytes < sizeof *b ? given->size_bytes : sizeof *b);
	pthread_mutex_lock(&l->lock);
	k = l->mix ? links_find(l, b->generation) : NULL;
	pthread_mutex_unlock(&l->lock);
	*out = k;
	if (!l->mix)
		return fault_set(f, BATCHD_E_INVALID, "this loader was opened without option mix");
	if (!k || b->n_rows < 1 || b->n_rows > k->info.batch_size || b->slot >= k->n_slots ||
	    b->row > k->info.group_batch_size - b->n_rows)
		return fault_set(f, BATCHD_E_INVALID, "this batch is none of this loader's");
	return 0;
}

/* Runs with the batch's table. */
static int with_table(struct batchd_loader *l, const struct batchd_batch *given, void *to,
		      int (*run)(struct batchd_loader *, struct link *, const struct batchd_batch *,
				 const struct batchd_mix_row *, void *, struct fault *))
{
	struct batchd_mix_row *rows = NULL;
	struct fault f = { 0 };
	struct batchd_batch b;
	struct link *k;
	int r = loader_enter_with_batch(l);

	if (r < 0)
		return r;
	r = find_batch(l, given, &b, &k, &f);
	if (r == 0 && !(rows = malloc(b.n_rows * sizeof *rows)))
		r = fault_set(&f, BATCHD_E_NOMEM, "out of memory");
	if (r == 0)
		r = mix_loader_table(l, k, &b, rows, &f);
	if (r == 0)
		r = run(l, k, &b, rows, to, &f);
	free(rows);
	return loader_end_with_batch(l, r, &f);
}

static int give_table(struct batchd_loader *l, struct link *k, const struct batchd_batch *b,
		      const struct batchd_mix_row *rows, void *to, struct fault *f)
{
	(void)l, (void)k, (void)f;
	memcpy(to, rows, b->n_rows * sizeof *rows);
	return 0;
}

struct target {
	uint32_t number; /* of the view */
	void *to;
};

static int give_images(struct batchd_loader *l, struct link *k, const struct batchd_batch *b,
		       const struct batchd_mix_row *rows, void *to, struct fault *f)
{
	const struct target *target = to;
	const struct finish *finish;
	size_t row_bytes;
	uint8_t *scratch;
	const char *from;

	(void)l;
	if (!k->finish)
		return fault_set(f, BATCHD_E_INVALID,
				 k->gpu ? "this loader delivers to a GPU: batchd_cuda_finish"
					: "dtype uint8: batches are not finished by the library");
	if (target->number >= k->n_finish)
		return fault_set(f, BATCHD_E_INVALID, "field %u is no view: batchd_get_field_at has it",
				 target->number);
	finish = &k->finish[target->number];
	if ((uintptr_t)target->to % convert_number_bytes((enum convert_number)finish->plan.number))
		return fault_set(f, BATCHD_E_INVALID, "the target is not aligned for its numbers");
	scratch = malloc((size_t)finish->width * finish->plan.n_channels);
	if (!scratch)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	/* The first view lies where a batch's data does; the others in the slot after. */
	row_bytes = k->fields.list[target->number].item_bytes;
	from = target->number == 0 ? b->data
				   : (const char *)slab_slot(k->slab, b->slot) + k->fields.list[target->number].offset +
					     b->row * row_bytes;
	finish_rows(finish, from, rows, b->n_rows, scratch, target->to);
	free(scratch);
	return 0;
}

static int give_targets(struct batchd_loader *l, struct link *k, const struct batchd_batch *b,
			const struct batchd_mix_row *rows, void *to, struct fault *f)
{
	int r;

	if (!k->info.n_mix_classes)
		return fault_set(f, BATCHD_E_INVALID, "option mix has no targets: \"targets:classes=1000;...\"");
	r = mix_loader_check_labels(l, b, f);
	if (r == 0)
		mix_targets(l->mix, rows, b->n_rows, b->labels, to);
	return r;
}

int batchd_mixing(struct batchd_loader *l, int on)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	if (r < 0)
		return r;
	atomic_store(&l->mixing_off, !on);
	if (!l->mix)
		r = fault_set(&f, BATCHD_E_INVALID, "this loader was opened without option mix");
	return loader_end_with_batch(l, r, &f);
}

int batchd_mix_table(struct batchd_loader *l, const struct batchd_batch *b, struct batchd_mix_row *rows)
{
	return with_table(l, b, rows, give_table);
}

int batchd_finish(struct batchd_loader *l, const struct batchd_batch *b, void *to)
{
	return batchd_finish_field(l, b, 0, to);
}

int batchd_finish_field(struct batchd_loader *l, const struct batchd_batch *b, uint32_t number, void *to)
{
	struct target target = { number, to };

	return with_table(l, b, &target, give_images);
}

int batchd_targets(struct batchd_loader *l, const struct batchd_batch *b, float *to)
{
	return with_table(l, b, to, give_targets);
}
