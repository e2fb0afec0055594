/* The index of a packed data set that an earlier opening has kept. It belongs to the names, the folders behind them and
 * the user, as a walked folder's does (imagefolder.c). */
#ifndef BATCHD_PACKED_KEPT_H
#define BATCHD_PACKED_KEPT_H

#include "dataset/shards/packed-impl.h"

/* Where it is, or would be. False: nowhere. */
bool packed_kept_path(const struct packed_opening *o, char *path, size_t size);
/* Reads it into o->old, if it is there and there is memory for it. */
void packed_load_kept(struct packed_opening *o, const char *path);
void packed_drop_kept(struct packed_opening *o);
/* Writes the new one. A failure is logged. */
void packed_keep(const struct packed_opening *o, const char *path);

#endif
