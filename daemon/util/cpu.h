/* How many processors this process may use. */
#ifndef BATCHD_CPU_H
#define BATCHD_CPU_H

/* The least of what the affinity mask allows and of the quotas of the control groups we are in, rounded up; at least 1.
 * root: NULL, or a directory that stands for / (tests). */
unsigned cpu_available(const char *root);

#endif
