/* Loads a driver, and the kernels as PTX, which the driver compiles for the present GPU. */
#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cuda cu;
static void *library;

/* Replaces a function that the library lacks, whatever its parameters. */
static CUresult lacking(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

const char *cuda_load(void)
{
	const char *name = getenv("BATCHD_LIBCUDA");
	CUresult (*none)(void) = lacking;
	void *fn;

	library = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return dlerror();
#define FIND(base, symbol, since, params) \
	fn = dlsym(library, #symbol); \
	memcpy(&cu.symbol, fn ? (void *)&fn : (void *)&none, sizeof fn);
	FAKECUDA_API(FIND)
#undef FIND
	return NULL;
}

bool cuda_lacks(const char *symbol)
{
	return !dlsym(library, symbol);
}

void cuda_gate(bool open)
{
	void *found = library ? dlsym(library, "fakecuda_gate") : NULL;
	void (*gate)(bool);

	memcpy(&gate, &found, sizeof gate);
	if (gate)
		gate(open);
}

const char *cuda_name(CUresult r)
{
	static _Thread_local char text[2][32];
	static _Thread_local int which;
	const char *name = NULL;

	if (r == CUDA_SUCCESS)
		return "works";
	if (cu.cuGetErrorName && !cu.cuGetErrorName(r, &name) && name)
		return strncmp(name, "CUDA_ERROR_", 11) ? name : name + 11;
	which = !which;
	snprintf(text[which], sizeof text[which], "error %d", r);
	return text[which];
}

const char cuda_kernels[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry conformance_add(.param .u64 to, .param .u64 from, .param .u32 add, .param .u32 n)\n"
	"{\n"
	"	.reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %rd<8>;\n"
	"	ld.param.u64 %rd1, [to]; ld.param.u64 %rd2, [from]; ld.param.u32 %r1, [add]; ld.param.u32 %r2, [n];\n"
	"	cvta.to.global.u64 %rd3, %rd1; cvta.to.global.u64 %rd4, %rd2;\n"
	"	mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mov.u32 %r6, %nctaid.x;\n"
	"	mad.lo.u32 %r7, %r3, %r4, %r5; mul.lo.u32 %r8, %r4, %r6;\n"
	"LOOP:	setp.ge.u32 %p1, %r7, %r2; @%p1 bra DONE;\n"
	"	mul.wide.u32 %rd5, %r7, 4; add.s64 %rd6, %rd4, %rd5; add.s64 %rd7, %rd3, %rd5;\n"
	"	ld.global.u32 %r9, [%rd6]; add.u32 %r10, %r9, %r1; st.global.u32 [%rd7], %r10;\n"
	"	add.u32 %r7, %r7, %r8; bra LOOP;\n"
	"DONE:	ret;\n"
	"}\n"
	".visible .entry conformance_spin(.param .u64 ns)\n"
	"{\n"
	"	.reg .pred %p<2>; .reg .b64 %rd<6>;\n"
	"	ld.param.u64 %rd1, [ns]; mov.u64 %rd2, %globaltimer;\n"
	"AGAIN:	mov.u64 %rd3, %globaltimer; sub.u64 %rd4, %rd3, %rd2; setp.lt.u64 %p1, %rd4, %rd1; @%p1 bra AGAIN;\n"
	"	ret;\n"
	"}\n"
	".visible .entry conformance_count(.param .u64 to, .param .u64 ns)\n"
	"{\n"
	"	.reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<8>;\n"
	"	ld.param.u64 %rd1, [to]; ld.param.u64 %rd2, [ns]; cvta.to.global.u64 %rd3, %rd1; mov.u64 %rd4, %globaltimer; mov.u32 %r1, 0;\n"
	"AGAIN:	add.u32 %r1, %r1, 1; st.volatile.global.u32 [%rd3], %r1;\n"
	"	mov.u64 %rd5, %globaltimer; sub.u64 %rd6, %rd5, %rd4; setp.lt.u64 %p1, %rd6, %rd2; @%p1 bra AGAIN;\n"
	"	ret;\n"
	"}\n"
	".visible .entry conformance_fma(.param .u64 to, .param .u32 rounds)\n"
	"{\n"
	"	.reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<5>; .reg .f32 %f<10>;\n"
	"	ld.param.u64 %rd1, [to]; ld.param.u32 %r1, [rounds]; cvta.to.global.u64 %rd2, %rd1;\n"
	"	mov.u32 %r2, %tid.x; cvt.rn.f32.u32 %f1, %r2; mov.f32 %f2, 0f3F800001; mov.f32 %f3, 0f3F000000;\n"
	"	mov.u32 %r3, 0;\n"
	"ROUND:	setp.ge.u32 %p1, %r3, %r1; @%p1 bra STORE;\n"
	"	fma.rn.f32 %f1, %f1, %f2, %f3; fma.rn.f32 %f1, %f1, %f2, %f3; fma.rn.f32 %f1, %f1, %f2, %f3; fma.rn.f32 %f1, %f1, %f2, %f3;\n"
	"	fma.rn.f32 %f1, %f1, %f2, %f3; fma.rn.f32 %f1, %f1, %f2, %f3; fma.rn.f32 %f1, %f1, %f2, %f3; fma.rn.f32 %f1, %f1, %f2, %f3;\n"
	"	add.u32 %r3, %r3, 1; bra ROUND;\n"
	"STORE:	mul.wide.u32 %rd3, %r2, 4; add.s64 %rd4, %rd2, %rd3; st.global.f32 [%rd4], %f1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry conformance_copy(.param .u64 to, .param .u64 from, .param .u32 n, .param .u32 rounds)\n"
	"{\n"
	"	.reg .pred %p<3>; .reg .b32 %r<16>; .reg .b64 %rd<8>;\n"
	"	ld.param.u64 %rd1, [to]; ld.param.u64 %rd2, [from]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [rounds];\n"
	"	cvta.to.global.u64 %rd3, %rd1; cvta.to.global.u64 %rd4, %rd2;\n"
	"	mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mov.u32 %r6, %nctaid.x;\n"
	"	mad.lo.u32 %r7, %r3, %r4, %r5; mul.lo.u32 %r8, %r4, %r6; mov.u32 %r9, 0;\n"
	"ROUND:	setp.ge.u32 %p1, %r9, %r2; @%p1 bra DONE; mov.u32 %r10, %r7;\n"
	"LOOP:	setp.ge.u32 %p2, %r10, %r1; @%p2 bra NEXT;\n"
	"	mul.wide.u32 %rd5, %r10, 16; add.s64 %rd6, %rd4, %rd5; add.s64 %rd7, %rd3, %rd5;\n"
	"	ld.global.v4.u32 {%r11, %r12, %r13, %r14}, [%rd6]; st.global.v4.u32 [%rd7], {%r11, %r12, %r13, %r14};\n"
	"	add.u32 %r10, %r10, %r8; bra LOOP;\n"
	"NEXT:	add.u32 %r9, %r9, 1; bra ROUND;\n"
	"DONE:	ret;\n"
	"}\n";
