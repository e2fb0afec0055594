/* The way of an image through a list of ops: each op draws its choice from random numbers of its own, then does its
 * work. */
#include "image/transform/ops.h"

void op_run_init(struct op_run *run, struct pipeline_worker *w, struct sample_key key)
{
	run->worker = w;
	run->key = key;
	cpu_budget_begin(&w->budget, w->max_ns);
}

int op_choose(const struct op *op, struct op_run *run, uint32_t width, uint32_t height, struct op_choice *out,
	      struct image_error *err)
{
	out->n_drawn = 0;
	if (!op->type->choose)
		return 0;
	random_init(&run->random, run->key, op->place);
	return op->type->choose(op, &run->random, width, height, out, err);
}

/* Called after each op: nearly all of an op's cost is in proportion to the pixels of its result, and view_settle counts
 * the pixels that it reads. */
static int check_time(struct pipeline_worker *w, uint32_t width, uint32_t height, struct image_error *err)
{
	if (cpu_budget_spend(&w->budget, (uint64_t)width * height))
		return 0;
	return image_fail(err, IMAGE_E_TIME,
			  "takes more than %.3g s of processor time to decode and transform "
			  "(twice limits.image_time in the daemon's configuration)",
			  (double)w->max_ns / 1e9);
}

int ops_run(struct op_run *run, const struct op *ops, unsigned n, struct view *v, struct image_error *err)
{
	struct op_choice choice;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < n; i++) {
		rc = op_choose(&ops[i], run, view_width(v), view_height(v), &choice, err);
		if (rc == 0 && ops[i].type->apply)
			rc = ops[i].type->apply(&ops[i], &choice, run, v, err);
		if (rc == 0)
			rc = check_time(run->worker, view_width(v), view_height(v), err);
	}
	return rc;
}

int ops_finish(struct op_run *run, const struct op *ops, unsigned n, const struct convert *f, void *row,
	       struct image_error *err)
{
	struct op_choice choice;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < n; i++) {
		if (!ops[i].type->finish)
			continue;
		rc = op_choose(&ops[i], run, f->width, f->height, &choice, err);
		if (rc != 0)
			break;
		ops[i].type->finish(&ops[i], &choice, run, f, row);
		rc = check_time(run->worker, f->width, f->height, err);
	}
	return rc;
}
