/* The rules of clients' messages: in which states of a session a message is legal, and which function takes it. session.c
 * has those of trainers, producers and clients of single images. The daemon's root adds those of messages that only ask
 * (engine.reader, from session-questions.c), so that sessions do not depend on the status. Loop thread only. */
#ifndef BATCHD_SESSION_MESSAGE_H
#define BATCHD_SESSION_MESSAGE_H

#include "server/refusal.h"
#include "server/session-state.h"

#define SESSION_IN(state) (1u << SESSION_##state)
/* Every state in which all messages are heard: a draining session's are ignored, but for Close. */
#define SESSION_IN_ANY \
	(SESSION_IN(GREETED) | SESSION_IN(OPENING) | SESSION_IN(ATTACHED) | SESSION_IN(PRODUCING) | SESSION_IN(LOADING))
#define CLIENT_MESSAGE(name) BATCHD__WIRE__CLIENT_MESSAGE__BODY_##name

struct message {
	const Batchd__Wire__ClientMessage *body; /* checked */
	int *fds;                                /* that came with it; one that is taken is set to -1 */
	unsigned n_fds;
};

struct message_rule {
	Batchd__Wire__ClientMessage__BodyCase message;
	unsigned states; /* in which it is legal: SESSION_IN */
	/* 0, or REFUSED with the reason, which ends the session. */
	int (*take)(struct session *s, const struct message *m, struct refusal *why); /* NULL: the end of the rules */
	const char *otherwise;      /* the refusal in other states, after the message's name */
	enum session_state becomes; /* the state of a greeted client afterwards; GREETED: the message changes no role */
};

/* Of any message but Hello. */
const struct message_rule *session_rule(const struct engine *e, Batchd__Wire__ClientMessage__BodyCase message);

#endif
