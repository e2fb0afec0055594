/* How many processors this process may use. */
#ifndef BATCHD_CPU_H
#define BATCHD_CPU_H

/* The least of the affinity mask and the quotas of this process's control groups, rounded up; at least 1. root: NULL,
 * or a directory that replaces / (tests). */
unsigned cpu_available(const char *root);

#endif
