/* Codes and texts of errors. Most codes that come from a daemon are the wire's numbers, negated; the other codes arise
 * in this library. */
#include "link/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "batchd.h"

int fault_set(struct fault *f, int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(f->text, sizeof f->text, fmt, args);
	va_end(args);
	f->code = code;
	f->told = f->dtype = false;
	return code;
}

int fault_give(const struct fault *f, char *buf, size_t buf_size)
{
	if (buf && buf_size)
		snprintf(buf, buf_size, "%s", f->text);
	return f->code;
}

const char *batchd_code_name(int code)
{
	switch (code) {
	case BATCHD_OK:
		return "OK";
	case BATCHD_END:
		return "END";
	case BATCHD_AGAIN:
		return "AGAIN";
	case BATCHD_E_PROTOCOL:
		return "PROTOCOL";
	case BATCHD_E_VERSION:
		return "VERSION";
	case BATCHD_E_INVALID:
		return "INVALID";
	case BATCHD_E_MISMATCH:
		return "MISMATCH";
	case BATCHD_E_NOT_FOUND:
		return "NOT_FOUND";
	case BATCHD_E_ACCESS:
		return "ACCESS";
	case BATCHD_E_LIMIT:
		return "LIMIT";
	case BATCHD_E_BAD_DATA:
		return "BAD_DATA";
	case BATCHD_E_FENCED:
		return "FENCED";
	case BATCHD_E_BEHIND:
		return "BEHIND";
	case BATCHD_E_SHUTDOWN:
		return "SHUTDOWN";
	case BATCHD_E_INTERNAL:
		return "INTERNAL";
	case BATCHD_E_CONNECT:
		return "CONNECT";
	case BATCHD_E_LOST:
		return "LOST";
	case BATCHD_E_NOMEM:
		return "NOMEM";
	case BATCHD_E_FORKED:
		return "FORKED";
	case BATCHD_E_CANCELLED:
		return "CANCELLED";
	case BATCHD_E_GPU:
		return "GPU";
	case BATCHD_E_STALLED:
		return "STALLED";
	case BATCHD_E_PRODUCER:
		return "PRODUCER";
	case BATCHD_E_CLOSED:
		return "CLOSED";
	default:
		return "UNKNOWN";
	}
}
