/* Normally distributed random numbers, about one of random.h's numbers each. */
#ifndef BATCHD_NORMAL_H
#define BATCHD_NORMAL_H

#include "pipeline/random.h"

/* Makes the tables; before the first draw, from any thread. */
void normal_prepare(void);
/* N(0, 1). */
float random_normal(struct random *r);

#endif
