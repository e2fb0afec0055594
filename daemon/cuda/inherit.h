/* Environment variables that a daemon must not inherit from the trainer that starts it. */
#ifndef CUDA_INHERIT_H
#define CUDA_INHERIT_H

/* A copy of the environment `from` for a daemon; the strings stay those of `from`. The caller frees the array. NULL:
 * out of memory. */
char **cuda_daemon_environment(char *const from[]);

#endif
