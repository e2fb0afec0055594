/* batchctl tune: the experiment by which people find num_workers, done for them: on their data and machine, each setting
 * several times in turn, with what PyTorch's own loader makes beside it.
 *
 * Each measurement has a daemon of its own, without caches where the first epoch counts. Groups of settings follow one
 * another: workers first, the rest with the workers that were chosen. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/term/options.h"
#include "ctl/term/progress.h"
#include "ctl/tune/tune.h"

static void tune_add(struct tune *t, struct tune_trial trial, const char *value)
{
	if (t->n_trials == TUNE_MOST_TRIALS)
		return;
	snprintf(trial.value, sizeof trial.value, "%s", value);
	trial.cpu_ms = -1;
	t->trial[t->n_trials++] = trial;
}

static void tune_add_number(struct tune *t, struct tune_trial trial, uint64_t n)
{
	char value[24];

	snprintf(value, sizeof value, "%llu", (unsigned long long)n);
	tune_add(t, trial, value);
}

/* 1, 2, 4, ... and n itself. */
static void add_workers(struct tune *t, enum tune_group group, uint64_t least, uint64_t most)
{
	for (uint64_t n = least; n < most; n = n ? 2 * n : 1)
		tune_add_number(t, (struct tune_trial){ .group = group, .workers = n }, n);
	tune_add_number(t, (struct tune_trial){ .group = group, .workers = most }, most);
}

static void add_group(struct tune *t, enum tune_group group)
{
	static const char *const dtypes[] = { "float32", "float16", "uint8" };
	uint64_t workers = t->choice.workers, most = t->most_workers ? t->most_workers : ctl_n_cpus();

	switch (group) {
	case TUNE_WORKERS:
		add_workers(t, group, 1, most);
		tune_add(t, (struct tune_trial){ .group = group }, "auto");
		break;
	case TUNE_SLOTS:
		for (uint64_t n = 3; n <= 12; n *= 2)
			tune_add_number(t, (struct tune_trial){ .group = group, .workers = workers, .slots = n }, n);
		tune_add(t, (struct tune_trial){ .group = group, .workers = workers }, "auto");
		break;
	case TUNE_CACHE:
		tune_add(t, (struct tune_trial){ .group = group, .workers = workers }, "off");
		tune_add(t, (struct tune_trial){ .group = group, .workers = workers, .cached = true }, "auto");
		break;
	case TUNE_DTYPE:
		for (int i = 0; i < 3; i++)
			tune_add(t, (struct tune_trial){ .group = group, .workers = workers, .dtype = dtypes[i] },
				 dtypes[i]);
		break;
	case TUNE_PIN:
		tune_add(t, (struct tune_trial){ .group = group, .workers = workers, .on_gpu = true }, "off");
		tune_add(t, (struct tune_trial){ .group = group, .workers = workers, .on_gpu = true, .pinned = true },
			 "on");
		break;
	default:
		add_workers(t, group, 0, most > 4 || t->most_workers ? most : 4);
		break;
	}
}

/* Measures the group's trials in turn, round by round, and every other round backwards, so that changes in the
 * machine's speed affect all alike. False: none could be measured. */
static bool measure_group(struct tune *t, enum tune_group group, struct progress *p, uint64_t *n_done)
{
	unsigned first = t->n_trials, n;
	bool any = false;

	add_group(t, group);
	n = t->n_trials - first;
	for (uint64_t round = 0; round < t->rounds; round++)
		for (unsigned i = 0; i < n; i++) {
			struct tune_trial *x = &t->trial[first + (round % 2 ? n - 1 - i : i)];

			if (round && !x->n_rounds)
				continue; /* it failed */
			any |= (group == TUNE_TORCH ? tune_torch_run(t, x) : tune_run(t, x)) == 0;
			progress_update(p, ++*n_done);
			if (group == TUNE_TORCH && !any) {
				t->n_trials = first + 1; /* one row says why there is no PyTorch */
				n = 1;
			}
		}
	tune_choose(t, group);
	return any;
}

static bool has_gpu(void)
{
	const char *driver = getenv("BATCHD_LIBCUDA");

	return (driver && *driver) || access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* PyTorch's loader is measured on folders, by its two well-known transforms. */
static bool is_torchs(const struct tune *t)
{
	bool folder = !strncmp(t->dataset, "imagefolder:", 12) || !strchr(t->dataset, ':');

	return !t->no_torch && folder &&
	       (!t->transform || !strcmp(t->transform, "train224") || !strcmp(t->transform, "val224"));
}

static int tune_measure(struct tune *t)
{
	struct progress p;
	uint64_t n_done = 0;
	bool any;

	progress_begin(&p, progress_style_for(t->json, t->quiet), "tune", "measurements", 0);
	any = measure_group(t, TUNE_WORKERS, &p, &n_done);
	if (any) {
		measure_group(t, TUNE_SLOTS, &p, &n_done);
		measure_group(t, TUNE_CACHE, &p, &n_done);
		measure_group(t, TUNE_DTYPE, &p, &n_done);
		if (has_gpu())
			measure_group(t, TUNE_PIN, &p, &n_done);
		if (is_torchs(t))
			measure_group(t, TUNE_TORCH, &p, &n_done);
	}
	progress_end(&p);
	tune_torch_stop(t);
	if (t->job.name)
		tune_job_end(t);
	if (any)
		return CTL_OK;
	ctl_complain("tune", "nothing could be measured: %s", t->n_trials ? t->trial[0].problem : "no trials");
	return CTL_FAILED;
}

/* ---- the files ---- */

static int cannot_write(const char *path, int error)
{
	ctl_complain("tune", "cannot write '%s': %s", path, strerror(error));
	return CTL_FAILED;
}

/* A new user has no ~/.config/batchd, and may have no ~/.config. 0 or an errno. */
static int make_folders_of(const char *path)
{
	char folder[PATH_MAX];

	if (strlen(path) >= sizeof folder)
		return ENAMETOOLONG;
	strcpy(folder, path);
	for (char *slash = folder + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = '\0';
		if (mkdir(folder, 0777) < 0 && errno != EEXIST)
			return errno;
	}
	return 0;
}

/* Whether the file can be written later; what it has stays. A file of its own name takes its place
 * (tune_write_config), so its folder counts. */
static int check_file(const char *path)
{
	char fresh[PATH_MAX];
	struct stat st;
	int fd, r = make_folders_of(path);

	if (!r && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		r = EISDIR;
	if (!r && snprintf(fresh, sizeof fresh, "%s.tune", path) >= (int)sizeof fresh)
		r = ENAMETOOLONG;
	fd = r ? -1 : open(fresh, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return cannot_write(path, r ? r : errno);
	close(fd);
	unlink(fresh);
	return CTL_OK;
}

static int check_files(const struct tune *t)
{
	int code = t->svg ? check_file(t->svg) : CTL_OK;

	return code == CTL_OK && t->write ? check_file(t->write) : code;
}

/* The table first: it is what the measurements were for, whatever becomes of the files. */
static int tune_report(struct tune *t)
{
	int code = CTL_OK, r;

	if (t->json)
		code = ctl_print_json("tune", tune_json(t));
	else
		tune_print(t);
	if (t->svg && (r = tune_write_svg(t, t->svg)) < 0)
		code = cannot_write(t->svg, -r);
	if (t->write && (r = tune_write_config(t, t->write)) < 0)
		return cannot_write(t->write, -r);
	if (t->write && !t->json)
		printf("\n%s has these settings; a running daemon takes them with SIGHUP\n", t->write);
	return code == CTL_OK && !t->json ? ctl_flush("tune") : code;
}

int tune_main(int argc, char **argv)
{
	struct tune *t = calloc(1, sizeof *t);
	int code;

	if (!t)
		return CTL_FAILED;
	t->python = "python3";
	t->seconds_ns = 3000000000u;
	t->rounds = 3;
	t->batch_size = 64;
	const struct option_spec specs[] = {
		{ "job", OPTION_TEXT, &t->job.name, "NAME",
		  "instead of DATASET: the data set, transform, batch size and types of this running job", 0, 0, NULL },
		{ "socket", OPTION_TEXT, &t->socket, "PATH", "of the job's daemon (default as in status)", 0, 0, NULL },
		{ "transform", OPTION_TEXT, &t->transform, "T", "train224, val224 or JSON (default: the data set's)", 0,
		  0, NULL },
		{ "batch-size", OPTION_NUMBER, &t->batch_size, "N", "rows", 1, 65536, NULL },
		{ "seconds", OPTION_DURATION, &t->seconds_ns, "TIME", "of each measurement", 100000000u, 0, NULL },
		{ "rounds", OPTION_NUMBER, &t->rounds, "N", "measurements of each setting", 1, TUNE_MOST_ROUNDS, NULL },
		{ "most-workers", OPTION_NUMBER, &t->most_workers, "N", "(default: the processors)", 1, 1024, NULL },
		{ "no-torch", OPTION_FLAG, &t->no_torch, NULL, "without PyTorch's DataLoader", 0, 0, NULL },
		{ "python", OPTION_TEXT, &t->python, "PROGRAM", "the Python that has PyTorch", 0, 0, NULL },
		{ "svg", OPTION_TEXT, &t->svg, "FILE.svg", "draw the table", 0, 0, NULL },
		{ "write", OPTION_TEXT, &t->write, "FILE", "set workers and slots in this configuration", 0, 0, NULL },
		{ "json", OPTION_FLAG, &t->json, NULL, "the result, and progress on stderr, as JSON", 0, 0, NULL },
		{ "quiet", OPTION_FLAG, &t->quiet, NULL, "no progress", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"tune",
		"DATASET",
		"Measures settings on your data and machine, beside PyTorch's DataLoader, and says which to take.",
		"DATASET is as for bench. It needs no running daemon: each measurement has one of its own. With --job, those run\n"
		"beside the job, which keeps its settings and slows down meanwhile.",
		1,
	};
	bool parsed = command_parse_some(&cmd, specs, 0, argc, argv, &t->dataset, &code);

	if (parsed && !t->dataset == !t->job.name) {
		ctl_complain("tune",
			     "give a DATASET, or a running job with --job NAME; 'batchctl tune --help' explains");
		code = CTL_USAGE;
		parsed = false;
	}
	if (parsed && t->job.name && t->transform) {
		ctl_complain("tune", "--job has a transform of its own: leave --transform out");
		code = CTL_USAGE;
		parsed = false;
	}
	if (parsed)
		code = check_files(t);
	if (parsed && code == CTL_OK && t->job.name)
		code = tune_job_begin(t);
	if (parsed && code == CTL_OK)
		code = tune_measure(t);
	if (parsed && code == CTL_OK)
		code = tune_report(t);
	tune_job_finish(t);
	free(t);
	return code;
}
