/* Prints a data set, one sample a line: name <TAB> label; class names first, as "# class". For tests that compare with
 * torchvision's rule.
 *
 *     dataset SPEC [CACHE_DIR]
 *     dataset --rows SPEC         (arrays: all rows as raw bytes, then all labels)
 *
 * Names are escaped like \xNN where they are not printable ASCII. An error goes to stderr, exit code 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"

static void print_escaped(const char *s)
{
	for (; *s; s++) {
		if (*s > ' ' && *s <= '~' && *s != '\\') {
			putchar(*s);
		} else {
			printf("\\x%02x", (unsigned char)*s);
		}
	}
}

static size_t bytes_of(unsigned n_dims, const uint32_t *shape, enum dtype dtype)
{
	size_t n = dtype_bytes(dtype);

	for (unsigned i = 0; i < n_dims; i++) {
		n *= shape[i];
	}
	return n;
}

static int print_rows(struct dataset *ds)
{
	uint32_t shape[DATASET_MAX_DIMS];
	enum dtype dtype;
	unsigned n_dims = dataset_shape(ds, shape, &dtype);
	size_t n = dataset_n(ds), row_bytes = bytes_of(n_dims, shape, dtype), label_bytes;
	uint64_t *indices = calloc(n, sizeof(*indices));
	struct dataset_error err;
	char *rows, *labels;
	int r = 1;

	n_dims = dataset_label_shape(ds, shape, &dtype);
	label_bytes = bytes_of(n_dims, shape, dtype);
	rows = calloc(n, row_bytes);
	labels = calloc(n, label_bytes);
	for (size_t i = 0; indices && i < n; i++) {
		indices[i] = i;
	}
	if (!indices || !rows || !labels || dataset_gather(ds, indices, n, rows, labels, &err) < 0) {
		fprintf(stderr, "dataset: cannot gather\n");
	} else {
		r = fwrite(rows, row_bytes, n, stdout) != n || fwrite(labels, label_bytes, n, stdout) != n ||
		    fflush(stdout);
	}
	free(indices);
	free(rows);
	free(labels);
	return r;
}

int main(int argc, char **argv)
{
	struct data_access access = { .trusted = true, .uid = getuid() };
	struct dataset_source source = { .access = &access };
	int wants_rows = argc == 3 && !strcmp(argv[1], "--rows");
	struct dataset_error err;
	struct dataset *ds;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: dataset SPEC [CACHE_DIR] | dataset --rows SPEC\n");
		return 2;
	}
	source.spec = argv[1 + wants_rows];
	source.cache_dir = argc > 2 && !wants_rows ? argv[2] : NULL;
	if (dataset_open(&source, &ds, &err) < 0) {
		fprintf(stderr, "dataset: %s\n", err.text);
		return 1;
	}
	if (wants_rows) {
		int r = print_rows(ds);

		dataset_unref(ds);
		return r;
	}
	for (uint32_t i = 0; i < dataset_n_classes(ds); i++) {
		printf("# ");
		print_escaped(dataset_class(ds, i));
		putchar('\n');
	}
	for (uint64_t i = 0; i < dataset_n(ds); i++) {
		char name[4400];

		dataset_name(ds, i, name, sizeof(name));
		print_escaped(name);
		printf("\t%lld\n", (long long)dataset_label(ds, i));
	}
	dataset_unref(ds);
	return fflush(stdout) ? 1 : 0;
}
