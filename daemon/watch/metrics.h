/* Metrics for Prometheus and a live page, over HTTP (--metrics). Off unless asked for.
 *
 * A thread of its own speaks HTTP, by libmicrohttpd, which is loaded only now. All that the loop does for it is one
 * status for each kind of viewer and second; everything else is made of that JSON in the thread. */
#ifndef BATCHD_METRICS_H
#define BATCHD_METRICS_H

struct engine;
struct metrics;

/* address: as metrics_address_parse takes it. NULL: it could not be started, and the log says why; the daemon goes on
 * without. Loop thread. */
struct metrics *metrics_start(struct engine *e, const char *address);
/* Ends the thread. Loop thread, before its handles are closed. NULL is allowed, here and below. */
void metrics_stop(struct metrics *m);
/* When the loop has ended. */
void metrics_destroy(struct metrics *m);

#endif
