/* Lists of files: any bytes are refused with text, or become an index; for peers an index in which no path leads
 * out. */
#include <stdlib.h>
#include <string.h>

#include "dataset/folder/filelist.h"

static void use(const struct manifest *ix, int beneath)
{
	for (uint64_t i = 0; i < ix->n_files; i++) {
		char name[4400];

		manifest_name(ix, i, name, sizeof(name));
		if (beneath && (name[0] == '/' || !strncmp(name, "../", 3) || strstr(name, "/../"))) {
			abort();
		}
		(void)manifest_label(ix, i);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (int beneath = 0; beneath < 2; beneath++) {
		struct dataset_error err = { "", 0 };
		struct manifest ix;

		if (filelist_parse((const char *)data, size, "list", beneath, &ix, &err) < 0) {
			if (!err.text[0]) {
				abort();
			}
		} else {
			use(&ix, beneath);
			manifest_finish(&ix);
		}
	}
	return 0;
}
