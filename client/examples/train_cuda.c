/* A trainer in C with the CUDA runtime API: its batches arrive on the GPU, and an option shows by hand how the library
 * finds them.
 *
 *     make examples                          where CUDA's headers and libcudart are
 *     train_cuda imagefolder:DIR
 *
 * With --by-hand it opens the daemon's memory itself: info.device_handle is the 64 bytes that the daemon sent, which
 * cudaIpcOpenMemHandle takes. The library has the memory open as well; CUDA counts both and returns the same address
 * for both. */
#include <batchd.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA(call) \
	do { \
		cudaError_t result_ = (call); \
		if (result_ != cudaSuccess) { \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(result_)); \
			exit(1); \
		} \
	} while (0)

/* Without a driver and with a driver that is too old the runtime reports the same error. */
static void need_driver(void)
{
	int driver = 0, runtime = 0;

	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (driver >= runtime / 1000 * 1000)
		return;
	if (driver)
		fprintf(stderr,
			"the NVIDIA driver is of CUDA %d.%d and this program's runtime of %d.%d: a newer driver is needed\n",
			driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	else
		fprintf(stderr, "there is no NVIDIA driver (libcuda.so.1) here\n");
	exit(1);
}

/* The daemon's memory on the GPU, found without the library. */
static const char *open_by_hand(const struct batchd_info *info)
{
	cudaIpcMemHandle_t handle;
	void *slab;

	memcpy(&handle, info->device_handle, sizeof handle);
	CUDA(cudaIpcOpenMemHandle(&slab, handle, cudaIpcMemLazyEnablePeerAccess));
	return slab;
}

int main(int argc, char **argv)
{
	struct batchd_options o;
	struct batchd_loader *loader;
	struct batchd_info info = { .size_bytes = sizeof info };
	struct batchd_batch b = { .size_bytes = sizeof b };
	int by_hand = argc > 1 && strcmp(argv[1], "--by-hand") == 0, r;
	const char *slab = NULL;
	cudaStream_t stream;
	float *images, pixel;
	size_t n;
	char err[512];

	batchd_options_init(&o);
	o.dataset = argc > 1 + by_hand ? argv[1 + by_hand] : "random:length=1000,shape=3x224x224,dtype=float32";
	o.shuffle = 1;
	o.device = "cuda:0";
	need_driver();
	CUDA(cudaSetDevice(0));
	if (batchd_open(&o, &loader, err, sizeof err) < 0)
		return fprintf(stderr, "%s\n", err), 1;
	batchd_get_info(loader, &info);
	if (info.dtype != BATCHD_FLOAT32) {
		fprintf(stderr, "this trainer takes rows of float32\n");
		batchd_close(loader);
		return 1;
	}
	n = info.batch_size;
	if (info.device_path == BATCHD_DEVICE_COPY)
		fprintf(stderr, "batches are copied by this process: %s\n", info.device_reason);
	else if (by_hand && info.device_path != BATCHD_DEVICE_IPC)
		fprintf(stderr, "there is no handle to open by hand: the daemon's memory came as a descriptor\n");
	else if (by_hand)
		slab = open_by_hand(&info);
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (uint32_t i = 0; i < info.n_dims; i++)
		n *= info.shape[i];
	CUDA(cudaMalloc((void **)&images, n * sizeof *images));

	r = batchd_start(loader, 0, 0, 0, NULL);
	while (r >= 0 && (r = batchd_next(loader, &b, BATCHD_FOREVER)) == BATCHD_OK) {
		/* One kernel makes the tensor; a model's work follows on the same stream. Nothing here waits for the
		 * GPU. */
		r = batchd_cuda_finish(loader, &b, images, stream);
		if (r >= 0)
			r = batchd_cuda_release(loader, b.slot, b.generation, stream);
		if (slab)
			printf("batch %llu lies %zu bytes into the daemon's memory\n", (unsigned long long)b.step,
			       (size_t)((const char *)b.device_data - slab));
	}
	if (r < 0)
		fprintf(stderr, "%s\n", batchd_error(loader));
	CUDA(cudaMemcpyAsync(&pixel, images, sizeof pixel, cudaMemcpyDeviceToHost, stream));
	CUDA(cudaStreamSynchronize(stream));
	printf("the last batch begins with %f\n", pixel);
	if (slab)
		CUDA(cudaIpcCloseMemHandle((void *)slab)); /* before the library tells the daemon that no process uses
		                                            * it */
	batchd_close(loader);
	CUDA(cudaFree(images));
	CUDA(cudaStreamDestroy(stream));
	return r < 0;
}
