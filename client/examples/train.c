/* A trainer in C: two epochs over a data set; the mean of every batch stands for a model.
 *   cc train.c $(pkg-config --cflags --libs batchd) -o train && ./train imagefolder:DIR */
#include <batchd.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct batchd_options o;
	struct batchd_loader *loader;
	struct batchd_info info = { .size_bytes = sizeof info };
	struct batchd_batch b = { .size_bytes = sizeof b };
	char err[512];
	int r = BATCHD_OK;

	batchd_options_init(&o);
	o.dataset = argc > 1 ? argv[1] : "random:length=1000,shape=3x224x224,dtype=float32";
	o.shuffle = 1;
	if (batchd_open(&o, &loader, err, sizeof err) < 0)
		return fprintf(stderr, "%s\n", err), 1;
	batchd_get_info(loader, &info);
	if (info.dtype != BATCHD_FLOAT32) {
		fprintf(stderr, "this trainer takes rows of float32\n");
		batchd_close(loader);
		return 1;
	}
	for (uint64_t epoch = 0; epoch < 2 && r >= 0; epoch++) {
		r = batchd_start(loader, epoch, 0, 0, NULL);
		while (r >= 0 && (r = batchd_next(loader, &b, BATCHD_FOREVER)) == BATCHD_OK) {
			const float *pixels = (const float *)b.data;
			size_t n = b.n_rows;
			double sum = 0;

			for (uint32_t i = 0; i < info.n_dims; i++)
				n *= info.shape[i];
			for (size_t i = 0; i < n; i++)
				sum += pixels[i];
			printf("epoch %llu batch %llu: %u rows, mean %.4f\n", (unsigned long long)epoch,
			       (unsigned long long)b.step, b.n_rows, sum / (double)n);
			r = batchd_release(loader, b.slot, b.generation);
		}
	}
	if (r < 0)
		fprintf(stderr, "%s\n", batchd_error(loader));
	batchd_close(loader);
	return r < 0;
}
