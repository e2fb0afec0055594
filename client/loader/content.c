/* The content of a batch on loan: its fields, or a producer's arrays. */
#include <stdio.h>

#include "link/arrays.h"
#include "loader/links.h"
#include "loader/loader.h"
#include "link/names.h"

/* The link that lent the batch, which lives as long as the batch is on loan; NULL: it is not. */
static struct link *link_of(struct batchd_loader *l, const struct batchd_batch *b)
{
	struct link *k;

	pthread_mutex_lock(&l->lock);
	k = links_find(l, b->generation);
	pthread_mutex_unlock(&l->lock);
	return k && b->slot < k->n_slots ? k : NULL;
}

static int read_arrays(struct batchd_loader *l, const struct batchd_batch *b, struct batchd_array *arrays, uint32_t max,
		       const char **text, size_t *n_text, struct fault *f)
{
	struct link *k;

	if (!l->served)
		return fault_set(f, BATCHD_E_INVALID,
				 "batchd_arrays is for batches of producers (serve:NAME): see batchd_get_field");
	k = link_of(l, b);
	if (!k)
		return fault_set(f, BATCHD_E_INVALID, "batchd_arrays: this batch is no longer on loan");
	return arrays_read(b->data, link_room(k, b->slot), arrays, max, text, n_text, f);
}

int batchd_arrays(struct batchd_loader *l, const struct batchd_batch *b, struct batchd_array *arrays, uint32_t max,
		  const char **text, size_t *n_text)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	if (r < 0)
		return r;
	return loader_end_with_batch(l, read_arrays(l, b, arrays, max, text, n_text, &f), &f);
}

/* ---- fields ---- */

static void list_names(const struct link_fields *fields, char *text, size_t size)
{
	size_t at = 0;

	*text = '\0';
	for (uint32_t i = 0; i < fields->n && at < size; i++)
		at += (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "", fields->list[i].name);
}

/* name: NULL to go by number. */
static int read_served(struct link *k, const struct batchd_batch *b, const char *name, uint32_t number,
		       struct batchd_array *out, struct fault *f)
{
	struct batchd_array arrays[BATCHD_MAX_ARRAYS];
	const char *text;
	size_t n_text;
	int n = arrays_read(b->data, link_room(k, b->slot), arrays, BATCHD_MAX_ARRAYS, &text, &n_text, f);
	int found = n < 0 || !name ? (int)number : names_find(text, n_text, name);

	if (n < 0)
		return n;
	if (found < 0 || found >= n)
		return name ? fault_set(f, BATCHD_E_INVALID, "this batch is no dictionary with an array '%s'", name)
			    : fault_set(f, BATCHD_E_INVALID, "field %u: this batch has %d arrays", number, n);
	*out = arrays[found];
	if (b->device_data)
		out->device_data = (char *)b->device_data + ((char *)out->data - (char *)b->data);
	return 0;
}

static int read_field(struct batchd_loader *l, const struct batchd_batch *b, const char *name, uint32_t number,
		      struct batchd_array *out, struct fault *f)
{
	struct link *k = link_of(l, b);
	const struct link_field *field;
	const char *slot;
	char names[1024];

	if (!k)
		return fault_set(f, BATCHD_E_INVALID, "batchd_get_field: this batch is no longer on loan");
	if (k->info.served)
		return read_served(k, b, name, number, out, f);
	field = name ? fields_find(&k->fields, name) : number < k->fields.n ? &k->fields.list[number] : NULL;
	if (!field && !name)
		return fault_set(f, BATCHD_E_INVALID, "field %u: this loader's batches have %u", number, k->fields.n);
	if (!field) {
		list_names(&k->fields, names, sizeof names);
		return fault_set(f, BATCHD_E_INVALID, "this loader's batches have no field '%s': they have %s", name,
				 names);
	}
	if (b->row + (uint64_t)b->n_rows > k->info.group_batch_size)
		return fault_set(f, BATCHD_E_INVALID, "batchd_get_field: this batch is none of this loader's");
	slot = slab_slot(k->slab, b->slot);
	if (!field_read(field, slot, b->row, b->n_rows, out))
		return fault_set(f, BATCHD_E_PROTOCOL, "the offsets of field '%s' have been overwritten", field->name);
	if (b->device_data && !field->is.ragged)
		out->device_data = (char *)b->device_data - b->row * k->row_bytes + ((char *)out->data - slot);
	return 0;
}

int batchd_get_field(struct batchd_loader *l, const struct batchd_batch *b, const char *name, struct batchd_array *out)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	return r < 0 ? r : loader_end_with_batch(l, read_field(l, b, name, 0, out, &f), &f);
}

int batchd_get_field_at(struct batchd_loader *l, const struct batchd_batch *b, uint32_t number,
			struct batchd_array *out)
{
	struct fault f = { 0 };
	int r = loader_enter_with_batch(l);

	return r < 0 ? r : loader_end_with_batch(l, read_field(l, b, NULL, number, out, &f), &f);
}
