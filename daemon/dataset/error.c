/* See error.h. */
#include "dataset/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int dataset_fail(struct dataset_error *err, enum dataset_code code, int error, const char *fmt, ...)
{
	va_list ap;

	if (err) {
		err->code = code;
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
		va_end(ap);
	}
	return error;
}

static enum dataset_code dataset_error_code_of(int error)
{
	switch (error) {
	case ENOENT:
	case ENOTDIR:
	case ENODEV:
	case ENXIO:
		return DATASET_E_NOT_FOUND;
	case EACCES:
	case EPERM:
	case ELOOP:
	case EXDEV:
		return DATASET_E_ACCESS;
	case ENOMEM:
	case EMFILE:
	case ENFILE:
	case EFBIG:
	case EDQUOT:
		return DATASET_E_LIMIT;
	default:
		return DATASET_E_BAD_DATA;
	}
}

/* Explains refused links: the kernel's texts ("Too many levels", "Invalid cross-device link") would mislead. */
static const char *text_of(int error, char *buf, size_t size)
{
	if (error == ELOOP)
		return "a symbolic link, which is only followed in data sets that the configuration names";
	if (error == EACCES && access("/proc/self/fd", F_OK) < 0)
		return "batchd cannot tell who may read it, because /proc is not mounted here: mount it";
	if (error == EBUSY)
		return "another process holds a lease on the file and does not give it up";
	if (error == EXDEV)
		return "leads out of the data set's folder, or onto something mounted there since it was opened";
	if (error == EDQUOT) { /* from a meter; reading meets no disk quota */
		return "more names than there is memory for";
	}
	return strerror_r(error, buf, size);
}

int dataset_fail_errno(struct dataset_error *err, int error, const char *what)
{
	char buf[128];

	return dataset_fail(err, dataset_error_code_of(error), -error, "%s: %s", what,
			    text_of(error, buf, sizeof(buf)));
}
