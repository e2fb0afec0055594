/* Reads the headers of a tar archive: ustar, GNU (long names, sizes beyond octal digits) and pax (path, size). */
#ifndef BATCHD_TAR_H
#define BATCHD_TAR_H

#include "data/members.h"

/* Gives every regular file to `m`, in order. Directories, links, devices and files of WebDataset's own ("__name__") are
 * skipped. Sparse files, damaged headers, sizes beyond the archive's end, and names with control characters are refused:
 * negative errno with the reader's err. */
int tar_scan(struct members *m);

#endif
