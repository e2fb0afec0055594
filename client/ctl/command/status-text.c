/* The daemon's state for people.
 *
 * The daemon sends JSON; this file only lays it out. Every key may be missing or of another type, because batchctl may
 * be older or newer than the daemon: a missing value is left out. */
#include "ctl/command/status-text.h"

#include <math.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/term/table.h"
#include "ctl/command/transform-text.h"
#include "ctl/term/wrap.h"
#include "base/size.h"

enum { MAX_BAD_SHOWN = 10 };

/* ---- values that may be missing ---- */

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static double status_text_number(const json_t *o, const char *key) /* NAN: missing */
{
	const json_t *v = json_object_get(o, key);

	return json_is_number(v) ? json_number_value(v) : json_is_boolean(v) ? json_is_true(v) : NAN;
}

static bool status_text_has(const json_t *o, const char *key)
{
	return !isnan(status_text_number(o, key));
}

/* The printers below write into this small buffer at the caller, which lives to the end of the caller's block. */
#define BUF (char[48]){ 0 }, 48

static const char *count(const json_t *o, const char *key, char *buf, size_t size)
{
	double v = status_text_number(o, key);

	if (isnan(v))
		return *text(o, key) ? text(o, key) : "-"; /* some ids are hexadecimal texts */
	snprintf(buf, size, "%.0f", v);
	return buf;
}

static const char *rate(const json_t *o, const char *key, char *buf, size_t size)
{
	double v = status_text_number(o, key);

	if (isnan(v))
		return "-";
	snprintf(buf, size, v < 10 ? "%.1f" : "%.0f", v);
	return buf;
}

static const char *bytes(const json_t *o, const char *key, char *buf, size_t size)
{
	double v = status_text_number(o, key);

	return !(v >= 0 && v < 1e18) ? "-" : size_format((uint64_t)v, buf, size);
}

static const char *seconds(double s, char *buf, size_t size)
{
	if (isnan(s))
		snprintf(buf, size, "-");
	else if (s < 60)
		snprintf(buf, size, "%.1f s", s);
	else if (s < 3600)
		snprintf(buf, size, "%.0f min %02.0f s", floor(s / 60), floor(fmod(s, 60)));
	else if (s < 86400)
		snprintf(buf, size, "%.0f h %02.0f min", floor(s / 3600), floor(fmod(s / 60, 60)));
	else
		snprintf(buf, size, "%.0f d %02.0f h", floor(s / 86400), floor(fmod(s / 3600, 24)));
	return buf;
}

static const char *or_dash(const char *s)
{
	return *s ? s : "-";
}

/* Prints text from other users. */
static void status_text_put(const char *s)
{
	char *copy = strdup(s);

	if (copy)
		ctl_make_printable(copy);
	fputs(copy ? copy : "?", stdout);
	free(copy);
}

static void status_text_heading(const char *s)
{
	printf("%s%-9s%s ", table_bold(), s, table_plain());
}

/* ---- the parts, from the whole to the detail ---- */

static void print_daemon(const json_t *root)
{
	const json_t *d = json_object_get(root, "daemon");

	status_text_heading("batchd");
	status_text_put(or_dash(text(d, "version")));
	printf(", pid %s, up %s, cpu %s", count(d, "pid", BUF), seconds(status_text_number(d, "uptime_s"), BUF),
	       seconds(status_text_number(d, "cpu_s"), BUF));
	if (*text(d, "socket")) {
		printf(", ");
		status_text_put(text(d, "socket"));
	}
	putchar('\n');
}

static void print_workers(const json_t *root)
{
	const json_t *w = json_object_get(root, "workers");

	if (!w)
		return;
	status_text_heading("workers");
	printf("%s", count(w, "target", BUF));
	if (status_text_has(w, "max"))
		printf(" of at most %s", count(w, "max", BUF));
	if (status_text_has(w, "busy"))
		printf(", %s busy", count(w, "busy", BUF));
	if (*text(w, "mode")) {
		printf(" (");
		status_text_put(text(w, "mode"));
		if (*text(w, "why")) {
			printf(": ");
			status_text_put(text(w, "why"));
		}
		putchar(')');
	}
	if (status_text_has(w, "io_threads"))
		printf("; %s for reading", count(w, "io_threads", BUF));
	putchar('\n');
}

/* Local disks alone are no news. */
static void print_file_systems(const json_t *root)
{
	const json_t *list = json_object_get(root, "file_systems"), *f;
	struct table *t;
	size_t i;

	if (json_array_size(list) < 2)
		return;
	t = table_create("FILE SYSTEM|>READING|>WAITING|>LONGEST READ");
	json_array_foreach ((json_t *)(uintptr_t)list, i, f) {
		table_cell(t, "%s", or_dash(text(f, "name")));
		table_cell(t, "%s of %s", count(f, "io_busy", BUF), count(f, "io_threads", BUF));
		table_cell(t, "%s", count(f, "waiting", BUF));
		table_cell(t, "%s", seconds(status_text_number(f, "longest_s"), BUF));
	}
	putchar('\n');
	table_print(t, 0);
	table_destroy(t);
}

static void print_memory(const json_t *root)
{
	const json_t *m = json_object_get(root, "memory");

	if (!m)
		return;
	status_text_heading("memory");
	printf("batches %s", bytes(m, "slots_bytes", BUF));
	if (status_text_number(m, "spare_bytes") > 0)
		printf(", kept for the next loader %s", bytes(m, "spare_bytes", BUF));
	if (status_text_has(m, "data_bytes"))
		printf(", names and orders %s", bytes(m, "data_bytes", BUF));
	if (status_text_has(m, "cache_bytes"))
		printf(", caches %s", bytes(m, "cache_bytes", BUF));
	if (status_text_has(m, "budget_bytes"))
		printf(", of a budget of %s", bytes(m, "budget_bytes", BUF));
	if (status_text_has(m, "rss_bytes"))
		printf("; resident %s", bytes(m, "rss_bytes", BUF));
	putchar('\n');
	if (*text(json_object_get(m, "pinning"), "text")) {
		printf("          ");
		status_text_put(text(json_object_get(m, "pinning"), "text"));
		putchar('\n');
	}
}

static void print_cache(const json_t *root)
{
	const json_t *list = json_object_get(root, "cache"), *c;
	struct table *t;
	size_t i;

	if (json_array_size(list) == 0)
		return;
	t = table_create("CACHE|>BYTES|>BUDGET|>ENTRIES|>HITS|>MISSES|>HIT RATE|>STALE|>REFUSED");
	json_array_foreach ((json_t *)(uintptr_t)list, i, c) {
		double hits = status_text_number(c, "hits"), asked = hits + status_text_number(c, "misses");

		table_cell(t, "%s", or_dash(text(c, "tier")));
		table_cell(t, "%s", bytes(c, "bytes", BUF));
		table_cell(t, "%s", status_text_number(c, "budget_bytes") == 0 ? "off" : bytes(c, "budget_bytes", BUF));
		table_cell(t, "%s", count(c, "entries", BUF));
		table_cell(t, "%s", count(c, "hits", BUF));
		table_cell(t, "%s", count(c, "misses", BUF));
		if (asked > 0)
			table_cell(t, "%.1f %%", 100 * hits / asked);
		else
			table_cell(t, "-");
		table_cell(t, "%s", count(c, "stale", BUF));
		table_cell(t, "%s", count(c, "refused", BUF));
	}
	putchar('\n');
	table_print(t, 0);
	table_destroy(t);
}

/* Number and total size of the copies to this GPU. */
static void add_copies(const json_t *gpu, double *n, double *n_bytes)
{
	const json_t *list = json_object_get(gpu, "copies"), *c;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, c) {
		*n += status_text_number(c, "copies");
		*n_bytes += status_text_number(c, "bytes");
	}
}

/* "; 3 trainers by cuda-ipc, 1 by cuda-vmm-fd" */
static void print_transports(const json_t *root, const char *uuid)
{
	static const char *const names[] = { "cuda-ipc", "cuda-vmm-fd" };
	const json_t *list = json_object_get(root, "sessions"), *s;
	size_t i;
	bool first = true;

	for (unsigned k = 0; k < sizeof names / sizeof *names; k++) {
		unsigned n = 0;

		json_array_foreach ((json_t *)(uintptr_t)list, i, s)
			n += !strcmp(text(s, "gpu"), uuid) && !strcmp(text(s, "transport"), names[k]);
		if (n)
			printf("%s%u%s by %s", first ? "; " : ", ", n,
			       !first   ? ""
			       : n == 1 ? " trainer"
					: " trainers",
			       names[k]);
		first &= !n;
	}
}

static void print_gpu(const json_t *root, const json_t *g)
{
	double copies = 0, sum = 0;

	add_copies(g, &copies, &sum);
	status_text_heading("gpu");
	status_text_put(or_dash(text(g, "name")));
	printf(", ");
	status_text_put(or_dash(text(g, "uuid")));
	printf(", CUDA %s, %s\n", or_dash(text(g, "cuda_driver")), or_dash(text(g, "state")));
	printf("          batches %s of a budget of %s; %s pinned", bytes(g, "slab_bytes", BUF),
	       bytes(g, "budget_bytes", BUF), bytes(g, "pinned_bytes", BUF));
	if (!isnan(copies) && sum >= 0 && sum < 1e18)
		printf("; %.0f copies, %s", copies, size_format((uint64_t)sum, BUF));
	if (status_text_number(g, "pageable_copies") > 0)
		printf("; %s of them slow, from memory that is not pinned", count(g, "pageable_copies", BUF));
	print_transports(root, text(g, "uuid"));
	putchar('\n');
	if (*text(g, "not_pinned")) {
		printf("          ");
		status_text_put(text(g, "not_pinned"));
		putchar('\n');
	}
	if (*text(g, "numa_error") && status_text_number(g, "numa_node") > 0) /* with node 0 alone all memory is near */
		printf("          batches may lie far from it: cannot move them to NUMA node %s: %s (a container, or the service without gpu.conf, may forbid mbind)\n",
		       count(g, "numa_node", BUF), text(g, "numa_error"));
	if (status_text_number(g, "errors") > 0) {
		printf("          %s errors, the last: ", count(g, "errors", BUF));
		status_text_put(text(g, "last_error"));
		putchar('\n');
	}
}

static void print_gpus(const json_t *root)
{
	const json_t *list = json_object_get(root, "gpus"), *g;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, g)
		print_gpu(root, g);
}

/* "train224, float32 NCHW, batch 64, shard over 2 ranks, shuffled with seed 0, last batch dropped" */
static bool is_served(const json_t *l)
{
	return !strncmp(text(l, "dataset"), "serve:", strlen("serve:"));
}

static void print_loader_options(const json_t *l)
{
	const char *transform = text(l, "transform");

	printf("  ");
	if (is_served(l)) {
		printf("batches as the producer makes them, %s%s\n", or_dash(text(l, "mode")),
		       !strcmp(text(l, "mode"), "share") ? "d by every trainer" : "");
		return;
	}
	if (*transform) {
		char folded[160];

		transform_text(transform, folded, sizeof folded);
		status_text_put(folded);
		printf(", ");
	}
	if (*text(l, "dtype"))
		printf("%s %s, ", text(l, "dtype"), text(l, "layout"));
	printf("batch %s, ", count(l, "batch_size", BUF));
	if (!strcmp(text(l, "mode"), "share"))
		printf("shared by every trainer, policy %s", or_dash(text(l, "policy")));
	else
		printf("%s over %s rank%s", or_dash(text(l, "mode")), count(l, "world_size", BUF),
		       status_text_number(l, "world_size") > 1 ? "s" : "");
	if (json_is_true(json_object_get(l, "shuffle")))
		printf(", shuffled with seed %s", count(l, "seed", BUF));
	if (json_is_true(json_object_get(l, "drop_last")))
		printf(", last batch dropped");
	if (status_text_number(l, "repeats") > 1)
		printf(", each sample %s times", count(l, "repeats", BUF));
	if (status_text_number(l, "epoch_rows") > 0)
		printf(", %s rows an epoch", count(l, "epoch_rows", BUF));
	putchar('\n');
}

/* The same loader's state at the last look; NULL when there was none. */
static const json_t *same_loader(const json_t *root, const json_t *l)
{
	const json_t *list = json_object_get(root, "loaders"), *other;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, other)
		if (!strcmp(text(other, "job"), text(l, "job")) && !strcmp(text(other, "id"), text(l, "id")))
			return other;
	return NULL;
}

/* ", 2210/s": between two looks; without a last look the daemon's own number, an average since the loader began. */
static void print_rate(const json_t *l, const json_t *last, double uptime_s)
{
	const json_t *before = same_loader(last, l);
	double passed = uptime_s - status_text_number(json_object_get(last, "daemon"), "uptime_s");
	double made = status_text_number(l, "samples_decoded") - status_text_number(before, "samples_decoded");

	if (before && passed > 0 && made >= 0)
		printf(", %.0f/s", made / passed);
	else if (status_text_has(l, "images_per_s"))
		printf(", %s/s on average", rate(l, "images_per_s", BUF));
}

static void print_loader_counts(const json_t *l, const json_t *last, double uptime_s)
{
	if (!is_served(l) || status_text_number(l, "n_samples") > 0)
		printf("  %s samples; ", count(l, "n_samples", BUF));
	else
		printf("  ");
	printf("%s %s, %s delivered in %s batches", count(l, "samples_decoded", BUF), is_served(l) ? "made" : "decoded",
	       count(l, "samples_delivered", BUF), count(l, "batches_delivered", BUF));
	print_rate(l, last, uptime_s);
	if (status_text_number(l, "batches_skipped") > 0)
		printf("; %s missed by slow trainers", count(l, "batches_skipped", BUF));
	if (status_text_number(l, "trainers_detached") > 0)
		printf("; %s times one was too slow and went on by itself", count(l, "trainers_detached", BUF));
	if (status_text_number(l, "n_bad") > 0)
		printf("; %s bad, replaced by others", count(l, "n_bad", BUF));
	putchar('\n');
}

static void print_bad(const json_t *l)
{
	const json_t *list = json_object_get(l, "bad"), *b;
	double n_bad = status_text_number(l, "n_bad");
	size_t i, n = json_array_size(list);

	json_array_foreach ((json_t *)(uintptr_t)list, i, b) {
		if (i == MAX_BAD_SHOWN)
			break;
		printf("    bad: ");
		if (*text(b, "name")) {
			status_text_put(text(b, "name"));
			printf(": ");
		}
		status_text_put(or_dash(text(b, "error")));
		putchar('\n');
	}
	if (isnan(n_bad) || n_bad < (double)n)
		n_bad = (double)n;
	if (n_bad > (double)i)
		printf("    and %.0f more; 'batchctl verify' names them all\n", n_bad - (double)i);
}

/* "ranks 1, 3 to release batches", or the daemon's own text. */
static const char *stream_waits_for(const json_t *s, char *buf, size_t size)
{
	const json_t *ranks = json_object_get(s, "waits_for_ranks"), *r;
	size_t i, n = json_array_size(ranks), used;

	if (n == 0)
		return text(s, "waiting_for");
	used = (size_t)snprintf(buf, size, "rank%s ", n > 1 ? "s" : "");
	json_array_foreach ((json_t *)(uintptr_t)ranks, i, r)
		if (used < size)
			used += (size_t)snprintf(buf + used, size - used, "%s%lld", i ? ", " : "",
						 (long long)json_integer_value(r));
	if (used < size)
		snprintf(buf + used, size - used, " to release batches");
	return buf;
}

/* Ranks mostly have equal slots: a line where they differ. */
static void print_slots(const json_t *stream, const char *before)
{
	const char *why = text(stream, "slots_why");

	if (!*why || !strcmp(why, before))
		return;
	printf("  slots, from rank %s on: ", count(stream, "rank", BUF));
	status_text_put(why);
	putchar('\n');
}

static void print_streams(const json_t *l)
{
	char waits[256];
	const json_t *list = json_object_get(l, "streams"), *s;
	struct table *t;
	size_t i;

	if (json_array_size(list) == 0)
		return;
	t = table_create(">RANK|>EPOCH|>STEP|>READY|>MAKING|>HELD|>WINDOW|WAITS FOR");
	json_array_foreach ((json_t *)(uintptr_t)list, i, s) {
		static const char *const keys[] = { "rank", "epoch", "step", "ready", "making", "held", "window" };

		for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
			table_cell(t, "%s", count(s, keys[k], BUF));
		table_cell(t, "%s", or_dash(stream_waits_for(s, waits, sizeof waits)));
	}
	table_print(t, 2);
	table_destroy(t);
	json_array_foreach ((json_t *)(uintptr_t)list, i, s)
		print_slots(s, i ? text(json_array_get(list, i - 1), "slots_why") : "");
}

static void print_loaders(const json_t *root, const json_t *last)
{
	const json_t *list = json_object_get(root, "loaders"), *l;
	double uptime_s = status_text_number(json_object_get(root, "daemon"), "uptime_s");
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, l) {
		printf("\n%sloader %s%s  job ", table_bold(), count(l, "id", BUF), table_plain());
		status_text_put(or_dash(text(l, "job")));
		printf("  ");
		status_text_put(or_dash(text(l, "dataset")));
		printf("  ");
		status_text_put(text(l, "state"));
		putchar('\n');
		print_loader_options(l);
		print_loader_counts(l, last, uptime_s);
		if (*text(l, "error")) {
			printf("  failed: ");
			status_text_put(text(l, "error"));
			putchar('\n');
		}
		print_bad(l);
		print_streams(l);
	}
}

/* The stream that a session reads from; NULL when there is none yet. */
static const json_t *stream_of(const json_t *root, const json_t *session)
{
	const json_t *loaders = json_object_get(root, "loaders"), *l, *s;
	double rank = status_text_number(session, "rank");
	size_t i, k;

	json_array_foreach ((json_t *)(uintptr_t)loaders, i, l) {
		const json_t *streams = json_object_get(l, "streams");

		if (strcmp(text(l, "job"), text(session, "job")) != 0)
			continue;
		if (json_array_size(streams) == 1)
			return json_array_get(streams, 0);
		json_array_foreach ((json_t *)(uintptr_t)streams, k, s)
			if (status_text_number(s, "rank") == rank)
				return s;
	}
	return NULL;
}

/* The name of a user of this machine; the daemon sends the number. */
static const char *user_name(const json_t *s, char *buf, size_t size)
{
	double uid = status_text_number(s, "uid");
	const struct passwd *user;

	if (*text(s, "user") || !(uid >= 0 && uid < UINT32_MAX))
		return or_dash(text(s, "user"));
	user = getpwuid((uid_t)uid);
	if (user)
		snprintf(buf, size, "%s", user->pw_name);
	else
		snprintf(buf, size, "%.0f", uid);
	return buf;
}

static bool is_waited_for(const json_t *stream, double rank)
{
	const json_t *ranks = json_object_get(stream, "waits_for_ranks"), *r;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)ranks, i, r)
		if (json_number_value(r) == rank)
			return true;
	return false;
}

static void session_state(const json_t *root, const json_t *s, char *buf, size_t size)
{
	const json_t *stream = stream_of(root, s);
	bool waiting = status_text_number(s, "waiting") > 0,
	     blocks = is_waited_for(stream, status_text_number(s, "rank"));
	double held = status_text_number(s, "held"), ready = status_text_number(s, "ready");
	const char *state = text(s, "state");
	char waits[256];

	if (*state && strcmp(state, "attached") != 0)
		snprintf(buf, size, "%s", state);
	else if (held > 0 && ready > 0)
		snprintf(buf, size, "holds %.0f, %.0f more are ready%s", held, ready,
			 blocks ? "; others wait for it" : "");
	else if (held > 0)
		snprintf(buf, size, "holds %.0f batch%s%s", held, held > 1 ? "es" : "",
			 blocks ? "; others wait for it" : "");
	else if (ready > 0)
		snprintf(buf, size, "works; %.0f batch%s ready for it%s", ready, ready > 1 ? "es are" : " is",
			 blocks ? "; others wait for it" : "");
	else if (json_object_get(s, "waits_for_epoch"))
		snprintf(buf, size, "waits for its group to begin epoch %.0f",
			 status_text_number(s, "waits_for_epoch"));
	else if (status_text_number(stream, "ready") > 0)
		snprintf(buf, size, "has batches%s", blocks ? "; others wait for it" : "");
	else if (waiting && *stream_waits_for(stream, waits, sizeof waits))
		snprintf(buf, size, "waits for %s", stream_waits_for(stream, waits, sizeof waits));
	else
		snprintf(buf, size, waiting ? "waits for a batch" : "idle");
}

static void print_handover(const json_t *session)
{
	const json_t *h = json_object_get(session, "gpu_handover");

	if (!(status_text_number(h, "batches") > 0))
		return;
	printf("session %s hears of a batch on its GPU within %.0f us of its copy's end (half of them), %.0f us (99 %%)\n",
	       count(session, "id", BUF), status_text_number(h, "p50_us"), status_text_number(h, "p99_us"));
}

static void print_sessions(const json_t *root)
{
	const json_t *list = json_object_get(root, "sessions"), *s;
	struct table *t;
	char state[256];
	size_t i;

	putchar('\n');
	if (json_array_size(list) == 0) {
		puts("no trainer is connected");
		return;
	}
	t = table_create(">SESSION|JOB|>RANK|>PID|USER|PROGRAM|>BATCHES|>CONNECTED|>WAITED|STATE");
	json_array_foreach ((json_t *)(uintptr_t)list, i, s) {
		session_state(root, s, state, sizeof state);
		table_cell(t, "%s", count(s, "id", BUF));
		table_cell(t, "%s", or_dash(text(s, "job")));
		table_cell(t, "%s", count(s, "rank", BUF));
		table_cell(t, "%s", count(s, "pid", BUF));
		table_cell(t, "%s", user_name(s, BUF));
		table_cell(t, "%s", or_dash(text(s, "program")));
		table_cell(t, "%s", count(s, "batches", BUF));
		table_cell(t, "%s", seconds(status_text_number(s, "connected_s"), BUF));
		table_cell(t, "%s", seconds(status_text_number(s, "wait_s"), BUF));
		table_cell(t, "%s", state);
	}
	table_print(t, 0);
	table_destroy(t);
	json_array_foreach ((json_t *)(uintptr_t)list, i, s) {
		if (json_is_true(json_object_get(s, "stalled"))) {
			printf("session %s is stalled: ", count(s, "id", BUF));
			status_text_put(text(s, "stalled_why"));
			printf("; for %s by now, with %s batches\n", seconds(status_text_number(s, "stalled_s"), BUF),
			       count(s, "held", BUF));
		}
		print_handover(s);
		if (!*text(s, "no_gpu"))
			continue;
		printf("session %s copies to its GPU by itself: ", count(s, "id", BUF));
		status_text_put(text(s, "no_gpu"));
		putchar('\n');
	}
}

static void print_producers(const json_t *root)
{
	const json_t *list = json_object_get(root, "producers"), *p;
	struct table *t;
	size_t i;

	if (json_array_size(list) == 0)
		return;
	putchar('\n');
	t = table_create("PRODUCER|>PID|USER|PROGRAM|JOB|>TRAINERS|>EPOCH|>STEP|>BATCHES|>BATCHES/S|>SLOT|WAITS FOR");
	json_array_foreach ((json_t *)(uintptr_t)list, i, p) {
		table_cell(t, "%s", or_dash(text(p, "name")));
		table_cell(t, "%s", count(p, "pid", BUF));
		table_cell(t, "%s", user_name(p, BUF));
		table_cell(t, "%s", or_dash(text(p, "program")));
		table_cell(t, "%s", or_dash(text(p, "job")));
		table_cell(t, "%s", count(p, "trainers", BUF));
		table_cell(t, "%s", count(p, "epoch", BUF));
		table_cell(t, "%s", count(p, "step", BUF));
		table_cell(t, "%s", count(p, "batches", BUF));
		table_cell(t, "%s", rate(p, "batches_per_s", BUF));
		table_cell(t, "%s", bytes(p, "slot_bytes", BUF));
		table_cell(t, "%s", or_dash(text(p, "waiting_for")));
	}
	table_print(t, 0);
	table_destroy(t);
}

static void print_verdict(const json_t *root)
{
	const json_t *v = json_object_get(root, "verdict");
	char line[1024];

	if (!*text(v, "text"))
		return;
	snprintf(line, sizeof line, "%s", text(v, "text"));
	if (json_array_size(json_object_get(root, "sessions")) > 1)
		snprintf(line, sizeof line, "%s [job %s]", text(v, "text"), or_dash(text(v, "job")));
	ctl_make_printable(line);
	status_text_heading("verdict");
	wrap_put(stdout, line, 10, 10, table_line_limit());
}

static void print_numa(const json_t *root)
{
	const json_t *numa = json_object_get(root, "numa");

	if (!numa)
		return;
	status_text_heading("NUMA");
	status_text_put(text(numa, "text"));
	putchar('\n');
}

void status_print(const json_t *root, const json_t *last)
{
	print_verdict(root);
	print_daemon(root);
	print_workers(root);
	print_numa(root);
	print_memory(root);
	print_gpus(root);
	print_cache(root);
	print_file_systems(root);
	print_loaders(root, last);
	print_producers(root);
	print_sessions(root);
}
