/* A loader's mix: the option, the finishing pass of a link's batches on the CPU, and each batch's table. */
#ifndef BATCHD_CLIENT_MIX_LOADER_H
#define BATCHD_CLIENT_MIX_LOADER_H

#include "loader/loader.h"
#include "finish/mix.h"

/* Reads option mix into l->mix. 0 or a code with f. */
int mix_loader_read(struct batchd_loader *l, const struct batchd_options *o, struct fault *f);
/* Whether this library makes the batches' floats. */
static inline bool mix_loader_finishes(const struct batchd_options *o)
{
	return o->mix && o->dtype != BATCHD_UINT8;
}
/* Whether it makes them of bytes. Trainers of a share group that do not mix want floats in the slots. */
static inline bool mix_loader_wants_bytes(const struct batchd_loader *l, const struct batchd_options *o)
{
	return mix_loader_finishes(o) && !l->share && !l->floats_in_slots;
}
/* The daemon's offer has been taken: checks that the mix fits it, and prepares the finishing pass. 0 or a code with
 * f. */
int mix_loader_attach(struct batchd_loader *l, struct link *k, const Batchd__Wire__Opened *m, struct fault *f);
/* Draws a batch's table into memory of the caller's. k: the link that lent it. 0 or a code with f. */
int mix_loader_table(const struct batchd_loader *l, const struct link *k, const struct batchd_batch *b,
		     struct batchd_mix_row *rows, struct fault *f);
/* Whether each label is one of the classes. 0, or BATCHD_E_BAD_DATA with f. */
int mix_loader_check_labels(const struct batchd_loader *l, const struct batchd_batch *b, struct fault *f);

#endif
