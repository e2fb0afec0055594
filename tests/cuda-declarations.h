/* Our declarations of the driver's functions, and the double's, beside NVIDIA's: the wrong number or kind of a
 * parameter would show on a GPU only. */
#ifndef BATCHD_TESTS_CUDA_DECLARATIONS_H
#define BATCHD_TESTS_CUDA_DECLARATIONS_H

#include <stdbool.h>

bool cuda_declarations_known(void); /* whether NVIDIA's header is here; without it the others find nothing wrong */
const char *cuda_declarations_wrong(void);     /* the first symbol that daemon/cuda/driver.h declares in another way,
                                                * or NULL */
const char *fakecuda_declarations_wrong(void); /* the same of tests/fakecuda/abi.h */

#endif
