/* The configuration file: the accepted input, and that every mistake is answered with file, line, key and the expected
 * value. */
#include "config/config.h"
#include "support/sources-text.h"
#include "support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static char path[sizeof folder + 16];

static void folder_make(void)
{
	strcpy(folder, "/tmp/batchd-test-config-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/c.yaml", folder);
}

static void folder_remove(void)
{
	unlink(path);
	rmdir(folder);
}

static void file_write(const char *bytes, size_t n)
{
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
	fclose(f);
}

static void expect_loads(const char *yaml, struct config *c)
{
	struct config_error err = { .text = "" };

	file_write(yaml, strlen(yaml));
	ck_assert_msg(config_load(path, c, &err) == 0, "refused: %s\n%s", err.text, yaml);
}

/* The message must be `path` and then exactly this. */
static void expect_refused(const char *yaml, const char *message)
{
	struct config_error err = { .text = "" };
	struct config c;

	file_write(yaml, strlen(yaml));
	ck_assert_msg(config_load(path, &c, &err) == -EINVAL, "accepted:\n%s", yaml);
	ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0, "does not begin with the file: %s", err.text);
	ck_assert_str_eq(err.text + strlen(path), message);
	config_finish(&c); /* a failure leaves nothing to free; this must be harmless */
}

/* For messages that end in libyaml's words. */
static void expect_not_yaml(const char *yaml, const char *beginning)
{
	struct config_error err = { .text = "" };
	struct config c;

	file_write(yaml, strlen(yaml));
	ck_assert_int_eq(config_load(path, &c, &err), -EINVAL);
	ck_assert_msg(strncmp(err.text + strlen(path), beginning, strlen(beginning)) == 0, "%s", err.text);
	ck_assert_uint_gt(strlen(err.text), strlen(path) + strlen(beginning));
}

/* ---- what is accepted ---- */

static void assert_is_defaults(const struct config *c)
{
	struct config_change changes[CONFIG_MAX_CHANGES];
	struct config defaults;

	ck_assert_int_eq(config_defaults(&defaults), 0);
	ck_assert_uint_eq(config_diff(&defaults, c, changes), 0);
	config_finish(&defaults);
}

START_TEST(test_file_that_says_nothing_is_the_defaults)
{
	/* Proves that empty files, comments, an empty document and empty groups are all valid. */
	static const char *const nothing[] = { "", "# only a comment\n", "---\n", "{}\n",
					       "cache: {}\nlimits: {}\ndatasets: []\npipelines: []\n" };
	struct config c;

	for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
		expect_loads(nothing[i], &c);
		assert_is_defaults(&c);
		config_finish(&c);
	}
}
END_TEST

START_TEST(test_defaults_are_those_of_the_manual)
{
	/* Proves the documented defaults, one by one. */
	struct config c;

	ck_assert_int_eq(config_defaults(&c), 0);
	ck_assert_ptr_null(c.socket);
	ck_assert_uint_eq(c.socket_mode, 0600);
	ck_assert_uint_eq(c.socket_group, CONFIG_NO_GROUP);
	ck_assert_uint_eq(c.workers, 0);
	ck_assert_uint_eq(c.io_threads, 32);
	ck_assert_uint_eq(c.nice, 0);
	ck_assert_uint_eq(c.memory_bytes, 0);
	ck_assert_uint_eq(c.slots, 0);
	ck_assert_uint_eq(c.linger_ns, UINT64_C(30000000000));
	ck_assert_uint_eq(c.idle_exit_ns, CONFIG_NEVER);
	ck_assert_uint_eq(c.gpu_idle_exit_ns, CONFIG_NEVER);
	ck_assert_double_eq(c.bad_data, 0.01);
	ck_assert_int_eq(c.log_level, LOG_LEVEL_NOTICE);
	ck_assert_ptr_null(c.index_cache);
	ck_assert_uint_eq(c.gpu_memory_bytes, CONFIG_AUTO);
	ck_assert_int_eq(c.pin_memory, CONFIG_SWITCH_AUTO);
	ck_assert_int_eq(c.cache_filling, CONFIG_FILLING_AUTO);
	ck_assert_double_eq(c.pin_limit, 0.8);
	ck_assert_uint_eq(c.cache_jpeg_bytes, CONFIG_AUTO);
	ck_assert_uint_eq(c.cache_decoded_bytes, CONFIG_AUTO);
	ck_assert_ptr_null(c.cache_directory);
	ck_assert_uint_eq(c.limits.sessions, 256);
	ck_assert_uint_eq(c.limits.sessions_per_user, 64);
	ck_assert_uint_eq(c.limits.pending, 64);
	ck_assert_uint_eq(c.limits.hello_timeout_ns, UINT64_C(5000000000));
	ck_assert_uint_eq(c.limits.loaders, 64);
	ck_assert_uint_eq(c.limits.file_systems, 32);
	ck_assert_uint_eq(c.limits.file_systems_per_user, 8);
	ck_assert_uint_eq(c.limits.producers, 64);
	ck_assert_uint_eq(c.limits.producers_per_user, 32);
	ck_assert_uint_eq(c.limits.batch_size, 65536);
	ck_assert_uint_eq(c.limits.batch_bytes, UINT64_C(4) << 30);
	ck_assert_uint_eq(c.limits.value_bytes, 1 << 20);
	ck_assert_uint_eq(c.limits.image_pixels, 178956970);
	ck_assert_uint_eq(c.limits.image_scans, 100);
	ck_assert_uint_eq(c.limits.image_time_ns, UINT64_C(20000000000));
	ck_assert_uint_eq(c.limits.file_bytes, UINT64_C(256) << 20);
	ck_assert_uint_eq(c.n_datasets, 0);
	ck_assert_uint_eq(c.n_pipelines, 0);
	config_finish(&c);
}
END_TEST

START_TEST(test_every_key_reaches_its_member)
{
	/* Proves that no two keys are mixed up: every key is given a value of its own. */
	struct config c;

	expect_loads(
		"socket: /run/x\nsocket_mode: 0660\nsocket_group: 77\nworkers: 3\nio_threads: 5\nnice: 11\nmemory: 6GiB\nslots: 7\nlinger: 8s\n"
		"idle_exit: 9min\ngpu_idle_exit: 19min\nbad_data: 0.25\nlog_level: debug\nindex_cache: /var/i\nmetrics: 127.0.0.1:24\n"
		"gpu_memory: 21MiB\npin_memory: on\npin_limit: 22%\n"
		"cache: {jpeg: 10MiB, decoded: off, filling: always, directory: /var/c}\n"
		"limits:\n  sessions: 11\n  sessions_per_user: 12\n  pending: 13\n  hello_timeout: 14s\n  loaders: 15\n  producers: 21\n  batch_size: 16\n"
		"  producers_per_user: 24\n"
		"  batch_bytes: 17MiB\n  image_pixels: 18\n  image_scans: 19\n  image_time: 3s\n  file_bytes: 20KiB\n",
		&c);
	ck_assert_str_eq(c.socket, "/run/x");
	ck_assert_uint_eq(c.socket_mode, 0660);
	ck_assert_uint_eq(c.socket_group, 77);
	ck_assert_uint_eq(c.workers, 3);
	ck_assert_uint_eq(c.io_threads, 5);
	ck_assert_uint_eq(c.nice, 11);
	ck_assert_uint_eq(c.memory_bytes, UINT64_C(6) << 30);
	ck_assert_uint_eq(c.slots, 7);
	ck_assert_uint_eq(c.linger_ns, UINT64_C(8000000000));
	ck_assert_uint_eq(c.idle_exit_ns, UINT64_C(540000000000));
	ck_assert_uint_eq(c.gpu_idle_exit_ns, UINT64_C(1140000000000));
	ck_assert_double_eq(c.bad_data, 0.25);
	ck_assert_int_eq(c.log_level, LOG_LEVEL_DEBUG);
	ck_assert_str_eq(c.index_cache, "/var/i");
	ck_assert_str_eq(c.metrics, "127.0.0.1:24");
	ck_assert_uint_eq(c.gpu_memory_bytes, 21 << 20);
	ck_assert_int_eq(c.pin_memory, CONFIG_ON);
	ck_assert_int_eq(c.cache_filling, CONFIG_FILLING_ALWAYS);
	ck_assert_double_eq(c.pin_limit, 0.22);
	ck_assert_uint_eq(c.cache_jpeg_bytes, 10 << 20);
	ck_assert_uint_eq(c.cache_decoded_bytes, 0);
	ck_assert_str_eq(c.cache_directory, "/var/c");
	ck_assert_uint_eq(c.limits.sessions, 11);
	ck_assert_uint_eq(c.limits.sessions_per_user, 12);
	ck_assert_uint_eq(c.limits.pending, 13);
	ck_assert_uint_eq(c.limits.hello_timeout_ns, UINT64_C(14000000000));
	ck_assert_uint_eq(c.limits.loaders, 15);
	ck_assert_uint_eq(c.limits.producers, 21);
	ck_assert_uint_eq(c.limits.producers_per_user, 24);
	ck_assert_uint_eq(c.limits.batch_size, 16);
	ck_assert_uint_eq(c.limits.batch_bytes, 17 << 20);
	ck_assert_uint_eq(c.limits.image_pixels, 18);
	ck_assert_uint_eq(c.limits.image_scans, 19);
	ck_assert_uint_eq(c.limits.image_time_ns, UINT64_C(3000000000));
	ck_assert_uint_eq(c.limits.file_bytes, 20 << 10);
	config_finish(&c);
}
END_TEST

START_TEST(test_datasets_and_pipelines_with_all_their_keys)
{
	/* Proves names, sources, access lists, and that a transform may be YAML lists, JSON text or a name. */
	const struct config_dataset *d;
	struct config c;

	expect_loads("pipelines:\n"
		     "  - name: small\n"
		     "    transform:\n"
		     "      - [Resize, 128]\n"
		     "      - [CenterCrop, {size: 112}]\n"
		     "      - ToTensor\n"
		     "  - {name: json, transform: '[[\"RandomResizedCrop\", 64], \"ToTensor\"]'}\n"
		     "datasets:\n"
		     "  - name: train\n"
		     "    source: imagefolder:/data/train\n"
		     "    transform: small\n"
		     "    users: [root, 1234]\n"
		     "    groups: [root]\n"
		     "  - {name: points, source: 'npy:/data/x.npy,/data/y.npy'}\n"
		     "  - {name: noise, source: 'random:shape=3x8x8,n=10', transform: val224}\n",
		     &c);
	ck_assert_uint_eq(c.n_pipelines, 2);
	ck_assert_str_eq(config_pipeline(&c, "small"),
			 "[[\"Resize\",128],[\"CenterCrop\",{\"size\":112}],\"ToTensor\"]");
	ck_assert_ptr_nonnull(config_pipeline(&c, "json"));
	ck_assert_ptr_null(config_pipeline(&c, "tiny"));
	ck_assert_uint_eq(c.n_datasets, 3);
	d = config_dataset(&c, "train");
	ck_assert(sources_are_equal(d->sources, sources_of("imagefolder:/data/train")));
	ck_assert_str_eq(d->transform, "small");
	ck_assert_uint_eq(d->n_users, 2);
	ck_assert_uint_eq(d->users[0], 0);
	ck_assert_uint_eq(d->users[1], 1234);
	ck_assert_uint_eq(d->n_groups, 1);
	ck_assert_uint_eq(d->groups[0], 0);
	d = config_dataset(&c, "points");
	ck_assert_ptr_null(d->transform);
	ck_assert_uint_eq(d->n_users + d->n_groups, 0);
	ck_assert_ptr_null(config_dataset(&c, "test"));
	config_finish(&c);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(test_unknown_keys_are_named_with_the_one_that_was_meant)
{
	/* Proves the hint for near misses on every level, and the list of keys for far ones. */
	expect_refused("socket: /x\n\nwokers: 4\n", ":3: unknown key 'wokers'; did you mean 'workers'?");
	expect_refused("cache:\n  jpge: off\n", ":2: unknown key 'cache.jpge'; did you mean 'jpeg'?");
	expect_refused("cache: {ram: 1}\n",
		       ":1: unknown key 'cache.ram'; known here are jpeg, decoded, filling, unused, directory, disk");
	expect_refused("cache:\n  files: 1GiB\n",
		       ":2: unknown key 'cache.files'; remove it: the kernel's page cache keeps files");
	expect_refused("datasets:\n  - name: a\n    sauce: b\n",
		       ":3: unknown key 'datasets[0].sauce'; did you mean 'source'?");
	expect_refused("pipelines:\n  - name: a\n    ops: [ToTensor]\n",
		       ":3: unknown key 'pipelines[0].ops'; known here are name, transform");
	expect_refused("? [1, 2]\n: 3\n", ":1: expected a key, found a list");
}
END_TEST

START_TEST(test_wrong_types_say_what_the_key_takes)
{
	/* Proves that a list, a mapping or nothing in place of a value, and the reverse, name both the value found and
	 * the value expected. */
	expect_refused("workers: [4]\n", ":1: workers: found a list; expected auto or a whole number from 1 to 1024");
	expect_refused(
		"\nmemory: {max: 4GiB}\n",
		":2: memory: found keys and values; expected auto or a size from 16MiB to 64TiB, such as 512MiB");
	expect_refused("slots: 4\nlinger:\n",
		       ":2: linger: found nothing; expected a duration from 0s to 30d, such as 30s or 5min");
	expect_refused("cache: off\n", ":1: cache: found a single value; expected keys and values");
	expect_refused("limits:\n", ":1: limits: found nothing; expected keys and values");
	expect_refused("datasets: train\n", ":1: datasets: found a single value; expected a list");
	expect_refused("datasets: {train: x}\n", ":1: datasets: found keys and values; expected a list");
	expect_refused("datasets:\n  - train\n", ":2: datasets[0]: found a single value; expected keys and values");
	expect_refused("datasets: [{name: a, source: 'random:', users: root}]\n",
		       ":1: datasets[0].users: found a single value; expected a list");
	expect_refused("datasets: [{name: a, source: 'random:', users: [[root]]}]\n",
		       ":1: datasets[0].users[0]: found a list; expected a single value");
	expect_refused("- a\n", ":1: found a list; expected keys and values, such as 'workers: 4'");
	expect_refused("hello\n", ":1: found a single value; expected keys and values, such as 'workers: 4'");
}
END_TEST

START_TEST(test_bad_values_say_what_was_expected)
{
	/* Proves one message for every kind of value, with the right line. */
	expect_refused("# c\nworkers: four\n",
		       ":2: workers: 'four' is not valid; expected auto or a whole number from 1 to 1024");
	expect_refused("workers: -1\n",
		       ":1: workers: '-1' is not valid; expected auto or a whole number from 1 to 1024");
	expect_refused("workers: null\n",
		       ":1: workers: 'null' is not valid; expected auto or a whole number from 1 to 1024");
	expect_refused("memory: 2 GiB\n",
		       ":1: memory: '2 GiB' is not valid; expected auto or a size from 16MiB to 64TiB, such as 512MiB");
	expect_refused("memory: 2G\n",
		       ":1: memory: '2G' is not valid; expected auto or a size from 16MiB to 64TiB, such as 512MiB");
	expect_refused(
		"cache:\n\n  jpeg: on\n",
		":3: cache.jpeg: 'on' is not valid; expected auto, off or a size from 1MiB to 64TiB, such as 512MiB");
	expect_refused("linger: 5m\n",
		       ":1: linger: '5m' is not valid; expected a duration from 0s to 30d, such as 30s or 5min");
	expect_refused(
		"idle_exit: no\n",
		":1: idle_exit: 'no' is not valid; expected never or a duration from 0s to 30d, such as 30s or 5min");
	expect_refused("bad_data: 1.5\n",
		       ":1: bad_data: '1.5' is not valid; expected a share from 0% to 100%, such as 1% or 0.01");
	expect_refused(
		"socket_mode: 0888\n",
		":1: socket_mode: '0888' is not valid; expected permission bits in octal from 0600 to 0777, such as 0660");
	expect_refused(
		"socket_mode: 0066\n",
		":1: socket_mode: '0066' is not valid; expected permission bits in octal from 0600 to 0777, such as 0660");
	expect_refused(
		"socket_group: no-such-group\n",
		":1: socket_group: 'no-such-group' is not valid; expected a group of this machine, by name or number");
	expect_refused("socket: batchd.sock\n", ":1: socket: 'batchd.sock' is not valid; expected an absolute path");
	expect_refused("log_level: loud\n",
		       ":1: log_level: 'loud' is not valid; expected error, warning, notice, info or debug");
	expect_refused(
		"limits: {hello_timeout: 50ms}\n",
		":1: limits.hello_timeout: '50ms' is not valid; expected a duration from 100ms to 1h, such as 30s or 5min");
}
END_TEST

/* Values just inside and just outside each range. */
static const struct border {
	const char *key, *low, *below, *high, *above;
} borders[] = {
	{ "workers", "1", "0", "1024", "1025" },
	{ "io_threads", "1", "0", "256", "257" },
	{ "nice", "0", "-1", "19", "20" },
	{ "memory", "16MiB", "16777215", "64TiB", "70368744177665" },
	{ "slots", "2", "1", "64", "65" },
	{ "linger", "0", NULL, "30d", "2592000001ms" },
	{ "stall_after", "100ms", "99ms", "24h", "86401s" },
	{ "idle_exit", "0s", NULL, "30d", "31d" },
	{ "gpu_idle_exit", "0s", NULL, "30d", "31d" },
	{ "bad_data", "0", NULL, "100%", "100.1%" },
	{ "bad_data", "0%", NULL, "1", "1.0001" },
	{ "socket_mode", "0600", "0577", "0777", "1777" },
	{ "gpu_memory", "2MiB", "2097151", "1TiB", "1025GiB" },
	{ "pin_memory", "off", "maybe", "on", "ON" },
	{ "cache.unused", "1s", "999ms", "30d", "31d" },
	{ "cache.filling", "always", "never", "auto", "on" },
	{ "pin_limit", "0", "-1", "1", "1.01" },
	{ "cache.jpeg", "1MiB", "1048575", "64TiB", "65TiB" },
	{ "cache.decoded", "1MiB", "0", "64TiB", "65TiB" },
	{ "limits.sessions", "1", "0", "65536", "65537" },
	{ "limits.sessions_per_user", "1", "0", "65536", "65537" },
	{ "limits.pending", "1", "0", "4096", "4097" },
	{ "limits.hello_timeout", "100ms", "99ms", "1h", "3601s" },
	{ "limits.loaders", "1", "0", "4096", "4097" },
	{ "limits.file_systems", "1", "0", "256", "257" },
	{ "limits.file_systems_per_user", "1", "0", "256", "257" },
	{ "limits.producers", "1", "0", "4096", "4097" },
	{ "limits.producers_per_user", "1", "0", "4096", "4097" },
	{ "limits.batch_size", "1", "0", "1048576", "1048577" },
	{ "limits.batch_bytes", "1MiB", "1048575", "1TiB", "1025GiB" },
	{ "limits.value_bytes", "1", "0", "1GiB", "1025MiB" },
	{ "limits.image_pixels", "1", "0", "4294967296", "4294967297" },
	{ "limits.image_scans", "1", "0", "10000", "10001" },
	{ "limits.image_time", "100ms", "99ms", "1h", "2h" },
	{ "limits.file_bytes", "1KiB", "1023", "4GiB", "4294967297" },
};

START_TEST(test_each_limit_from_both_sides)
{
	/* Proves that the border is accepted and its neighbour refused, and that a refused value changes nothing. */
	const struct border *b = &borders[_i];
	const char *in[] = { b->low, b->high }, *out[] = { b->below, b->above };
	struct config_change changes[CONFIG_MAX_CHANGES];
	struct config_error err = { .text = "" };
	struct config c, before;

	ck_assert_int_eq(config_defaults(&c), 0);
	ck_assert_int_eq(config_defaults(&before), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_msg(config_set(&c, b->key, in[i], &err) == 0, "%s", err.text);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(config_set(&before, b->key, in[1], &err), 0);
		if (out[i])
			ck_assert_msg(config_set(&c, b->key, out[i], &err) == -EINVAL, "%s: %s was accepted", b->key,
				      out[i]);
		ck_assert_uint_eq(config_diff(&before, &c, changes), 0);
	}
	config_finish(&before);
	config_finish(&c);
}
END_TEST

START_TEST(test_what_is_given_twice_names_the_first_line)
{
	/* Proves that keys, data sets and pipelines are given only once. */
	expect_refused("workers: 1\nslots: 4\nworkers: 2\n", ":3: workers: given twice; it was already in line 1");
	expect_refused("cache:\n  jpeg: off\n  jpeg: off\n", ":3: cache.jpeg: given twice; it was already in line 2");
	expect_refused("datasets:\n- name: a\n  source: 'random:'\n- source: 'random:'\n  name: a\n",
		       ":5: datasets[1].name: 'a' is already the name of the data set in line 2");
	expect_refused(
		"pipelines:\n- {name: a, transform: [[CenterCrop, 8], ToTensor]}\n- {name: a, transform: val224}\n",
		":3: pipelines[1].name: 'a' is given twice");
	expect_refused("pipelines:\n- {name: a, transform: [[Pad, {padding: 1, padding: 2}]]}\n",
		       ":2: pipelines[0].transform: 'padding' is given twice");
}
END_TEST

START_TEST(test_datasets_that_cannot_be_served_are_refused_at_once)
{
	/* Proves the checks of names, sources, transforms and access lists. */
	expect_refused("datasets:\n- name: a\n", ":2: datasets[0]: 'source' is missing");
	expect_refused("datasets:\n- source: 'random:'\n", ":2: datasets[0]: 'name' is missing");
	expect_refused(
		"datasets:\n- name: 'files:a'\n  source: 'random:'\n",
		":2: datasets[0].name: 'files:a' is not a name; expected 1 to 64 letters, digits, '.', '_' or '-'");
	expect_refused(
		"datasets:\n- name: a\n  source: images:/data\n",
		":3: datasets[0].source: 'images:/data' is not a source; expected imagefolder:DIR, files:LIST, tar:SHARDS, mds:SHARDS, zip:FILE, arrow:FILES, npy:FILE[,FILE], npz:FILE, idx:FILE[,FILE], cifar:FILE[,FILE...], tokens:FILE[,FILE...],length=T, blend:[WEIGHT*]DATASET;;[WEIGHT*]DATASET..., random:... or serve:NAME");
	expect_refused(
		"datasets:\n- name: a\n  source: image:/data\n",
		":3: datasets[0].source: 'image:/data' is not a source; expected imagefolder:DIR, files:LIST, tar:SHARDS, mds:SHARDS, zip:FILE, arrow:FILES, npy:FILE[,FILE], npz:FILE, idx:FILE[,FILE], cifar:FILE[,FILE...], tokens:FILE[,FILE...],length=T, blend:[WEIGHT*]DATASET;;[WEIGHT*]DATASET..., random:... or serve:NAME");
	expect_refused(
		"datasets:\n- name: a\n  source: imagefolder:data\n",
		":3: datasets[0].source: 'imagefolder:data' is relative; expected an absolute path, such as imagefolder:/data/train");
	expect_refused(
		"datasets:\n- name: a\n  source: npy:/x,y\n",
		":3: datasets[0].source: 'npy:/x,y' is relative; expected an absolute path, such as npy:/data/train");
	expect_refused(
		"datasets:\n- name: a\n  source: 'random:'\n  users:\n  - root\n  - no-such-user\n",
		":6: datasets[0].users[1]: this machine does not know 'no-such-user'; expected a name or a number");
	expect_refused(
		"datasets:\n- name: a\n  source: 'random:'\n  groups: [4294967295]\n",
		":4: datasets[0].groups[0]: this machine does not know '4294967295'; expected a name or a number");
	expect_refused("datasets:\n- name: a\n  source: 'random:'\n  transform:\n",
		       ":4: datasets[0].transform: found nothing; expected a pipeline's name or a list of operations");
	expect_refused("pipelines:\n- {name: train224, transform: val224}\n",
		       ":2: pipelines[0].name: 'train224' is built in; choose another name");
}
END_TEST

START_TEST(test_a_transform_that_does_not_parse_is_refused_with_its_line)
{
	/* Proves that pipelines are checked when the file is read, with the parser that trainers' requests go through.
	 */
	struct config_error err = { .text = "" };
	struct config c;
	static const char *const bad[] = {
		"# c\npipelines:\n- name: a\n  transform: [[Rezise, 128], ToTensor]\n",
		"# c\ndatasets:\n- {name: a, source: 'files:/l',\n  transform: nonsense}\n",
		"# c\npipelines:\n- name: a\n  transform: '[\"Resize\"'\n",
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		file_write(bad[i], strlen(bad[i]));
		ck_assert_msg(config_load(path, &c, &err) == -EINVAL, "accepted:\n%s", bad[i]);
		ck_assert_msg(strstr(err.text, "c.yaml:4: ") && strstr(err.text, "[0].transform: "), "%s", err.text);
		ck_assert_uint_gt(strlen(strstr(err.text, ".transform: ")), strlen(".transform: "));
	}
}
END_TEST

START_TEST(test_yaml_beyond_a_configuration_is_refused)
{
	/* Proves that aliases (and their bombs), tags, NULs, further documents and broken YAML give a one-line
	 * error. */
	expect_refused("workers: &n 4\nslots: *n\n",
		       ":1: anchors (&) and aliases (*) are not supported; write the value out, or in quotes");
	expect_refused("pipelines: [{name: a, transform: &x [*x]}]\n",
		       ":1: anchors (&) and aliases (*) are not supported; write the value out, or in quotes");
	expect_refused("workers: !!int 4\n", ":1: tags (!) are not supported; write the value without, or in quotes");
	expect_refused("socket: \"/a\\0b\"\n", ":1: a text contains a NUL character");
	expect_refused("workers: 1\n---\nworkers: 2\n", ":2: a second document begins here; a configuration is one");
	expect_not_yaml("workers: 1\n\tslots: 2\n", ":2: not valid YAML: ");
	expect_not_yaml("# c\nsocket: \"/a\n", ":3: not valid YAML: ");
	expect_not_yaml("# c\nsocket: '\xff'\n", ":2: not valid YAML: ");
}
END_TEST

START_TEST(test_depth_and_length_are_limited_from_both_sides)
{
	/* Proves the limits on nesting in a transform, on the entries of a list and on the length of the file. */
	struct config_error err = { .text = "" };
	char *big = malloc(CONFIG_MAX_BYTES + 2);
	struct config c;

	expect_refused("pipelines: [{name: a, transform: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}]\n",
		       ":1: pipelines[0].transform: nested more than 16 deep");

	memset(big, '#', CONFIG_MAX_BYTES + 1);
	file_write(big, CONFIG_MAX_BYTES);
	ck_assert_msg(config_load(path, &c, &err) == 0, "%s", err.text);
	config_finish(&c);
	file_write(big, CONFIG_MAX_BYTES + 1);
	ck_assert_int_eq(config_load(path, &c, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "c.yaml: is larger than 1 MiB"));
	free(big);
}
END_TEST

static void write_datasets(unsigned n)
{
	FILE *f = fopen(path, "w");

	fputs("datasets:\n", f);
	for (unsigned i = 0; i < n; i++)
		fprintf(f, "- {name: d%u, source: 'random:'}\n", i);
	fclose(f);
}

START_TEST(test_a_list_may_be_full_but_not_more)
{
	/* Proves the limit on data sets, from both sides. */
	struct config_error err = { .text = "" };
	struct config c;

	write_datasets(CONFIG_MAX_DATASETS);
	ck_assert_msg(config_load(path, &c, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(c.n_datasets, CONFIG_MAX_DATASETS);
	config_finish(&c);
	write_datasets(CONFIG_MAX_DATASETS + 1);
	ck_assert_int_eq(config_load(path, &c, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, ":1026: datasets: more than 1024 entries"));
}
END_TEST

static void write_users(unsigned n)
{
	FILE *f = fopen(path, "w");

	fputs("datasets:\n- name: a\n  source: 'random:'\n  users:\n", f);
	for (unsigned i = 0; i < n; i++)
		fprintf(f, "  - %u\n", 1000 + i);
	fclose(f);
}

START_TEST(test_a_list_of_users_keeps_its_order_and_may_be_full_but_not_more)
{
	/* Proves that every entry of a long list arrives, in order, and the limit from both sides. */
	struct config_error err = { .text = "" };
	struct config c;

	write_users(CONFIG_MAX_NAMES);
	ck_assert_msg(config_load(path, &c, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(c.datasets[0].n_users, CONFIG_MAX_NAMES);
	for (unsigned i = 0; i < CONFIG_MAX_NAMES; i++)
		ck_assert_uint_eq(c.datasets[0].users[i], 1000 + i);
	config_finish(&c);
	write_users(CONFIG_MAX_NAMES + 1);
	ck_assert_int_eq(config_load(path, &c, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, ":261: datasets[0].users: more than 256 entries"));
}
END_TEST

START_TEST(test_what_is_not_a_file_is_refused_without_waiting)
{
	/* Proves that a missing file, a directory and a FIFO without a writer are answered at once. */
	struct config_error err = { .text = "" };
	struct config c;

	ck_assert_int_eq(config_load(path, &c, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "c.yaml: cannot be read: No such file or directory"));
	ck_assert_int_eq(config_load(folder, &c, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "is not a regular file"));
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(config_load(path, &c, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "is not a regular file"));
}
END_TEST

/* ---- command-line options, and the comparison ---- */

START_TEST(test_options_set_keys_and_datasets)
{
	/* Proves that config_set accepts the file's keys and values, and that a data set of the same name is
	 * replaced. */
	struct config_error err = { .text = "" };
	struct config c;

	expect_loads("workers: 2\ndatasets: [{name: a, source: 'random:', users: [root]}]\n", &c);
	ck_assert_int_eq(config_set(&c, "workers", "auto", &err), 0);
	ck_assert_uint_eq(c.workers, 0);
	ck_assert_int_eq(config_set(&c, "socket", "/a", &err), 0);
	ck_assert_int_eq(config_set(&c, "socket", "/b", &err), 0);
	ck_assert_str_eq(c.socket, "/b");
	ck_assert_int_eq(config_set(&c, "sockets", "/b", &err), -EINVAL);
	ck_assert_str_eq(err.text, "unknown key 'sockets'");
	ck_assert_int_eq(config_set_dataset(&c, "a", "imagefolder:/data", &err), 0);
	ck_assert_int_eq(config_set_dataset(&c, "b", "files:/list", &err), 0);
	ck_assert_int_eq(config_set_dataset(&c, "b/c", "files:/list", &err), -EINVAL);
	ck_assert_int_eq(config_set_dataset(&c, "b", "files:list", &err), -EINVAL);
	ck_assert_uint_eq(c.n_datasets, 2);
	ck_assert(sources_are_equal(config_dataset(&c, "a")->sources, sources_of("imagefolder:/data")));
	ck_assert_uint_eq(config_dataset(&c, "a")->n_users, 0);
	ck_assert(sources_are_equal(config_dataset(&c, "b")->sources, sources_of("files:/list")));
	config_finish(&c);
}
END_TEST

static const struct config_change *change_of(const struct config_change *changes, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(changes[i].key, key) == 0)
			return &changes[i];
	return NULL;
}

START_TEST(test_diff_tells_live_keys_from_those_of_the_next_start)
{
	/* Proves what a reload reports: each changed key once, and whether it takes effect now. */
	static const char *const live[] = { "workers", "linger",          "bad_data",  "log_level",
					    "slots",   "limits.sessions", "pipelines", "datasets" };
	static const char *const later[] = { "socket",          "socket_mode", "memory",     "cache.decoded",
					     "cache.directory", "gpu_memory",  "pin_memory", "pin_limit" };
	struct config_change changes[CONFIG_MAX_CHANGES];
	struct config a, b;

	expect_loads(
		"pipelines: [{name: p, transform: [[Resize, 64], [CenterCrop, 64], ToTensor]}]\ndatasets: [{name: d, source: 'random:'}]\n",
		&a);
	expect_loads("pipelines: [{name: p, transform: [[Resize, 32], [CenterCrop, 32], ToTensor]}]\n"
		     "datasets: [{name: d, source: 'random:', users: [1]}]\n"
		     "workers: 2\nlinger: 1s\nbad_data: 2%\nlog_level: info\nlimits: {sessions: 2}\n"
		     "socket: /x\nsocket_mode: 0666\nmemory: 1GiB\nslots: 3\ncache: {decoded: off, directory: /c}\n"
		     "gpu_memory: off\npin_memory: off\npin_limit: 50%\n",
		     &b);

	size_t n = config_diff(&a, &b, changes), n_live = sizeof live / sizeof *live,
	       n_later = sizeof later / sizeof *later;

	ck_assert_uint_eq(n, n_live + n_later);
	for (size_t i = 0; i < n_live; i++)
		ck_assert_msg(change_of(changes, n, live[i]) && change_of(changes, n, live[i])->live, "%s", live[i]);
	for (size_t i = 0; i < n_later; i++)
		ck_assert_msg(change_of(changes, n, later[i]) && !change_of(changes, n, later[i])->live, "%s",
			      later[i]);
	ck_assert_uint_eq(config_diff(&b, &b, changes), 0);
	config_finish(&a);
	config_finish(&b);
}
END_TEST

SUITE(config)
{
	Suite *suite = suite_create("config");
	TCase *tc = tcase_create("config");

	tcase_add_checked_fixture(tc, folder_make, folder_remove);
	tcase_add_test(tc, test_file_that_says_nothing_is_the_defaults);
	tcase_add_test(tc, test_defaults_are_those_of_the_manual);
	tcase_add_test(tc, test_every_key_reaches_its_member);
	tcase_add_test(tc, test_datasets_and_pipelines_with_all_their_keys);
	tcase_add_test(tc, test_unknown_keys_are_named_with_the_one_that_was_meant);
	tcase_add_test(tc, test_wrong_types_say_what_the_key_takes);
	tcase_add_test(tc, test_bad_values_say_what_was_expected);
	tcase_add_loop_test(tc, test_each_limit_from_both_sides, 0, (int)(sizeof borders / sizeof *borders));
	tcase_add_test(tc, test_what_is_given_twice_names_the_first_line);
	tcase_add_test(tc, test_datasets_that_cannot_be_served_are_refused_at_once);
	tcase_add_test(tc, test_a_transform_that_does_not_parse_is_refused_with_its_line);
	tcase_add_test(tc, test_yaml_beyond_a_configuration_is_refused);
	tcase_add_test(tc, test_depth_and_length_are_limited_from_both_sides);
	tcase_add_test(tc, test_a_list_may_be_full_but_not_more);
	tcase_add_test(tc, test_a_list_of_users_keeps_its_order_and_may_be_full_but_not_more);
	tcase_add_test(tc, test_what_is_not_a_file_is_refused_without_waiting);
	tcase_add_test(tc, test_options_set_keys_and_datasets);
	tcase_add_test(tc, test_diff_tells_live_keys_from_those_of_the_next_start);
	suite_add_tcase(suite, tc);

	return suite;
}
