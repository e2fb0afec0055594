/* Compares batchd's declarations of the driver's functions, and the fake driver's, with NVIDIA's: a wrong number or type of
 * parameters would otherwise show on a GPU only. */
#ifndef BATCHD_TESTS_CUDA_DECLARATIONS_H
#define BATCHD_TESTS_CUDA_DECLARATIONS_H

#include <stdbool.h>

bool cuda_declarations_known(void); /* whether NVIDIA's header exists; without it the functions below find nothing */
const char *cuda_declarations_wrong(void);     /* the first symbol that daemon/gpu/driver.h declares differently, or
                                                * NULL */
const char *fakecuda_declarations_wrong(void); /* the same for tests/fake/cuda/abi.h */

#endif
