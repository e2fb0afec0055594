/* The finishing kernels in machine code. The Makefile builds image.c where there is nvcc, image-none.c where there is
 * not (or CUDA=0). */
#ifndef BATCHD_CUDA_IMAGE_H
#define BATCHD_CUDA_IMAGE_H

#include <stddef.h>

/* What cuModuleLoadData takes; static. NULL: the library was built without. */
const void *finish_image(void);

#endif
