/* The table of all scalar keys. The file, the command line, the defaults and the comparison all use it, so that a new
 * key is one line here. Ranges are the values that the daemon can survive,
 * which need not be sensible. */
#include "config/key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/metrics-address.h"
#include "base/parse.h"
#include "base/size.h"
#include "base/user.h"

#define SECOND UINT64_C(1000000000) /* in ns */
#define DAY (86400 * SECOND)
#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

#define KEY(name, member) #name, offsetof(struct config, member)

const struct key config_keys[] = {
	{ KEY(socket, socket), KIND_PATH, false, NULL, 0, 0 },
	{ KEY(socket_mode, socket_mode), KIND_MODE, false, "0600", 0600, 0777 },
	{ KEY(socket_group, socket_group), KIND_GROUP, false, NULL, 0, 0 },
	{ KEY(workers, workers), KIND_COUNT_AUTO, true, "auto", 1, 1024 },
	{ KEY(io_threads, io_threads), KIND_COUNT, false, "32", 1, 256 },
	{ KEY(nice, nice), KIND_COUNT, false, "0", 0, 19 },
	{ KEY(memory, memory_bytes), KIND_SIZE_AUTO, false, "auto", 16 * MIB, 64 * TIB },
	{ KEY(slots, slots), KIND_COUNT_AUTO, true, "auto", 2, 64 },
	{ KEY(linger, linger_ns), KIND_DURATION, true, "30s", 0, 30 * DAY },
	{ KEY(stall_after, stall_after_ns), KIND_DURATION_NEVER, true, "120s", SECOND / 10, DAY },
	{ KEY(idle_exit, idle_exit_ns), KIND_DURATION_NEVER, true, "never", 0, 30 * DAY },
	{ KEY(gpu_idle_exit, gpu_idle_exit_ns), KIND_DURATION_NEVER, true, "never", 0, 30 * DAY },
	{ KEY(bad_data, bad_data), KIND_SHARE, true, "1%", 0, 0 },
	{ KEY(log_level, log_level), KIND_LEVEL, true, "notice", 0, 0 },
	{ KEY(metrics, metrics), KIND_ADDRESS, false, NULL, 0, 0 },
	{ KEY(index_cache, index_cache), KIND_PATH, true, NULL, 0, 0 },
	{ KEY(gpu_memory, gpu_memory_bytes), KIND_CACHE, false, "auto", 2 * MIB, TIB },
	{ KEY(pin_memory, pin_memory), KIND_SWITCH, false, "auto", 0, 0 },
	{ KEY(pin_limit, pin_limit), KIND_SHARE, false, "80%", 0, 0 },
	{ KEY(cache.jpeg, cache_jpeg_bytes), KIND_CACHE, false, "auto", MIB, 64 * TIB },
	{ KEY(cache.decoded, cache_decoded_bytes), KIND_CACHE, false, "auto", MIB, 64 * TIB },
	{ KEY(cache.filling, cache_filling), KIND_FILLING, false, "auto", 0, 0 },
	{ KEY(cache.unused, cache_unused_ns), KIND_DURATION_NEVER, true, "1h", SECOND, 30 * DAY },
	{ KEY(cache.directory, cache_directory), KIND_PATH, false, NULL, 0, 0 },
	{ KEY(cache.disk, cache_disk_bytes), KIND_SIZE, false, "16GiB", MIB, 64 * TIB },
	{ KEY(limits.sessions, limits.sessions), KIND_COUNT, true, "256", 1, 65536 },
	{ KEY(limits.sessions_per_user, limits.sessions_per_user), KIND_COUNT, true, "64", 1, 65536 },
	{ KEY(limits.pending, limits.pending), KIND_COUNT, true, "64", 1, 4096 },
	{ KEY(limits.hello_timeout, limits.hello_timeout_ns), KIND_DURATION, true, "5s", SECOND / 10, 3600 * SECOND },
	{ KEY(limits.loaders, limits.loaders), KIND_COUNT, true, "64", 1, 4096 },
	{ KEY(limits.loaders_per_user, limits.loaders_per_user), KIND_COUNT, true, "32", 1, 4096 },
	{ KEY(limits.memory_per_user, limits.memory_per_user), KIND_SHARE, true, "80%", 0, 0 },
	{ KEY(limits.unread_per_user, limits.unread_per_user), KIND_SIZE, true, "16MiB", 64 * KIB, 64 * GIB },
	{ KEY(limits.fds_per_user, limits.fds_per_user), KIND_COUNT, true, "512", 8, 1 << 20 },
	{ KEY(limits.file_systems, limits.file_systems), KIND_COUNT, false, "32", 1, 256 },
	{ KEY(limits.file_systems_per_user, limits.file_systems_per_user), KIND_COUNT, true, "8", 1, 256 },
	{ KEY(limits.producers, limits.producers), KIND_COUNT, true, "64", 1, 4096 },
	{ KEY(limits.producers_per_user, limits.producers_per_user), KIND_COUNT, true, "32", 1, 4096 },
	{ KEY(limits.batch_size, limits.batch_size), KIND_COUNT, true, "65536", 1, 1 << 20 },
	{ KEY(limits.batch_bytes, limits.batch_bytes), KIND_SIZE, true, "4GiB", MIB, TIB },
	{ KEY(limits.value_bytes, limits.value_bytes), KIND_SIZE, true, "1MiB", 1, GIB },
	{ KEY(limits.image_pixels, limits.image_pixels), KIND_NUMBER, false, "178956970", 1, UINT64_C(1) << 32 },
	{ KEY(limits.image_scans, limits.image_scans), KIND_COUNT, false, "100", 1, 10000 },
	{ KEY(limits.image_time, limits.image_time_ns), KIND_DURATION, false, "20s", SECOND / 10, 3600 * SECOND },
	{ KEY(limits.file_bytes, limits.file_bytes), KIND_SIZE, false, "256MiB", KIB, 4 * GIB },
	{ .name = NULL },
};
_Static_assert(sizeof config_keys / sizeof *config_keys + 2 <= CONFIG_MAX_CHANGES,
	       "every key and both lists can change at once");

const struct key *key_find(const char *name)
{
	for (const struct key *k = config_keys; k->name; k++)
		if (strcmp(k->name, name) == 0)
			return k;
	return NULL;
}

/* ---- messages ---- */

static const char *duration_format(uint64_t ns, char *buf, size_t size)
{
	static const struct {
		uint64_t ns;
		const char *unit;
	} units[] = { { DAY, "d" },    { 3600 * SECOND, "h" }, { 60 * SECOND, "min" },
		      { SECOND, "s" }, { 1000000, "ms" },      { 1, "ns" } };
	size_t i = 0;

	while (ns % units[i].ns != 0) /* ends: every number is a multiple of 1 */
		i++;
	snprintf(buf, size, "%llu%s", ns ? (unsigned long long)(ns / units[i].ns) : 0, ns ? units[i].unit : "s");
	return buf;
}

/* "4KiB", without the decimal of size_format: the limits in the table are round. */
static const char *size_round(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	size_t i = 0;

	while (bytes && bytes % 1024 == 0 && i + 1 < sizeof units / sizeof *units) {
		bytes /= 1024;
		i++;
	}
	snprintf(buf, size, "%llu%s", (unsigned long long)bytes, units[i]);
	return buf;
}

void key_expected(const struct key *k, char *buf, size_t size)
{
	char low[32], high[32];

	switch (k->kind) {
	case KIND_PATH:
		snprintf(buf, size, "an absolute path");
		break;
	case KIND_ADDRESS:
		snprintf(buf, size, "an address such as 127.0.0.1:9464 or unix:/run/batchd/metrics");
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
			 k->kind == KIND_SIZE_AUTO ? "auto or "
			 : k->kind == KIND_CACHE   ? "auto, off or "
						   : "",
			 size_round(k->min, low, sizeof low), size_round(k->max, high, sizeof high));
		break;
	case KIND_DURATION:
	case KIND_DURATION_NEVER:
		snprintf(buf, size, "%sa duration from %s to %s, such as 30s or 5min",
			 k->kind == KIND_DURATION_NEVER ? "never or " : "", duration_format(k->min, low, sizeof low),
			 duration_format(k->max, high, sizeof high));
		break;
	case KIND_SHARE:
		snprintf(buf, size, "a share from 0%% to 100%%, such as 1%% or 0.01");
		break;
	case KIND_LEVEL:
		snprintf(buf, size, "error, warning, notice, info or debug");
		break;
	case KIND_SWITCH:
		snprintf(buf, size, "auto, on or off");
		break;
	case KIND_FILLING:
		snprintf(buf, size, "auto or always");
		break;
	}
}

static int fail_value(const struct key *k, const char *text, struct config_error *err)
{
	char expected[128];

	key_expected(k, expected, sizeof expected);
	snprintf(err->text, sizeof err->text, "%s: '%.80s' is not valid; expected %s", k->name, text, expected);
	return -EINVAL;
}

/* ---- values ---- */

static void *config_key_member(const struct config *c, const struct key *k)
{
	return (char *)c + k->offset;
}

static bool config_key_is_word(const char *text, const char *word)
{
	return strcmp(text, word) == 0;
}

/* The number of a kind that has one: tries words first, then digits and units, then checks the range. */
static int value_parse(const struct key *k, const char *text, uint64_t *value)
{
	int e;

	if ((k->kind == KIND_COUNT_AUTO || k->kind == KIND_SIZE_AUTO) && config_key_is_word(text, "auto")) {
		*value = 0;
		return 0;
	}
	if (k->kind == KIND_CACHE && (config_key_is_word(text, "auto") || config_key_is_word(text, "off"))) {
		*value = config_key_is_word(text, "auto") ? CONFIG_AUTO : 0;
		return 0;
	}
	if (k->kind == KIND_DURATION_NEVER && config_key_is_word(text, "never")) {
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

static int filling_parse(const char *text, enum config_filling *value)
{
	if (!config_key_is_word(text, "auto") && !config_key_is_word(text, "always"))
		return -EINVAL;
	*value = config_key_is_word(text, "always") ? CONFIG_FILLING_ALWAYS : CONFIG_FILLING_AUTO;
	return 0;
}

static int switch_parse(const char *text, enum config_switch *value)
{
	if (!config_key_is_word(text, "auto") && !config_key_is_word(text, "on") && !config_key_is_word(text, "off"))
		return -EINVAL;
	*value = config_key_is_word(text, "on")    ? CONFIG_ON
		 : config_key_is_word(text, "off") ? CONFIG_OFF
						   : CONFIG_SWITCH_AUTO;
	return 0;
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

static int set_address(const struct key *k, char **address, const char *text, struct config_error *err)
{
	struct metrics_address parsed;
	const char *why;

	if (metrics_address_parse(text, &parsed, &why) < 0) {
		snprintf(err->text, sizeof err->text, "%s: '%.80s' is not valid; expected %s", k->name, text, why);
		return -EINVAL;
	}
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*address);
	*address = copy;
	return 0;
}

int key_set(struct config *c, const struct key *k, const char *text, struct config_error *err)
{
	uint64_t value;
	mode_t mode;
	int e = 0;

	switch (k->kind) {
	case KIND_PATH:
		return set_path(k, config_key_member(c, k), text, err);
	case KIND_ADDRESS:
		return set_address(k, config_key_member(c, k), text, err);
	case KIND_FILLING:
		e = filling_parse(text, config_key_member(c, k));
		break;
	case KIND_GROUP:
		e = group_parse(text, config_key_member(c, k));
		break;
	case KIND_SHARE:
		e = share_parse(text, config_key_member(c, k));
		break;
	case KIND_LEVEL:
		e = log_level_parse(text, config_key_member(c, k));
		break;
	case KIND_SWITCH:
		e = switch_parse(text, config_key_member(c, k));
		break;
	case KIND_MODE:
		e = mode_parse(text, &mode);
		if (e == 0 && (mode & 0600) != 0600) /* its owner must reach it */
			e = -ERANGE;
		if (e == 0)
			*(mode_t *)config_key_member(c, k) = mode;
		break;
	case KIND_COUNT:
	case KIND_COUNT_AUTO:
		e = value_parse(k, text, &value);
		if (e == 0)
			*(uint32_t *)config_key_member(c, k) = (uint32_t)value; /* the table's maxima fit */
		break;
	default:
		e = value_parse(k, text, &value);
		if (e == 0)
			*(uint64_t *)config_key_member(c, k) = value;
		break;
	}
	return e == -ENOMEM ? e : e < 0 ? fail_value(k, text, err) : 0;
}

void key_finish(struct config *c, const struct key *k)
{
	if (k->kind == KIND_PATH || k->kind == KIND_ADDRESS)
		free(*(char **)config_key_member(c, k));
}

static bool config_key_same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

bool key_same(const struct key *k, const struct config *a, const struct config *b)
{
	switch (k->kind) {
	case KIND_PATH:
	case KIND_ADDRESS:
		return config_key_same_text(*(char **)config_key_member(a, k), *(char **)config_key_member(b, k));
	case KIND_MODE:
		return *(mode_t *)config_key_member(a, k) == *(mode_t *)config_key_member(b, k);
	case KIND_GROUP:
		return *(gid_t *)config_key_member(a, k) == *(gid_t *)config_key_member(b, k);
	case KIND_COUNT:
	case KIND_COUNT_AUTO:
		return *(uint32_t *)config_key_member(a, k) == *(uint32_t *)config_key_member(b, k);
	case KIND_LEVEL:
		return *(enum log_level *)config_key_member(a, k) == *(enum log_level *)config_key_member(b, k);
	case KIND_SWITCH:
		return *(enum config_switch *)config_key_member(a, k) == *(enum config_switch *)config_key_member(b, k);
	case KIND_FILLING:
		return *(enum config_filling *)config_key_member(a, k) ==
		       *(enum config_filling *)config_key_member(b, k);
	case KIND_SHARE:
		return memcmp(config_key_member(a, k), config_key_member(b, k), sizeof(double)) ==
		       0; /* both parsed in the same way, so equal
		                                                                 * values have equal bits */
	default:
		return *(uint64_t *)config_key_member(a, k) == *(uint64_t *)config_key_member(b, k);
	}
}
