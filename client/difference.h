/* The difference between two data sets. */
#ifndef BATCHD_CLIENT_DIFFERENCE_H
#define BATCHD_CLIENT_DIFFERENCE_H

#include "link.h"
#include "token.h"

/* Asks the daemon how the link's data set differs from the token's; text is "" where the daemon cannot say. 0 or a code
 * with f. */
int difference_ask(struct link *k, const struct token *t, char *text, size_t size, struct fault *f);
/* The same, estimated without the daemon. dataset: the name of the link's data set. */
void difference_guess(const struct link *k, const char *dataset, const struct token *t, char *text, size_t size);

#endif
