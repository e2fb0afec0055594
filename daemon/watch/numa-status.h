/* What workers and slots have to do with the machine's NUMA nodes, for the status. Loop thread only. */
#ifndef BATCHD_NUMA_STATUS_H
#define BATCHD_NUMA_STATUS_H

#include <jansson.h>

struct engine;

/* NULL: there is one node, or they are left to the kernel. */
json_t *numa_status_json(const struct engine *e);

#endif
