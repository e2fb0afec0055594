/* One line of text about what went wrong, and the code that goes with it. */
#ifndef BATCHD_CLIENT_ERROR_H
#define BATCHD_CLIENT_ERROR_H

#include <stdbool.h>
#include <stddef.h>

enum { FAULT_TEXT_BYTES = 4096 + 256 }; /* the wire's longest error text and the library's own words */

struct fault {
	int code;   /* enum batchd_code; 0: nothing yet */
	bool told;  /* by the daemon; a GPU error is then about the daemon's use of the GPU */
	bool dtype; /* BATCHD_E_MISMATCH: the job's other trainers have asked for another dtype */
	char text[FAULT_TEXT_BYTES];
};

/* Writes the line and returns code, so that callers can `return fault_set(...)`. */
int fault_set(struct fault *f, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Copies the line for a caller of the library; buf may be NULL. Returns f->code. */
int fault_give(const struct fault *f, char *buf, size_t buf_size);

#endif
