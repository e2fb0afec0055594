/* What the environment asks for: the machine to simulate, delays, and errors to inject. README.md lists the
 * variables. */
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

enum { MOST_RULES = 64, KILLED = -9 };

struct rule {
	char name[48];
	uint64_t seen, nth; /* nth: 0: at random */
	bool from_then_on, of_thread;
	double chance;
	CUresult result;
	pthread_t thread;
};

struct settings settings;
static struct rule rules[MOST_RULES];
static struct {
	char name[48];
	long us;
} latencies[MOST_RULES];
static int n_rules, n_latencies;
static uint64_t chance_state;
static pthread_mutex_t rules_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *forbidden_names, *allowed_names, *control_path;
static struct timespec control_time;
static _Thread_local bool forbidden_here, gate_open;

uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static long number(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtol(text, NULL, 0) : otherwise;
}

static const char *path(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

static bool is_call(const char *name)
{
	for (int i = 0; i < API_N; i++)
		if (!strcmp(name, api_name((enum api)i)))
			return true;
	return false;
}

/* "NAME:3=2": the third call of NAME ends in error 2; "NAME:3+=2": every call from the third on; "NAME:*=2": every
 * call; "NAME:p0.01=2": at random; "NAME:@3=2": the third call by the thread that asks for it. */
static bool add_rule(const char *text)
{
	struct rule r = { 0 };
	const char *colon = strchr(text, ':'), *equals = strchr(text, '='), *which;
	char *end;

	if (!colon || !equals || equals < colon || colon == text || (size_t)(colon - text) >= sizeof r.name ||
	    n_rules == MOST_RULES)
		return false;
	memcpy(r.name, text, (size_t)(colon - text));
	/* A rule that matches no call would make a test that cannot fail. Names are without the ABI's _v2; "run" is an
	 * operation of a stream. */
	if (!is_call(r.name) && strcmp(r.name, "run"))
		return false;
	which = colon + 1;
	if (*which == '@') {
		r.of_thread = true, r.thread = pthread_self();
		which++;
	}
	if (*which == '*') {
		r.nth = 1, r.from_then_on = true;
	} else if (*which == 'p') {
		r.chance = strtod(which + 1, &end);
		if (end != equals)
			return false;
	} else {
		r.nth = strtoull(which, &end, 10);
		r.from_then_on = *end == '+';
		if (!r.nth || end + r.from_then_on != equals)
			return false;
	}
	r.result = (CUresult)strtol(equals + 1, &end, 10);
	if (!r.result || *end)
		return false;
	/* A failure of queued work ends the context; the driver has no other way to report it. */
	if (!strcmp(r.name, "run") && !error_is_fatal(r.result))
		return false;
	rules[n_rules++] = r;
	return true;
}

bool fakecuda_fail(const char *spec)
{
	bool ok = true;

	settings_read();
	pthread_mutex_lock(&rules_lock);
	if (!spec) {
		n_rules = 0;
	} else {
		char *copy = strdup(spec), *rest = copy;

		for (char *one; copy && (one = strsep(&rest, ",; \n"));)
			if (*one && !add_rule(one))
				ok = false;
		free(copy);
	}
	pthread_mutex_unlock(&rules_lock);
	return ok;
}

static void add_latencies(const char *text)
{
	char *copy = strdup(text ? text : ""), *rest = copy;

	for (char *one; copy && (one = strsep(&rest, ",;"));) {
		char *equals = strchr(one, '=');

		if (!equals || n_latencies == MOST_RULES)
			continue;
		*equals = '\0';
		snprintf(latencies[n_latencies].name, sizeof latencies[0].name, "%s", one);
		latencies[n_latencies++].us = strtol(equals + 1, NULL, 10);
	}
	free(copy);
}

static void personality(char *one)
{
	if (!strcmp(one, "no-device"))
		settings.init_result = CUDA_ERROR_NO_DEVICE;
	else if (!strcmp(one, "mismatch"))
		settings.init_result = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	else if (!strcmp(one, "broken"))
		settings.init_result = CUDA_ERROR_UNKNOWN;
	else if (!strcmp(one, "old-driver"))
		settings.version = 11020;
	else if (!strcmp(one, "mig"))
		settings.mig = true;
	else if (!strcmp(one, "no-ipc"))
		settings.no_ipc = settings.no_vmm = true;
	else if (!strcmp(one, "no-legacy-ipc"))
		settings.no_ipc = true;
	else if (!strcmp(one, "no-vmm"))
		settings.no_vmm = true;
	else if (!strcmp(one, "exclusive"))
		settings.exclusive = true;
	else if (!strcmp(one, "mps"))
		settings.mps = true;
	else if (!strcmp(one, "mps-other-user"))
		settings.mps = settings.mps_is_taken = true;
	else if (!strcmp(one, "prohibited"))
		settings.prohibited = true;
	else if (!strcmp(one, "two-gpus"))
		settings.n_gpus = 2;
	else if (!strcmp(one, "little-memory"))
		settings.memory_bytes = 640 * (size_t)MIB;
	else if (!strcmp(one, "read-only-register"))
		settings.read_only_register = true;
	else if (*one)
		fprintf(stderr, "fakecuda: no personality \"%s\"\n", one), abort();
}

static void read_environment(void)
{
	const char *text = getenv("FAKECUDA_PERSONALITY");
	char *copy, *rest;
	struct stat st;

	settings.n_gpus = (int)number("FAKECUDA_GPUS", 1);
	settings.version = (int)number("FAKECUDA_VERSION", 13000);
	settings.memory_bytes = 16384 * (size_t)MIB;
	settings.numa_node = (int)number("FAKECUDA_NUMA", -1);
	rest = copy = strdup(text ? text : "");
	for (char *one; copy && (one = strsep(&rest, ", "));)
		personality(one);
	free(copy);
	if (settings.n_gpus < 0 || settings.n_gpus > MOST_DEVICES)
		fprintf(stderr, "fakecuda: FAKECUDA_GPUS may be 0 to %d\n", MOST_DEVICES), abort();
	settings.memory_bytes = (size_t)number("FAKECUDA_MEMORY_MB", (long)(settings.memory_bytes / MIB)) * MIB;
	settings.context_bytes = 500 * (size_t)MIB; /* an H100's driver takes 524 */
	settings.seed = (uint64_t)number("FAKECUDA_SEED", 1);
	settings.delay_us = number("FAKECUDA_DELAY_US", 300);
	settings.quiet = number("FAKECUDA_QUIET", 0);
	settings.gated = number("FAKECUDA_GATED", 0);
	settings.dir = path("FAKECUDA_DIR");
	settings.report = path("FAKECUDA_REPORT");
	settings.pidns = (uint64_t)number("FAKECUDA_PIDNS", stat("/proc/self/ns/pid", &st) ? 0 : (long)st.st_ino);
	settings.euid = (uint32_t)number("FAKECUDA_EUID", (long)geteuid());
	text = getenv("FAKECUDA_MIG");
	snprintf(settings.mig_name, sizeof settings.mig_name, "%s", text ? text : "");
	settings.mig |= !!*settings.mig_name;
	forbidden_names = getenv("FAKECUDA_FORBID_THREADS");
	allowed_names = getenv("FAKECUDA_ALLOW_THREADS");
	control_path = path("FAKECUDA_CONTROL");
	chance_state = settings.seed * 77777 + (uint64_t)getpid();
	add_latencies(getenv("FAKECUDA_LATENCY_US"));
}

static void read_rules(void)
{
	const char *text = getenv("FAKECUDA_FAIL");

	if (text && !fakecuda_fail(text))
		fprintf(stderr, "fakecuda: cannot read FAKECUDA_FAIL=\"%s\"\n", text), abort();
}

void settings_read(void)
{
	static pthread_once_t once_rules = PTHREAD_ONCE_INIT;
	static _Thread_local bool inside;

	pthread_once(&once, read_environment);
	if (inside)
		return;
	inside = true;
	pthread_once(&once_rules, read_rules);
	inside = false;
}

/* $FAKECUDA_CONTROL: a file whose rules replace all others whenever the file is rewritten, to control a running
 * process. */
static void look_at_control(void)
{
	struct stat st;
	char text[2048];
	size_t n;
	FILE *f;

	if (!control_path || stat(control_path, &st) || !memcmp(&st.st_mtim, &control_time, sizeof control_time))
		return;
	f = fopen(control_path, "re");
	if (!f)
		return;
	control_time = st.st_mtim;
	n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = '\0';
	fakecuda_fail(NULL);
	if (!fakecuda_fail(text))
		fprintf(stderr, "fakecuda: cannot read rules \"%s\" in %s\n", text, control_path);
}

CUresult inject(const char *name)
{
	CUresult result = CUDA_SUCCESS;

	if (gate_closed() && strcmp(name, "run"))
		return result;
	look_at_control();
	pthread_mutex_lock(&rules_lock);
	for (int i = 0; i < n_rules; i++) {
		struct rule *r = &rules[i];
		bool hit;

		if (strcmp(r->name, name) || (r->of_thread && !pthread_equal(r->thread, pthread_self())))
			continue;
		r->seen++;
		hit = r->nth ? r->seen == r->nth || (r->from_then_on && r->seen > r->nth)
			     : (double)(random_next(&chance_state) >> 11) < r->chance * 9007199254740992.0;
		if (hit && !result)
			result = r->result;
	}
	pthread_mutex_unlock(&rules_lock);
	if (result == KILLED)
		kill(getpid(), SIGKILL);
	if (result)
		count(COUNT_INJECTED, 1);
	return result;
}

void fakecuda_gate(bool open)
{
	gate_open = open;
}

bool gate_closed(void)
{
	return settings.gated && !gate_open;
}

void inject_latency(const char *name)
{
	for (int i = 0; i < n_latencies; i++)
		if (!strcmp(latencies[i].name, name))
			nanosleep(&(struct timespec){ latencies[i].us / 1000000, latencies[i].us % 1000000 * 1000 },
				  NULL);
}

/* ---- calls that wait ---- */

static pthread_mutex_t hold_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hold_changed = PTHREAD_COND_INITIALIZER;
static char held_name[48];
static unsigned n_to_pass, n_held;

void fakecuda_hold_call(const char *name, unsigned n_pass)
{
	if (name && !is_call(name))
		violation("fakecuda_hold_call: there is no %s", name);
	pthread_mutex_lock(&hold_lock);
	snprintf(held_name, sizeof held_name, "%s", name ? name : "");
	n_to_pass = n_pass;
	pthread_cond_broadcast(&hold_changed);
	pthread_mutex_unlock(&hold_lock);
}

unsigned fakecuda_n_held(void)
{
	pthread_mutex_lock(&hold_lock);
	unsigned n = n_held;
	pthread_mutex_unlock(&hold_lock);
	return n;
}

void wait_if_held(const char *name)
{
	pthread_mutex_lock(&hold_lock);
	while (!strcmp(held_name, name) && !n_to_pass) {
		n_held++;
		pthread_cond_wait(&hold_changed, &hold_lock);
		n_held--;
	}
	if (!strcmp(held_name, name))
		n_to_pass--;
	pthread_mutex_unlock(&hold_lock);
}

void fakecuda_forbid_thread(void)
{
	forbidden_here = true;
}

/* "main,batchd-w*": patterns of thread names; "main" is the process's first thread, whatever its name. */
static bool named(const char *list)
{
	char name[16] = "", copy[256], *rest = copy;

	prctl(PR_GET_NAME, name);
	snprintf(copy, sizeof copy, "%s", list);
	for (char *one; (one = strsep(&rest, ","));)
		if (*one && (fnmatch(one, name, 0) == 0 || (!strcmp(one, "main") && syscall(SYS_gettid) == getpid())))
			return true;
	return false;
}

bool thread_forbidden(void)
{
	return forbidden_here || (forbidden_names && named(forbidden_names)) ||
	       (allowed_names && *allowed_names && !named(allowed_names));
}
