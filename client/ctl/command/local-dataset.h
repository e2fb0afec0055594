/* A data set that batchctl opens itself, with the rights of its user and without a daemon. */
#ifndef BATCHCTL_LOCAL_DATASET_H
#define BATCHCTL_LOCAL_DATASET_H

#include "dataset/dataset.h"
#include "ctl/term/progress.h"

/* text: a directory or a specification. CTL_OK and *out, which the caller gives to dataset_unref, or another exit code
 * after a complaint. */
int local_open(const char *command, const char *text, enum progress_style style, struct dataset **out);

#endif
