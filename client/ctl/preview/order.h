/* Which samples batchctl preview shows. */
#ifndef BATCHCTL_PREVIEW_ORDER_H
#define BATCHCTL_PREVIEW_ORDER_H

#include <stdint.h>

#include "dataset/dataset.h"

/* Both return an exit code. *order: *n sample numbers; the caller frees it, whatever the code. */

/* list: "3,17,4". */
int preview_order_listed(const struct dataset *ds, const char *list, uint64_t **order, uint64_t *n);
/* The first of the epoch's shuffled order: *n of them, or as many as there are. */
int preview_order_first(const struct dataset *ds, uint64_t seed, uint64_t epoch, uint64_t **order, uint64_t *n);

#endif
