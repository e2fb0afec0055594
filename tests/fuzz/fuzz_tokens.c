/* Headers of token files and Megatron's indexes: any bytes are refused with text, or describe tokens that lie inside the
 * file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/arrays/token-file.h"

enum { DATA_BYTES = 4096 };

struct bytes {
	const uint8_t *at;
	size_t n;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_bytes(void *arg, uint64_t at, void *to, size_t n)
{
	const struct bytes *b = arg;

	if (at > b->n || n > b->n - at) {
		return -EIO;
	}
	memcpy(to, b->at + at, n);
	return 0;
}

static void check(int r, const struct token_layout *l, uint64_t n_bytes, const struct token_error *err)
{
	if (r < 0) {
		if (r != -EINVAL || !err->text[0] || !memchr(err->text, '\0', sizeof(err->text))) {
			abort();
		}
		return;
	}
	if (!token_dtype_is_known(l->dtype) || l->offset_bytes > n_bytes ||
	    l->n_tokens > (n_bytes - l->offset_bytes) / dtype_bytes(l->dtype)) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = { data, size };
	struct token_error err = { "" };
	struct token_layout l;

	check(token_file_read(data, size < TOKEN_HEAD_BYTES ? size : TOKEN_HEAD_BYTES, size, DTYPE_UINT16, false, &l,
			      &err),
	      &l, size, &err);
	check(token_file_read(data, size < TOKEN_HEAD_BYTES ? size : TOKEN_HEAD_BYTES, size, DTYPE_INT32, true, &l,
			      &err),
	      &l, size, &err);
	check(token_index_read(read_bytes, &b, size, DATA_BYTES, &l, &err), &l, DATA_BYTES, &err);
	return 0;
}
