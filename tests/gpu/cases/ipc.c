/* Memory and events of another process. */
#include "case.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

void case_ipc(void)
{
	CUipcMemHandle handle, mine_handle, junk;
	CUdeviceptr theirs, mine, again, own, base;
	pid_t pid = other("export");
	size_t n = 0;
	char c;

	begin();
	own = slab_of(SLAB);
	exact_of("handle", cu.cuIpcGetMemHandle(&mine_handle, own));
	/* For such an address drivers return the handle of the whole allocation; nothing here depends on that. */
	open_of("handle of an address in the middle", cu.cuIpcGetMemHandle(&junk, own + 4096) ? "fails" : "works");
	class_of("handle of a host address", cu.cuIpcGetMemHandle(&junk, (uintptr_t)&n));
	class_of("open at home", open_handle(&mine, mine_handle));
	exact_of("export", export_of(SLAB, &handle, &theirs));
	exact_of("open with flags 0", cu.cuIpcOpenMemHandle_v2(&mine, handle, 0));
	exact_of("open", open_handle(&mine, handle));
	open_of("the address is another one", mine != theirs ? "yes" : "no");
	exact_of("range", cu.cuMemGetAddressRange_v2(&base, &n, mine));
	exact_bool("it is the piece", base == mine && n == SLAB);
	exact_bool("its bytes", word_at(mine) == 0x12345678 && word_at(mine + SLAB - 4) == 0x12345678);
	tell("w", 1);
	hear(&c, 1);
	exact_bool("what the owner writes later", word_at(mine) == 0x9abcdef0);
	exact_of("open again", open_handle(&again, handle));
	exact_bool("the same address again", again == mine);
	class_of("handle of imported memory", cu.cuIpcGetMemHandle(&junk, mine));
	class_of("free imported memory", cu.cuMemFree_v2(mine));
	exact_of("close", cu.cuIpcCloseMemHandle(mine));
	exact_of("close again", cu.cuIpcCloseMemHandle(again));
	class_of("close once too often", cu.cuIpcCloseMemHandle(mine));
	exact_of("open after all were closed", open_handle(&mine, handle));
	exact_of("close it", cu.cuIpcCloseMemHandle(mine));
	memset(&junk, 0x5a, sizeof junk);
	class_of("open junk", open_handle(&mine, junk));
	CUresult r;
	tell("f", 1);
	hear(&r, sizeof r);
	exact_of("the owner frees it", r);
	class_of("open after that", open_handle(&mine, handle));
	tell("x", 1);
	waitpid(pid, NULL, 0);
}

void case_ipc_small(void)
{
	/* An allocation of less than 2 MiB: where does the handle lead? */
	CUipcMemHandle handle;
	CUdeviceptr theirs, first, second;
	pid_t pid = other("export");
	char text[64];

	begin();
	class_of("handle of 64 KiB", export_of(65536, &handle, &theirs));
	CUresult r = open_handle(&first, handle);
	open_of("open it", cuda_name(r));
	class_of("handle of another 64 KiB", export_of(65536, &handle, &theirs));
	if (!r) {
		r = open_handle(&second, handle);
		open_of("open the other", cuda_name(r));
	}
	if (!r) {
		CUdeviceptr base;
		size_t n;

		cu.cuMemGetAddressRange_v2(&base, &n, second);
		snprintf(text, sizeof text, "%zu bytes, first word %s", n,
			 word_at(second) == 0x12345678 ? "as written" : "of another process");
		open_of("what it leads to", text);
	}
	tell("x", 1);
	waitpid(pid, NULL, 0);
}

void case_ipc_stale(void)
{
	/* The owner frees memory that is open here, allocates again, and exports a new handle. Undefined by the
	 * documentation. */
	CUipcMemHandle handle;
	CUdeviceptr theirs, second, mine, again;
	pid_t pid = other("export");
	CUresult r;

	begin();
	MUST(export_of(SLAB, &handle, &theirs));
	MUST(open_handle(&mine, handle));
	tell("f", 1);
	hear(&r, sizeof r);
	open_of("the owner frees what is open here", cuda_name(r));
	MUST(export_of(SLAB, &handle, &second));
	open_of("the owner gets the same address again", second == theirs ? "yes" : "no");
	r = open_handle(&again, handle);
	open_of("open the new handle with the old one open", cuda_name(r));
	if (!r)
		open_of("its address", again == mine ? "that of the old one" : "another");
	tell("x", 1);
	waitpid(pid, NULL, 0);
}

void case_ipc_killed(void)
{
	CUipcMemHandle handle;
	CUdeviceptr theirs, mine, again, own;
	pid_t pid = other("export");
	size_t before, after, total;
	uint32_t word = 0;
	CUresult r;
	double began;

	begin();
	own = slab_of(SLAB);
	MUST(export_of(64 * MB, &handle, &theirs));
	MUST(open_handle(&mine, handle));
	MUST(cu.cuMemGetInfo_v2(&before, &total));
	kill(pid, SIGKILL);
	began = now();
	waitpid(pid, NULL, 0);
	timed("until a killed owner is reaped", (now() - began) * 1e3, "ms");
	r = cu.cuMemcpyDtoH_v2(&word, mine, 4);
	open_of("read after the owner was killed", r                    ? cuda_name(r)
						   : word == 0x12345678 ? "the bytes are still there"
									: "other bytes");
	if (!is_double)
		sleep(2);
	r = cu.cuMemcpyDtoH_v2(&word, mine + 64 * MB - 4, 4);
	open_of("read two seconds later", r                    ? cuda_name(r)
					  : word == 0x12345678 ? "the bytes are still there"
							       : "other bytes");
	r = add(own, mine, 0, 1024, NULL);
	if (!r)
		r = cu.cuCtxSynchronize();
	open_of("kernel that reads it", cuda_name(r));
	class_of("open the dead owner's handle again", open_handle(&again, handle) == 0 && again == mine ? 0 : 400);
	r = cu.cuIpcCloseMemHandle(mine);
	open_of("close", cuda_name(r));
	r = cu.cuCtxSynchronize();
	exact_of("the reader can go on", r);
	exact_of("with memory of its own", cu.cuMemsetD8_v2(own, 1, SLAB));
	MUST(cu.cuMemGetInfo_v2(&after, &total));
	open_of("memory came back", after > before ? "yes" : "no");
}

/* role "event": an interprocess event and work before it. */
void role_event(void)
{
	CUipcEventHandle handle;
	CUstream s;
	CUevent e;
	char c;

	begin();
	s = stream_new();
	spin(s, 1);
	e = event_new(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
	MUST(cu.cuIpcGetEventHandle(&handle, e));
	MUST(cu.cuStreamSynchronize(s));
	tell(&handle, sizeof handle);
	hear(&c, 1);
	spin(s, 300);
	MUST(cu.cuEventRecord(e, s));
	tell("r", 1);
	hear(&c, 1);
}

void case_ipc_events(void)
{
	CUipcEventHandle handle;
	pid_t pid = other("event");
	CUstream s;
	CUevent e;
	char c;

	begin();
	s = stream_new();
	hear(&handle, sizeof handle);
	exact_of("open an event", cu.cuIpcOpenEventHandle(&e, handle));
	exact_of("never recorded", cu.cuEventQuery(e));
	tell("x", 1);
	hear(&c, 1);
	exact_of("recorded by the other", cu.cuEventQuery(e));
	exact_of("stream waits for it", cu.cuStreamWaitEvent(s, e, 0));
	exact_of("stream waits", cu.cuStreamQuery(s));
	exact_of("and goes on", cu.cuStreamSynchronize(s));
	exact_of("complete", cu.cuEventQuery(e));
	exact_of("destroy", cu.cuEventDestroy_v2(e));
	tell("x", 1);
	waitpid(pid, NULL, 0);
}
