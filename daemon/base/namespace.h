/* The namespaces of this process. */
#ifndef UTIL_NAMESPACE_H
#define UTIL_NAMESPACE_H

#include <stdint.h>

/* kind: "pid", "net", "ipc" ... Returns a number that no other namespace of this machine has while this one exists; 0:
 * not known, for example without /proc. */
uint64_t namespace_own(const char *kind);

#endif
