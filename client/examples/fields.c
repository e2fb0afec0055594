/* A trainer in C on samples of several fields, found by their names: each row's texts, and the means of its numbers.
 *   cc fields.c $(pkg-config --cflags --libs batchd) -o fields
 *   ./fields 'tar:/data/train-{000..127}.tar#image=jpg;png,text=txt,label=cls' '[["CenterCrop", 224], "ToTensor"]' */
#include <batchd.h>
#include <stdio.h>

static double number(const struct batchd_array *a, uint64_t i)
{
	switch (a->dtype) {
	case BATCHD_UINT8:
		return ((const uint8_t *)a->data)[i];
	case BATCHD_INT64:
		return (double)((const int64_t *)a->data)[i];
	case BATCHD_FLOAT32:
		return ((const float *)a->data)[i];
	default:
		return -1; /* a real trainer has a case for each type that it asks for */
	}
}

static void print_row(const char *name, const struct batchd_array *a, uint64_t row)
{
	uint64_t first = row, behind = row + 1;
	double sum = 0;

	if (a->offsets) { /* ragged: rows of any length, one after the other */
		first = (uint64_t)(a->offsets[row] - a->offsets[0]);
		behind = (uint64_t)(a->offsets[row + 1] - a->offsets[0]);
	}
	if (a->text) {
		printf("\t%s=%.*s", name, (int)(behind - first), (const char *)a->data + first);
		return;
	}
	for (uint32_t d = 1; d < a->n_dims; d++) {
		first *= a->shape[d];
		behind *= a->shape[d];
	}
	for (uint64_t i = first; i < behind; i++)
		sum += number(a, i);
	printf("\t%s=%.4f", name, behind > first ? sum / (double)(behind - first) : 0.0);
}

int main(int argc, char **argv)
{
	struct batchd_options o;
	struct batchd_loader *loader;
	struct batchd_info info = { .size_bytes = sizeof info };
	struct batchd_batch b = { .size_bytes = sizeof b };
	char err[512];
	int r;

	batchd_options_init(&o);
	o.dataset = argc > 1 ? argv[1] : "random:length=8,shape=2x3,dtype=uint8,field=x:float32:4";
	o.transform = argc > 2 ? argv[2] : NULL;
	o.batch_size = 4;
	if (batchd_open(&o, &loader, err, sizeof err) < 0)
		return fprintf(stderr, "%s\n", err), 1;
	batchd_get_info(loader, &info);
	r = batchd_start(loader, 0, 0, 0, NULL);
	while (r >= 0 && (r = batchd_next(loader, &b, BATCHD_FOREVER)) == BATCHD_OK) {
		for (uint32_t row = 0; row < b.n_rows; row++) {
			printf("%lld", (long long)b.indices[row]);
			for (uint32_t f = 0; f < info.n_fields; f++) {
				struct batchd_array a;

				if (batchd_get_field(loader, &b, info.fields[f].name, &a) == 0)
					print_row(info.fields[f].name, &a, row);
			}
			printf("\n");
		}
		r = batchd_release(loader, b.slot, b.generation);
	}
	if (r < 0)
		fprintf(stderr, "%s\n", batchd_error(loader));
	batchd_close(loader);
	return r < 0;
}
