/* Prints a data set, one sample a line: name <TAB> label; class names first, as "# class". For tests that compare with
 * torchvision's rule.
 *
 *     dataset SPEC [CACHE_DIR]
 *     dataset --values SPEC NAME  (a ragged field: each sample's bytes as a line of hexadecimal digits)
 *     dataset --read SPEC         (images: each file's bytes as a line of hexadecimal digits, or "! " and the error)
 *     dataset --rows SPEC         (arrays: all rows of a dense field as raw bytes, then those of the next)
 *
 * $LOG_LEVEL, such as info, says how much is logged. Names are escaped like \xNN where they are not printable ASCII. An
 * error goes to stderr, exit code 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/dataset.h"
#include "base/log.h"

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

static int print_rows(struct dataset *ds)
{
	unsigned n_fields = dataset_n_fields(ds);
	void *rows[DATASET_MAX_FIELDS] = { NULL };
	size_t n = dataset_n(ds), bytes[DATASET_MAX_FIELDS];
	uint64_t *indices = calloc(n, sizeof(*indices));
	bool failed = !indices;
	struct dataset_error err;

	for (size_t i = 0; indices && i < n; i++) {
		indices[i] = i;
	}
	for (unsigned k = 0; k < n_fields; k++) {
		const struct field *f = dataset_field(ds, k);

		if (f->kind == FIELD_DENSE && field_item_bytes(f, &bytes[k]) == 0) {
			rows[k] = calloc(n, bytes[k]);
			failed |= !rows[k];
		}
	}
	if (failed || dataset_gather(ds, indices, n, rows, &err) < 0) {
		fprintf(stderr, "dataset: cannot gather\n");
		failed = true;
	}
	for (unsigned k = 0; k < n_fields; k++) {
		failed |= !failed && rows[k] && fwrite(rows[k], bytes[k], n, stdout) != n;
		free(rows[k]);
	}
	free(indices);
	return failed || fflush(stdout);
}

static int print_values(struct dataset *ds, const char *name)
{
	int field = dataset_find_field(ds, name);

	if (field < 0 || dataset_field(ds, (unsigned)field)->kind != FIELD_RAGGED) {
		fprintf(stderr, "dataset: no ragged field %s\n", name);
		return 1;
	}
	for (uint64_t i = 0; i < dataset_n(ds); i++) {
		struct field_value v;

		dataset_value(ds, i, (unsigned)field, &v);
		for (size_t k = 0; k < v.n_bytes; k++) {
			printf("%02x", ((const unsigned char *)v.bytes)[k]);
		}
		putchar('\n');
	}
	return fflush(stdout) ? 1 : 0;
}

static int print_files(struct dataset *ds)
{
	struct file_bytes b = { 0 };

	for (uint64_t i = 0; i < dataset_n(ds); i++) {
		struct dataset_error err = { "", 0 };

		if (dataset_read(ds, i, READ_WAIT, &b, &err) < 0) {
			printf("! %s\n", err.text);
			continue;
		}
		for (size_t k = 0; k < b.n_bytes; k++) {
			printf("%02x", b.data[k]);
		}
		putchar('\n');
		if (dataset_is_current(ds, i, READ_WAIT, &b) != 1) {
			printf("! not current\n");
		}
	}
	file_bytes_finish(&b);
	return fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
	enum log_level level;

	if (getenv("LOG_LEVEL") && log_level_parse(getenv("LOG_LEVEL"), &level) == 0) {
		log_set_level(level);
	}
	struct data_access access = { .trusted = true, .uid = getuid() };
	struct dataset_source source = { .access = &access };
	int wants_rows = argc == 3 && !strcmp(argv[1], "--rows");
	int wants_values = argc == 4 && !strcmp(argv[1], "--values");
	int wants_files = argc == 3 && !strcmp(argv[1], "--read"), wants = wants_rows || wants_values || wants_files;
	struct dataset_error err;
	struct dataset *ds;

	if (argc < 2 || argc > 3 + wants_values) {
		fprintf(stderr, "usage: dataset SPEC [CACHE_DIR] | dataset --read SPEC | dataset --rows SPEC |\n"
				"       dataset --values SPEC NAME\n");
		return 2;
	}
	source.spec = argv[1 + wants];
	source.cache_dir = argc > 2 && !wants ? argv[2] : NULL;
	if (dataset_open(&source, &ds, &err) < 0) {
		fprintf(stderr, "dataset: %s\n", err.text);
		return 1;
	}
	if (wants) {
		int r = wants_rows ? print_rows(ds) : wants_files ? print_files(ds) : print_values(ds, argv[3]);

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
