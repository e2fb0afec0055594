/* Trainers that do not get on: see stall.c for when that is said of one. Loop thread only. */
#ifndef BATCHD_STALL_H
#define BATCHD_STALL_H

struct engine;
struct session;

void stall_watch(struct engine *e);     /* (re)starts or stops the clock */
void stall_forget(struct session *s);   /* it leaves its job */
void stall_tell(const struct session *newcomer); /* which others of its job do not get on, as those have heard who
                                                  * were there */

#endif
