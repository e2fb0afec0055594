/* The finishing kernels: in machine code for the GPUs that nvcc knows, and as PTX, from which a driver makes machine
 * code for any other. The Makefile builds fatbin.c where there is nvcc, fatbin-none.c where there is not (or
 * CUDA=0). */
#ifndef BATCHD_CUDA_FATBIN_H
#define BATCHD_CUDA_FATBIN_H

#include <stddef.h>

/* A fatbin for cuModuleLoadData; static. NULL: the library was built without. A driver older than nvcc's CUDA may
 * refuse it. */
const void *convert_image(void);
/* The same kernels as PTX, a string that cuModuleLoadData takes as well, of a version that drivers from 470 on know.
 * NULL: the library was built without. */
const char *convert_ptx(void);

#endif
