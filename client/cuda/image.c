/* The finishing kernels as nvcc compiled them, for all GPUs in one piece of data; the Makefile says where the file is.
 */
#include "cuda/image.h"

__asm__(".pushsection .rodata\n"
	".balign 16\n"
	".hidden batchd_finish_fatbin\n"
	".globl batchd_finish_fatbin\n"
	"batchd_finish_fatbin:\n"
	".incbin \"" FINISH_FATBIN "\"\n"
	".popsection\n");

extern const unsigned char batchd_finish_fatbin[] __attribute__((visibility("hidden")));

const void *finish_image(void)
{
	return batchd_finish_fatbin;
}
