/* A data set that batchctl opens itself, with the rights of whoever runs it and without a daemon. */
#ifndef BATCHCTL_LOCAL_H
#define BATCHCTL_LOCAL_H

#include "data/dataset.h"
#include "progress.h"

/* text: a directory or a specification. CTL_OK and *out to be given to dataset_unref, or another exit code after a
 * complaint. */
int local_open(const char *command, const char *text, enum progress_style style, struct dataset **out);

#endif
