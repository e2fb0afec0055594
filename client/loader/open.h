/* Opening a link: asks a daemon for batches, and checks its answer. */
#ifndef BATCHD_CLIENT_OPEN_H
#define BATCHD_CLIENT_OPEN_H

#include "loader/loader.h"

/* 0, or BATCHD_E_INVALID with f. */
int open_check(const struct batchd_options *o, struct fault *f);
/* Opens a link with o as it is. again: after a reconnect, with l->options and l->job; the first time they are taken
 * from o. 0, or a code with f and *out NULL. address (ADDRESS_MAX_BYTES): the only place to look for a daemon, "" for
 * the place that o names; after a failure the call leaves there the last address that it tried. */
int open_link(struct batchd_loader *l, const struct batchd_options *o, bool again, char *address, struct link **out,
	      struct fault *f);
/* Makes it the loader's link; the caller keeps the one before. Under the lock. */
void open_switch(struct batchd_loader *l, struct link *k);

#endif
