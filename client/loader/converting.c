/* Work that the trainer queues on its own stream: the finishing kernel, or a copy where there is nothing to finish;
 * labels; waiting for bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/delivery.h"
#include "loader/mix-launch.h"
#include "loader/links.h"
#include "loader/mix-loader.h"

enum { HOST_MEMORY = 1 }; /* of CUDA_POINTER_MEMORY_TYPE */

/* The rows of a slot that belong to a batch; in share mode not always all of them. For a producer's batch: its
 * bytes. */
struct rows {
	uint32_t slot, first, n;
	uint32_t field; /* to finish */
	size_t offset, n_bytes;
	const struct mix *mix;
	const struct batchd_mix_row *table; /* of the batch; NULL: its rows are not mixed */
};

/* A mistake of the caller: reported; the loader can still be used. */
static int converting_misuse(struct fault *f, const char *text)
{
	return fault_set(f, BATCHD_E_INVALID, "%s", text);
}

/* A CUDA result as the caller's outcome. lost: the result that ended the GPU for this process, or CUDA_OK; it stays: the
 * next call for a batch returns it, too. */
static int set_outcome(struct link *k, int result, int lost, const char *what, struct fault *f)
{
	if (!lost)
		return gpu_fault_on_stream(&delivery_of(k)->gpu, result, f, what);
	pthread_mutex_lock(k->host.lock);
	delivery_of(k)->lost = lost;
	pthread_mutex_unlock(k->host.lock);
	return gpu_fault(&delivery_of(k)->gpu, result, f, what);
}

/* In the GPU's context. */
static int converting_outcome(struct link *k, int result, const char *what, struct fault *f)
{
	return set_outcome(k, result, delivery_believe(delivery_of(k), result), what, f);
}

/* The present link. A retired link's memory belonged to another daemon: its batches are kept on the host only. 0 or a
 * code with f. */
static int find_link(struct batchd_loader *l, struct link **out, struct fault *f)
{
	struct link *k;

	pthread_mutex_lock(&l->lock);
	k = l->link;
	pthread_mutex_unlock(&l->lock);
	*out = k;
	return k && k->gpu ? 0 : converting_misuse(f, "this loader delivers to no GPU: option device");
}

/* A captured graph would read the same slot again at every replay, long after the slot has gone back. */
static int refuse_capture(struct link *k, struct cuda_stream *stream, struct fault *f)
{
	bool capturing = false;
	int r = delivery_is_capturing(delivery_of(k), stream, &capturing);

	if (r != CUDA_OK)
		return converting_outcome(k, r, "cannot use the stream", f);
	return !capturing
		       ? 0
		       : converting_misuse(
				 f,
				 "a batch cannot become part of a CUDA graph: finish it into the graph's input tensor before the replay");
}

/* An address of the host or of another GPU would be a fault on the GPU, which ends the process's use of CUDA for
 * good. */
static int check_target(struct link *k, cuda_ptr to, struct fault *f)
{
	const struct gpu *g = &delivery_of(k)->gpu;
	unsigned type = HOST_MEMORY;
	int ordinal = -1,
	    r = to ? g->driver->pointer_get_attribute(&type, CUDA_POINTER_MEMORY_TYPE, to) : CUDA_INVALID_VALUE;

	if (r == CUDA_OK)
		r = g->driver->pointer_get_attribute(&ordinal, CUDA_POINTER_DEVICE_ORDINAL, to);
	if (r != CUDA_OK && r != CUDA_INVALID_VALUE) /* the result for addresses that CUDA does not know */
		return converting_outcome(k, r, "cannot look at the target", f);
	return r == CUDA_OK && type != HOST_MEMORY && ordinal == g->ordinal
		       ? 0
		       : converting_misuse(f, "the target is no memory of the loader's GPU");
}

/* The common steps: queue(k, rows, to, stream) with the batch's bytes in place. to: 0 where there is no target. */
static int with_batch(struct link *k, const struct rows *rows, uint64_t generation, cuda_ptr to, bool has_target,
		      struct cuda_stream *stream,
		      int (*queue)(struct link *, const struct rows *, cuda_ptr, struct cuda_stream *),
		      const char *what, struct fault *f)
{
	struct device_lease *lease;
	struct gpu_visit visit;
	int r, result = gpu_enter(&delivery_of(k)->gpu, &visit);

	if (result != CUDA_OK)
		return set_outcome(k, result, cuda_error_sticky(result) ? result : CUDA_OK, what, f);
	r = refuse_capture(k, stream, f);
	if (r == 0 && has_target)
		r = check_target(k, to, f);
	if (r == 0) {
		pthread_mutex_lock(k->host.lock);
		lease = delivery_lease(k, rows->slot, generation);
		result = lease ? delivery_use(delivery_of(k), lease, stream) : CUDA_OK;
		pthread_mutex_unlock(k->host.lock);
		if (!lease)
			r = converting_misuse(f, "this batch is no longer on loan, or a tensor has it");
		else
			r = converting_outcome(k, result == CUDA_OK && queue ? queue(k, rows, to, stream) : result,
					       what, f);
	}
	gpu_leave(&delivery_of(k)->gpu, &visit);
	return r;
}

/* ---- images ---- */

/* Images that one launch may have, so that its numbers can be counted in 31 bits. */
static uint32_t images_at_once(const struct convert_plan *p)
{
	uint64_t n = (uint64_t)INT32_MAX / ((uint64_t)p->plane * p->n_channels);

	return n < 1 ? 1 : (uint32_t)n;
}

static int converting_launch(const struct delivery *d, const struct finishing *of, struct convert_plan *p,
			     struct cuda_stream *stream)
{
	void *parameters[] = { p };

	return d->gpu.driver->launch_kernel(of->kernel, convert_plan_blocks(p), 1, 1, CONVERT_THREADS, 1, 1, 0, stream,
					    parameters, NULL);
}

static int queue_finish(struct link *k, const struct rows *rows, cuda_ptr to, struct cuda_stream *stream)
{
	struct delivery *d = delivery_of(k);
	const struct link_field *field = &k->fields.list[rows->field];
	const struct finishing *of = &d->finishing[rows->field];
	cuda_ptr from = delivery_slot(d, rows->slot) + field->offset + rows->first * field->item_bytes;
	struct convert_plan p = of->plan;
	uint64_t number_bytes = of->is_image ? convert_number_bytes((enum convert_number)p.number) : 0,
		 values = (uint64_t)p.plane * p.n_channels;
	uint32_t here;
	int r = CUDA_OK;

	if (rows->table || (of->is_image && of->has_numbers))
		return mix_launch_images(d, of, rows->table, rows->n, from, to, stream);
	if (!of->is_image)
		return d->gpu.driver->memcpy_dtod_async(to, from, rows->n * field->item_bytes, stream);
	for (uint32_t row = 0; row < rows->n && r == CUDA_OK; row += here) {
		here = rows->n - row < images_at_once(&p) ? rows->n - row : images_at_once(&p);
		p.in = from + row * values;
		p.out = to + row * values * number_bytes;
		p.n_px = here * p.plane;
		r = converting_launch(d, of, &p, stream);
	}
	return r;
}

/* From the batch's place in the slot's host memory, a field that every version of the struct has. False: invalid. */
static bool rows_of(const struct link *k, const struct batchd_batch *b, struct rows *rows)
{
	size_t at = b->slot < k->n_slots ? (size_t)((char *)b->data - (char *)slab_slot(k->slab, b->slot)) : SIZE_MAX;

	*rows = (struct rows){ .slot = b->slot, .n = b->n_rows };
	if (at > k->info.group_batch_size * k->row_bytes || b->n_rows < 1 || b->n_rows > k->info.batch_size)
		return false;
	rows->first = k->row_bytes ? (uint32_t)(at / k->row_bytes) : b->row;
	return rows->first + rows->n <= k->info.group_batch_size;
}

/* Without a kernel nothing can be queued. A capture is refused first, as no build of the library would allow it. */
static int refuse_kernel(struct link *k, struct cuda_stream *stream, struct fault *f)
{
	char text[256];
	struct gpu_visit visit;
	int r = gpu_enter(&delivery_of(k)->gpu, &visit);

	if (r != CUDA_OK)
		return converting_outcome(k, r, "cannot finish a batch", f);
	r = refuse_capture(k, stream, f);
	gpu_leave(&delivery_of(k)->gpu, &visit);
	if (r < 0)
		return r;
	if (!*delivery_of(k)->no_kernel)
		return converting_misuse(
			f,
			"this libbatchd was built without CUDA's compiler and has no finishing kernel (make CUDA=1): use batch.device_data");
	snprintf(text, sizeof text, "%s: use batch.device_data", delivery_of(k)->no_kernel);
	return converting_misuse(f, text);
}

/* with_batch for rows that are mixed. */
static int with_mixed(struct batchd_loader *l, struct link *k, const struct batchd_batch *b, struct rows *rows,
		      void *to, void *stream,
		      int (*queue)(struct link *, const struct rows *, cuda_ptr, struct cuda_stream *),
		      const char *what, struct fault *f)
{
	struct batchd_mix_row *table = malloc(b->n_rows * sizeof *table);
	int r = table ? mix_loader_table(l, k, b, table, f) : fault_set(f, BATCHD_E_NOMEM, "out of memory");

	rows->mix = l->mix;
	rows->table = table;
	if (r == 0)
		r = with_batch(k, rows, b->generation, (cuda_ptr)(uintptr_t)to, true, stream, queue, what, f);
	free(table);
	return r;
}

/* The field to finish; NULL: the first one. NULL, with f: there is none, or it has no place on the GPU. */
static const struct link_field *field_to_finish(const struct link *k, const uint32_t *number, struct fault *f)
{
	const struct link_field *field =
		number ? *number < k->fields.n ? &k->fields.list[*number] : NULL : fields_first(&k->fields);

	if (!field)
		converting_misuse(f, "this loader's batches have no such field");
	else if (field->is.ragged)
		converting_misuse(f, "a ragged field stays in host memory: copy it from there");
	return field && !field->is.ragged ? field : NULL;
}

static int converting_finish(struct batchd_loader *l, const struct batchd_batch *b, const uint32_t *number, void *to,
			     void *stream, struct fault *f)
{
	const struct link_field *field;
	const struct finishing *of;
	struct rows rows;
	struct link *k;
	int r = find_link(l, &k, f);

	if (r < 0)
		return r;
	if (k->info.served)
		return converting_misuse(
			f,
			"a producer's batch has arrays of its own: batchd_arrays says which, batchd_cuda_array copies one");
	if (!rows_of(k, b, &rows))
		return converting_misuse(f, "this batch is none of this loader's");
	field = field_to_finish(k, number, f);
	if (!field)
		return BATCHD_E_INVALID;
	rows.field = (uint32_t)(field - k->fields.list);
	of = &delivery_of(k)->finishing[rows.field];
	if (of->is_image && !of->kernel)
		return refuse_kernel(k, stream, f);
	if (of->is_image && (uintptr_t)to % convert_number_bytes((enum convert_number)of->plan.number))
		return converting_misuse(f, "the target is not aligned for its numbers");
	if (delivery_of(k)->mixes && of->is_image)
		return with_mixed(l, k, b, &rows, to, stream, queue_finish, "cannot finish a batch", f);
	return with_batch(k, &rows, b->generation, (cuda_ptr)(uintptr_t)to, true, stream, queue_finish,
			  "cannot finish a batch", f);
}

int batchd_cuda_finish(struct batchd_loader *l, const struct batchd_batch *b, void *to, void *stream)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	return r < 0 ? r : loader_end_with_batch(l, converting_finish(l, b, NULL, to, stream, &f), &f);
}

int batchd_cuda_finish_field(struct batchd_loader *l, const struct batchd_batch *b, uint32_t number, void *to,
			     void *stream)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	return r < 0 ? r : loader_end_with_batch(l, converting_finish(l, b, &number, to, stream, &f), &f);
}

/* ---- labels, waiting ---- */

static int queue_labels(struct link *k, const struct rows *rows, cuda_ptr to, struct cuda_stream *stream)
{
	const struct delivery *d = delivery_of(k);

	return d->gpu.driver->memcpy_dtod_async(
		to, delivery_slot(d, rows->slot) + k->labels_offset + rows->first * k->label_bytes,
		rows->n * k->label_bytes, stream);
}

static int converting_labels(struct batchd_loader *l, const struct batchd_batch *b, void *to, void *stream,
			     struct fault *f)
{
	struct rows rows;
	struct link *k;
	int r = find_link(l, &k, f);

	if (r < 0)
		return r;
	if (k->info.served || !k->label_bytes || !rows_of(k, b, &rows))
		return converting_misuse(f, k->info.served
						    ? "a producer's batch has no labels but those among its arrays"
					    : !k->label_bytes ? "this loader's batches have no labels"
							      : "this batch is none of this loader's");
	return with_batch(k, &rows, b->generation, (cuda_ptr)(uintptr_t)to, true, stream, queue_labels,
			  "cannot copy a batch's labels", f);
}

int batchd_cuda_labels(struct batchd_loader *l, const struct batchd_batch *b, void *to, void *stream)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	return r < 0 ? r : loader_end_with_batch(l, converting_labels(l, b, to, stream, &f), &f);
}

/* ---- soft targets ---- */

static int queue_targets(struct link *k, const struct rows *rows, cuda_ptr to, struct cuda_stream *stream)
{
	const struct delivery *d = delivery_of(k);
	cuda_ptr labels = delivery_slot(d, rows->slot) + k->labels_offset + rows->first * k->label_bytes;

	return mix_launch_targets(d, rows->mix, rows->table, rows->n, labels, to, stream);
}

static int converting_targets(struct batchd_loader *l, const struct batchd_batch *b, void *to, void *stream,
			      struct fault *f)
{
	struct rows rows;
	struct link *k;
	int r = find_link(l, &k, f);

	if (r < 0)
		return r;
	if (!k->info.n_mix_classes || !delivery_of(k)->mixes)
		return converting_misuse(
			f, "this loader makes no targets: option mix with targets:classes=N, and a dtype of floats");
	if (!rows_of(k, b, &rows))
		return converting_misuse(f, "this batch is none of this loader's");
	if (!delivery_of(k)->target_kernel)
		return refuse_kernel(k, stream, f);
	if ((uintptr_t)to % sizeof(float))
		return converting_misuse(f, "the target is not aligned for its numbers");
	r = mix_loader_check_labels(l, b, f);
	return r < 0 ? r : with_mixed(l, k, b, &rows, to, stream, queue_targets, "cannot make a batch's targets", f);
}

int batchd_cuda_targets(struct batchd_loader *l, const struct batchd_batch *b, void *to, void *stream)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	return r < 0 ? r : loader_end_with_batch(l, converting_targets(l, b, to, stream, &f), &f);
}

static int wait_for_bytes(struct batchd_loader *l, uint32_t slot, uint64_t generation, void *stream, struct fault *f)
{
	struct rows rows = { .slot = slot };
	struct link *k;
	int r = find_link(l, &k, f);

	return r < 0 ? r : with_batch(k, &rows, generation, 0, false, stream, NULL, "cannot wait for a batch", f);
}

/* ---- arrays ---- */

/* How much of a slot is on the GPU. */
static size_t copied_bytes(const struct link *k, uint32_t slot)
{
	size_t offset, n_bytes;

	if (k->info.served)
		return link_room(k, slot);
	fields_rest(&k->fields, k->info.group_batch_size, &offset, &n_bytes);
	return n_bytes ? offset + n_bytes : k->info.group_batch_size * (size_t)k->row_bytes;
}

static int queue_array(struct link *k, const struct rows *rows, cuda_ptr to, struct cuda_stream *stream)
{
	const struct delivery *d = delivery_of(k);

	return d->gpu.driver->memcpy_dtod_async(to, delivery_slot(d, rows->slot) + rows->offset, rows->n_bytes, stream);
}

static int converting_array(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_array *a,
			    void *to, void *stream, struct fault *f)
{
	struct rows rows = { .slot = b->slot, .n_bytes = (size_t)a->n_bytes };
	struct link *k;
	size_t room;
	int r = find_link(l, &k, f);

	if (r < 0)
		return r;
	if (b->slot >= k->n_slots)
		return converting_misuse(f, "this batch is none of this loader's");
	room = copied_bytes(k, b->slot);
	rows.offset = (size_t)((char *)a->data - link_data(k, b->slot));
	if (a->offsets)
		return converting_misuse(f, "a ragged field stays in host memory: copy it from there");
	if (rows.offset > room || rows.n_bytes > room - rows.offset)
		return converting_misuse(f, "this array is none of this batch's: batchd_arrays, batchd_get_field");
	if (!rows.n_bytes)
		return wait_for_bytes(l, b->slot, b->generation, stream, f);
	return with_batch(k, &rows, b->generation, (cuda_ptr)(uintptr_t)to, true, stream, queue_array,
			  "cannot copy an array of a batch", f);
}

int batchd_cuda_array(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_array *a, void *to,
		      void *stream)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	return r < 0 ? r : loader_end_with_batch(l, converting_array(l, b, a, to, stream, &f), &f);
}

int batchd_cuda_wait(struct batchd_loader *l, uint32_t slot, uint64_t generation, void *stream)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	return r < 0 ? r : loader_end_with_batch(l, wait_for_bytes(l, slot, generation, stream, &f), &f);
}

/* ---- giving back ---- */

int batchd_cuda_release(struct batchd_loader *l, uint32_t slot, uint64_t generation, void *stream)
{
	struct device_lease *lease = NULL;
	struct link *owner;
	struct fault f = { 0 };
	int r;

	if (loader_is_foreign(l))
		return BATCHD_E_FORKED;
	pthread_mutex_lock(&l->lock);
	owner = links_find(l, generation);
	if (owner && owner->gpu)
		lease = delivery_lease(owner, slot, generation);
	r = lease ? delivery_release_behind(delivery_of(owner), lease, stream, &f)
		  : fault_set(&f, BATCHD_E_INVALID, "batchd_cuda_release: %s",
			      l->link && l->link->gpu ? "this batch is no longer on loan, or a tensor has it"
						      : "this loader delivers to no GPU: option device");
	loader_tell(l, &f);
	pthread_mutex_unlock(&l->lock);
	return r;
}
