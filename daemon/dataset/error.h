/* Why a data set, or a file of one, cannot be opened or read. */
#ifndef BATCHD_DATASET_ERROR_H
#define BATCHD_DATASET_ERROR_H

/* Numbers as the wire's ErrorCode. */
enum dataset_code {
	DATASET_E_INVALID = 3,
	DATASET_E_NOT_FOUND = 5,
	DATASET_E_ACCESS = 6,
	DATASET_E_LIMIT = 7,
	DATASET_E_BAD_DATA = 8,
};

struct dataset_error {
	char text[512]; /* names the file or option and says what to do */
	enum dataset_code code;
};

/* Fills in err and returns `error`, a negative errno. err may be NULL. */
int dataset_fail(struct dataset_error *err, enum dataset_code code, int error, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The same for a failed system call on `what`: "what: Permission denied", with the code that fits. Returns -error. */
int dataset_fail_errno(struct dataset_error *err, int error, const char *what);

#endif
