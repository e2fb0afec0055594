/* See open-request.h. A straight list of checks; the first that fails names its field. A check that needs an open data
 * set (its size, whether it holds images) is left to the code that opens it. */
#include "server/open-request.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch/plan/plan.h"
#include "dataset/field.h"
#include "dataset/shards/member-spec.h"
#include "base/thread-kind.h"

#define INVALID BATCHD__WIRE__ERROR_CODE__INVALID

bool open_request_may_use(const struct config_dataset *d, const struct requester *who)
{
	if (!d->n_users && !d->n_groups)
		return true;
	if (who->uid == 0 && who->shares_mounts)
		return true;
	for (uint32_t i = 0; i < d->n_users; i++) {
		if (d->users[i] == who->uid)
			return true;
	}
	for (uint32_t i = 0; i < d->n_groups; i++) {
		for (unsigned k = 0; k < who->n_gids; k++) {
			if (d->groups[i] == who->gids[k])
				return true;
		}
	}
	return false;
}

bool open_request_may_trust(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

static void set_access(struct data_access *a, const struct requester *who, bool configured)
{
	*a = (struct data_access){ .uid = who->uid };
	a->trusted = configured || (who->shares_mounts && open_request_may_trust(who->uid));
	for (unsigned i = 0; i < who->n_gids && i < DATASET_MAX_GROUPS; i++)
		a->gids[a->n_gids++] = who->gids[i];
}

/* "tar:...#text=txt": samples with other fields than pictures. */
static bool has_no_picture(const struct Source *s)
{
	struct member_fields fields;

	return s->n_field && member_spec_take(s, &fields, NULL) == 0 && !fields.image[0];
}

/* Of a blend, the first part has the kind of all. */
static const char *default_transform(const struct Sources *sources)
{
	switch (sources->source[0]->kind) {
	case SOURCE_KIND__IMAGEFOLDER:
	case SOURCE_KIND__FILES:
		return "train224";
	case SOURCE_KIND__TAR:
	case SOURCE_KIND__MDS:
	case SOURCE_KIND__ZIP:
		return has_no_picture(sources->source[0]) ? "" : "train224";
	default:
		return "";
	}
}

/* The data set's source and transform, from the configuration where it has them. */
static int open_request_resolve(const struct config *config, const Batchd__Wire__Open *open,
				const struct requester *who, unsigned n_fds, const struct Sources **sources,
				const char **transform, bool *configured, struct refusal *err)
{
	const char *name = open->sources->name;
	const struct config_dataset *d = *name ? config_dataset(config, name) : NULL;
	*configured = d != NULL;
	if (!d && *name)
		return refuse(
			err, BATCHD__WIRE__ERROR_CODE__NOT_FOUND, "dataset",
			"no data set is named '%s' in the daemon's configuration, and no producer serves it; give a name from there, or " SOURCE_KINDS_TEXT
			" to wait for a producer",
			name);
	if (d && !open_request_may_use(d, who))
		return refuse(
			err, BATCHD__WIRE__ERROR_CODE__ACCESS, "dataset",
			"user %u may not use the data set '%s' (its users and groups in the daemon's configuration)%s",
			(unsigned)who->uid, d->name,
			who->uid ? "" : "; root in another mount namespace than the daemon's is let in by name only");
	if (d && n_fds)
		return refuse(err, BATCHD__WIRE__ERROR_CODE__PROTOCOL, "dataset",
			      "a configured data set takes no file descriptors");
	if (!d && n_fds && n_fds != sources_n_fds(open->sources))
		return refuse(err, INVALID, "dataset", "%u descriptors for %u files and folders", n_fds,
			      sources_n_fds(open->sources));
	*sources = d ? d->sources : open->sources;
	*transform = open->transform[0]  ? open->transform
		     : d && d->transform ? d->transform
					 : default_transform(*sources);
	const char *named = config_pipeline(config, *transform);
	if (named)
		*transform = named;
	return 0;
}

static int check_numbers(const struct config *config, const Batchd__Wire__Open *o, struct refusal *err)
{
	bool share = o->mode == BATCHD__WIRE__MODE__SHARE;
	uint32_t max_world = share ? LOADER_MAX_SHARE : LOADER_MAX_WORLD;
	if (o->batch_size < 1 || o->batch_size > config->limits.batch_size)
		return refuse(err, o->batch_size ? BATCHD__WIRE__ERROR_CODE__LIMIT : INVALID, "batch_size",
			      "batch_size is %u; expected 1 to %u (limits.batch_size in the daemon's configuration)",
			      o->batch_size, config->limits.batch_size);
	if (o->world_size < 1 || o->world_size > max_world)
		return refuse(err, INVALID, "world_size", "world_size is %u; expected 1 to %u", o->world_size,
			      max_world);
	if (o->rank < -1 || (o->rank >= 0 && (uint32_t)o->rank >= o->world_size &&
			     !(share && o->world_size == 1 && o->rank < LOADER_MAX_SHARE)))
		return refuse(err, INVALID, "rank", "rank is %d; expected 0 to world_size - 1 = %u", o->rank,
			      o->world_size - 1);
	if (o->node_world_size > o->world_size || (o->node_world_size && o->node_rank >= o->node_world_size))
		return refuse(err, INVALID, "node_rank",
			      "node_rank is %u of node_world_size %u; expected one of at most world_size = %u trainers",
			      o->node_rank, o->node_world_size, o->world_size);
	if (o->rank == -1 && !share && o->world_size > 1)
		return refuse(err, INVALID, "rank", "shard mode with world_size %u needs a rank", o->world_size);
	if (o->own_batches && share)
		return refuse(
			err, INVALID, "batch_sampler",
			"a batch_sampler works in shard mode only: in share mode every trainer gets the same batches");
	if (o->own_batches && o->shuffle)
		return refuse(err, INVALID, "shuffle",
			      "shuffle and batch_sampler exclude each other: the sampler decides the order");
	if (o->shuffle >> 31 || o->shuffle == PLAN_RESAMPLED)
		return refuse(
			err, INVALID, "shuffle",
			"shuffle is %u; expected 0, 1, a window of 2 to %d samples, or %d and a window for shards "
			"drawn with replacement",
			o->shuffle, PLAN_RESAMPLED - 1, PLAN_RESAMPLED);
	if (o->repeats > LOADER_MAX_REPEATS)
		return refuse(err, INVALID, "repeats", "repeats is %u; expected 1 to %d", o->repeats,
			      LOADER_MAX_REPEATS);
	if (o->own_batches && (o->repeats > 1 || o->epoch_rows))
		return refuse(
			err, INVALID, o->repeats > 1 ? "repeats" : "epoch_rows",
			"a sampler decides itself how often a sample comes and how long an epoch is: leave repeats and "
			"epoch_rows out");
	if (o->n_slots == 1 || o->n_slots > 64)
		return refuse(err, INVALID, "n_slots", "n_slots is %u; expected 2 to 64, or 0 for the daemon's default",
			      o->n_slots);
	if (o->num_workers > 1024)
		return refuse(err, INVALID, "num_workers", "num_workers is %u; expected 0 (the daemon decides) to 1024",
			      o->num_workers);
	if (o->policy && !share)
		return refuse(err, INVALID, "policy",
			      "policy goes with mode share: in shard mode every rank has batches of its own");
	if (o->own_batch_size && (!share || o->own_batch_size > o->batch_size || o->batch_size % o->own_batch_size))
		return refuse(err, INVALID, "own_batch_size",
			      "a trainer takes a batch of %u whole or in equal slices, not in slices of %u",
			      o->batch_size, o->own_batch_size);
	if (!o->job[0])
		return refuse(err, INVALID, "job", "job is empty; expected a name");
	if (o->dtype > BATCHD__WIRE__DTYPE__INT32 && o->dtype != BATCHD__WIRE__DTYPE__UINT16)
		return refuse(err, INVALID, "dtype",
			      "dtype of images must be uint8, uint16, int32, float16 or float32");
	return 0;
}

/* A group of known size keeps step; trials that come and go must not stop each other. */
static enum group_policy policy_of(const Batchd__Wire__Open *o)
{
	switch (o->policy) {
	case BATCHD__WIRE__POLICY__POLICY_SKIP:
		return GROUP_SKIP;
	case BATCHD__WIRE__POLICY__POLICY_DETACH:
		return GROUP_DETACH;
	case BATCHD__WIRE__POLICY__POLICY_DEFAULT:
		return o->mode == BATCHD__WIRE__MODE__SHARE && o->world_size == 1 ? GROUP_DETACH : GROUP_WAIT;
	default:
		return GROUP_WAIT;
	}
}

/* A producer decides the form of its batches, so the trainer's options for it are refused. Fields that would make it
 * another job are set to fixed values. */
static int adapt_to_producer(const Batchd__Wire__Open *o, const char *name, struct loader_spec *spec,
			     struct refusal *err)
{
	const char *what = o->n_field                       ? "fields"
			   : o->own_batches                 ? "batch_sampler"
			   : o->shuffle                     ? "shuffle"
			   : o->drop_last                   ? "drop_last"
			   : o->repeats > 1                 ? "repeats"
			   : o->epoch_rows                  ? "epoch_rows"
			   : o->apply_exif || o->leave_exif ? "apply_exif"
			   : spec->transform[0]             ? "transform"
							    : NULL;
	if (what)
		return refuse(
			err, INVALID, what,
			"%s is the producer's business: give it to what batchd.serve is called with, and leave it out here",
			what);
	if (o->policy != BATCHD__WIRE__POLICY__POLICY_DEFAULT && o->policy != BATCHD__WIRE__POLICY__POLICY_WAIT)
		return refuse(
			err, INVALID, "policy",
			"a producer makes each batch once, so its trainers wait for each other: leave policy out, or give 'wait'");
	if (!*name || strlen(name) > WIRE_MAX_PRODUCER)
		return refuse(err, INVALID, "dataset",
			      "'%s': expected serve:NAME with the name of a producer, at most %d bytes", spec->dataset,
			      WIRE_MAX_PRODUCER);
	if (!spec->share && spec->world_size > LOADER_MAX_SERVED)
		return refuse(err, INVALID, "world_size",
			      "world_size is %u; a producer serves 1 to %d ranks, which all come to this daemon",
			      spec->world_size, LOADER_MAX_SERVED);
	spec->batch_size = 1; /* a row of the slot is the whole batch */
	spec->dtype = DTYPE_UINT8;
	spec->layout = LAYOUT_AS_STORED;
	spec->seed = 0;
	spec->num_workers = 0;
	spec->policy = GROUP_WAIT; /* a producer makes one sequence of batches */
	if (o->node_world_size)    /* ranks are counted among the trainers of this machine */
		spec->world_size = o->node_world_size;
	spec->served = true;
	return 0;
}

static int open_request_by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of the wanted fields as loader_spec.fields has them, in a buffer of the caller's. The wire has checked their
 * number and lengths, the data set that it has them is checked when it is open. */
static int list_fields(const Batchd__Wire__Open *o, char list[WIRE_MAX_FIELDS * (WIRE_MAX_FIELD_NAME + 1) + 1],
		       struct refusal *err)
{
	const char *names[WIRE_MAX_FIELDS];
	char *at = list;
	for (size_t i = 0; i < o->n_field; i++)
		names[i] = o->field[i];
	qsort(names, o->n_field, sizeof(names[0]), open_request_by_name);
	for (size_t i = 0; i < o->n_field; i++) {
		if (!field_name_is_valid(names[i]))
			return refuse(
				err, INVALID, "fields",
				"fields has '%s': no field has a name with a space, comma, quote or backslash, or "
				"one that is not ASCII",
				names[i]);
		if (i && !strcmp(names[i], names[i - 1]))
			return refuse(err, INVALID, "fields", "fields has '%s' twice; name each once", names[i]);
		at += sprintf(at, "%s%s", i ? "," : "", names[i]);
	}
	*at = '\0';
	return 0;
}

int open_request_make(const struct config *config, const Batchd__Wire__Open *o, const struct requester *who,
		      unsigned n_fds, struct open_request *out, struct refusal *err)
{
	assert(is_loop_thread());
	assert(n_fds <= WIRE_MAX_FDS);
	const struct Sources *sources = NULL;
	const char *transform = NULL;
	bool configured;
	*out = (struct open_request){ 0 };
	*err = (struct refusal){ .code = INVALID, .field = "" };
	int r = check_numbers(config, o, err);
	if (r == 0)
		r = open_request_resolve(config, o, who, n_fds, &sources, &transform, &configured, err);
	if (r)
		return r;
	set_access(&out->access, who, configured);
	const struct Source *first = sources->source[0];
	const char *served = first->kind == SOURCE_KIND__SERVE ? first->part[0]->name : NULL;
	out->text = sources_print(o->sources, SOURCE_SHOWN);
	if (!out->text)
		return refuse_memory(err);
	if (strlen(out->text) > WIRE_MAX_DATASET)
		return refuse(err, INVALID, "dataset", "the names of the files take more than %d bytes",
			      WIRE_MAX_DATASET);
	if (!out->access.trusted && n_fds == 0 && sources_n_fds(sources))
		return refuse(err, BATCHD__WIRE__ERROR_CODE__ACCESS, "dataset",
			      "the client sent no file descriptor for %s: paths are opened with the client's rights",
			      out->text);
	if (!out->access.trusted && n_fds > 0 && who->lacks_groups)
		return refuse(err, BATCHD__WIRE__ERROR_CODE__ACCESS, "dataset",
			      "user %u is in more than %d groups, or the kernel does not tell which, so the daemon "
			      "cannot say which files this user may read; name the data set in the daemon's "
			      "configuration, or use a daemon of this user",
			      (unsigned)who->uid, DATASET_MAX_GROUPS);
	struct loader_spec borrowed = {
		.job = o->job,
		.dataset = out->text,
		.transform = (char *)transform,
		.dtype = (enum dtype)o->dtype,
		.layout = (enum layout)o->layout,
		.batch_size = o->batch_size,
		.world_size = o->world_size,
		.num_workers = o->num_workers,
		.n_slots = o->n_slots,
		.seed = o->seed,
		.incarnation = o->incarnation,
		.shuffle = o->shuffle,
		.drop_last = o->drop_last,
		.repeats = o->repeats ? o->repeats : 1,
		.epoch_rows = o->epoch_rows,
		.share = o->mode == BATCHD__WIRE__MODE__SHARE,
		.policy = policy_of(o),
		.apply_exif = o->apply_exif,
		.leave_exif = o->leave_exif,
		.own_batches = o->own_batches,
		.uid = who->uid,
	};
	char fields[WIRE_MAX_FIELDS * (WIRE_MAX_FIELD_NAME + 1) + 1];
	borrowed.fields = fields;
	r = list_fields(o, fields, err);
	if (r)
		return r;
	out->rank = o->rank;
	if (served && o->node_world_size)
		out->rank = (int32_t)o->node_rank;
	r = served ? adapt_to_producer(o, served, &borrowed, err) : 0;
	if (r)
		return r;
	out->asked = sources_copy(o->sources);
	out->sources = sources_copy(sources);
	out->served = served ? strdup(served) : NULL;
	if (!out->asked || !out->sources || (served && !out->served) || loader_spec_copy(&borrowed, &out->spec))
		return refuse_memory(err);
	return 0;
}

void open_request_finish(struct open_request *r)
{
	assert(is_loop_thread());
	loader_spec_finish(&r->spec);
	sources_free(r->asked);
	sources_free(r->sources);
	free(r->text);
	free(r->served);
	*r = (struct open_request){ 0 };
}
