/* What is different between two data sets. */
#ifndef BATCHD_CLIENT_DIFFERENCE_H
#define BATCHD_CLIENT_DIFFERENCE_H

#include "link.h"
#include "token.h"

/* What is different in the link's data set, named `dataset`, from the token's, in words. may_ask: the daemon,
 * or else only what is known here is told. 0 or a code with f. */
int difference_name(struct link *k, const char *dataset, bool may_ask, const struct token *t, char *text, size_t size,
		    struct fault *f);

#endif
