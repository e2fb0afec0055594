/* One table, one parser, one help text per subcommand.
 *
 * Not getopt_long: it accepts abbreviations (which break scripts when an option is added) and prints messages that
 * name neither the subcommand nor what was expected. */
#include "ctl/term/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "base/size.h"

bool options_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;
	unsigned long long v;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *end || v < min || v > max)
		return false;
	*out = v;
	return true;
}

static struct {
	void (*show)(void *arg, const struct command *cmd, const struct option_spec *specs);
	void *arg;
} shown;

void command_show(void (*show)(void *arg, const struct command *cmd, const struct option_spec *specs), void *arg)
{
	shown.show = show;
	shown.arg = arg;
}

/* " (default 64)" from the value before parsing; "" if it is out of range, which means that there is none. */
static const char *default_format(const struct option_spec *s, char *buf, size_t size)
{
	buf[0] = '\0';
	if (s->kind == OPTION_TEXT && *(const char **)s->value)
		snprintf(buf, size, " (default %s)", *(const char **)s->value);
	else if (s->kind == OPTION_NUMBER && *(uint64_t *)s->value >= s->min)
		snprintf(buf, size, " (default %llu)", *(unsigned long long *)s->value);
	else if (s->kind == OPTION_CHOICE)
		snprintf(buf, size, " (default %s)", s->choices[*(unsigned *)s->value]);
	else if (s->kind == OPTION_DURATION && *(uint64_t *)s->value >= s->min)
		snprintf(buf, size, " (default %gs)", (double)*(uint64_t *)s->value / 1e9);
	return buf;
}

static void print_option(const struct option_spec *s)
{
	char left[64], standard[128];
	bool in_words = strstr(s->help, "(default") != NULL;

	snprintf(left, sizeof left, "--%s%s%s", s->name, s->arg ? " " : "", s->arg ? s->arg : "");
	if (strlen(left) >= 24)
		printf("  %s\n", left);
	printf("  %-24s %s%s\n", strlen(left) < 24 ? left : "", s->help,
	       in_words ? "" : default_format(s, standard, sizeof standard));
}

static void print_help(const struct command *cmd, const struct option_spec *specs)
{
	printf("batchctl %s [OPTIONS]%s%s\n\n%s\n\n", cmd->name, *cmd->synopsis ? " " : "", cmd->synopsis,
	       cmd->summary);
	for (; specs->name; specs++)
		print_option(specs);
	printf("  %-24s %s\n", "--help", "this text");
	if (cmd->notes)
		printf("\n%s\n", cmd->notes);
}

static const struct option_spec *find(const struct option_spec *specs, const char *name, size_t length)
{
	for (; specs->name; specs++)
		if (strlen(specs->name) == length && !strncmp(specs->name, name, length))
			return specs;
	return NULL;
}

static void complain_choice(const struct command *cmd, const struct option_spec *s, const char *text)
{
	char list[256] = "";

	for (unsigned i = 0; s->choices[i]; i++) {
		size_t used = strlen(list);

		snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", s->choices[i]);
	}
	ctl_complain(cmd->name, "--%s wants one of %s, not '%s'", s->name, list, text);
}

static bool set_choice(const struct command *cmd, const struct option_spec *s, const char *text)
{
	for (unsigned i = 0; s->choices[i]; i++)
		if (!strcmp(s->choices[i], text)) {
			*(unsigned *)s->value = i;
			return true;
		}
	complain_choice(cmd, s, text);
	return false;
}

static bool set_number(const struct command *cmd, const struct option_spec *s, const char *text)
{
	if (options_number(text, s->min, s->max, s->value))
		return true;
	if (s->max == UINT64_MAX)
		ctl_complain(cmd->name, "--%s wants a whole number of at least %llu, not '%s'", s->name,
			     (unsigned long long)s->min, text);
	else
		ctl_complain(cmd->name, "--%s wants a whole number from %llu to %llu, not '%s'", s->name,
			     (unsigned long long)s->min, (unsigned long long)s->max, text);
	return false;
}

static bool set_duration(const struct command *cmd, const struct option_spec *s, const char *text)
{
	uint64_t ns;

	if (duration_parse(text, &ns) == 0 && ns >= s->min) {
		*(uint64_t *)s->value = ns;
		return true;
	}
	ctl_complain(cmd->name, "--%s wants a time such as 30, 30s, 500ms or 5min (at least %g s), not '%s'", s->name,
		     (double)s->min / 1e9, text);
	return false;
}

static bool ctl_options_set(const struct command *cmd, const struct option_spec *s, const char *text)
{
	switch (s->kind) {
	case OPTION_FLAG:
		break; /* has no text, see below */
	case OPTION_TEXT:
		if (!*text) {
			ctl_complain(cmd->name, "--%s wants %s, not an empty text", s->name, s->arg);
			return false;
		}
		*(const char **)s->value = text;
		return true;
	case OPTION_NUMBER:
		return set_number(cmd, s, text);
	case OPTION_CHOICE:
		return set_choice(cmd, s, text);
	case OPTION_DURATION:
		return set_duration(cmd, s, text);
	}
	return false;
}

/* argv[*at] is "--something"; consumes its argument too. */
static bool ctl_options_take_option(const struct command *cmd, const struct option_spec *specs, int argc, char **argv,
				    int *at)
{
	const char *name = argv[*at] + 2;
	const char *equals = strchr(name, '=');
	const struct option_spec *s = find(specs, name, equals ? (size_t)(equals - name) : strlen(name));

	if (!s) {
		ctl_complain(cmd->name, "unknown option '%s'; 'batchctl %s --help' lists them", argv[*at], cmd->name);
		return false;
	}
	if (s->kind == OPTION_FLAG) {
		if (equals)
			ctl_complain(cmd->name, "--%s takes no value, but '%s' was given", s->name, equals + 1);
		else
			*(bool *)s->value = true;
		return !equals;
	}
	if (equals)
		return ctl_options_set(cmd, s, equals + 1);
	if (*at + 1 >= argc) {
		ctl_complain(cmd->name, "--%s wants %s after it", s->name, s->arg);
		return false;
	}
	return ctl_options_set(cmd, s, argv[++*at]);
}

static bool take_positional(const struct command *cmd, const char *text, const char **positional, unsigned *n)
{
	if (*n < cmd->n_positional) {
		positional[(*n)++] = text;
		return true;
	}
	if (cmd->n_positional)
		ctl_complain(cmd->name, "'%s' is one argument too many; wanted: %s", text, cmd->synopsis);
	else
		ctl_complain(cmd->name, "takes no argument, but '%s' was given", text);
	return false;
}

bool command_parse(const struct command *cmd, const struct option_spec *specs, int argc, char **argv,
		   const char **positional, int *exit_code)
{
	return command_parse_some(cmd, specs, cmd->n_positional, argc, argv, positional, exit_code);
}

bool command_parse_some(const struct command *cmd, const struct option_spec *specs, unsigned least, int argc,
			char **argv, const char **positional, int *exit_code)
{
	unsigned n = 0;
	bool ended = false;

	if (shown.show) {
		shown.show(shown.arg, cmd, specs);
		*exit_code = CTL_OK;
		return false;
	}
	*exit_code = CTL_USAGE;
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];

		if (!ended && (!strcmp(a, "--help") || !strcmp(a, "-h"))) {
			print_help(cmd, specs);
			*exit_code = ctl_flush(cmd->name);
			return false;
		}
		if (!ended && !strcmp(a, "--")) {
			ended = true;
		} else if (!ended && a[0] == '-' && a[1] == '-') {
			if (!ctl_options_take_option(cmd, specs, argc, argv, &i))
				return false;
		} else if (!ended && a[0] == '-' && a[1]) {
			ctl_complain(cmd->name, "unknown option '%s'; 'batchctl %s --help' lists them", a, cmd->name);
			return false;
		} else if (!take_positional(cmd, a, positional, &n)) {
			return false;
		}
	}
	if (n < least) {
		ctl_complain(cmd->name, "%s is missing; 'batchctl %s --help' explains", cmd->synopsis, cmd->name);
		return false;
	}
	return true;
}
