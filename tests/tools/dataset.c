/* Prints a data set, one sample a line: name <TAB> label; class names first, as "# class". For tests that compare with torchvision's rule.
 *
 *     dataset SPEC [CACHE_DIR]
 *
 * Names are escaped like \xNN where they are not printable ASCII. An error goes to stderr, exit code 1. */
#include <stdio.h>
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

int main(int argc, char **argv)
{
	struct data_access access = { .trusted = true, .uid = getuid() };
	struct dataset_source source = { .access = &access };
	struct dataset_error err;
	struct dataset *ds;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: dataset SPEC [CACHE_DIR]\n");
		return 2;
	}
	source.spec = argv[1];
	source.cache_dir = argc > 2 ? argv[2] : NULL;
	if (dataset_open(&source, &ds, &err) < 0) {
		fprintf(stderr, "dataset: %s\n", err.text);
		return 1;
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
