/* Threads that decode let programs that compute go on: they displace none when they wake up (SCHED_BATCH), and may have a
 * niceness. Where processors are idle that costs nothing. */
#ifndef BATCHD_PRIORITY_H
#define BATCHD_PRIORITY_H

/* The calling thread: at least so nice. 0 or negative errno. */
int priority_yield_thread(int nice);
/* On kernels with autogroups, where niceness counts only among the processes of a session: of this session, if it is this
 * process's own. 0, also where there is nothing to do, or negative errno. */
int priority_yield_session(int nice);

#endif
