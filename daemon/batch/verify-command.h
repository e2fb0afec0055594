/* The command line by which a person finds all bad samples of a data set. */
#ifndef BATCHD_VERIFY_COMMAND_H
#define BATCHD_VERIFY_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

/* dataset: as a client names it, where "//" marks the end of the folder whose descriptor the client sends. A person who
 * runs the command may be another user than the client, so a shell takes all of the name as one word. Text that does not
 * fit is cut. */
void verify_command(const char *dataset, char *out, size_t size);
/* Whether the command finds the data set: not what a trainer has handed over from its memory. */
bool verify_can_open(const char *dataset);

#endif
