/* What the configuration means. One table has every scalar key with its kind, range, default and whether a reload takes it over at once; the file,
 * the command line, the defaults and the comparison all go through it, so that a new key is one line (and one in the schema of
 * config-file.c). Lists, which have names, follow by hand.
 *
 * Names of users and groups become numbers here: a name nobody has would otherwise lock out, silently, whom it was meant to let in. */
#include "config.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config-file.h"
#include "pipeline/pipeline.h"
#include "util/parse.h"
#include "util/size.h"

enum {
	MAX_DATASET_NAME = 64,
	MAX_ID_BUFFER = 65536, /* for one entry of the user or group data base */
};

#define SECOND UINT64_C(1000000000) /* in ns */
#define DAY (86400 * SECOND)
#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

/* ---- the table ---- */

enum kind {
	KIND_PATH,       /* char *, absolute */
	KIND_MODE,       /* mode_t */
	KIND_GROUP,      /* gid_t */
	KIND_COUNT,      /* uint32_t */
	KIND_COUNT_AUTO, /* uint32_t, auto is 0 */
	KIND_NUMBER,     /* uint64_t */
	KIND_SIZE,       /* uint64_t */
	KIND_SIZE_AUTO,  /* uint64_t, auto is 0 */
	KIND_CACHE,      /* uint64_t, off is 0 */
	KIND_DURATION,   /* uint64_t */
	KIND_DURATION_NEVER,
	KIND_SHARE,      /* double */
	KIND_LEVEL,      /* enum log_level */
};

struct key {
	const char *name;
	size_t text_offset;   /* of the char * in struct config_text */
	size_t offset;        /* in struct config */
	enum kind kind;
	bool live;            /* a reload takes it over at once */
	const char *standard; /* the default, as a file would have it; NULL: nothing */
	uint64_t min, max;    /* in the value's unit */
};

#define KEY(name, member) #name, offsetof(struct config_text, name), offsetof(struct config, member)

static const struct key keys[] = {
	{KEY(socket, socket), KIND_PATH, false, NULL, 0, 0},
	{KEY(socket_mode, socket_mode), KIND_MODE, false, "0600", 0600, 0777},
	{KEY(socket_group, socket_group), KIND_GROUP, false, NULL, 0, 0},
	{KEY(workers, workers), KIND_COUNT_AUTO, true, "auto", 1, 1024},
	{KEY(io_threads, io_threads), KIND_COUNT, false, "8", 1, 256},
	{KEY(memory, memory_bytes), KIND_SIZE_AUTO, false, "auto", 16 * MIB, 64 * TIB},
	{KEY(slots, slots), KIND_COUNT, false, "4", 2, 64},
	{KEY(linger, linger_ns), KIND_DURATION, true, "30s", 0, 30 * DAY},
	{KEY(idle_exit, idle_exit_ns), KIND_DURATION_NEVER, false, "never", 0, 30 * DAY},
	{KEY(bad_data, bad_data), KIND_SHARE, true, "1%", 0, 0},
	{KEY(log_level, log_level), KIND_LEVEL, true, "notice", 0, 0},
	{KEY(index_cache, index_cache), KIND_PATH, false, NULL, 0, 0},
	{KEY(cache.jpeg, cache_jpeg_bytes), KIND_CACHE, false, "auto", MIB, 64 * TIB},
	{KEY(cache.decoded, cache_decoded_bytes), KIND_CACHE, false, "auto", MIB, 64 * TIB},
	{KEY(cache.directory, cache_directory), KIND_PATH, false, NULL, 0, 0},
	{KEY(limits.sessions, limits.sessions), KIND_COUNT, true, "256", 1, 65536},
	{KEY(limits.sessions_per_user, limits.sessions_per_user), KIND_COUNT, true, "64", 1, 65536},
	{KEY(limits.pending, limits.pending), KIND_COUNT, true, "64", 1, 4096},
	{KEY(limits.hello_timeout, limits.hello_timeout_ns), KIND_DURATION, true, "5s", SECOND / 10, 3600 * SECOND},
	{KEY(limits.loaders, limits.loaders), KIND_COUNT, true, "64", 1, 4096},
	{KEY(limits.batch_size, limits.batch_size), KIND_COUNT, true, "65536", 1, 1 << 20},
	{KEY(limits.batch_bytes, limits.batch_bytes), KIND_SIZE, true, "4GiB", MIB, TIB},
	{KEY(limits.image_pixels, limits.image_pixels), KIND_NUMBER, true, "178956970", 1, UINT64_C(1) << 32},
	{KEY(limits.image_scans, limits.image_scans), KIND_COUNT, true, "100", 1, 10000},
	{KEY(limits.file_bytes, limits.file_bytes), KIND_SIZE, true, "256MiB", KIB, 4 * GIB},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

static const struct key *key_find(const char *name)
{
	for (size_t i = 0; i < N_KEYS; i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

/* ---- messages ---- */

static int fail(struct config_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int fail(struct config_error *err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(err->text, sizeof err->text, fmt, args);
	va_end(args);
	return -EINVAL;
}

/* Puts "FILE:LINE: " before the message. */
static int fail_in(const struct config_file *f, const char *where, struct config_error *err)
{
	struct config_error inner = *err;

	return fail(err, "%.120s:%u: %.500s", f->path, config_file_line(f, where), inner.text);
}

static const char *duration_format(uint64_t ns, char *buf, size_t size)
{
	static const struct {
		uint64_t ns;
		const char *unit;
	} units[] = {{DAY, "d"}, {3600 * SECOND, "h"}, {60 * SECOND, "min"}, {SECOND, "s"}, {1000000, "ms"}, {1, "ns"}};
	size_t i = 0;

	while (ns % units[i].ns != 0) /* ends: everything is a multiple of 1 */
		i++;
	snprintf(buf, size, "%llu%s", ns ? (unsigned long long)(ns / units[i].ns) : 0, ns ? units[i].unit : "s");
	return buf;
}

/* "4KiB", without the decimal of size_format: the borders in the table are round. */
static const char *size_round(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	size_t i = 0;

	while (bytes && bytes % 1024 == 0 && i + 1 < sizeof units / sizeof *units) {
		bytes /= 1024;
		i++;
	}
	snprintf(buf, size, "%llu%s", (unsigned long long)bytes, units[i]);
	return buf;
}

static void key_expected(const struct key *k, char *buf, size_t size)
{
	char low[32], high[32];

	switch (k->kind) {
	case KIND_PATH:
		snprintf(buf, size, "an absolute path");
		break;
	case KIND_MODE:
		snprintf(buf, size, "permission bits in octal from 0600 to 0777, such as 0660");
		break;
	case KIND_GROUP:
		snprintf(buf, size, "a group of this machine, by name or number");
		break;
	case KIND_COUNT:
	case KIND_COUNT_AUTO:
	case KIND_NUMBER:
		snprintf(buf, size, "%sa whole number from %llu to %llu", k->kind == KIND_COUNT_AUTO ? "auto or " : "",
			 (unsigned long long)k->min, (unsigned long long)k->max);
		break;
	case KIND_SIZE:
	case KIND_SIZE_AUTO:
	case KIND_CACHE:
		snprintf(buf, size, "%sa size from %s to %s, such as 512MiB",
			 k->kind == KIND_SIZE_AUTO ? "auto or " : k->kind == KIND_CACHE ? "auto, off or " : "",
			 size_round(k->min, low, sizeof low), size_round(k->max, high, sizeof high));
		break;
	case KIND_DURATION:
	case KIND_DURATION_NEVER:
		snprintf(buf, size, "%sa duration from %s to %s, such as 30s or 5min", k->kind == KIND_DURATION_NEVER ? "never or " : "",
			 duration_format(k->min, low, sizeof low), duration_format(k->max, high, sizeof high));
		break;
	case KIND_SHARE:
		snprintf(buf, size, "a share from 0%% to 100%%, such as 1%% or 0.01");
		break;
	case KIND_LEVEL:
		snprintf(buf, size, "error, warning, notice, info or debug");
		break;
	}
}

static int fail_value(const struct key *k, const char *text, struct config_error *err)
{
	char expected[128];

	key_expected(k, expected, sizeof expected);
	return fail(err, "%s: '%.80s' is not valid; expected %s", k->name, text, expected);
}

/* ---- users and groups ---- */

/* By number without asking anybody, else by name. 0, -ENOENT, -ENOMEM or what the data base failed with. */
static int id_number(const char *text, uint32_t *id)
{
	uint64_t number;

	if (number_parse(text, &number) < 0)
		return -ENOENT;
	if (number >= UINT32_MAX) /* (uid_t)-1 means nobody in every system call */
		return -ENOENT;
	*id = (uint32_t)number;
	return 0;
}

static int user_parse(const char *text, uid_t *uid)
{
	struct passwd pw, *found = NULL;

	if (id_number(text, uid) == 0)
		return 0;

	char *buf = malloc(MAX_ID_BUFFER);
	int e = buf ? getpwnam_r(text, &pw, buf, MAX_ID_BUFFER, &found) : ENOMEM;

	if (found)
		*uid = pw.pw_uid;
	free(buf);
	return found ? 0 : e ? -e : -ENOENT;
}

static int group_parse(const char *text, gid_t *gid)
{
	struct group gr, *found = NULL;

	if (id_number(text, gid) == 0)
		return 0;

	char *buf = malloc(MAX_ID_BUFFER);
	int e = buf ? getgrnam_r(text, &gr, buf, MAX_ID_BUFFER, &found) : ENOMEM;

	if (found)
		*gid = gr.gr_gid;
	free(buf);
	return found ? 0 : e ? -e : -ENOENT;
}

/* ---- setting one key ---- */

static void *member(const struct config *c, const struct key *k)
{
	return (char *)c + k->offset;
}

static bool is_word(const char *text, const char *word)
{
	return strcmp(text, word) == 0;
}

/* The number behind the kinds that have one: words first, then digits and units, then the range. */
static int value_parse(const struct key *k, const char *text, uint64_t *value)
{
	int e;

	if ((k->kind == KIND_COUNT_AUTO || k->kind == KIND_SIZE_AUTO) && is_word(text, "auto")) {
		*value = 0;
		return 0;
	}
	if (k->kind == KIND_CACHE && (is_word(text, "auto") || is_word(text, "off"))) {
		*value = is_word(text, "auto") ? CONFIG_AUTO : 0;
		return 0;
	}
	if (k->kind == KIND_DURATION_NEVER && is_word(text, "never")) {
		*value = CONFIG_NEVER;
		return 0;
	}
	if (k->kind == KIND_SIZE || k->kind == KIND_SIZE_AUTO || k->kind == KIND_CACHE)
		e = size_parse(text, value);
	else if (k->kind == KIND_DURATION || k->kind == KIND_DURATION_NEVER)
		e = duration_parse(text, value);
	else
		e = number_parse(text, value);
	return e < 0 ? e : *value < k->min || *value > k->max ? -ERANGE : 0;
}

static int set_path(const struct key *k, char **path, const char *text, struct config_error *err)
{
	if (text[0] != '/')
		return fail_value(k, text, err);

	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*path);
	*path = copy;
	return 0;
}

static int set_key(struct config *c, const struct key *k, const char *text, struct config_error *err)
{
	uint64_t value;
	mode_t mode;
	int e = 0;

	switch (k->kind) {
	case KIND_PATH:
		return set_path(k, member(c, k), text, err);
	case KIND_GROUP:
		e = group_parse(text, member(c, k));
		break;
	case KIND_SHARE:
		e = share_parse(text, member(c, k));
		break;
	case KIND_LEVEL:
		e = log_level_parse(text, member(c, k));
		break;
	case KIND_MODE:
		e = mode_parse(text, &mode);
		if (e == 0 && (mode & 0600) != 0600) /* its owner must reach it */
			e = -ERANGE;
		if (e == 0)
			*(mode_t *)member(c, k) = mode;
		break;
	case KIND_COUNT:
	case KIND_COUNT_AUTO:
		e = value_parse(k, text, &value);
		if (e == 0)
			*(uint32_t *)member(c, k) = (uint32_t)value; /* the table's maxima fit */
		break;
	default:
		e = value_parse(k, text, &value);
		if (e == 0)
			*(uint64_t *)member(c, k) = value;
		break;
	}
	return e == -ENOMEM ? e : e < 0 ? fail_value(k, text, err) : 0;
}

int config_set(struct config *c, const char *key, const char *text, struct config_error *err)
{
	const struct key *k = key_find(key);

	return k ? set_key(c, k, text, err) : fail(err, "unknown key '%.60s'", key);
}

int config_defaults(struct config *c)
{
	struct config_error unused;

	*c = (struct config){.socket_group = CONFIG_NO_GROUP};
	for (size_t i = 0; i < N_KEYS; i++) {
		int e = keys[i].standard ? set_key(c, &keys[i], keys[i].standard, &unused) : 0;

		if (e < 0) {
			config_finish(c);
			return e;
		}
	}
	return 0;
}

/* ---- names and sources ---- */

/* Letters, digits and . _ - only: a name must not look like "kind:place" and has to survive shells and logs. */
static int check_name(const char *where, const char *name, struct config_error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t n = strlen(name);

	if (n == 0 || n > MAX_DATASET_NAME || strspn(name, allowed) != n)
		return fail(err, "%s: '%.80s' is not a name; expected 1 to %d letters, digits, '.', '_' or '-'", where, name,
			    MAX_DATASET_NAME);
	return 0;
}

/* Each comma-separated path of "npy:a,b" on its own; other kinds have one. */
static bool paths_are_absolute(const char *kind, const char *paths)
{
	if (paths[0] != '/')
		return false;
	for (const char *comma = strchr(paths, ','); is_word(kind, "npy") && comma; comma = strchr(comma + 1, ','))
		if (comma[1] != '/')
			return false;
	return true;
}

static int check_source(const char *where, const char *source, struct config_error *err)
{
	static const char *const kinds[] = {"imagefolder", "files", "npy", "random"};
	const char *colon = strchr(source, ':');

	for (size_t i = 0; colon && i < sizeof kinds / sizeof *kinds; i++) {
		if (strncmp(source, kinds[i], (size_t)(colon - source)) != 0 || kinds[i][colon - source])
			continue;
		if (is_word(kinds[i], "random") || paths_are_absolute(kinds[i], colon + 1))
			return 0;
		return fail(err, "%s: '%.200s' is relative; expected an absolute path, such as %s:/data/train", where, source, kinds[i]);
	}
	return fail(err, "%s: '%.200s' is not a source; expected imagefolder:DIR, files:LIST, npy:FILE[,FILE] or random:...", where,
		    source);
}

static int check_transform(const char *where, const char *text, struct config_error *err)
{
	struct pipeline_error why = {.text = ""};
	struct pipeline *p = NULL;
	int e = pipeline_parse(text, DTYPE_FLOAT32, LAYOUT_NCHW, &p, &why);

	if (e == 0)
		pipeline_destroy(p);
	return e == -EINVAL ? fail(err, "%s: %s", where, why.text) : e;
}

const char *config_pipeline(const struct config *c, const char *name)
{
	for (uint32_t i = 0; i < c->n_pipelines; i++)
		if (is_word(c->pipelines[i].name, name))
			return c->pipelines[i].transform;
	return NULL;
}

static struct config_dataset *dataset_find(const struct config *c, const char *name)
{
	for (uint32_t i = 0; i < c->n_datasets; i++)
		if (is_word(c->datasets[i].name, name))
			return &c->datasets[i];
	return NULL;
}

const struct config_dataset *config_dataset(const struct config *c, const char *name)
{
	return dataset_find(c, name);
}

static void dataset_finish(struct config_dataset *d)
{
	free(d->name);
	free(d->source);
	free(d->transform);
	free(d->users);
	free(d->groups);
}

void config_finish(struct config *c)
{
	for (uint32_t i = 0; i < c->n_pipelines; i++) {
		free(c->pipelines[i].name);
		free(c->pipelines[i].transform);
	}
	for (uint32_t i = 0; i < c->n_datasets; i++)
		dataset_finish(&c->datasets[i]);
	free(c->pipelines);
	free(c->datasets);
	for (size_t i = 0; i < N_KEYS; i++)
		if (keys[i].kind == KIND_PATH)
			free(*(char **)member(c, &keys[i]));
	*c = (struct config){.socket_group = CONFIG_NO_GROUP};
}

/* Room for one more, zeroed, at the end; counted at once, so that config_finish frees what a failure leaves half made. */
static struct config_dataset *dataset_add(struct config *c)
{
	struct config_dataset *more = reallocarray(c->datasets, c->n_datasets + 1, sizeof *more);

	if (!more)
		return NULL;
	c->datasets = more;
	more[c->n_datasets] = (struct config_dataset){.name = NULL};
	return &more[c->n_datasets++];
}

int config_set_dataset(struct config *c, const char *name, const char *source, struct config_error *err)
{
	char where[96];
	int e = check_name("dataset", name, err);

	snprintf(where, sizeof where, "dataset %s", name);
	if (e < 0 || (e = check_source(where, source, err)) < 0)
		return e;

	struct config_dataset fresh = {.name = strdup(name), .source = strdup(source)};
	struct config_dataset *d = dataset_find(c, name);

	if (fresh.name && fresh.source && !d)
		d = dataset_add(c);
	if (!fresh.name || !fresh.source || !d) {
		dataset_finish(&fresh);
		return -ENOMEM;
	}
	dataset_finish(d);
	*d = fresh;
	return 0;
}

/* ---- lists of the file ---- */

static int load_pipeline(const struct config_file *f, uint32_t i, struct config *c, struct config_error *err)
{
	char name_at[64], transform_at[64];
	const char *name = f->text->pipelines[i].name;

	snprintf(name_at, sizeof name_at, "pipelines[%u].name", i);
	snprintf(transform_at, sizeof transform_at, "pipelines[%u].transform", i);

	const char *transform = config_file_transform(f, transform_at);
	int e = check_name(name_at, name, err);

	if (e == 0 && (is_word(name, "train224") || is_word(name, "val224")))
		e = fail(err, "%s: '%s' is built in; choose another name", name_at, name);
	if (e == 0 && config_pipeline(c, name))
		e = fail(err, "%s: '%s' is given twice", name_at, name);
	if (e < 0)
		return fail_in(f, name_at, err);
	e = check_transform(transform_at, transform, err);
	if (e < 0)
		return e == -EINVAL ? fail_in(f, transform_at, err) : e;

	struct config_pipeline *p = &c->pipelines[c->n_pipelines];

	*p = (struct config_pipeline){.name = strdup(name), .transform = strdup(transform)};
	c->n_pipelines++; /* even if half made: config_finish frees it */
	return p->name && p->transform ? 0 : -ENOMEM;
}

static int load_pipelines(const struct config_file *f, struct config *c, struct config_error *err)
{
	int e = 0;

	if (f->text->n_pipelines == 0)
		return 0;
	c->pipelines = calloc(f->text->n_pipelines, sizeof *c->pipelines);
	if (!c->pipelines)
		return -ENOMEM;
	for (uint32_t i = 0; e == 0 && i < f->text->n_pipelines; i++)
		e = load_pipeline(f, i, c, err);
	return e;
}

/* Users and groups are alike but for their data base. */
static int load_ids(const struct config_file *f, const char *list_at, char *const *names, uint32_t n_names,
		    int (*parse)(const char *, uint32_t *), uint32_t **ids, uint32_t *n_ids, struct config_error *err)
{
	char at[96];

	if (n_names == 0)
		return 0;
	*ids = calloc(n_names, sizeof **ids);
	if (!*ids)
		return -ENOMEM;
	for (uint32_t i = 0; i < n_names; i++, (*n_ids)++) {
		int e = parse(names[i], &(*ids)[i]);

		if (e == -ENOMEM)
			return e;
		snprintf(at, sizeof at, "%s[%u]", list_at, i);
		if (e == -ENOENT)
			fail(err, "%s: this machine does not know '%.80s'; expected a name or a number", at, names[i]);
		else if (e < 0)
			fail(err, "%s: '%.80s' cannot be looked up: %s", at, names[i], strerror(-e));
		if (e < 0)
			return fail_in(f, at, err);
	}
	return 0;
}

static int check_dataset_name(const struct config_file *f, uint32_t i, const char *at, struct config_error *err)
{
	const char *name = f->text->datasets[i].name;
	char other_at[64];
	int e = check_name(at, name, err);

	for (uint32_t j = 0; e == 0 && j < i; j++) {
		if (!is_word(f->text->datasets[j].name, name))
			continue;
		snprintf(other_at, sizeof other_at, "datasets[%u].name", j);
		e = fail(err, "%s: '%s' is already the name of the data set in line %u", at, name, config_file_line(f, other_at));
	}
	return e < 0 ? fail_in(f, at, err) : 0;
}

static int load_dataset_transform(const struct config_file *f, const char *at, const struct config *c, char **out,
				  struct config_error *err)
{
	const char *text = config_file_transform(f, at);

	if (!text)
		return 0;

	int e = config_pipeline(c, text) ? 0 : check_transform(at, text, err);

	if (e < 0)
		return e == -EINVAL ? fail_in(f, at, err) : e;
	*out = strdup(text);
	return *out ? 0 : -ENOMEM;
}

static int load_dataset(const struct config_file *f, uint32_t i, struct config *c, struct config_error *err)
{
	const struct dataset_text *text = &f->text->datasets[i];
	char name_at[64], source_at[64], transform_at[64], users_at[64], groups_at[64];
	struct config_dataset *d;
	int e;

	snprintf(name_at, sizeof name_at, "datasets[%u].name", i);
	snprintf(source_at, sizeof source_at, "datasets[%u].source", i);
	snprintf(transform_at, sizeof transform_at, "datasets[%u].transform", i);
	snprintf(users_at, sizeof users_at, "datasets[%u].users", i);
	snprintf(groups_at, sizeof groups_at, "datasets[%u].groups", i);
	if ((e = check_dataset_name(f, i, name_at, err)) < 0)
		return e;
	if (check_source(source_at, text->source, err) < 0)
		return fail_in(f, source_at, err);
	d = dataset_add(c);
	if (!d)
		return -ENOMEM;
	d->name = strdup(text->name);
	d->source = strdup(text->source);
	if (!d->name || !d->source)
		return -ENOMEM;
	if ((e = load_dataset_transform(f, transform_at, c, &d->transform, err)) < 0 ||
	    (e = load_ids(f, users_at, text->users, text->n_users, user_parse, &d->users, &d->n_users, err)) < 0)
		return e;
	return load_ids(f, groups_at, text->groups, text->n_groups, group_parse, &d->groups, &d->n_groups, err);
}

static int load_scalars(const struct config_file *f, struct config *c, struct config_error *err)
{
	for (size_t i = 0; i < N_KEYS; i++) {
		const char *text = *(char **)((char *)f->text + keys[i].text_offset);
		int e = text ? set_key(c, &keys[i], text, err) : 0;

		if (e < 0)
			return e == -EINVAL ? fail_in(f, keys[i].name, err) : e;
	}
	return 0;
}

static int load_all(const struct config_file *f, struct config *c, struct config_error *err)
{
	int e = 0;

	if (!f->text)
		return 0;
	if ((e = load_scalars(f, c, err)) < 0 || (e = load_pipelines(f, c, err)) < 0)
		return e;
	for (uint32_t i = 0; e == 0 && i < f->text->n_datasets; i++)
		e = load_dataset(f, i, c, err);
	return e;
}

int config_load(const char *path, struct config *c, struct config_error *err)
{
	struct config_file f;
	int e = config_defaults(c);

	if (e < 0)
		return e;
	e = config_file_read(path, &f, err);
	if (e == 0) {
		e = load_all(&f, c, err);
		if (e == -ENOMEM)
			fail(err, "%.120s: out of memory while reading it", path);
	}
	config_file_finish(&f);
	if (e < 0)
		config_finish(c);
	return e;
}

/* ---- what differs ---- */

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_value(const struct key *k, const struct config *a, const struct config *b)
{
	switch (k->kind) {
	case KIND_PATH:
		return same_text(*(char **)member(a, k), *(char **)member(b, k));
	case KIND_MODE:
		return *(mode_t *)member(a, k) == *(mode_t *)member(b, k);
	case KIND_GROUP:
		return *(gid_t *)member(a, k) == *(gid_t *)member(b, k);
	case KIND_COUNT:
	case KIND_COUNT_AUTO:
		return *(uint32_t *)member(a, k) == *(uint32_t *)member(b, k);
	case KIND_LEVEL:
		return *(enum log_level *)member(a, k) == *(enum log_level *)member(b, k);
	case KIND_SHARE:
		return memcmp(member(a, k), member(b, k), sizeof(double)) == 0; /* parsed alike, so equal bits */
	default:
		return *(uint64_t *)member(a, k) == *(uint64_t *)member(b, k);
	}
}

static bool same_pipelines(const struct config *a, const struct config *b)
{
	if (a->n_pipelines != b->n_pipelines)
		return false;
	for (uint32_t i = 0; i < a->n_pipelines; i++)
		if (!same_text(a->pipelines[i].name, b->pipelines[i].name) ||
		    !same_text(a->pipelines[i].transform, b->pipelines[i].transform))
			return false;
	return true;
}

static bool same_ids(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b)
{
	return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * sizeof *a) == 0);
}

static bool same_datasets(const struct config *a, const struct config *b)
{
	if (a->n_datasets != b->n_datasets)
		return false;
	for (uint32_t i = 0; i < a->n_datasets; i++) {
		const struct config_dataset *x = &a->datasets[i], *y = &b->datasets[i];

		if (!same_text(x->name, y->name) || !same_text(x->source, y->source) || !same_text(x->transform, y->transform) ||
		    !same_ids(x->users, x->n_users, y->users, y->n_users) ||
		    !same_ids(x->groups, x->n_groups, y->groups, y->n_groups))
			return false;
	}
	return true;
}

size_t config_diff(const struct config *before, const struct config *after,
		   struct config_change changes[CONFIG_MAX_CHANGES])
{
	size_t n = 0;

	_Static_assert(N_KEYS + 2 <= CONFIG_MAX_CHANGES, "every key can change at once");
	for (size_t i = 0; i < N_KEYS; i++)
		if (!same_value(&keys[i], before, after))
			changes[n++] = (struct config_change){keys[i].name, keys[i].live};
	if (!same_pipelines(before, after))
		changes[n++] = (struct config_change){"pipelines", true};
	if (!same_datasets(before, after))
		changes[n++] = (struct config_change){"datasets", true};
	return n;
}
