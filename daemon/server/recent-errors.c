/* See recent-errors.h. */
#include "server/recent-errors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/thread-kind.h"

/* Drops those of users that have gone, but for the newest. */
static void drop_gone(struct recent_errors *errors)
{
	unsigned n_gone = 0;

	for (struct recent_user **at = &errors->users; *at;) {
		struct recent_user *u = *at;

		n_gone += !account_used(errors->accounts, u->uid, ACCOUNT_SESSIONS);
		if (n_gone <= RECENT_ERRORS_GONE) {
			at = &u->next;
			continue;
		}
		n_gone--;
		*at = u->next;
		free(u);
	}
}

/* At the head of the list from now on. NULL when memory is short. */
static struct recent_user *find_user(struct recent_errors *errors, uid_t uid)
{
	struct recent_user *u = errors->users;

	while (u && u->uid != uid)
		u = u->next;
	if (u) {
		list_remove(&errors->users, u, next);
		list_push(&errors->users, u, next);
		return u;
	}
	u = calloc(1, sizeof *u);
	if (u) {
		u->uid = uid;
		list_push(&errors->users, u, next);
		drop_gone(errors);
	}
	return u;
}

/* The one that is like e, else the oldest. */
static struct recent_error *find_place(struct recent_user *u, const struct recent_error *e)
{
	struct recent_error *oldest = u->error;

	for (struct recent_error *o = u->error; o < u->error + RECENT_ERRORS_EACH; o++) {
		if (o->count && !strcmp(o->text, e->text) && !strcmp(o->job, e->job))
			return o;
		if (oldest->count && (!o->count || o->at < oldest->at))
			oldest = o;
	}
	oldest->count = 0;
	return oldest;
}

void recent_errors_note(struct recent_errors *errors, uid_t uid, const char *job, const char *text)
{
	assert(is_loop_thread());
	assert(text);
	struct recent_user *u = errors ? find_user(errors, uid) : NULL;
	struct recent_error e = { .at = time(NULL) }, *place;

	if (!u)
		return;
	snprintf(e.job, sizeof e.job, "%s", job ? job : "");
	snprintf(e.text, sizeof e.text, "%s", text);
	place = find_place(u, &e);
	e.count = place->count + 1;
	*place = e;
}

void recent_errors_finish(struct recent_errors *errors)
{
	while (errors->users) {
		struct recent_user *u = errors->users;

		errors->users = u->next;
		free(u);
	}
}

/* ---- JSON ---- */

/* Texts may hold names of files, which are bytes, and may be cut in the middle of a character. */
static json_t *text_json(const char *text)
{
	char copy[sizeof((struct recent_error *)NULL)->text];
	json_t *made = json_string(text);

	if (made)
		return made;
	snprintf(copy, sizeof copy, "%s", text);
	for (char *c = copy; *c; c++)
		*c = (signed char)*c < 0 ? '?' : *c;
	return json_string(copy);
}

static int newest_first(const void *a, const void *b)
{
	const struct recent_error *x = a, *y = b;

	return (x->at < y->at) - (x->at > y->at);
}

static void add_user(json_t *list, const struct recent_user *u)
{
	struct recent_error sorted[RECENT_ERRORS_EACH];

	memcpy(sorted, u->error, sizeof sorted);
	qsort(sorted, RECENT_ERRORS_EACH, sizeof *sorted, newest_first);
	for (const struct recent_error *e = sorted; e < sorted + RECENT_ERRORS_EACH; e++)
		if (e->count)
			json_array_append_new(list,
					      json_pack("{s:I, s:I, s:o, s:o, s:I}", "at", (json_int_t)e->at, "uid",
							(json_int_t)u->uid, "job", text_json(e->job), "text",
							text_json(e->text), "count", (json_int_t)e->count));
}

json_t *recent_errors_json(const struct recent_errors *errors, uid_t viewer)
{
	assert(is_loop_thread());
	json_t *list = json_array();

	for (const struct recent_user *u = errors ? errors->users : NULL; u; u = u->next)
		if (viewer != (uid_t)-1 && (viewer == 0 || viewer == u->uid))
			add_user(list, u);
	return list;
}
