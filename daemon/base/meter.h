/* Counts the memory that a thread takes on behalf of a client, and asks before it takes more. The names of a data set
 * grow on an I/O thread with the contents of a client's files, and only the daemon's accounts know how much that client
 * may still have. */
#ifndef BATCHD_METER_H
#define BATCHD_METER_H

#include <errno.h>
#include <stdint.h>

/* Requested at once: this, or a quarter of the granted bytes, so that a million names ask only some dozens of times. */
enum { METER_STEP_BYTES = 64 << 10, METER_STEP_PART = 4 };

struct meter {
	/* Grants so many more bytes: 0, or negative errno. Called on the thread that takes them. */
	int (*more)(void *arg, uint64_t bytes);
	void *arg;
	uint64_t used, granted;
};

/* Called before the memory is taken. m may be NULL: there is no limit. 0, or the error of `more`; then nothing is
 * counted. */
static inline int meter_take(struct meter *m, uint64_t bytes)
{
	if (!m)
		return 0;
	if (bytes > UINT64_MAX / 2)
		return -EDQUOT;
	uint64_t wanted = m->used + bytes;
	if (wanted > m->granted) {
		uint64_t step = METER_STEP_BYTES + m->granted / METER_STEP_PART;
		if (step < wanted - m->granted)
			step = wanted - m->granted;
		int r = m->more(m->arg, step);
		if (r) /* a smaller step may succeed */
			r = m->more(m->arg, step = wanted - m->granted);
		if (r)
			return r;
		m->granted += step;
	}
	m->used = wanted;
	return 0;
}

static inline void meter_give(struct meter *m, uint64_t bytes)
{
	if (m)
		m->used -= bytes < m->used ? bytes : m->used;
}

#endif
