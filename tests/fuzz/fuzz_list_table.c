/* Lists with columns: any lines are refused with a text, or become rows whose values are all there. The first byte chooses
 * the separator and whether fields are wanted. */
#include <stdlib.h>
#include <string.h>

#include "dataset/folder/list-table.h"
#include "support/sources-text.h"

static int take_lines(struct list_table *t, const char *text, size_t size)
{
	const char *end = text + size;
	int r = 0;

	while (r >= 0 && text < end) {
		const char *stop = memchr(text, '\n', (size_t)(end - text)), *path;
		int64_t label;

		stop = stop ? stop : end;
		r = memchr(text, '\0', (size_t)(stop - text))
			    ? -EINVAL
			    : list_table_take(t, text, (size_t)(stop - text), &path, &label);
		if (r == 0) {
			r = manifest_add_labelled_file(t->builder, 0, path, strlen(path), label);
		} else if (r == -EINVAL) {
			return r;
		}
		text = stop + 1;
	}
	return r < 0 ? r : list_table_end(t);
}

static void use(const struct list_table *t, uint64_t n_rows)
{
	size_t n_bytes = columns_size(&t->columns);
	char *part = malloc(n_bytes);
	struct columns columns;

	if (!part) {
		return;
	}
	columns_write(&t->columns, part);
	if (n_rows && columns_parse(part, n_bytes, n_rows, &columns) < 0) {
		abort();
	}
	free(part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct manifest_builder b = { 0 };
	struct list_table *t = calloc(1, sizeof(*t));

	if (t && size) {
		t->separator = *data & 1 ? ',' : '\t';
		t->source = fields_of(*data & 8   ? (*data & 2 ? "label=a:float,x=b:int,y=c:float"
							       : "label=a:class,x=b:text,p=a;c:float")
				      : *data & 4 ? "label=a;c,image=path,text=b"
				      : *data & 2 ? "image=path,label=a,text=b,pair=a;c"
						  : NULL);
		t->builder = &b;
		if (take_lines(t, (const char *)data + 1, size - 1) == 0) {
			use(t, b.n_files);
		}
		list_table_finish(t);
	}
	free(t);
	manifest_builder_finish(&b);
	return 0;
}
