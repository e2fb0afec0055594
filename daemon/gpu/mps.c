/* NVIDIA's MPS. The driver connects to it when it starts, if it finds the control daemon's folder. MPS serves one user at a
 * time: as its client this process would wait for another user's processes, or they for it. So the folder is hidden from
 * the driver, unless a trainer's GPU can be had no other way (gpus_use_mps). */
#include "gpu/gpus-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_MPS "/dev/null/no-mps" /* a path that no process can make */
#define MPS_VARIABLE "CUDA_MPS_PIPE_DIRECTORY"

/* The variable stays set from now on, so that setting it later, beside other threads, moves no array that they read. */
int gpu_hide_mps(struct gpus *g)
{
	const char *directory = getenv(MPS_VARIABLE);
	g->mps_directory = strdup(directory && *directory ? directory : "/tmp/nvidia-mps");
	return g->mps_directory && setenv(MPS_VARIABLE, NO_MPS, 1) == 0 ? 0 : -ENOMEM;
}

void gpu_choose_mps(const struct gpus *g, bool is_client)
{
	(void)setenv(MPS_VARIABLE, is_client ? g->mps_directory : NO_MPS, 1);
}
