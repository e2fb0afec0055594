/* What making rows costs a loader by stage, for the status. Loop thread only. */
#ifndef BATCHD_STAGE_STATUS_H
#define BATCHD_STAGE_STATUS_H

#include <jansson.h>

struct batch_source;

/* {"read": {"rows": n, "seconds": s}, ...}: the rows made, and the workers' time in that stage, as samples tell. NULL:
 * nothing is made here. */
json_t *stage_status_json(const struct batch_source *s);

#endif
