/* batchctl bench: trainers that only take batches, and the cost of that.
 *
 * Every trainer is a process of its own, all begin an epoch together, and each epoch is a row: the first epoch pays for
 * cold files and caches, the later ones show the effect of the caches. CPU time is counted on both sides, because work
 * moved from one side to the other is not saved. The daemon's CPU time is the difference of its own counters before and
 * after, so other jobs of the same daemon are counted too; --private has none. */
#include "ctl/bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batchd.h"
#include "ctl/ctl.h"
#include "ctl/term/options.h"
#include "image/transform/pipeline.h"
#include "sources.h"

enum { DEFAULT_EPOCHS = 3 };
#define DEFAULT_NS 10000000000u

/* Set by SIGINT and SIGTERM, so that trainers and a private daemon are stopped in order. */
static atomic_bool interrupted;

static void on_signal(int signal_number)
{
	(void)signal_number;
	atomic_store(&interrupted, true);
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

/* ---- the daemon's own counters ---- */

struct usage {
	double cpu_s, decoded; /* NAN: not reported */
};

/* Replaces b->status. An exit code. */
static int bench_ask(struct bench *b, struct usage *out)
{
	char err[1024] = "", *text = NULL;
	const json_t *loader;
	size_t i;
	int r = batchd_status(b->socket, &text, err, sizeof err);

	if (r < 0) {
		ctl_complain("bench", "%s%s", *err ? err : batchd_code_name(r),
			     r == BATCHD_E_CONNECT ? "; or measure with --private" : "");
		return ctl_exit_of(r);
	}
	json_decref(b->status);
	b->status = json_loads(text, 0, NULL);
	free(text);
	out->cpu_s = bench_number(json_object_get(b->status, "daemon"), "cpu_s");
	out->decoded = 0;
	b->loader = NULL;
	json_array_foreach (json_object_get(b->status, "loaders"), i, loader) {
		const char *job = json_string_value(json_object_get(loader, "job"));

		if (job && !strcmp(job, b->job)) {
			out->decoded = bench_number(loader, "samples_decoded");
			b->loader = loader;
		}
	}
	return CTL_OK;
}

/* ---- the run ---- */

static json_t *trainer_config(const struct bench *b, unsigned i)
{
	return json_pack("{s:s*, s:s*, s:o, s:s*, s:s, s:i, s:i, s:i, s:I, s:i, s:i, s:I, s:I, s:I, s:b}", "socket",
			 b->socket, "device", b->device, "dataset", ctl_json_text(b->spec), "transform", b->transform,
			 "job", b->job, "dtype", (int)b->dtype, "layout", (int)b->layout, "mode", (int)b->mode,
			 "batch_size", (json_int_t)b->batch_size, "rank", b->mode == BATCHD_SHARE ? -1 : (int)i,
			 "world_size", (int)b->n_trainers, "num_workers", (json_int_t)b->workers, "n_slots",
			 (json_int_t)b->slots, "seed", (json_int_t)b->seed, "touch", b->touch);
}

static int wait_all(struct bench *b, struct progress *progress)
{
	int r = trainers_wait(b->trainers, (unsigned)b->n_trainers, progress, &interrupted);

	progress_end(progress);
	if (r == 1)
		ctl_complain("bench", "interrupted");
	return r == 0 ? CTL_OK : r == 1 ? CTL_FAILED : ctl_exit_of(r);
}

static int bench_open_all(struct bench *b)
{
	struct progress progress;

	for (unsigned i = 0; i < b->n_trainers; i++) {
		json_t *config = trainer_config(b, i);
		int r = config ? trainer_start(&b->trainers[i], config) : -ENOMEM;

		json_decref(config);
		if (r < 0) {
			ctl_complain("bench", "cannot start trainer %u: %s", i, strerror(-r));
			return CTL_FAILED;
		}
	}
	progress_begin(&progress, progress_style_for(b->json, b->quiet), "open", "files", 0);
	return wait_all(b, &progress);
}

static void note_opened(struct bench *b)
{
	for (unsigned i = 0; i < b->n_trainers; i++) {
		b->open_ns[i] = (uint64_t)json_integer_value(json_object_get(b->trainers[i].answer, "open_ns"));
		b->n_samples = (uint64_t)json_integer_value(json_object_get(b->trainers[i].answer, "n_samples"));
		b->n_batches = (uint64_t)json_integer_value(json_object_get(b->trainers[i].answer, "n_batches"));
		b->window = (uint64_t)json_integer_value(json_object_get(b->trainers[i].answer, "window"));
	}
}

/* Adds the answers of the trainers for one epoch. */
static bool bench_collect(struct bench *b, struct bench_stats *epoch)
{
	bool fine = true;

	for (unsigned i = 0; i < b->n_trainers; i++) {
		struct bench_stats one;

		bench_stats_init(&one);
		fine = fine && bench_stats_add(&one, b->trainers[i].answer) &&
		       bench_stats_append(&b->by_trainer[i], &one) && bench_stats_add(epoch, b->trainers[i].answer);
		bench_stats_finish(&one);
	}
	return fine;
}

static int bench_run_epoch(struct bench *b, uint64_t epoch, uint64_t deadline_ns, bool *ended)
{
	struct usage before, after;
	struct progress progress;
	struct bench_stats t;
	json_t *entry;
	char name[24];
	int code = bench_ask(b, &before);

	if (code != CTL_OK)
		return code;
	snprintf(name, sizeof name, "%" PRIu64, epoch);
	progress_begin(&progress, progress_style_for(b->json, b->quiet), "bench", "images",
		       b->mode == BATCHD_SHARE ? b->n_samples * b->n_trainers : b->n_samples);
	trainers_run(b->trainers, (unsigned)b->n_trainers, epoch, deadline_ns);
	code = wait_all(b, &progress);
	if (code == CTL_OK)
		code = bench_ask(b, &after);
	if (code != CTL_OK)
		return code;
	bench_stats_init(&t);
	t.daemon_cpu_s = after.cpu_s - before.cpu_s;
	t.decoded = after.decoded - before.decoded;
	if (!bench_collect(b, &t) || !bench_stats_append(&b->total, &t))
		code = CTL_FAILED;
	bench_add_row(b, name, &t);
	entry = bench_stats_json(&t);
	json_object_set_new(entry, "epoch", json_integer((json_int_t)epoch));
	json_array_append_new(b->epoch_list, entry);
	*ended = t.partial;
	bench_stats_finish(&t);
	return code;
}

static int run_epochs(struct bench *b)
{
	uint64_t deadline_ns = b->until_ns ? progress_now_ns() + b->until_ns : 0;
	bool ended = false;
	int code = CTL_OK;

	for (uint64_t e = 0; code == CTL_OK && !ended && (!b->epochs || e < b->epochs); e++) {
		code = bench_run_epoch(b, e, deadline_ns, &ended);
		ended = ended || (deadline_ns && progress_now_ns() >= deadline_ns);
	}
	return code;
}

/* Whether no daemon that this user could ask is there, and none was named. */
static bool no_daemon_answers(const struct bench *b)
{
	const char *named = getenv("BATCHD_SOCKET");
	char *json = NULL;
	int r;

	if (b->socket || (named && *named))
		return false;
	r = batchd_status(NULL, &json, NULL, 0);
	free(json);
	return r == BATCHD_E_CONNECT || r == BATCHD_E_ACCESS;
}

static int bench_prepare(struct bench *b)
{
	struct usage usage;

	snprintf(b->job, sizeof b->job, "batchctl-bench-%d-%" PRIx64, (int)getpid(), progress_now_ns());
	b->spec = ctl_dataset_spec(b->path);
	b->epoch_list = json_array();
	b->rows = table_create(
		">EPOCH|>IMAGES|>SECONDS|>IMAGES/S|>BYTES/S|>DECODED|>CPU MS/IMAGE|>DAEMON|>TRAINERS|>WAIT P50 MS|>P99|"
		">FIRST MS");
	bench_stats_init(&b->total);
	for (unsigned i = 0; i < MAX_TRAINERS; i++)
		bench_stats_init(&b->by_trainer[i]);
	if (!b->spec || !b->epoch_list || !b->rows) {
		ctl_complain("bench", "not enough memory");
		return CTL_FAILED;
	}
	if (!b->own_daemon && no_daemon_answers(b)) {
		b->own_daemon = true;
		fputs("batchctl bench: no daemon runs for this user; measuring with a private one, as --private does\n",
		      stderr);
	}
	if (b->own_daemon) {
		if (private_daemon_start(&b->daemon, "bench", b->workers) < 0)
			return CTL_FAILED;
		b->socket = b->daemon.socket;
	}
	return bench_ask(b, &usage);
}

static int bench(struct bench *b)
{
	int code = bench_prepare(b);

	if (code == CTL_OK)
		code = bench_open_all(b);
	if (code == CTL_OK) {
		note_opened(b);
		code = run_epochs(b);
	}
	trainers_stop(b->trainers, (unsigned)b->n_trainers, code != CTL_OK);
	if (code == CTL_OK)
		code = b->json ? bench_print_json(b) : bench_print_text(b);
	private_daemon_stop(&b->daemon);
	return code;
}

static void bench_finish_figures(struct bench *b)
{
	for (unsigned i = 0; i < MAX_TRAINERS; i++)
		bench_stats_finish(&b->by_trainer[i]);
	bench_stats_finish(&b->total);
	table_destroy(b->rows);
	json_decref(b->epoch_list);
	json_decref(b->status);
	free(b->spec);
	free(b);
}

/* Before a daemon is asked or started, which would complain of something else. Names in a configuration have no colon. */
static bool kind_is_known(const char *path)
{
	const char *colon = strchr(path, ':');
	char *spec;
	bool known;

	if (!colon || source_kind_of(path) != SOURCE_KIND__NO_KIND)
		return true;
	spec = ctl_dataset_spec(path); /* a folder may have a colon in its name */
	known = !spec || source_kind_of(spec) != SOURCE_KIND__NO_KIND;
	free(spec);
	if (!known)
		ctl_complain("bench", "DATASET '%.128s': batchd reads no '%.*s:'; it reads " SOURCE_KINDS_TEXT, path,
			     colon - path < 64 ? (int)(colon - path) : 64, path);
	return known;
}

static bool bench_parse(struct bench *b, int argc, char **argv, int *code)
{
	const struct option_spec specs[] = {
		{ "transform", OPTION_TEXT, &b->transform, "T",
		  "train224, val224, a configured name or JSON (default: the data set's)", 0, 0, NULL },
		{ "batch-size", OPTION_NUMBER, &b->batch_size, "N", "rows", 1, 65536, NULL },
		{ "dtype", OPTION_CHOICE, &b->dtype, "TYPE", "uint8, float16 or float32", 0, 0, bench_dtypes },
		{ "layout", OPTION_CHOICE, &b->layout, "LAYOUT", "NCHW or NHWC", 0, 0, bench_layouts },
		{ "device", OPTION_TEXT, &b->device, "DEVICE",
		  "where batches are delivered: cpu, cuda or cuda:N (default cpu)", 0, 0, NULL },
		{ "trainers", OPTION_NUMBER, &b->n_trainers, "N", "trainer processes", 1, MAX_TRAINERS, NULL },
		{ "mode", OPTION_CHOICE, &b->mode, "MODE", "shard: each gets its part; share: each gets every batch", 0,
		  0, bench_modes },
		{ "epochs", OPTION_NUMBER, &b->epochs, "N", "run N epochs (default 3, but no longer than 10 s)", 1,
		  1000000, NULL },
		{ "seconds", OPTION_DURATION, &b->until_ns, "TIME", "stop after this time", 100000000u, 0, NULL },
		{ "workers", OPTION_NUMBER, &b->workers, "N", "decoding threads (default: the daemon decides)", 1, 4096,
		  NULL },
		{ "slots", OPTION_NUMBER, &b->slots, "N", "batches ahead per trainer (default: the daemon decides)", 1,
		  4096, NULL },
		{ "seed", OPTION_NUMBER, &b->seed, "N", "of order and augmentation", 0, INT64_MAX, NULL },
		{ "touch", OPTION_FLAG, &b->touch, NULL, "trainers read every byte", 0, 0, NULL },
		{ "private", OPTION_FLAG, &b->own_daemon, NULL,
		  "start a daemon for this measurement and stop it afterwards; so it is where none runs", 0, 0, NULL },
		{ "socket", OPTION_TEXT, &b->socket, "PATH", "use the daemon at PATH (default as in status)", 0, 0,
		  NULL },
		{ "json", OPTION_FLAG, &b->json, NULL, "the result, and progress on stderr, as JSON", 0, 0, NULL },
		{ "quiet", OPTION_FLAG, &b->quiet, NULL, "no progress", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"bench",
		"DATASET",
		"Drives trainers against a data set and measures what the daemon delivers and what it costs.",
		"DATASET is a directory of class folders, one of " SOURCE_KINDS_TEXT ", or a name from the\n"
		"daemon's configuration. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no daemon is running, 4 no such data set.",
		1,
	};

	if (!command_parse(&cmd, specs, argc, argv, &b->path, code))
		return false;
	if (b->own_daemon && b->socket) {
		ctl_complain("bench",
			     "--private starts a daemon of its own and --socket names another; give one of them");
		*code = CTL_USAGE;
		return false;
	}
	if (!kind_is_known(b->path)) {
		*code = CTL_USAGE;
		return false;
	}
	return true;
}

int bench_main(int argc, char **argv)
{
	struct bench *b = calloc(1, sizeof *b); /* too large for a stack */
	int code = CTL_FAILED;

	if (!b) {
		ctl_complain("bench", "not enough memory");
		return CTL_FAILED;
	}
	b->batch_size = 64;
	b->n_trainers = 1;
	b->dtype = DTYPE_FLOAT32;
	if (bench_parse(b, argc, argv, &code)) {
		if (!b->epochs && !b->until_ns) {
			b->epochs = DEFAULT_EPOCHS;
			b->until_ns = DEFAULT_NS;
		}
		catch_signals();
		code = bench(b);
	}
	bench_finish_figures(b);
	return code;
}
