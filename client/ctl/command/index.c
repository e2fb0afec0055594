/* batchctl index: writes an index beside each tar shard, with the daemon's own code. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "dataset/shards/shards.h"
#include "dataset/shards/sidecar.h"
#include "dataset/shards/tar-index.h"
#include "ctl/term/options.h"
#include "ctl/term/progress.h"
#include "sources.h"

struct index {
	const char *text; /* the operand */
	bool check, force, json, quiet;
	struct shards shards;
	struct dataset_error err;
	uint64_t n_samples;
	uint32_t n_written, n_kept, n_bad;
	json_t *list; /* with --json */
};

/* ---- one shard ---- */

static void report(struct index *x, const char *path, const char *state, uint64_t n_samples, const char *why)
{
	if (x->json)
		json_array_append_new(x->list, json_pack("{s:o, s:s, s:I, s:o}", "shard", ctl_json_text(path), "state",
							 state, "samples", (json_int_t)n_samples, "why",
							 *why ? ctl_json_text(why) : json_null()));
	else if (*why)
		ctl_complain("index", "%s: %s", path, why);
}

/* Where shards_open_beside looks for it, below the shard's root: `ending` stands in place of the last name's. */
static int name_beside(const struct shards *s, uint32_t i, const char *ending, char *name, size_t size)
{
	const char *path = shard_names_path(&s->names, i), *slash = strrchr(path, '/');
	const char *dot = strrchr(slash ? slash + 1 : path, '.');
	int n = snprintf(name, size, "%.*s%s", (int)(dot ? (size_t)(dot - path) : strlen(path)), path, ending);

	return n >= 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

static FILE *create_at(int root, const char *name)
{
	int fd = openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (fd >= 0 && !f)
		close(fd);
	return f;
}

/* Written under another name first: a daemon may read it at any moment. */
static int write_index(struct index *x, uint32_t i, struct shard_reader *r, uint64_t *n_samples,
		       char why[TAR_INDEX_WHY_BYTES])
{
	const struct shards *s = &x->shards;
	int root = s->names.roots[s->names.list[i].root], got;
	char name[4096], other[4096], ending[64];
	FILE *f;

	snprintf(ending, sizeof ending, TAR_INDEX_ENDING ".%ld", (long)getpid());
	if (name_beside(s, i, TAR_INDEX_ENDING, name, sizeof name) < 0 ||
	    name_beside(s, i, ending, other, sizeof other) < 0)
		return dataset_fail_errno(&x->err, ENAMETOOLONG, r->name);
	f = create_at(root, other);
	if (!f)
		return dataset_fail_errno(&x->err, errno, other);
	got = tar_index_write(r, f, n_samples, why);
	if (fclose(f) != 0 && got == 0)
		got = dataset_fail_errno(&x->err, errno, other);
	if (got == 0 && renameat(root, other, root, name) != 0)
		got = dataset_fail_errno(&x->err, errno, name);
	if (got != 0)
		unlinkat(root, other, 0);
	return got;
}

/* 0: there is one that fits; 1: there is none, or `why` says what is wrong with it. */
static int look_at_old(struct index *x, uint32_t i, struct shard_reader *r, const struct shard_stamp *stamp,
		       char why[TAR_INDEX_WHY_BYTES])
{
	struct sidecar old;
	int got;

	snprintf(why, TAR_INDEX_WHY_BYTES, "it has no index");
	got = sidecar_read(&old, &x->shards, i, TAR_INDEX_ENDING, stamp, NULL, why, TAR_INDEX_WHY_BYTES);
	if (got == 0)
		got = !old.text || !tar_index_fits(r, old.text, old.n, why);
	sidecar_finish(&old);
	return got;
}

static void take_shard(struct index *x, uint32_t i)
{
	char path[400], why[TAR_INDEX_WHY_BYTES] = "";
	struct shard_reader r = { .name = path, .err = &x->err };
	struct shard_stamp stamp;
	struct stat st;
	bool is_kept, is_good = false;
	uint64_t n = 0;

	shards_path(&x->shards, i, path, sizeof path);
	r.fd = shards_open(&x->shards, i, &st, &is_kept, &x->err);
	if (r.fd < 0) {
		x->n_bad++;
		report(x, path, "failed", 0, x->err.text);
		return;
	}
	r.n_bytes = (uint64_t)st.st_size;
	stamp = shard_stamp_of(&st);
	if (!x->force)
		is_good = look_at_old(x, i, &r, &stamp, why) == 0;
	if (is_good) {
		x->n_kept++;
		report(x, path, "kept", 0, "");
	} else if (x->check || write_index(x, i, &r, &n, why) != 0) {
		x->n_bad++;
		report(x, path, "failed", 0, *x->err.text ? x->err.text : why);
		x->err.text[0] = '\0';
	} else {
		x->n_written++;
		x->n_samples += n;
		report(x, path, "written", n, "");
	}
	shard_reader_finish(&r);
	if (!is_kept)
		close(r.fd);
}

/* ---- all of them ---- */

static int open_shards(struct index *x)
{
	const struct data_access access = { .trusted = true };
	struct dataset_source source = { .access = &access };
	SourceKind kind = source_kind_of(x->text);
	struct shard_names names = { 0 };
	struct Sources *sources;
	int r;

	if (kind != SOURCE_KIND__TAR) {
		ctl_complain("index", "'%s': expected tar:SHARDS%s", x->text,
			     kind == SOURCE_KIND__MDS || kind == SOURCE_KIND__ZIP || kind == SOURCE_KIND__ARROW
				     ? "; shards of this kind have an index in themselves"
				     : "");
		return CTL_USAGE;
	}
	r = sources_parse(x->text, &sources, x->err.text, sizeof x->err.text);
	if (r == 0) {
		source.part = sources->source[0];
		r = shard_names_open(&source, &names, &x->err);
		sources_free(sources);
	}
	if (r == 0)
		r = shards_init(&x->shards, &names, &access);
	else
		shard_names_finish(&names);
	if (r == 0)
		return CTL_OK;
	ctl_complain("index", "%s", *x->err.text ? x->err.text : strerror(-r));
	return CTL_UNKNOWN;
}

static int index_report_all(struct index *x)
{
	if (x->json)
		return ctl_print_json("index", json_pack("{s:I, s:I, s:I, s:O}", "written", (json_int_t)x->n_written,
							 "kept", (json_int_t)x->n_kept, "failed", (json_int_t)x->n_bad,
							 "shards", x->list));
	if (!x->quiet)
		printf("%" PRIu32 " indexes written (%" PRIu64 " samples), %" PRIu32 " kept, %" PRIu32 " failed\n",
		       x->n_written, x->n_samples, x->n_kept, x->n_bad);
	return ctl_flush("index");
}

int index_main(int argc, char **argv)
{
	struct index x = { .n_samples = 0 };
	const struct option_spec specs[] = {
		{ "check", OPTION_FLAG, &x.check, NULL, "write nothing: only compare the indexes with their shards", 0,
		  0, NULL },
		{ "force", OPTION_FLAG, &x.force, NULL, "rewrite indexes even if they are up to date", 0, 0, NULL },
		{ "json", OPTION_FLAG, &x.json, NULL, "the result, and progress on stderr, as JSON", 0, 0, NULL },
		{ "quiet", OPTION_FLAG, &x.quiet, NULL, "no progress", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"index",
		"tar:SHARDS",
		"Writes the index of each tar shard beside it. Daemons, and NVIDIA DALI, then need not read all headers.",
		"train-000.tar gets train-000.idx. Exit codes: 0 done, 1 a shard failed, 2 wrong usage, 4 no such shards.",
		1,
	};
	struct progress progress;
	int code;

	if (!command_parse(&cmd, specs, argc, argv, &x.text, &code))
		return code;
	code = open_shards(&x);
	if (code != CTL_OK) {
		shards_finish(&x.shards);
		return code;
	}
	x.list = x.json ? json_array() : NULL;
	progress_begin(&progress, progress_style_for(x.json, x.quiet), "index", "shards", x.shards.names.n);
	for (uint32_t i = 0; i < x.shards.names.n; i++) {
		take_shard(&x, i);
		progress_update(&progress, i + 1);
	}
	progress_end(&progress);
	code = index_report_all(&x);
	json_decref(x.list);
	shards_finish(&x.shards);
	return code == CTL_OK && x.n_bad ? CTL_FAILED : code;
}
