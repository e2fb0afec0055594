/* What making rows costs a loader by stage, for the status. Loop thread only. */
#ifndef BATCHD_STAGE_STATUS_H
#define BATCHD_STAGE_STATUS_H

#include <jansson.h>

struct batch_source;

/* {"read": {"rows": n, "seconds": s}, ...} of the rows that were timed, which is one in a few; NULL: nothing is made
 * here. */
json_t *stage_status_json(const struct batch_source *s);

#endif
