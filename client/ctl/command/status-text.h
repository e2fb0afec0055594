/* The daemon's state as text on stdout. */
#ifndef BATCHCTL_STATUS_TEXT_H
#define BATCHCTL_STATUS_TEXT_H

#include <jansson.h>

/* last: the daemon's state at the look before, for rates; NULL when there was none. */
void status_print(const json_t *root, const json_t *last);

#endif
