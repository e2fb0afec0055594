/* What clients ask for that changes nothing: class names, the status, a recording. Loop thread only. */
#ifndef BATCHD_SESSION_QUESTIONS_H
#define BATCHD_SESSION_QUESTIONS_H

#include "session-state.h"

void session_on_classes(struct session *s, uint32_t first);
void session_on_status(struct session *s);
void session_on_trace(struct session *s);

#endif
