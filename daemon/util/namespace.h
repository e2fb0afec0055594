/* Which namespaces this process is in. */
#ifndef UTIL_NAMESPACE_H
#define UTIL_NAMESPACE_H

#include <stdint.h>

/* kind: "pid", "net", "ipc" ... A number that no other namespace of this machine has while this one exists; 0: not
 * known, as where there is no /proc. */
uint64_t namespace_own(const char *kind);

#endif
