/* What this library keeps once per process, and how a fork treats it. */
#ifndef BATCHD_CLIENT_PROCESS_H
#define BATCHD_CLIENT_PROCESS_H

/* Guards the list of slabs, the signal handlers and the ordinals of jobs. Held only for a short time. Never take a
 * loader's lock while holding it. */
void process_lock(void);
void process_unlock(void);

/* Number of forks between the process that loaded the library and this one. An object that stores it can tell whether
 * it has crossed a fork; cheaper than getpid(), which is a system call. Any thread. */
unsigned process_generation(void);

#endif
