/* batchctl: shows the daemon's state, measures it and prepares data for it. This file only finds the subcommand. */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "batchd.h"
#include "ctl.h"
#include "words.h"

static int complete_main(int argc, char **argv);

static const struct subcommand subcommands[] = {
	{ "status", status_main, "what the daemon does, and who waits for whom" },
	{ "top", top_main, "trainers live, the one that loses most time first" },
	{ "bench", bench_main, "drive trainers against a data set and measure" },
	{ "tune", tune_main, "measure settings, beside PyTorch's loader, and say which to take" },
	{ "trace", trace_main, "record what the daemon does, for Perfetto" },
	{ "verify", verify_main, "read and decode every file of a data set, and name the bad ones" },
	{ "index", index_main, "write the index of tar shards beside them" },
	{ "preview", preview_main, "a contact sheet of what a pipeline makes" },
	{ "load", load_main, "one image through a pipeline, and how long it takes" },
	{ "sample-data", sample_data_main, "make a small labelled JPEG folder to try things with" },
	{ "doctor", doctor_main, "what stands in the way here, above all of GPUs, and what to change" },
	{ "complete", complete_main, NULL },
	{ "bench-trainer", bench_trainer_main, NULL },
	{ "doctor-export", doctor_export_main, NULL },
	{ NULL, NULL, NULL },
};

static int complete_main(int argc, char **argv)
{
	return complete_print(subcommands, argc, argv);
}

static const struct subcommand *find(const char *name)
{
	for (size_t i = 0; subcommands[i].name; i++)
		if (!strcmp(subcommands[i].name, name))
			return &subcommands[i];
	return NULL;
}

static int batchctl_refuse(const char *name)
{
	const char *meant = NULL;
	size_t nearest = 3; /* a larger distance means another word */

	for (size_t i = 0; subcommands[i].name; i++) {
		size_t d = subcommands[i].summary ? word_distance(name, subcommands[i].name) : nearest;

		if (subcommands[i].summary && strlen(name) > 2 && !strncmp(name, subcommands[i].name, strlen(name)))
			d = 0; /* a prefix */
		if (d < nearest) {
			nearest = d;
			meant = subcommands[i].name;
		}
	}
	if (meant)
		ctl_complain(NULL, "there is no command '%s'; did you mean '%s'? 'batchctl --help' lists all", name,
			     meant);
	else
		ctl_complain(NULL, "there is no command '%s'; 'batchctl --help' lists them", name);
	return CTL_USAGE;
}

static int batchctl_help(void)
{
	puts("batchctl COMMAND [OPTIONS]\n");
	for (size_t i = 0; subcommands[i].name; i++)
		if (subcommands[i].summary)
			printf("  %-12s  %s\n", subcommands[i].name, subcommands[i].summary);
	puts("\n'batchctl COMMAND --help' lists a command's options; batchctl(1) explains them.\n"
	     "Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 no daemon is running, 4 not found or not allowed.");
	return ctl_flush(NULL);
}

static int batchctl_version(void)
{
	puts("batchctl " BATCHD_VERSION);
	return ctl_flush(NULL);
}

/* "batchctl help bench" is "batchctl bench --help". */
static int help_on(const char *name)
{
	const struct subcommand *s = find(name);
	char text_name[32], flag[] = "--help";
	char *argv[] = { text_name, flag, NULL };

	if (!s || !s->summary)
		return batchctl_refuse(name);
	snprintf(text_name, sizeof text_name, "%s", name);
	return s->run(2, argv);
}

int main(int argc, char **argv)
{
	const struct subcommand *s;

	setlocale(LC_CTYPE, "");
	signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, reported by ctl_flush */
	if (argc < 2) {
		ctl_complain(NULL, "a command is missing; 'batchctl --help' lists them");
		return CTL_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return batchctl_help();
	if (!strcmp(argv[1], "--version"))
		return batchctl_version();
	if (!strcmp(argv[1], "help"))
		return argc < 3 ? batchctl_help() : help_on(argv[2]);
	s = find(argv[1]);
	if (!s)
		return batchctl_refuse(argv[1]);
	return s->run(argc - 1, argv + 1);
}
