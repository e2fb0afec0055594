/* See log-ratelimit.h. The table is searched linearly: it has a few entries in a bad minute, none in a good one. */
#include "base/log-ratelimit.h"

#include <stdio.h>
#include <string.h>

static struct repeat *log_ratelimit_find(struct log_ratelimit *r, const struct repeat *like)
{
	for (unsigned i = 0; i < r->n_kinds; i++) {
		struct repeat *k = &r->kinds[i];
		if (k->uid == like->uid && !strcmp(k->name, like->name) && !strcmp(k->detail, like->detail))
			return k;
	}
	return NULL;
}

bool log_ratelimit_note(struct log_ratelimit *r, uid_t uid, const char *name, const char *detail, unsigned at_once)
{
	struct repeat like = { .uid = uid };
	snprintf(like.name, sizeof(like.name), "%s", name);
	snprintf(like.detail, sizeof(like.detail), "%s", detail ? detail : "");
	struct repeat *k = log_ratelimit_find(r, &like);
	if (!k && r->n_kinds == LOG_RATELIMIT_KINDS) {
		r->n_others++;
		return false;
	}
	if (!k) {
		k = &r->kinds[r->n_kinds++];
		*k = like;
	}
	if (k->n_told < at_once) {
		k->n_told++;
		return true;
	}
	k->n_more++;
	return false;
}

bool log_ratelimit_tick(struct log_ratelimit *r, void (*say)(const struct repeat *kind, uint64_t n_more))
{
	unsigned n = 0;
	for (unsigned i = 0; i < r->n_kinds; i++) {
		struct repeat k = r->kinds[i];
		if (!k.n_more)
			continue;
		say(&k, k.n_more);
		k.n_more = 0;
		r->kinds[n++] = k;
	}
	r->n_kinds = n;
	if (r->n_others)
		say(NULL, r->n_others);
	r->n_others = 0;
	return n > 0;
}
