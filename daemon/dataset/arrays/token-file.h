/* What files of tokens say of themselves: where the tokens are, of which type, and how many.
 *
 *     raw        nothing but tokens (nanoGPT's prepare.py): their type must be known
 *     llm.c      256 int32, of which the first three are a magic number, a version and the number of tokens; then tokens
 *     Megatron   a .bin of tokens, and beside it an .idx with their type and the lengths and places of sequences */
#ifndef BATCHD_TOKEN_FILE_H
#define BATCHD_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

enum { TOKEN_HEAD_BYTES = 1024 };

struct token_layout {
	enum dtype dtype; /* an integer of at most 64 bits with a sign, or of 32 without */
	uint64_t offset_bytes, n_tokens;
};

struct token_error {
	char text[320]; /* without the file's name */
};

bool token_dtype_is_known(enum dtype t);

/* Raw or llm.c. head: the file's first bytes, TOKEN_HEAD_BYTES of them if it has as many. dtype: of the tokens if there
 * is no header; with is_given a header must not contradict it. 0, or -EINVAL with err. */
int token_file_read(const void *head, size_t n_head, uint64_t file_bytes, enum dtype dtype, bool is_given,
		    struct token_layout *out, struct token_error *err);

/* Reads n bytes from `at` on: 0 or negative errno. */
typedef int token_read_fn(void *arg, uint64_t at, void *to, size_t n);

/* Megatron: reads a whole .idx in pieces. The sequences must lie in the .bin one after the other, as Megatron's own
 * builder writes them. 0, the error of `read`, or -EINVAL with err. */
int token_index_read(token_read_fn *read, void *arg, uint64_t index_bytes, uint64_t data_bytes,
		     struct token_layout *out, struct token_error *err);

#endif
