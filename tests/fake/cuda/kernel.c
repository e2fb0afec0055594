/* Modules and kernels. The fake driver cannot run GPU code, so a kernel is found by name among those written for the host
 * (kernels.c). It runs on the stream's thread, on the memory behind the pointers it was given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "kernels.h"

struct CUfunc_st {
	struct CUfunc_st *next;
	const struct fakecuda_kernel *kernel;
};

struct CUmod_st {
	struct CUmod_st *next; /* first member: report.c counts with it */
	struct CUfunc_st *functions;
	uint64_t magic;
};

/* A fatbin, its wrapper, a cubin, or PTX text. */
static bool image_known(const void *image)
{
	uint32_t magic;

	if (!image)
		return false;
	memcpy(&magic, image, sizeof magic);
	if (magic == 0xba55ed50u || magic == 0x466243b1u || magic == 0x464c457fu)
		return true;
	return strstr(image, ".version") && strstr(image, ".target");
}

/* A driver compiles PTX up to the version of its own CUDA. CUDA 11.N has PTX 7.N, and each later major number one
 * more. */
static bool ptx_is_too_new(const char *text)
{
	const char *version = strncmp(text, ".version ", 9) ? NULL : text + 9;
	unsigned major = 0, minor = 0, cuda = (unsigned)settings.version;

	return version && sscanf(version, "%u.%u", &major, &minor) == 2 && 1000 * (major + 4) + 10 * minor > cuda;
}

static CUresult load(CUmodule *module, const void *image)
{
	CUmodule m;

	if (!image_known(image))
		return CUDA_ERROR_INVALID_IMAGE;
	if (ptx_is_too_new(image))
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	m = calloc(1, sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->next = fake.modules;
	fake.modules = m;
	*module = m;
	return CUDA_SUCCESS;
}

static bool valid(CUmodule module)
{
	for (CUmodule m = fake.modules; m; m = m->next)
		if (m == module)
			return true;
	violation("a module was used that does not exist, or no more");
	return false;
}

static CUresult unload(CUmodule module)
{
	if (!valid(module))
		return CUDA_ERROR_INVALID_HANDLE;
	context_drain(NULL);
	for (CUmodule *p = &fake.modules; *p; p = &(*p)->next)
		if (*p == module) {
			*p = module->next;
			break;
		}
	for (struct CUfunc_st *f = module->functions, *next; f; f = next) {
		next = f->next;
		free(f);
	}
	free(module);
	return CUDA_SUCCESS;
}

static CUresult find(CUfunction *function, CUmodule module, const char *name)
{
	const struct fakecuda_kernel *kernel = kernels_find(name);
	CUfunction f;

	if (!valid(module))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!kernel)
		return CUDA_ERROR_NOT_FOUND;
	for (f = module->functions; f; f = f->next)
		if (f->kernel == kernel) {
			*function = f;
			return CUDA_SUCCESS;
		}
	f = calloc(1, sizeof *f);
	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*f = (struct CUfunc_st){ .next = module->functions, .kernel = kernel };
	module->functions = f;
	*function = f;
	return CUDA_SUCCESS;
}

static CUresult load_call(enum api api, CUmodule *module, const void *image)
{
	struct call c;
	CUresult r = call_begin(&c, api, NEED_CONTEXT);

	if (!r)
		r = load(module, image);
	return call_end(&c, r);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	return load_call(API_cuModuleLoadData, module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options, void **values)
{
	(void)n, (void)options, (void)values;
	return load_call(API_cuModuleLoadDataEx, module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return load_call(API_cuModuleLoadFatBinary, module, image);
}

CUresult cuModuleUnload(CUmodule module)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuModuleUnload, NEED_CONTEXT);

	if (!r)
		r = unload(module);
	return call_end(&c, r);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuModuleGetFunction, NEED_CONTEXT);

	if (!r)
		r = find(function, module, name);
	return call_end(&c, r);
}

/* A library is a module without a context; a kernel is a function of it. */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *jit, void **jit_values, unsigned n_jit,
			   int *options, void **values, unsigned n)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuLibraryLoadData, NEED_INIT);

	(void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
	if (!r)
		r = load((CUmodule *)library, code);
	return call_end(&c, r);
}

CUresult cuLibraryUnload(CUlibrary library)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuLibraryUnload, NEED_INIT);

	if (!r)
		r = unload((CUmodule)library);
	return call_end(&c, r);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuLibraryGetKernel, NEED_INIT);

	if (!r)
		r = find((CUfunction *)kernel, (CUmodule)library, name);
	return call_end(&c, r);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuKernelGetFunction, NEED_CONTEXT);

	if (!r)
		*function = (CUfunction)kernel;
	return call_end(&c, r);
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuFuncGetAttribute, NEED_CONTEXT);

	(void)function;
	if (!r)
		*value = attribute == 0 ? 1024 : 0; /* the most threads per block */
	return call_end(&c, r);
}

/* Copies the parameters, because they may change after the call has returned. */
static CUresult take_params(struct launch *l, void **params, void **extra)
{
	const struct fakecuda_kernel *k = l->kernel;
	size_t at = 0, given = 0;
	const char *buffer = NULL;

	for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2)
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			given = *(size_t *)extra[i + 1];
	if (!!params == !!buffer && k->n_params)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < k->n_params; i++) {
		size_t n = k->param_bytes[i], align = n >= 8 ? 8 : n;

		at = (at + align - 1) / align * align;
		if (at + n > sizeof l->bytes || (buffer && at + n > given))
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(l->bytes + at, params ? params[i] : buffer + at, n);
		l->params[i] = l->bytes + at;
		at += n;
	}
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			unsigned bz, unsigned shared_bytes, CUstream stream, void **params, void **extra)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuLaunchKernel, NEED_CONTEXT);
	struct launch *l = NULL;

	if (!r && (!gx || !gy || !gz || !bx || !by || !bz || gy > 65535 || gz > 65535 || bx > 1024 || by > 1024 ||
		   bz > 64 || bx * by * bz > 1024 || shared_bytes > 49152))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		r = stream_for_work(&stream);
	if (!r) {
		l = calloc(1, sizeof *l);
		if (!l)
			abort();
		*l = (struct launch){ .kernel = function->kernel,
				      .grid = {
					      function->kernel->name, { gx, gy, gz }, { bx, by, bz }, shared_bytes } };
		r = take_params(l, params, extra);
	}
	if (!r) {
		count(COUNT_KERNELS, 1);
		stream_submit(stream, &(struct op){ .kind = OP_KERNEL, .launch = l });
	} else {
		free(l);
	}
	return call_end(&c, r);
}

void launch_run(struct launch *l, CUcontext ctx)
{
	(void)ctx;
	l->kernel->run(l->params, &l->grid);
}

/* Never freed, because the end of the kernel's use is unknown. Called only once: after that the context is lost. */
static void *scratch(size_t n_bytes)
{
	static struct piece {
		struct piece *next;
	} *pieces;
	struct piece *p = calloc(1, sizeof *p + 64 + n_bytes);

	if (!p)
		abort();
	pthread_mutex_lock(&fake.lock);
	p->next = pieces;
	pieces = p;
	pthread_mutex_unlock(&fake.lock);
	return (char *)p + 64;
}

void *fakecuda_memory(unsigned long long device_pointer, size_t n_bytes)
{
	struct memory *m;
	void *found = NULL;
	bool partly;

	pthread_mutex_lock(&fake.lock);
	m = memory_find(device_pointer, n_bytes ? n_bytes : 1);
	if (m && m->readable)
		found = m->data + (device_pointer - m->base);
	else if (host_find((void *)(uintptr_t)device_pointer, n_bytes, &partly))
		found = (void *)(uintptr_t)device_pointer;
	if (!found)
		violation("a kernel touched %zu bytes at 0x%llx, which are not all in one allocation%s", n_bytes,
			  device_pointer, m ? " that this process may read" : "");
	if (!found || (m && memory_usable(m)))
		sticky(running_context, CUDA_ERROR_ILLEGAL_ADDRESS);
	pthread_mutex_unlock(&fake.lock);
	return found ? found : scratch(n_bytes);
}
