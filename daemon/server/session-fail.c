/* See session-fail.h. */
#include "server/session-fail.h"

#include <assert.h>

#include "server/session-state.h"
#include "base/thread-kind.h"

void session_fail(struct session *s, Batchd__Wire__ErrorCode code, const char *field, const char *text)
{
	assert(is_loop_thread());
	assert(code);
	peer_fail(s->peer, code, field, "%s", text);
}

void session_note(struct session *s, int r, const struct refusal *why)
{
	assert(is_loop_thread());
	if (r == REFUSED)
		session_fail(s, why->code, why->field, why->text);
}
