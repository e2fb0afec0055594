/* Arrays of equally many rows: what several kinds of data sets are made of. A kind opens or makes its arrays, and the
 * functions here gather their rows. Only daemon/dataset includes this. */
#ifndef BATCHD_ARRAYS_H
#define BATCHD_ARRAYS_H

#include "dataset/impl.h"
#include "dataset/mapped.h"
#include "dataset/arrays/npy.h"

struct array {
	const char *rows; /* first element: in a mapped file, or in `owned` */
	size_t row_bytes;
	void *owned; /* malloc'ed; NULL: none */
	enum dtype dtype;
	bool widened; /* integer scalars that are delivered as int64 */
};

/* dataset.fields[k] describes arrays[k]. */
struct arrays {
	struct dataset base;
	struct array *arrays;
	struct mapped *files;
	struct sigbus_range *ranges; /* of the files */
	unsigned n_arrays, n_files;
	unsigned n_allocated; /* of each */
	char name[200];       /* of all of them, for messages */
};

extern const struct dataset_ops arrays_ops;

/* Has room for n arrays in n files. NULL with err. */
struct arrays *arrays_create(const struct dataset_source *source, unsigned n, const char *name,
			     struct dataset_error *err);
/* A further file, not yet opened. */
struct mapped *arrays_add_file(struct arrays *a);
/* A further array with its field; rows lies in a file or in memory that `a` frees (owned). shape: of all of it, n_rows first.
 * may_widen: one integer a row becomes int64. 0 or negative errno with err; owned is a's in either case. */
int arrays_add(struct arrays *a, const char *name, enum dtype dtype, unsigned n_dims, const uint64_t *shape,
	       const char *rows, void *owned, bool may_widen, struct dataset_error *err);
/* The same from a parsed header; from: where the file's or member's first byte is. */
int arrays_add_npy(struct arrays *a, const char *name, const struct npy *npy, const char *from, void *owned,
		   bool may_widen, struct dataset_error *err);
/* The last step; ids are hashes of the text and of the content. */
void arrays_end(struct arrays *a, const char *text, uint64_t content, struct dataset **out);

#endif
