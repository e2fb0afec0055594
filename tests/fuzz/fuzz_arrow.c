/* Arrow's IPC streams and files: any bytes are refused with a text, or become rows whose pictures lie inside the
 * file and whose values are as many as the fields say. The second run takes all columns of the seeds as fields. */
#include <stdlib.h>
#include <string.h>

#include "dataset/arrow/index.h"
#include "support/sources-text.h"

static void fuzz_check_column(const struct arrow_column *c, uint64_t row)
{
	struct field_value v;
	uint8_t sum = 0;

	arrow_column_value(c, row, &v);
	for (size_t i = 0; i < v.n_bytes; i++) {
		sum ^= ((const uint8_t *)v.bytes)[i];
	}
	(void)*(volatile uint8_t *)&sum;
}

static int more_memory(void *arg, uint64_t bytes)
{
	uint64_t *left = arg;

	if (bytes > *left) {
		return -EDQUOT;
	}
	*left -= bytes;
	return 0;
}

static void scan(const uint8_t *data, size_t size, const char *list, const struct arrow_rows *rows)
{
	struct dataset_error err = { "", 0 };
	uint64_t left = 16 << 20;
	struct meter meter = { .more = more_memory, .arg = &left };
	struct shard_reader reader = { .fd = -1, .bytes = data, .n_bytes = size, .name = "x.arrow", .err = &err };
	static struct arrow_index index; /* 50 kB, which arrow_index_finish leaves zeroed */
	struct arrow_index *ix = &index;
	int r;

	ix->meter = &meter;
	r = arrow_index_add(ix, &reader, fields_of(list), rows);
	if (r < 0 && !err.text[0]) {
		abort();
	}
	for (uint64_t i = 0; r == 0 && i < ix->n_rows && i < 4096; i++) {
		for (unsigned k = 0; k < ix->choices.n; k++) {
			if ((int)k != ix->choices.image) {
				fuzz_check_column(&ix->columns[k], i);
			} else if (ix->n_bytes[i] == ARROW_IN_FILE
					   ? ix->at[i] >= ix->paths.n
					   : ix->at[i] > size || ix->n_bytes[i] > size - ix->at[i]) {
				abort();
			}
		}
	}
	arrow_index_finish(ix);
	shard_reader_finish(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t some[] = { 0x5d, 0xf0 };
	struct arrow_rows all = { NULL, 0 }, few = { some, 16 };

	scan(data, size, NULL, &all);
	scan(data, size, "image=i,label=l,t=t,b=b", &all);
	scan(data, size, "v=v,r=r,g=g,f=f,l=l,t=t", &all);
	scan(data, size, "image=i,r=r,t=t,v=v", &few);
	return 0;
}
