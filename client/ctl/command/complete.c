/* batchctl complete PROGRAM WORD...: what a shell may put in place of the last word (client/completion), a line each: the
 * word, a tab, and its help; ":files" or ":directories" lets the shell list these. Not for people.
 *
 * Commands, options and values come from the tables by which batchctl and batchd parse and explain them. A command's
 * table is on its stack, so it is shown to a function while the command is asked for it (command_show). */
#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "ctl/ctl.h"
#include "ctl/term/options.h"

struct typed {
	const char *before, *word; /* the word to complete, and the one in front of it */
	char option[64];           /* of --name=value in one word: "--name" */
};

static void offer(const struct typed *t, const char *dashes, const char *word, const char *help)
{
	char text[64];

	snprintf(text, sizeof text, "%s%s", dashes, word);
	if (!strncmp(text, t->word, strlen(t->word)))
		printf("%s%s%s\t%.*s\n", t->option, *t->option ? "=" : "", text, (int)strcspn(help, "\n"), help);
}

/* Words between blanks. */
static void offer_words(const struct typed *t, const char *words)
{
	while (*words) {
		size_t n = strcspn(words, " ");
		char one[64];

		snprintf(one, sizeof one, "%.*s", (int)n, words);
		offer(t, "", one, "");
		words += n + (words[n] != '\0');
	}
}

/* By the name that --help has for a value or an argument. False: it may be anything. */
static bool offer_what(const struct typed *t, const char *arg)
{
	if (!strncmp(arg, "FILE", 4) || !strcmp(arg, "PATH") || !strcmp(arg, "PROGRAM"))
		puts(":files");
	else if (!strcmp(arg, "DATASET") || !strcmp(arg, "DIR") || !strcmp(arg, "tar:SHARDS"))
		puts(":directories");
	else if (!strcmp(arg, "T"))
		offer_words(t, "train224 val224");
	else if (!strcmp(arg, "DEVICE"))
		offer_words(t, "cpu cuda");
	else if (!strcmp(arg, "OP"))
		offer_words(t, "RandAugment TrivialAugmentWide AutoAugment AugMix");
	else
		return false;
	return true;
}

/* ---- batchctl ---- */

static void show_command(void *arg, const struct command *cmd, const struct option_spec *specs)
{
	const struct typed *t = arg;

	for (const struct option_spec *s = specs; s->name; s++) {
		if (s->kind == OPTION_FLAG || strncmp(t->before, "--", 2) || strcmp(t->before + 2, s->name))
			continue;
		for (unsigned i = 0; s->choices && s->choices[i]; i++)
			offer(t, "", s->choices[i], "");
		if (!s->choices)
			(void)offer_what(t, s->arg);
		return;
	}
	if (t->word[0] != '-' && offer_what(t, cmd->synopsis))
		return;
	for (const struct option_spec *s = specs; s->name; s++)
		offer(t, "--", s->name, s->help);
	offer(t, "--", "help", "explains the options");
}

static void complete_batchctl(const struct subcommand *commands, const struct typed *t, unsigned n_words, char **words)
{
	bool names = n_words == 1 || !strcmp(words[0], "help");

	for (const struct subcommand *c = commands; c->name; c++) {
		char *argv[] = { words[0], NULL };

		if (names && c->summary) {
			offer(t, "", c->name, c->summary);
		} else if (!names && c->summary && !strcmp(c->name, words[0])) {
			command_show(show_command, (void *)t);
			(void)c->run(1, argv);
			command_show(NULL, NULL);
		}
	}
	if (n_words > 1)
		return;
	offer(t, "", "help", "explains a command");
	offer(t, "--", "help", "lists the commands");
	offer(t, "--", "version", "prints the version");
}

/* ---- batchd ---- */

static bool is_row(const struct option_row *r, const char *text)
{
	return (text[0] == '-' && r->letter && text[1] == r->letter && !text[2]) ||
	       (!strncmp(text, "--", 2) && !strcmp(text + 2, r->name));
}

static void complete_batchd(const struct typed *t)
{
	for (const struct option_row *r = options_table; r->name; r++) {
		if (!r->arg || !is_row(r, t->before))
			continue;
		if (r->values)
			offer_words(t, r->values);
		else
			(void)offer_what(t, r->arg);
		return;
	}
	for (const struct option_row *r = options_table; r->name; r++)
		offer(t, "--", r->name, r->help);
}

int complete_print(const struct subcommand *commands, int argc, char **argv)
{
	/* bash has the equals sign of --name=value as a word of its own. */
	bool equals = argc > 3 && !strcmp(argv[argc - 1], "="), after = argc > 4 && !strcmp(argv[argc - 2], "=");
	struct typed t = { argc > 3 + after ? argv[argc - 2 - after] : "", equals ? "" : argv[argc - 1], "" };
	const char *value = strchr(t.word, '=');

	if (argc < 3)
		return CTL_USAGE;
	if (!strncmp(t.word, "--", 2) && value) {
		snprintf(t.option, sizeof t.option, "%.*s", (int)(value - t.word), t.word);
		t.before = t.option;
		t.word = value + 1;
	}
	if (!strcmp(argv[1], "batchd"))
		complete_batchd(&t);
	else
		complete_batchctl(commands, &t, (unsigned)argc - 2, argv + 2);
	return ctl_flush(argv[0]);
}
