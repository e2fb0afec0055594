/* Why a daemon cannot start, in words: what failed, which limit is in the way, what to do. */
#ifndef BATCHD_START_FAILURE_H
#define BATCHD_START_FAILURE_H

#include <stdbool.h>
#include <stddef.h>

struct config;

/* Whether as many files may be open as one trainer and the reading threads need. Below that each file waits for a free
 * descriptor, for minutes in all, and trainers get no answer. */
bool start_has_files(void);

/* error: negative errno of the start. The client library quotes the text. */
void start_failure_text(const struct config *c, int error, char *buf, size_t size);

#endif
