/* Probes for perf, bpftrace and SystemTap (USDT): a probe is one instruction that does nothing until a tracer asks for
 * it. Without <sys/sdt.h> (Debian: systemtap-sdt-dev) at build time there are none.
 *
 *     bpftrace -e 'usdt:/usr/bin/batchd:batchd:session_move { printf("%d: %d -> %d\n", arg0, arg1, arg2); }' */
#ifndef BATCHD_PROBE_H
#define BATCHD_PROBE_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define PROBE(name, a, b, c) STAP_PROBE3(batchd, name, a, b, c)
#endif
#endif

/* The arguments are evaluated in any case: they are plain reads. */
#ifndef PROBE
#define PROBE(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

#endif
