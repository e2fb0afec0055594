/* A kernel that uses all of the GPU, alone and while another process copies to the GPU; without MPS their contexts may
 * take turns. One kernel does only arithmetic, the other only reads and writes memory, for which a copy competes. Each
 * launch is timed: turns show as some launches that take much longer, which a mean hides. */
#include "case.h"

#include <sys/socket.h>
#include <sys/wait.h>

enum { MOST_LAUNCHES = 400, TURNS = 3 };

struct load {
	const char *name, *kernel;
	CUfunction f;
	CUdeviceptr to, from;
	CUstream stream;
	uint32_t n, rounds;
	unsigned blocks;
};

/* role "copier": between 'g' and any other byte copies from pinned memory to the GPU, and reports the rate. */
void role_copier(void)
{
	size_t n = (is_double ? 1u : 64u) * MB;
	char *p, c;
	CUdeviceptr a;
	CUstream s;

	begin();
	p = pinned_new(n);
	a = slab_of(n);
	s = stream_new();
	tell("c", 1);
	for (;;) {
		double began, rate;
		size_t total = 0;

		hear(&c, 1);
		began = now();
		while (recv(line_fd, &c, 1, MSG_DONTWAIT) != 1) {
			MUST(cu.cuMemcpyHtoDAsync_v2(a, p, n, s));
			MUST(cu.cuStreamSynchronize(s));
			total += n;
		}
		if (c == 'x')
			return;
		rate = (double)total / (now() - began) * 1e-9;
		tell(&rate, sizeof rate);
	}
}

static void launch(struct load *l)
{
	void *fma[] = { &l->to, &l->rounds }, *copy[] = { &l->to, &l->from, &l->n, &l->rounds };

	MUST(cu.cuLaunchKernel(l->f, l->blocks, 1, 1, 256, 1, 1, 0, l->stream, l->from ? copy : fma, NULL));
}

/* How long each of n launches takes, from the end of the one before. */
static void time_launches(struct load *l, double *ms, unsigned n)
{
	static CUevent events[MOST_LAUNCHES + 1];
	float took;

	for (unsigned i = 0; i <= n; i++)
		if (!events[i])
			events[i] = event_new(0);
	MUST(cu.cuEventRecord(events[0], l->stream));
	for (unsigned i = 1; i <= n; i++) {
		launch(l);
		MUST(cu.cuEventRecord(events[i], l->stream));
	}
	MUST(cu.cuEventSynchronize(events[n]));
	for (unsigned i = 1; i <= n; i++) {
		MUST(cu.cuEventElapsedTime(&took, events[i - 1], events[i]));
		ms[i - 1] = (double)took;
	}
}

/* Clocks of an idle GPU are a fraction of those under load, and take a while to rise. */
static void warm_up(struct load *l)
{
	double began = now(), ms[4];

	do
		time_launches(l, ms, is_double ? 1 : 4);
	while (!is_double && now() - began < 1);
}

static void measure(struct load *l)
{
	static double alone[TURNS * MOST_LAUNCHES], together[TURNS * MOST_LAUNCHES];
	unsigned n = is_double ? 3 : 150;
	double rate, rates[TURNS], slower;
	char name[128];

	warm_up(l);
	for (int i = 0; i < TURNS; i++) {
		time_launches(l, alone + (unsigned)i * n, n);
		tell("g", 1);
		time_launches(l, together + (unsigned)i * n, n);
		tell("s", 1);
		hear(&rate, sizeof rate);
		rates[i] = rate;
	}
	snprintf(name, sizeof name, "%s alone", l->name);
	timed_spread(name, alone, TURNS * n, "ms");
	snprintf(name, sizeof name, "%s while another process copies", l->name);
	timed_spread(name, together, TURNS * n, "ms");
	slower = (middle_of(together, TURNS * n) / middle_of(alone, TURNS * n) - 1) * 100;
	snprintf(name, sizeof name, "%s is slower by", l->name);
	timed(name, slower, "%");
	snprintf(name, sizeof name, "the other process copies beside %s at", l->name);
	timed(name, middle_of(rates, TURNS), "GB/s");
}

void case_overlap(void)
{
	struct load arithmetic = { .name = "arithmetic", .kernel = "conformance_fma" },
		    memory = { .name = "copying on the GPU", .kernel = "conformance_copy" };
	size_t n_bytes = is_double ? SLAB : (size_t)512 * MB;
	pid_t pid = other("copier");
	int sms = 1;
	double rate, began;
	char c;

	begin();
	cu.cuDeviceGetAttribute(&sms, 16, 0);
	arithmetic.f = kernel(arithmetic.kernel);
	memory.f = kernel(memory.kernel);
	arithmetic.stream = memory.stream = stream_new();
	arithmetic.blocks = memory.blocks = 8 * (unsigned)sms;
	arithmetic.to = slab_of(SLAB);
	arithmetic.rounds = is_double ? 1000 : 200000;
	memory.to = slab_of(n_bytes);
	memory.from = slab_of(n_bytes);
	memory.n = (uint32_t)(n_bytes / 16);
	memory.rounds = is_double ? 1 : 8;
	MUST(cu.cuMemsetD8_v2(memory.from, 1, n_bytes));
	MUST(cu.cuCtxSynchronize());
	hear(&c, 1);
	measure(&arithmetic);
	measure(&memory);
	tell("g", 1);
	for (began = now(); now() - began < (is_double ? 0.01 : 1.0);)
		;
	tell("s", 1);
	hear(&rate, sizeof rate);
	timed("the other process copies alone at", rate, "GB/s");
	tell("gx", 2);
	waitpid(pid, NULL, 0);
}
