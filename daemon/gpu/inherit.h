/* The environment variables that a daemon inherits from the script that starts it. */
#ifndef CUDA_INHERIT_H
#define CUDA_INHERIT_H

/* A copy of the environment `from` for a daemon; the strings stay those of `from`. The caller frees the array. NULL:
 * out of memory. */
char **inherit_environment(char *const from[]);

#endif
