/* The daemon's state, as status_json has it, in Prometheus' text format. */
#ifndef BATCHD_METRICS_TEXT_H
#define BATCHD_METRICS_TEXT_H

#include <stddef.h>

/* status: JSON text. The caller frees the result; NULL: out of memory, or no status. */
char *metrics_text(const char *status, size_t *n_bytes);

#endif
