/* Normally distributed random numbers, about one of random.h's numbers each. */
#ifndef BATCHD_NORMAL_H
#define BATCHD_NORMAL_H

#include "image/transform/random.h"

#define NORMAL_TAIL_FROM 3.442619855899

enum { NORMAL_LAYERS = 128 };

/* Layer i reaches from 0 to normal_edge[i], and is wholly below the curve up to normal_edge[i + 1]. The lowest one also
 * stands for the tail. */
extern float normal_edge[NORMAL_LAYERS + 1], normal_curve[NORMAL_LAYERS + 1];

/* Makes the tables; before the first draw, from any thread. */
void normal_prepare(void);
/* N(0, 1). */
float random_normal(struct random *r);

#endif
