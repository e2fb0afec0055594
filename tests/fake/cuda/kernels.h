/* The kernels that exist on the fake driver. */
#ifndef BATCHD_TESTS_FAKECUDA_KERNELS_H
#define BATCHD_TESTS_FAKECUDA_KERNELS_H

#include "fakecuda.h"

/* NULL: no kernel has that name. */
const struct fakecuda_kernel *kernels_find(const char *name);

#endif
