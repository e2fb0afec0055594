/* The driver's functions as the GPU programs here use them, and their small kernels. The declarations are the fake driver's
 * own list (tests/fake/cuda/abi.h), which is of CUDA 13: an older driver lacks some of its names. */
#ifndef BATCHD_TESTS_GPU_CUDA_H
#define BATCHD_TESTS_GPU_CUDA_H

#include <stdbool.h>

#include "fake/cuda/abi.h"

struct cuda {
#define MEMBER(name, symbol, since, params) __typeof__(&symbol) symbol;
	FAKECUDA_API(MEMBER)
#undef MEMBER
};
extern struct cuda cu;

/* $BATCHD_LIBCUDA, else libcuda.so.1. NULL, or why not. A call that the library lacks returns CUDA_ERROR_NOT_FOUND. */
const char *cuda_load(void);
bool cuda_lacks(const char *symbol);
/* On the fake driver: fakecuda_gate. */
void cuda_gate(bool open);
const char *cuda_name(CUresult r); /* "INVALID_VALUE" */

/* PTX: conformance_add(to, from, add, n), conformance_spin(ns), conformance_count(to, ns), conformance_fma(to,
 * n_rounds: one multiplication and addition each, times 8), conformance_copy(to, from, n pieces of 16 bytes,
 * n_rounds of all of them). */
extern const char cuda_kernels[];

#endif
