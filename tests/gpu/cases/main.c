/* Tests the behaviour of the driver: the same calls on whichever driver is loaded, the fake driver or the real one, and a
 * line for each:
 *
 *     exact NAME = OUTCOME    documented, or batchd relies on it: must be the same on both
 *     class NAME = OUTCOME    must work or fail alike on both; the code may differ
 *     open  NAME = OUTCOME    undocumented behaviour; to be read by people
 *     time  NAME = VALUE      measured here; open questions of CUDA-NOTES section 11
 *
 * Each case runs in a process of its own, because some of them end the use of the GPU in their process; a case that
 * dies or hangs says so in its line and the rest continues. conformance [CASE...]; without a GPU and without the
 * double: exit status 77. --probe names the GPU, --facts gives more details, --hold keeps it in use. */
#include "case.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = { { "driver", case_driver },
	      { "contexts", case_contexts },
	      { "memory", case_memory },
	      { "host memory", case_host },
	      { "streams", case_streams },
	      { "capture", case_capture },
	      { "threads' streams", case_threads_streams },
	      { "kernels", case_kernels },
	      { "sticky", case_sticky },
	      { "fork", case_fork },
	      { "ipc", case_ipc },
	      { "ipc small", case_ipc_small },
	      { "ipc stale", case_ipc_stale },
	      { "ipc killed", case_ipc_killed },
	      { "strangers", case_strangers },
	      { "ipc events", case_ipc_events },
	      { "vmm", case_vmm },
	      { "vmm reading", case_vmm_reading },
	      { "context size", case_context_size },
	      { "registration", case_registration },
	      { "open time", case_open_time },
	      { "attach", case_attach },
	      { "overlap", case_overlap },
	      { "pin stall", case_pin_stall },
	      { "work of the dead", case_work_of_the_dead } },
  roles[] = { { "export", role_export },   { "event", role_event },   { "vmm", role_vmm },
	      { "context", role_context }, { "copier", role_copier }, { "writer", role_writer },
	      { "pinner", role_pinner } };

/* In a child whose own children die with it: they end when their line closes. */
static void run_case(size_t i)
{
	int status;
	pid_t pid;

	printf("# %s\n", cases[i].name);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(SECONDS);
		cases[i].run();
		fflush(stdout);
		_exit(0); /* the driver has to clean up the rest, as after a crash */
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status)) {
		printf("exact case %s = %s\n", cases[i].name,
		       WTERMSIG(status) == SIGALRM ? "hung" : strsignal(WTERMSIG(status)));
		fflush(stdout);
	}
}

/* "NVIDIA H200, CUDA 13.0 driver": is there a GPU that a program can use? */
static int probe(void)
{
	char name[128] = "?", text[64] = "";
	int version = 0, n = 0, r = cu.cuInit(0);
	FILE *f;

	if (r || cu.cuDeviceGetCount(&n) || n < 1) {
		fprintf(stderr, "conformance: %s\n", r ? cuda_name(r) : "no GPU");
		return 77;
	}
	cu.cuDeviceGetName(name, sizeof name, 0);
	cu.cuDriverGetVersion(&version);
	f = fopen("/sys/module/nvidia/version", "re");
	if (f && fscanf(f, "%63s", text) != 1)
		*text = '\0';
	if (f)
		fclose(f);
	printf("%s, driver %s (CUDA %d.%d)\n", name, *text ? text : "?", version / 1000, version % 1000 / 10);
	return 0;
}

/* "fact<tab>NAME<tab>VALUE": the driver's facts about the first GPU. */
static int facts(void)
{
	char id[32] = "?";
	int value;

	if (cu.cuInit(0))
		return 77;
	cu.cuDeviceGetPCIBusId(id, sizeof id, 0);
	printf("fact\tPCI bus ID\t%s\n", id);
	for (size_t i = 0; i < n_attributes; i++)
		if (cu.cuDeviceGetAttribute(&value, attributes[i].number, 0))
			printf("fact\tattribute %d, %s\tnot known to this driver\n", attributes[i].number,
			       attributes[i].name);
		else
			printf("fact\tattribute %d, %s\t%d\n", attributes[i].number, attributes[i].name, value);
	return 0;
}

/* Keeps a context until standard input ends. A GPU that no process uses may be shut down, and is started again for each
 * process: the time of that would be part of every case and every daemon. */
static int hold(void)
{
	CUresult r = cu.cuInit(0);
	char c;

	if (!r)
		r = cu.cuDevicePrimaryCtxRetain(&ctx, 0);
	if (r) {
		fprintf(stderr, "conformance: no context to hold: %s\n", cuda_name(r));
		return 1;
	}
	printf("holding\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	cu.cuDevicePrimaryCtxRelease_v2(0);
	return 0;
}

int main(int argc, char **argv)
{
	const char *why = cuda_load();

	if (why) {
		fprintf(stderr, "conformance: no driver: %s\n", why);
		return 77;
	}
	if (argc == 2 && !strcmp(argv[1], "--probe"))
		return probe();
	if (argc == 2 && !strcmp(argv[1], "--facts"))
		return facts();
	if (argc == 2 && !strcmp(argv[1], "--hold"))
		return hold();
	is_double = getenv("BATCHD_LIBCUDA") && strstr(getenv("BATCHD_LIBCUDA"), "fakecuda");
	if (argc == 4 && !strcmp(argv[1], "--role")) {
		line_fd = atoi(argv[3]);
		alarm(SECONDS);
		for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
			if (!strcmp(roles[i].name, argv[2]))
				roles[i].run();
		fflush(stdout);
		_exit(0);
	}
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		bool wanted = argc == 1;

		for (int k = 1; k < argc; k++)
			wanted |= !strcmp(argv[k], cases[i].name);
		if (wanted)
			run_case(i);
	}
	return 0;
}
