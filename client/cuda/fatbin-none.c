/* Built without a CUDA compiler: there are no kernels in this library, and whoever asks is told so. */
#include "cuda/fatbin.h"

const void *convert_image(void)
{
	return NULL;
}

const char *convert_ptx(void)
{
	return NULL;
}
