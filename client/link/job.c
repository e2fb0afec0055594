/* Default job names.
 *
 *   share              one per user, specification and data, so that hyper-parameter trials find each other
 *   one trainer        one per process and loader
 *   several trainers   the run, the specification and an ordinal. The run is torchrun's id, else the rendezvous address
 *                      and Slurm's step, else the launcher that is their common parent. The ordinal tells apart the
 *                      equal loaders of one program. It counts live loaders, so a program that makes a new loader each
 *                      epoch comes back to the same job, which is still warm.
 *
 * Containers share one daemon, and often one uid. The same path there may lie on another volume, so the data is known
 * by device and inode. The same address or process number may belong to another container, so a run has its network
 * and PID namespaces in its name. */
#include "link/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "link/process.h"
#include "link/source.h"

static struct job *live; /* under process_lock */

/* FNV-1a; the final NUL separates fields. */
static uint64_t mix_text(uint64_t h, const char *text)
{
	do {
		h = (h ^ (unsigned char)*text) * 0x100000001b3;
	} while (*text++);
	return h;
}

static uint64_t mix_number(uint64_t h, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof text, "%llx", (unsigned long long)n);
	return mix_text(h, text);
}

/* Hashes what must be equal between sessions of one job. */
static uint64_t hash_spec(const struct batchd_options *o, const char *dataset)
{
	const uint64_t numbers[] = { o->dtype,
				     o->layout,
				     o->mode,
				     o->batch_size,
				     o->world_size,
				     o->num_workers,
				     o->n_slots,
				     o->seed,
				     (uint64_t)o->shuffle,
				     !!o->drop_last,
				     (uint64_t)o->apply_exif,
				     !!o->own_batches,
				     o->repeats,
				     o->epoch_rows };
	uint64_t h = mix_text(mix_text(0xcbf29ce484222325, dataset), o->transform ? o->transform : "");

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		h = mix_number(h, numbers[i]);
	return h ? h : 1;
}

static uint64_t mix_file(uint64_t h, const struct stat *st)
{
	return mix_number(mix_number(h, st->st_dev), st->st_ino);
}

/* Hashes the very folder or files; nothing for a name that the daemon knows, nor for memory whose content the text
 * identifies, as each rank has a copy of its own. */
static uint64_t mix_data(uint64_t h, const struct source *source)
{
	bool told[WIRE_MAX_FDS] = { false };

	sources_told(source->sources, told);
	for (unsigned i = 0; i < source->n_fds; i++) {
		struct stat st = { .st_ino = 0 };

		if (!told[i] && fstat(source->fds[i], &st) == 0)
			h = mix_file(h, &st);
	}
	return h;
}

static uint64_t mix_namespace(uint64_t h, const char *path)
{
	struct stat st = { .st_ino = 0 };

	(void)stat(path, &st);
	return mix_file(h, &st);
}

/* torchrun's id names the run over all its restarts, while the port of the rendezvous may change each time. Launchers
 * without an id say "none". */
static bool has_run_id(const char *id)
{
	return id && *id && strcmp(id, "none") != 0;
}

static uint64_t hash_run(void)
{
	static const char *const names[] = { "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID",
					     "SLURM_STEP_ID" };
	uint64_t h = mix_namespace(mix_number(0xcbf29ce484222325, geteuid()), "/proc/self/ns/net");
	const char *id = getenv(names[0]);
	int found = 0;

	if (has_run_id(id))
		return mix_text(h, id);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *value = getenv(names[i]);

		found += value != NULL;
		h = mix_text(h, value ? value : "");
	}
	return found ? h : mix_number(mix_namespace(h, "/proc/self/ns/pid"), (uint64_t)getppid());
}

/* The lowest number that no live loader of the same specification has. */
static void job_enlist(struct job *j)
{
	process_lock();
	for (struct job *other = live; other;) {
		if (other->spec == j->spec && other->ordinal == j->ordinal) {
			j->ordinal++;
			other = live;
		} else {
			other = other->next;
		}
	}
	j->next = live;
	live = j;
	process_unlock();
}

enum { TITLE_BYTES = 25 };

/* What a person recognises the data by: the last name of its path, or its kind. The same on every rank. */
static void title_of(const char *dataset, char title[TITLE_BYTES])
{
	size_t n_kind = strcspn(dataset, ":"), n = strcspn(dataset, "#,;");
	const char *begin;

	while (n > n_kind + 1 && dataset[n - 1] == '/')
		n--;
	begin = memrchr(dataset, '/', n);
	if (begin && begin > dataset + n_kind && !memchr(begin, '=', (size_t)(dataset + n - begin)))
		snprintf(title, TITLE_BYTES, "%.*s", (int)(dataset + n - begin - 1), begin + 1);
	else
		snprintf(title, TITLE_BYTES, "%.*s", (int)n_kind, dataset);
	for (char *c = title; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c))
			*c = '-';
}

void job_init(struct job *j, const struct batchd_options *o, const struct source *source)
{
	char title[TITLE_BYTES];

	*j = (struct job){ 0 };
	title_of(source->text, title);
	if (o->job && *o->job) {
		snprintf(j->name, sizeof j->name, "%s", o->job);
	} else if (o->mode == BATCHD_SHARE) {
		snprintf(j->name, sizeof j->name, "share-%s-%u-%016llx", title, (unsigned)geteuid(),
			 (unsigned long long)mix_data(hash_spec(o, source->text), source));
	} else if (o->world_size <= 1) {
		uint64_t any = 0;

		j->own = true;
		if (getrandom(&any, sizeof any, 0) < 0)
			any = (uintptr_t)j;
		snprintf(j->name, sizeof j->name, "%.40s-%s-%d-%08x",
			 o->program && *o->program ? o->program : program_invocation_short_name, title, (int)getpid(),
			 (unsigned)any);
	} else {
		j->spec = hash_spec(o, source->text);
		job_enlist(j);
		snprintf(j->name, sizeof j->name, "%s-run-%08x-%016llx-%u", title, (unsigned)hash_run(),
			 (unsigned long long)j->spec, j->ordinal);
	}
}

void job_finish(struct job *j)
{
	if (!j->spec)
		return;
	process_lock();
	for (struct job **p = &live; *p; p = &(*p)->next) {
		if (*p == j) {
			*p = j->next;
			break;
		}
	}
	process_unlock();
	j->spec = 0;
}
