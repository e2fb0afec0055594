/* Where a trainer wants to go on: at a place, where its group is, or with batches of its own. Loop thread only. */
#ifndef BATCHD_SESSION_SEEK_H
#define BATCHD_SESSION_SEEK_H

#include "server/session-message.h"

int session_on_seek(struct session *s, const struct message *m, struct refusal *why);
int session_on_join(struct session *s, const struct message *m, struct refusal *why);
int session_on_indices(struct session *s, const struct message *m, struct refusal *why);

#endif
