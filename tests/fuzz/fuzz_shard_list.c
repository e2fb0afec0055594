/* Lists of shards as wids writes them: any bytes are refused with a text, or give paths that lie below the folder. */
#include <stdlib.h>
#include <string.h>

#include "dataset/shards/list.h"

static int on_shard(void *arg, const struct listed_file *files, unsigned n)
{
	(void)arg;
	if (!n)
		abort();
	for (unsigned i = 0; i < n; i++) {
		const char *path = files[i].path, *slash = strrchr(path, '/');

		if (!path[0] || path[0] == '/' || strncmp(path, "../", 3) == 0 || strstr(path, "/../") ||
		    strcmp(path, "..") == 0 || (slash && strcmp(slash, "/..") == 0)) {
			abort();
		}
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dataset_error err = { "", 0 };

	if (shard_list_parse("x.json", "/data", (const char *)data, size, on_shard, NULL, &err) < 0 && !err.text[0]) {
		abort();
	}
	return 0;
}
