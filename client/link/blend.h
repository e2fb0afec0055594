/* Several data sets as one: "blend:[seed=N;;][WEIGHT*]DATASET[;;[WEIGHT*]DATASET]...". */
#ifndef BATCHD_CLIENT_BLEND_H
#define BATCHD_CLIENT_BLEND_H

#include "link/source.h"

/* As source_open, which it calls for each data set; also for a single one. */
int blend_open(struct source *s, const char *dataset, struct fault *f);

#endif
