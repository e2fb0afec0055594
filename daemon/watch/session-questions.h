/* What clients ask for that changes nothing: class names, the status, a recording. Loop thread only. */
#ifndef BATCHD_SESSION_QUESTIONS_H
#define BATCHD_SESSION_QUESTIONS_H

#include "server/session-message.h"

extern const struct message_rule session_questions[]; /* for engine.reader */

#endif
