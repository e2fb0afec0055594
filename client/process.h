/* What this library keeps once per process, and how that gets through a fork. */
#ifndef BATCHD_CLIENT_PROCESS_H
#define BATCHD_CLIENT_PROCESS_H

/* Guards the list of slabs, the signal handlers and the ordinals of jobs. Never held for long, never together with a
 * loader's own lock inside it. */
void process_lock(void);
void process_unlock(void);

/* How many forks this process is away from the one that loaded the library. An object that remembers it knows whether
 * it has crossed a fork; cheaper than getpid(), which is a system call. Any thread. */
unsigned process_generation(void);

#endif
