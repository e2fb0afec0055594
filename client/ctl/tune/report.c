/* The result of `batchctl tune`: a table, JSON, a picture, and lines of a configuration. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/term/table.h"
#include "ctl/tune/tune.h"

enum { BAR_PX = 420, LABEL_PX = 150, LINE_PX = 22, GAP_PX = 14, TOP_PX = 34, WIDTH_PX = LABEL_PX + BAR_PX + 110 };

const char *const tune_group_names[TUNE_N_GROUPS] = { "workers", "slots",      "caches",
						      "dtype",   "pin_memory", "PyTorch num_workers" };
static const char *const colours[TUNE_N_GROUPS] = { "#3f7fc1", "#6a55c2", "#4a9d5b", "#d9822b", "#b0428f", "#999999" };

static double tune_best(const struct tune *t)
{
	double best = 0;

	for (unsigned i = 0; i < t->n_trials; i++)
		if (t->trial[i].median > best)
			best = t->trial[i].median;
	return best;
}

static double spread_percent(const struct tune_trial *x)
{
	double low = x->rate[0], high = x->rate[0];

	for (unsigned i = 1; i < x->n_rounds; i++) {
		low = x->rate[i] < low ? x->rate[i] : low;
		high = x->rate[i] > high ? x->rate[i] : high;
	}
	return x->median > 0 ? 100 * (high - low) / x->median : 0;
}

void tune_print(const struct tune *t)
{
	struct table *table = table_create("SETTING|VALUE|>IMAGES/S|>SPREAD|>CPU MS/IMAGE|");
	const struct tune_choice *c = &t->choice;

	if (!table)
		return;
	if (t->job.name)
		tune_job_print(t);
	for (unsigned i = 0; i < t->n_trials; i++) {
		const struct tune_trial *x = &t->trial[i];

		table_cell(table, "%s", tune_group_names[x->group]);
		table_cell(table, "%s", x->value);
		if (!x->n_rounds) {
			table_cell(table, "-");
			table_cell(table, "-");
			table_cell(table, "-");
			table_cell(table, "%s", x->problem);
			continue;
		}
		table_cell(table, "%.0f", x->median);
		if (x->n_rounds > 1)
			table_cell(table, "%.0f %%", spread_percent(x));
		else
			table_cell(table, "-");
		if (x->cpu_ms >= 0)
			table_cell(table, "%.2f", x->cpu_ms);
		else
			table_cell(table, "-");
		table_cell(table, "%s", "");
	}
	table_print(table, 0);
	table_destroy(table);
	printf("\n%sRecommended%s\n", table_bold(), table_plain());
	for (int g = 0; g < TUNE_N_GROUPS; g++)
		if (*c->reason[g])
			printf("  %s\n", c->reason[g]);
}

static json_t *number_or_auto(uint64_t n)
{
	return n ? json_integer((json_int_t)n) : json_string("auto");
}

static const char *pin_text(const struct tune *t)
{
	return t->choice.pin_on ? "on" : t->choice.pin_off ? "off" : "auto";
}

json_t *tune_json(const struct tune *t)
{
	json_t *trials = json_array(), *reasons = json_array();

	for (unsigned i = 0; i < t->n_trials; i++) {
		const struct tune_trial *x = &t->trial[i];
		json_t *rounds = json_array();

		for (unsigned k = 0; k < x->n_rounds; k++)
			json_array_append_new(rounds, json_real(x->rate[k]));
		json_array_append_new(trials, json_pack("{s:s, s:s, s:f, s:o, s:f, s:o}", "setting",
							tune_group_names[x->group], "value", x->value, "images_per_s",
							x->median, "rounds", rounds, "cpu_ms_per_image", x->cpu_ms,
							"problem", ctl_json_text(x->n_rounds ? "" : x->problem)));
	}
	for (int g = 0; g < TUNE_N_GROUPS; g++)
		if (*t->choice.reason[g])
			json_array_append_new(reasons, ctl_json_text(t->choice.reason[g]));
	return json_pack("{s:o, s:o, s:{s:o, s:o, s:s, s:s}, s:o, s:o*}", "dataset", ctl_json_text(t->dataset),
			 "trials", trials, "choice", "workers", number_or_auto(t->choice.workers), "slots",
			 number_or_auto(t->choice.slots), "caches", t->choice.decoded_off ? "off" : "auto",
			 "pin_memory", pin_text(t), "reasons", reasons, "job", t->job.name ? tune_job_json(t) : NULL);
}

/* ---- the picture ---- */

static void put_xml(FILE *f, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		default:
			fputc((unsigned char)*text < 0x20 ? '?' : *text, f);
		}
}

static void svg_bar(FILE *f, const struct tune_trial *x, double best, int y)
{
	double width = BAR_PX * x->median / best;

	fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LABEL_PX - 8, y + 14);
	fprintf(f, "%s %s</text>\n", tune_group_names[x->group], x->value);
	fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", LABEL_PX, y + 2, width,
		LINE_PX - 6, colours[x->group]);
	fprintf(f, "<text x=\"%.1f\" y=\"%d\">%.0f</text>\n", LABEL_PX + width + 6, y + 14, x->median);
}

int tune_write_svg(const struct tune *t, const char *path)
{
	double best = tune_best(t);
	unsigned n = 0, n_groups = 0;
	int y = TOP_PX, height;
	FILE *f = fopen(path, "we");

	if (!f)
		return -errno;
	for (unsigned i = 0; i < t->n_trials; i++) {
		n += t->trial[i].median > 0;
		n_groups += t->trial[i].median > 0 && (!i || t->trial[i].group != t->trial[i - 1].group);
	}
	height = TOP_PX + (int)n * LINE_PX + (int)n_groups * GAP_PX;
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n<rect width=\"100%%\" height=\"100%%\" "
		"fill=\"#fff\"/>\n<text x=\"8\" y=\"20\" font-weight=\"bold\">images per second, ",
		WIDTH_PX, height, WIDTH_PX, height);
	put_xml(f, t->dataset);
	fputs("</text>\n", f);
	for (unsigned i = 0; i < t->n_trials; i++) {
		if (t->trial[i].median <= 0)
			continue;
		if (y > TOP_PX && t->trial[i].group != t->trial[i - 1].group)
			y += GAP_PX;
		svg_bar(f, &t->trial[i], best, y);
		y += LINE_PX;
	}
	fputs("</svg>\n", f);
	return ferror(f) | fclose(f) ? -EIO : 0;
}

/* ---- the configuration ---- */

/* Whether the line sets this key at the top level. */
static bool tune_sets(const char *line, const char *key)
{
	size_t n = strlen(key);

	return !strncmp(line, key, n) && (line[n] == ':' || (line[n] == ' ' && strchr(line + n, ':')));
}

/* The keys that the file gets, and their values; pin_memory only where it was measured. */
enum { MOST_KEYS = 3 };
struct setting {
	const char *key;
	char value[24];
	bool written;
};

static void set_number_or_auto(struct setting *s, const char *key, uint64_t n)
{
	s->key = key;
	if (n)
		snprintf(s->value, sizeof s->value, "%llu", (unsigned long long)n);
	else
		snprintf(s->value, sizeof s->value, "auto");
}

static unsigned settings_of(const struct tune *t, struct setting settings[MOST_KEYS])
{
	set_number_or_auto(&settings[0], "workers", t->choice.workers);
	set_number_or_auto(&settings[1], "slots", t->choice.slots);
	if (!*t->choice.reason[TUNE_PIN])
		return 2;
	settings[2].key = "pin_memory";
	snprintf(settings[2].value, sizeof settings[2].value, "%s", pin_text(t));
	return 3;
}

static void copy_line(FILE *f, const char *line, struct setting *settings, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (tune_sets(line, settings[i].key)) {
			fprintf(f, "%s: %s\n", settings[i].key, settings[i].value);
			settings[i].written = true;
			return;
		}
	fputs(line, f);
}

int tune_write_config(const struct tune *t, const char *path)
{
	struct setting settings[MOST_KEYS] = { { .key = NULL } };
	unsigned n = settings_of(t, settings);
	FILE *old = fopen(path, "re"), *f;
	char *line = NULL, *fresh;
	size_t size = 0;
	bool ends = true;
	int r = 0;

	if (!old && errno != ENOENT)
		return -errno;
	if (asprintf(&fresh, "%s.tune", path) < 0) {
		if (old)
			fclose(old);
		return -ENOMEM;
	}
	f = fopen(fresh, "we");
	if (!f)
		r = -errno;
	while (f && old && getline(&line, &size, old) > 0) {
		ends = line[strlen(line) - 1] == '\n';
		copy_line(f, line, settings, n);
	}
	if (f && !ends)
		fputc('\n', f);
	for (unsigned i = 0; f && i < n; i++)
		if (!settings[i].written)
			fprintf(f, "%s: %s\n", settings[i].key, settings[i].value);
	if (f && (ferror(f) | fclose(f) || rename(fresh, path) < 0))
		r = errno ? -errno : -EIO;
	if (r < 0 && f)
		unlink(fresh);
	if (old)
		fclose(old);
	free(line);
	free(fresh);
	return r;
}
