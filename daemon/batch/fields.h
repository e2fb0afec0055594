/* The fields that a loader delivers: which of the data set's, what they are after the pipeline, and their places in a
 * slot. */
#ifndef BATCHD_FIELDS_H
#define BATCHD_FIELDS_H

#include "batch/loader-spec.h"
#include "batch/sample.h"
#include "batch/slab.h"

/* list: names separated by commas, in any order; NULL or empty: all fields. Constant data; any thread. */
bool fields_wants(const char *list, const char *name);
/* Whether the data set has every name of the list. If not, text says which it lacks, and which there are. */
bool fields_check(const struct dataset *ds, const char *list, char *text, size_t size);

/* Whether the pipeline's views can be fields beside the wanted ones of the data set. If not, text says why. */
bool fields_check_views(const struct recipe *recipe, const char *list, char *text, size_t size);

/* The wanted fields in the data set's order, in *out (the caller frees it), and the layout of a batch of them. Where there
 * is a pipeline, its views stand for the data set's first field. In the layout slot_field.number is the data set's number
 * of the field (0 of all views), and out[k] describes layout->field[k]. 0, -ENOMEM, -EOVERFLOW. */
int fields_make(const struct recipe *recipe, const struct loader_spec *spec, struct field **out,
		struct slot_layout *layout);
/* For an error about the size of batches: where most of it is room for the values of one ragged field, which one, and what
 * to do; otherwise "". fields, layout: as fields_make has made them. */
void fields_explain(const struct field *fields, const struct slot_layout *layout, char *text, size_t size);

#endif
