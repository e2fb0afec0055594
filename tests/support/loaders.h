/* What tests that make a loader by themselves let it call: it may not fail, and a batch that is published needs no answer.
 * Loop thread. */
#ifndef BATCHD_TESTS_LOADERS_H
#define BATCHD_TESTS_LOADERS_H

#include <check.h>

#include "batch/loader.h"

static inline void loaders_on_failed(struct loader *l)
{
	ck_abort_msg("%s", l->error);
}

static inline void loaders_on_published(struct loader *l, bool waited)
{
	(void)l, (void)waited;
}

#endif
