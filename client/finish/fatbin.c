/* The finishing kernels as nvcc compiled them, in two pieces of data; the Makefile says where the files are. */
#include "finish/fatbin.h"

__asm__(".pushsection .rodata\n"
	".balign 16\n"
	".hidden batchd_convert_fatbin\n"
	".globl batchd_convert_fatbin\n"
	"batchd_convert_fatbin:\n"
	".incbin \"" CONVERT_FATBIN "\"\n"
	".hidden batchd_convert_ptx\n"
	".globl batchd_convert_ptx\n"
	"batchd_convert_ptx:\n"
	".incbin \"" CONVERT_PTX "\"\n"
	".byte 0\n"
	".popsection\n");

extern const unsigned char batchd_convert_fatbin[] __attribute__((visibility("hidden")));
extern const char batchd_convert_ptx[] __attribute__((visibility("hidden")));

const void *convert_image(void)
{
	return batchd_convert_fatbin;
}

const char *convert_ptx(void)
{
	return batchd_convert_ptx;
}
