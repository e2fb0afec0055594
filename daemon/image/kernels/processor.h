/* The instructions that pixel functions may use on this processor.
 *
 * Functions with a body that compilers vectorise well are compiled from one body for each value below, so every value
 * gives the same bytes. */
#ifndef BATCHD_PROCESSOR_H
#define BATCHD_PROCESSOR_H

#include <stdbool.h>

enum processor_path { PROCESSOR_PLAIN, PROCESSOR_AVX2 /* with FMA */, PROCESSOR_AVX512 /* with VBMI and VNNI */ };

/* The widest that this processor can run. */
enum processor_path processor_path(void);
/* For tests and benchmarks: this thread uses at most `widest` from now on. */
void processor_limit(enum processor_path widest);

#endif
