/* The fields of a link's batches: what the daemon says about them, checked, and where they lie in a slot. */
#ifndef BATCHD_CLIENT_FIELD_H
#define BATCHD_CLIENT_FIELD_H

#include <stdbool.h>

#include "batchd.h"
#include "link/error.h"
#include "wire.h"

struct link_field {
	struct batchd_field is; /* is.name: this struct's `name` */
	char name[WIRE_MAX_FIELD_NAME + 1];
	uint64_t item_bytes; /* of a row; ragged: of a value */
	size_t offset, values_offset;
	bool to_tensor; /* of a view: its bytes may be converted to floats */
};

struct link_fields {
	struct link_field *list; /* owned */
	uint32_t n;
};

/* Of one number; 0: an image or array has no such type. */
size_t field_dtype_bytes(unsigned dtype);
/* Takes them from an Opened. NULL, or what is wrong with it, for a person. *no_memory: that is the reason. */
const char *fields_take(const Batchd__Wire__Opened *m, uint32_t batch_size, struct link_fields *out, bool *no_memory);
void fields_finish(struct link_fields *fields);
/* The first dense one, and the dense one named "label"; NULL: there is none. */
const struct link_field *fields_first(const struct link_fields *fields);
const struct link_field *fields_label(const struct link_fields *fields);
/* NULL: there is none of this name. */
const struct link_field *fields_find(const struct link_fields *fields, const char *name);
/* Rows row to row + n_rows - 1 of a field of the batch in `slot`. False: the slot's offsets make no sense. */
bool field_read(const struct link_field *f, const char *slot, uint32_t row, uint32_t n_rows, struct batchd_array *out);
/* Where the dense fields after the first begin in a slot, and how many bytes a batch takes from there. */
void fields_rest(const struct link_fields *fields, uint32_t n_rows, size_t *offset, size_t *n_bytes);

#endif
