/* See job-join.h. */
#include "server/job-join.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "server/open-request.h"
#include "server/session-state.h"
#include "base/thread-kind.h"

static struct job *find_job(struct engine *e, uid_t uid, const char *name)
{
	for (struct job *j = e->jobs; j; j = j->next) {
		if (j->state != JOB_CLOSING && j->state != JOB_ENDING && !j->retired && j->spec.uid == uid &&
		    !strcmp(j->spec.job, name))
			return j;
	}
	return NULL;
}

/* Uses only dev and inode, which the kernel knows without asking a file system that may hang. Data without descriptors
 * counts as trusted: it is no client's file, or its path is allowed only to trusted clients. Memory whose content a hash
 * tells is the same in whichever memfd it comes. */
static void job_join_identify(const struct open_request *r, const int *fds, unsigned n_fds, struct data_identity *out)
{
	bool told[WIRE_MAX_FDS] = { false };

	*out = (struct data_identity){ .sources = r->asked, .trusted = r->access.trusted || !n_fds, .n = n_fds };
	if (n_fds)
		sources_told(r->asked, told); /* open_request_make has counted them */
	for (unsigned i = 0; i < n_fds; i++) {
		struct statx st;
		if (told[i] || statx(fds[i], "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &st))
			continue;
		out->files[i].dev = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor;
		out->files[i].ino = st.stx_ino;
	}
}

/* The first field in which a request differs from the job; NULL: none. *text describes the difference if only the name
 * of the data is the same. */
static const char *difference(const struct job *j, const struct loader_spec *spec, const struct data_identity *data,
			      const char **text, char values[SPEC_VALUES_BYTES])
{
	const char *field = loader_spec_difference(&j->spec, spec, values);
	*text = field;
	if (field)
		return field;
	if (!sources_are_equal(j->data.sources, data->sources)) {
		*text = "dataset (other data of the same name)";
		return "dataset";
	}
	if (j->data.n == data->n && !memcmp(j->data.files, data->files, sizeof(data->files))) {
		*text = "dataset (opened from another mount namespace, with other rights)";
		return j->data.trusted == data->trusted ? NULL : "dataset";
	}
	*text = "dataset (another folder or file of the same name: another container's, or it has been replaced)";
	return "dataset";
}

/* Charges a new job to its user. Lingering jobs are closed to make room. 0, the kind's limit that refuses it, or
 * -ENOMEM. */
enum { OVER_LOADERS = 1, OVER_USERS_LOADERS, OVER_FDS };

static int charge_job(struct engine *e, uid_t uid, unsigned n_fds, struct charge *loader, struct charge *open_fds)
{
	int r;
	do
		r = charge_begin(loader, &e->budget.accounts, uid, ACCOUNT_LOADERS, 1);
	while (r > 0 && job_close_lingering(e, uid, r == ACCOUNT_E_ALL));
	if (r)
		return r < 0 ? r : r == ACCOUNT_E_ALL ? OVER_LOADERS : OVER_USERS_LOADERS;
	r = charge_begin(open_fds, &e->budget.accounts, uid, ACCOUNT_FDS, n_fds);
	if (r == 0)
		return 0;
	charge_release(loader);
	return r < 0 ? r : OVER_FDS;
}

static int refuse_job(const struct engine *e, int over, struct refusal *why)
{
	if (over < 0)
		return refuse_memory(why);
	if (over == OVER_LOADERS)
		return refuse(
			why, BATCHD__WIRE__ERROR_CODE__LIMIT, "loaders",
			"the daemon has %u loaders, all that limits.loaders in its configuration allows: close some, or raise it",
			e->config->limits.loaders);
	if (over == OVER_USERS_LOADERS)
		return refuse(
			why, BATCHD__WIRE__ERROR_CODE__LIMIT, "loaders_per_user",
			"this user has %u loaders, all that limits.loaders_per_user in the daemon's configuration allows: close some "
			"(loader.close()), or raise it",
			e->config->limits.loaders_per_user);
	return refuse(
		why, BATCHD__WIRE__ERROR_CODE__LIMIT, "fds_per_user",
		"the daemon has too many descriptors open for this user (limits.fds_per_user in its configuration)");
}

/* A new incarnation of the whole job: ends every session of the old one, whatever it asked for and in whatever state.
 * The loader stays if the new incarnation can use it. It cannot in share mode, where one slab is for all and processes
 * of the old incarnation may still hold its slots. */
static void fence_all(struct job *j, const struct loader_spec *successor, const struct data_identity *data)
{
	const char *what;
	char values[SPEC_VALUES_BYTES];
	struct refusal why;
	bool keep = (j->state == JOB_READY || j->state == JOB_OPENING) && !successor->share &&
		    !difference(j, successor, data, &what, values);
	refuse(&why, BATCHD__WIRE__ERROR_CODE__FENCED, "incarnation",
	       "a newer incarnation of this job has started (%llu, this is %llu)",
	       (unsigned long long)successor->incarnation, (unsigned long long)j->spec.incarnation);
	job_end_sessions(j, &why);
	j->spec.incarnation = successor->incarnation;
	if (!keep)
		job_retire(j);
}

int job_join(struct engine *e, struct session *s, struct open_request *r, int *fds, unsigned n_fds, struct refusal *why)
{
	assert(is_loop_thread());
	assert(!s->job && s->state == SESSION_GREETED);
	struct job *j = find_job(e, r->spec.uid, r->spec.job);
	struct data_identity data;
	job_join_identify(r, fds, n_fds, &data);
	if (j && r->spec.incarnation > j->spec.incarnation) {
		fence_all(j, &r->spec, &data);
		j = find_job(e, r->spec.uid, r->spec.job);
	}
	if (j && j->state == JOB_FAILED && !j->n_sessions) {
		job_retire(j);
		j = find_job(e, r->spec.uid, r->spec.job);
	}
	if (j && r->spec.incarnation < j->spec.incarnation)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__FENCED, "incarnation",
			      "a newer incarnation of this job is running");
	char values[SPEC_VALUES_BYTES];
	const char *what, *field = j ? difference(j, &r->spec, &data, &what, values) : NULL;
	/* No session uses the warm loader: a changed script simply replaces it, even while more of its slots are made. */
	if (field && !j->n_sessions && j->state == JOB_READY) {
		job_retire(j);
		j = NULL;
		field = NULL;
	}
	if (field)
		return refuse(
			why, BATCHD__WIRE__ERROR_CODE__MISMATCH, field,
			"job '%s' is running with another %s%s%s%s; use the same, or another job name, or a higher incarnation to end what runs",
			r->spec.job, what, *values ? " (it has " : "", values, *values ? ")" : "");
	struct charge loader = { 0 }, open_fds = { 0 };
	int over = j ? 0 : charge_job(e, s->uid, n_fds, &loader, &open_fds);
	if (over)
		return refuse_job(e, over, why);
	if (!j)
		j = job_make(e, r, fds, n_fds, &data, &loader, &open_fds);
	if (!j) {
		charge_release(&loader);
		charge_release(&open_fds);
		return refuse_memory(why);
	}
	job_enter(j, s);
	return 0;
}
