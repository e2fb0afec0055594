/* Built without a CUDA compiler: this library has no kernels, and says so when asked for them. */
#include "finish/fatbin.h"

const void *convert_image(void)
{
	return NULL;
}

const char *convert_ptx(void)
{
	return NULL;
}
