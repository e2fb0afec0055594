/* A data set's name as the daemon expects it: absolute paths, and descriptors of files that this process may read. */
#ifndef BATCHD_CLIENT_SOURCE_H
#define BATCHD_CLIENT_SOURCE_H

#include "link/error.h"
#include "wire.h"

struct source {
	char *dataset;
	char *reopen; /* the text for the next source_open, if that is not `dataset`: with descriptors of this process */
	int fds[WIRE_MAX_FDS];
	unsigned n_fds;
	bool says_token_type;
	unsigned n_own; /* the last of them are memory of this process, whose content the text identifies */
};

/* 0 or a batchd code with f, which names the path. The caller finishes *s in either case. */
int source_open(struct source *s, const char *dataset, struct fault *f);
void source_finish(struct source *s);

#endif
