/* Built without a CUDA compiler: there are no kernels in this library, and whoever asks is told so. */
#include "cuda/image.h"

const void *finish_image(void)
{
	return NULL;
}

const char *finish_ptx(void)
{
	return NULL;
}
