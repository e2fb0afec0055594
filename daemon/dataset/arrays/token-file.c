/* See token-file.h. Files are little-endian, as the machines are on which this runs. */
#include "dataset/arrays/token-file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
	INDEX_HEAD_BYTES = 34,
	PIECE = 4096, /* sequences of an index that are read at a time */
};

static const struct {
	int32_t magic, version;
	enum dtype dtype;
} headers[] = {
	{ 20240520, 1, DTYPE_UINT16 }, /* llm.c, tokens of GPT-2 */
	{ 20240801, 7, DTYPE_UINT32 }, /* llm.c, tokens of Llama 3 */
};

/* By Megatron's code; 0 is none. Codes 6 and 7 are floats. */
static const struct {
	bool is_known;
	enum dtype dtype;
} codes[] = {
	[1] = { true, DTYPE_UINT8 }, [2] = { true, DTYPE_INT8 },  [3] = { true, DTYPE_INT16 },
	[4] = { true, DTYPE_INT32 }, [5] = { true, DTYPE_INT64 }, [8] = { true, DTYPE_UINT16 },
};

__attribute__((format(printf, 2, 3))) static int bad(struct token_error *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

bool token_dtype_is_known(enum dtype t)
{
	return t == DTYPE_UINT8 || t == DTYPE_INT8 || t == DTYPE_INT16 || t == DTYPE_UINT16 || t == DTYPE_INT32 ||
	       t == DTYPE_UINT32 || t == DTYPE_INT64;
}

static int read_raw(uint64_t file_bytes, enum dtype dtype, struct token_layout *out, struct token_error *err)
{
	size_t size = dtype_bytes(dtype);

	if (file_bytes % size)
		return bad(err,
			   "%llu bytes are no whole number of %s tokens: cut short, or no file of tokens of this type "
			   "(dtype=...)",
			   (unsigned long long)file_bytes, dtype_name(dtype));
	*out = (struct token_layout){ .dtype = dtype, .n_tokens = file_bytes / size };
	return 0;
}

static int token_file_read_header(const int32_t head[3], uint64_t file_bytes, unsigned kind, struct token_layout *out,
				  struct token_error *err)
{
	uint64_t size = dtype_bytes(headers[kind].dtype), n;

	if (head[1] != headers[kind].version)
		return bad(err, "version %d of llm.c's format %d: expected %d", head[1], head[0],
			   headers[kind].version);
	if (head[2] < 0)
		return bad(err, "damaged header: it promises %d tokens", head[2]);
	n = (uint64_t)head[2];
	if (file_bytes < TOKEN_HEAD_BYTES || (file_bytes - TOKEN_HEAD_BYTES) / size < n)
		return bad(err, "%llu bytes long, but its header promises %llu tokens: cut short?",
			   (unsigned long long)file_bytes, (unsigned long long)n);
	if ((file_bytes - TOKEN_HEAD_BYTES) / size > n)
		return bad(
			err,
			"its header promises %llu tokens of %s, and it has %llu: was it written before the last were "
			"added, or are they of another type?",
			(unsigned long long)n, dtype_name(headers[kind].dtype),
			(unsigned long long)((file_bytes - TOKEN_HEAD_BYTES) / size));
	*out = (struct token_layout){ .dtype = headers[kind].dtype, .offset_bytes = TOKEN_HEAD_BYTES, .n_tokens = n };
	return 0;
}

/* ---- what is no file of tokens ---- */

static bool starts_with(const unsigned char *head, size_t n, const char *magic, size_t n_magic)
{
	return n >= n_magic && !memcmp(head, magic, n_magic);
}

/* Two bytes may well be a token: a pickle is known by what its writers put after them. */
static bool is_pickle(const unsigned char *head, size_t n, uint64_t file_bytes)
{
	uint64_t frame;

	if (n < 16 || head[0] != 0x80 || head[1] < 2 || head[1] > 5)
		return false;
	memcpy(&frame, head + 3, sizeof(frame));
	return head[1] >= 4 ? head[2] == 0x95 && frame && frame <= file_bytes
			    : starts_with(head + 2, n - 2, "\x8a\x0a\x6c\xfc\x9c\x46", 6) || /* torch.save, once */
				      (strchr("]}(", head[2]) && head[3] == 'q');
}

static bool is_text(const unsigned char *head, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (head[i] != '\t' && head[i] != '\n' && head[i] != '\r' && (head[i] < ' ' || head[i] > '~'))
			return false;
	}
	return n >= 64;
}

/* What a file is whose first bytes might be tokens, too; NULL: tokens. */
static const char *other_kind(const unsigned char *head, size_t n, uint64_t file_bytes)
{
	enum { TAR_MAGIC = 257, SAFETENSORS_JSON = 8 };
	static const struct {
		const char *magic, *kind;
		size_t n;
	} kinds[] = {
		{ "PAR1", "a Parquet file", 4 },
		{ "ARROW1\0\0", "an Arrow file", 8 },
		{ "\xff\xff\xff\xff", "an Arrow stream", 4 },
		{ "\x89HDF\r\n\x1a\n", "an HDF5 file", 8 },
		{ "\3757zXZ", "compressed by xz", 6 },
	};
	uint64_t json;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (starts_with(head, n, kinds[i].magic, kinds[i].n))
			return kinds[i].kind;
	}
	if (n > TAR_MAGIC && starts_with(head + TAR_MAGIC, n - TAR_MAGIC, "ustar", 5))
		return "a tar archive";
	if (n < 16)
		return NULL;
	memcpy(&json, head, sizeof(json));
	return json > 0 && json < file_bytes && starts_with(head + SAFETENSORS_JSON, 2, "{\"", 2) ? "a safetensors file"
												  : NULL;
}

/* Every second number, the upper half of a uint32, is nearly nothing, and the others are not. */
static bool looks_like_uint32(const unsigned char *head, size_t n)
{
	bool has_low = false;

	for (size_t i = 0; i + 4 <= n; i += 4) {
		if (head[i + 3] || head[i + 2] > 3)
			return false;
		has_low |= head[i + 1] || head[i] > 3;
	}
	return n >= 64 && has_low;
}

/* The upper half of each int64 is nothing. */
static bool looks_like_int64(const unsigned char *head, size_t n)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		if (head[i + 4] || head[i + 5] || head[i + 6] || head[i + 7])
			return false;
	}
	return looks_like_uint32(head, n);
}

static int refuse_others(const unsigned char *head, size_t n, uint64_t file_bytes, enum dtype dtype, bool is_given,
			 struct token_error *err)
{
	enum { FIRST = 20240000, LAST = 20249999 }; /* llm.c's magic numbers are dates */
	const char *kind;
	int32_t word = 0;

	if (n >= sizeof(word))
		memcpy(&word, head, sizeof(word));
	if (starts_with(head, n, "\x93NUMPY", 6))
		return bad(err,
			   "a .npy file, which has a header: name it npy:FILE, or write its tokens by array.tofile");
	if (starts_with(head, n, "MMIDIDX\0\0", 9))
		return bad(err, "an index of Megatron's: its name has to end in .idx, with the .bin beside it");
	if (starts_with(head, n, "PK\3\4", 4))
		return bad(err, "a zip archive, as .npz files and those of torch.save are: write the tokens by "
				"array.tofile");
	if (starts_with(head, n, "\x1f\x8b\x08", 3) || starts_with(head, n, "\x28\xb5\x2f\xfd", 4))
		return bad(err, "compressed: unpack it");
	if (is_pickle(head, n, file_bytes))
		return bad(err, "a pickle, which is never read: write the tokens by array.tofile");
	if (word >= FIRST && word <= LAST)
		return bad(err, "llm.c's format %d, which is not read", word);
	word = (int32_t)__builtin_bswap32((uint32_t)word);
	if (word >= FIRST && word <= LAST)
		return bad(err, "llm.c's format %d with its bytes the other way round", word);
	if (dtype_bytes(dtype) > 1 && is_text(head, n))
		return bad(err, "a text: expected tokens, as whole numbers of %zu bytes", dtype_bytes(dtype));
	kind = is_given ? NULL : other_kind(head, n, file_bytes);
	if (kind)
		return bad(err,
			   "%s: expected tokens one after the other, as array.tofile writes them; say dtype=... "
			   "if these are",
			   kind);
	kind = is_given || dtype != DTYPE_UINT16 ? NULL
	       : looks_like_int64(head, n)       ? "int64"
	       : looks_like_uint32(head, n)      ? "uint32"
						 : NULL;
	return kind ? bad(err, "looks like tokens of %s: say dtype=%s, or dtype=uint16 if they are", kind, kind) : 0;
}

int token_file_read(const void *head, size_t n_head, uint64_t file_bytes, enum dtype dtype, bool is_given,
		    struct token_layout *out, struct token_error *err)
{
	int32_t words[3] = { 0 };

	if (n_head >= sizeof(words))
		memcpy(words, head, sizeof(words));
	for (unsigned kind = 0; kind < sizeof(headers) / sizeof(headers[0]); kind++) {
		if (words[0] != headers[kind].magic)
			continue;
		if (is_given && dtype != headers[kind].dtype)
			return bad(err, "llm.c's header says that its tokens are %s, not %s: leave dtype out",
				   dtype_name(headers[kind].dtype), dtype_name(dtype));
		return token_file_read_header(words, file_bytes, kind, out, err);
	}
	if (refuse_others(head, n_head, file_bytes, dtype, is_given, err))
		return -EINVAL;
	return read_raw(file_bytes, dtype, out, err);
}

/* ---- Megatron ---- */

struct index {
	token_read_fn *read;
	void *arg;
	uint64_t n_sequences;
	uint64_t next; /* where the next sequence has to begin, in bytes */
	size_t size;   /* of a token */
	struct token_error *err;
};

static int check_piece(struct index *x, uint64_t first, size_t n)
{
	int32_t lengths[PIECE];
	int64_t pointers[PIECE];
	int r = x->read(x->arg, INDEX_HEAD_BYTES + first * sizeof(*lengths), lengths, n * sizeof(*lengths));

	r = r < 0 ? r
		  : x->read(x->arg, INDEX_HEAD_BYTES + x->n_sequences * sizeof(*lengths) + first * sizeof(*pointers),
			    pointers, n * sizeof(*pointers));
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (lengths[i] < 0)
			return bad(x->err, "damaged index: sequence %llu has %d tokens",
				   (unsigned long long)(first + i), lengths[i]);
		if (pointers[i] < 0 || (uint64_t)pointers[i] != x->next)
			return bad(
				x->err,
				"sequence %llu begins at byte %lld, not where the one before it ends (%llu): expected an "
				"index as Megatron's own builder writes it",
				(unsigned long long)(first + i), (long long)pointers[i], (unsigned long long)x->next);
		x->next += (uint64_t)lengths[i] * x->size; /* at most 2^31 * 8 each: n_sequences fit into a file */
	}
	return r;
}

/* magic 9, version 8, code 1, sequences 8, documents 8 */
static int read_index_head(struct index *x, uint64_t index_bytes, struct token_layout *out)
{
	unsigned char head[INDEX_HEAD_BYTES];
	uint64_t version, n_documents, room;
	int r;

	if (index_bytes < sizeof(head))
		return bad(
			x->err,
			"not an index of Megatron's: it has %llu bytes; say dtype=... to read the .bin beside it without it",
			(unsigned long long)index_bytes);
	r = x->read(x->arg, 0, head, sizeof(head));
	if (r < 0)
		return r;
	memcpy(&version, head + 9, sizeof(version));
	memcpy(&x->n_sequences, head + 18, sizeof(x->n_sequences));
	memcpy(&n_documents, head + 26, sizeof(n_documents));
	if (memcmp(head, "MMIDIDX\0\0", 9))
		return bad(x->err, "not an index of Megatron's (MMIDIDX, version 1): say dtype=... to read the .bin "
				   "beside it without an index");
	if (version != 1)
		return bad(
			x->err,
			"version %llu of Megatron's index: expected 1; the .bin is read alone, with dtype=..., where no "
			".idx lies beside it",
			(unsigned long long)version);
	if (head[17] >= sizeof(codes) / sizeof(codes[0]) || !codes[head[17]].is_known)
		return bad(x->err, "its tokens have type %u: expected 1 to 5 or 8, whole numbers", head[17]);
	room = index_bytes - sizeof(head);
	if (x->n_sequences > room / 12 || n_documents > (room - x->n_sequences * 12) / 8)
		return bad(x->err,
			   "%llu bytes long, but its header promises %llu sequences and %llu documents: cut short?",
			   (unsigned long long)index_bytes, (unsigned long long)x->n_sequences,
			   (unsigned long long)n_documents);
	if (x->n_sequences > UINT32_MAX) { /* a sparse file may be of any length, and each is read */
		return bad(x->err, "%llu sequences: expected at most 2^32 - 1", (unsigned long long)x->n_sequences);
	}
	out->dtype = codes[head[17]].dtype;
	x->size = dtype_bytes(out->dtype);
	return 0;
}

int token_index_read(token_read_fn *read, void *arg, uint64_t index_bytes, uint64_t data_bytes,
		     struct token_layout *out, struct token_error *err)
{
	struct index x = { .read = read, .arg = arg, .err = err };
	int r;

	*out = (struct token_layout){ 0 };
	r = read_index_head(&x, index_bytes, out);
	for (uint64_t at = 0; r == 0 && at < x.n_sequences; at += PIECE) {
		r = check_piece(&x, at, x.n_sequences - at < PIECE ? (size_t)(x.n_sequences - at) : PIECE);
		if (r == 0 && x.next > data_bytes)
			return bad(
				err,
				"it describes at least %llu bytes of tokens, but the .bin beside it has %llu: cut short?",
				(unsigned long long)x.next, (unsigned long long)data_bytes);
	}
	if (r == 0)
		out->n_tokens = x.next / x.size;
	return r;
}
