/* A data set as the daemon expects it: absolute paths, and descriptors of files that this process may read. */
#ifndef BATCHD_CLIENT_SOURCE_H
#define BATCHD_CLIENT_SOURCE_H

#include "link/error.h"
#include "sources.h"
#include "wire.h"

struct source {
	struct Sources *sources;
	char *text;            /* of the sources, for names and messages */
	int fds[WIRE_MAX_FDS]; /* in the order of the parts */
	unsigned n_fds;
	int memory[WIRE_MAX_FDS]; /* the user's own descriptors, of the parts that are memory, in their order */
	unsigned n_memory;
};

/* Takes the text apart and opens what it names. 0 or a batchd code with f, which names the path. The caller finishes
 * *s in either case. */
int source_open(struct source *s, const char *dataset, struct fault *f);
void source_finish(struct source *s);
/* A connection that replaces a lost one takes descriptors of its own. */
int source_open_fds(struct source *s, struct fault *f);
void source_close_fds(struct source *s);

#endif
