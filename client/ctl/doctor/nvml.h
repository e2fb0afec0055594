/* How busy this machine's NVIDIA GPUs are, by the driver's management library, where there is one. One thread. */
#ifndef BATCHCTL_NVML_H
#define BATCHCTL_NVML_H

struct nvml_gpu {
	char name[96];
	unsigned busy_percent, memory_percent; /* of the last sampling period: kernels ran, memory was used */
	double receives_mb_per_s;              /* over PCIe; negative: not known */
};

/* The first `most` of them; 0 without the library. The library is loaded once. */
unsigned nvml_read(struct nvml_gpu *gpus, unsigned most);

#endif
