/* See nvml.h. The declarations are our own: of the library's interface only these calls are used, all of its second
 * version, which every driver of the last ten years has. */
#include "ctl/doctor/nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

typedef void *nvml_device;
struct nvml_utilization {
	unsigned gpu, memory; /* per cent */
};
enum { NVML_PCIE_RECEIVES = 1 };

static struct {
	int (*init)(void);
	int (*count)(unsigned *n);
	int (*device)(unsigned i, nvml_device *d);
	int (*name)(nvml_device d, char *text, unsigned size);
	int (*utilization)(nvml_device d, struct nvml_utilization *u);
	int (*pcie)(nvml_device d, int counter, unsigned *kb_per_s);
} nvml;

static bool nvml_load(void)
{
	static bool tried, loaded;
	void *library;

	if (tried)
		return loaded;
	tried = true;
	library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return false;
	nvml.init = dlsym(library, "nvmlInit_v2");
	nvml.count = dlsym(library, "nvmlDeviceGetCount_v2");
	nvml.device = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	nvml.name = dlsym(library, "nvmlDeviceGetName");
	nvml.utilization = dlsym(library, "nvmlDeviceGetUtilizationRates");
	nvml.pcie = dlsym(library, "nvmlDeviceGetPcieThroughput"); /* may be missing */
	loaded = nvml.init && nvml.count && nvml.device && nvml.name && nvml.utilization && nvml.init() == 0;
	return loaded;
}

unsigned nvml_read(struct nvml_gpu *gpus, unsigned most)
{
	unsigned n = 0, n_read = 0, kb;

	if (!nvml_load() || nvml.count(&n) != 0)
		return 0;
	for (unsigned i = 0; i < n && n_read < most; i++) {
		struct nvml_gpu *g = &gpus[n_read];
		struct nvml_utilization u = { 0 };
		nvml_device d;

		*g = (struct nvml_gpu){ .receives_mb_per_s = -1 };
		if (nvml.device(i, &d) != 0 || nvml.name(d, g->name, sizeof g->name) != 0)
			continue;
		g->name[sizeof g->name - 1] = '\0';
		if (nvml.utilization(d, &u) == 0) {
			g->busy_percent = u.gpu;
			g->memory_percent = u.memory;
		}
		if (nvml.pcie && nvml.pcie(d, NVML_PCIE_RECEIVES, &kb) == 0)
			g->receives_mb_per_s = kb / 1e3;
		n_read++;
	}
	return n_read;
}
