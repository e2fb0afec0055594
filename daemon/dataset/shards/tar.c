/* See tar.h. It reads what Python's tarfile reads, which is what WebDataset uses, with two differences: tarfile takes a
 * damaged header for the archive's end; here it is an error. And tarfile says nothing of an archive without blocks of
 * zeros at its end, as some programs write it, and as it is left when it is cut between two members; here it is noted.
 *
 * A header costs 512 bytes of the file at least, so time and memory are bounded by the shard's length: extended headers
 * are read, at most 1 MiB each, and there are no more than a few before one member. */
#include "dataset/shards/tar.h"

#include <errno.h>
#include <string.h>

enum { BLOCK = TAR_BLOCK, EXTENDED_MAX_BYTES = 1 << 20, EXTENDED_MAX = 8, NAME_MAX_BYTES = MEMBER_NAME_BYTES - 1 };

/* Places in a header. */
enum {
	AT_NAME = 0,
	AT_SIZE = 124,
	AT_CHECKSUM = 148,
	AT_TYPE = 156,
	AT_MAGIC = 257,
	AT_PREFIX = 345,
	N_NAME = 100,
	N_SIZE = 12,
	N_CHECKSUM = 8,
	N_PREFIX = 155,
};

static bool is_zero(const uint8_t *block)
{
	return !*block && !memcmp(block, block + 1, BLOCK - 1);
}

/* Octal digits between blanks, or a big-endian number after a byte 0x80. False for anything else, and for more than 63
 * bits. */
static bool tar_parse_number(const uint8_t *field, size_t n, uint64_t *value)
{
	uint64_t sum = 0;
	size_t i = 0;

	if (*field & 0x80) {
		sum = *field & 0x7f;
		for (i = 1; i < n; i++) {
			if (sum >> 55)
				return false;
			sum = sum << 8 | field[i];
		}
		*value = sum;
		return sum <= INT64_MAX;
	}
	while (i < n && field[i] == ' ')
		i++;
	for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
		sum = sum << 3 | (field[i] - '0');
	*value = sum;
	return i == n || field[i] == ' ' || field[i] == '\0';
}

/* The sum of all bytes, those of the checksum as blanks; old programs took bytes as signed. */
static bool checksum_fits(const uint8_t *block)
{
	uint64_t wanted;
	int64_t is_unsigned = 0, is_signed = 0;

	if (!tar_parse_number(block + AT_CHECKSUM, N_CHECKSUM, &wanted))
		return false;
	for (unsigned i = 0; i < BLOCK; i++) {
		is_unsigned += block[i];
		is_signed += (int8_t)block[i];
	}
	for (unsigned i = AT_CHECKSUM; i < AT_CHECKSUM + N_CHECKSUM; i++) {
		is_unsigned += ' ' - block[i];
		is_signed += ' ' - (int8_t)block[i];
	}
	return (int64_t)wanted == is_unsigned || (int64_t)wanted == is_signed;
}

/* Data is followed by zeros up to a whole block. n: at most INT64_MAX. */
static uint64_t padded(uint64_t n)
{
	return (n + BLOCK - 1) / BLOCK * BLOCK;
}

static bool is_regular(char type)
{
	return type == '0' || type == '\0' || type == '7';
}

/* Links, devices and folders have no data, whatever their size says. */
static bool has_data(char type)
{
	return !strchr("123456", type) || type == '\0';
}

/* What a file is that begins so; NULL: nothing known. */
static const char *other_format(const uint8_t *head, uint64_t n)
{
	static const struct {
		const char *magic, *told;
		size_t n;
	} others[] = {
		{ "\x1f\x8b", "compressed by gzip; expected a plain tar: unpack it (gunzip)", 2 },
		{ "\x28\xb5\x2f\xfd", "compressed by zstd; expected a plain tar: unpack it (unzstd)", 4 },
		{ "BZh", "compressed by bzip2; expected a plain tar: unpack it (bunzip2)", 3 },
		{ "\3757zXZ", "compressed by xz; expected a plain tar: unpack it (unxz)", 6 },
		{ "PK\3\4", "a zip archive: name it zip:FILE", 4 },
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		if (n >= others[i].n && !memcmp(head, others[i].magic, others[i].n))
			return others[i].told;
	}
	return NULL;
}

static int refuse_header(struct shard_reader *r, uint64_t at, const uint8_t *block)
{
	const char *told = at ? "no tar header: damaged?" : other_format(block, BLOCK);

	return shard_reader_refuse(r, at, "%s", told ? told : "no tar header: not a tar archive?");
}

/* ---- names ---- */

static int tar_check_name(struct shard_reader *r, const struct tar_entry *e)
{
	for (size_t i = 0; i < e->n_name; i++) {
		if ((unsigned char)e->name[i] < ' ' || e->name[i] == 0x7f)
			return shard_reader_refuse(r, e->header_at, "a name with a control character");
	}
	return e->n_name ? 0 : shard_reader_refuse(r, e->header_at, "a member without a name");
}

static void name_from_header(struct tar_entry *e, const uint8_t *block)
{
	size_t n_prefix = 0, n = strnlen((const char *)block + AT_NAME, N_NAME);

	/* Old GNU archives have "ustar  " and times in the prefix's place. */
	if (!memcmp(block + AT_MAGIC, "ustar", 6)) {
		n_prefix = strnlen((const char *)block + AT_PREFIX, N_PREFIX);
		memcpy(e->name, block + AT_PREFIX, n_prefix);
		if (n_prefix)
			e->name[n_prefix++] = '/';
	}
	memcpy(e->name + n_prefix, block + AT_NAME, n);
	e->n_name = n_prefix + n;
}

static int tar_take_name(struct shard_reader *r, struct tar_entry *e, const char *name, size_t n)
{
	if (n > NAME_MAX_BYTES)
		return shard_reader_refuse(r, e->header_at, "a name of more than %d bytes", NAME_MAX_BYTES);
	memcpy(e->name, name, n);
	e->n_name = n;
	e->has_name = true;
	return 0;
}

/* ---- extended headers ---- */

static int parse_decimal(const char *text, size_t n, uint64_t *value)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned digit = (unsigned)(text[i] - '0');

		if (digit > 9 || sum > ((uint64_t)INT64_MAX - digit) / 10)
			return -EINVAL;
		sum = sum * 10 + digit;
	}
	*value = sum;
	return n ? 0 : -EINVAL;
}

static bool is_key(const char *key, size_t n, const char *wanted)
{
	return strlen(wanted) == n && !memcmp(key, wanted, n);
}

static int take_record(struct shard_reader *r, struct tar_entry *e, const char *key, size_t n_key, const char *value,
		       size_t n_value)
{
	if (is_key(key, n_key, "path")) {
		if (memchr(value, '\0', n_value))
			return shard_reader_refuse(r, e->header_at, "a name with a zero byte");
		return tar_take_name(r, e, value, n_value);
	}
	if (is_key(key, n_key, "size")) {
		e->has_size = true;
		return parse_decimal(value, n_value, &e->n_bytes) < 0
			       ? shard_reader_refuse(r, e->header_at, "a pax size that is no number")
			       : 0;
	}
	e->is_sparse = e->is_sparse || (n_key > 10 && !memcmp(key, "GNU.sparse", 10));
	return 0;
}

/* Records "LENGTH KEY=VALUE\n", the length that of the whole record. */
static int take_records(struct shard_reader *r, struct tar_entry *e, const char *text, size_t n)
{
	const char *end = text + n;
	int result = 0;

	while (!result && text < end && *text) {
		const char *blank = memchr(text, ' ', (size_t)(end - text)), *equals;
		uint64_t length;

		if (!blank || blank - text > 20 || parse_decimal(text, (size_t)(blank - text), &length) < 0 ||
		    length > (size_t)(end - text) || length < (size_t)(blank - text) + 3 || text[length - 1] != '\n')
			return shard_reader_refuse(r, e->header_at, "a damaged pax header");
		equals = memchr(blank + 1, '=', (size_t)(text + length - 1 - (blank + 1)));
		if (!equals)
			return shard_reader_refuse(r, e->header_at, "a damaged pax header");
		result = take_record(r, e, blank + 1, (size_t)(equals - blank - 1), equals + 1,
				     (size_t)(text + length - 1 - (equals + 1)));
		text += length;
	}
	return result;
}

/* A header of a whole archive says who made it; one that renames or resizes every member makes no sense. */
static int take_global(struct shard_reader *r, struct tar_entry *e, const char *text, size_t n)
{
	struct tar_entry global = { .header_at = e->header_at };
	int result = take_records(r, &global, text, n);

	if (!result && (global.has_name || global.has_size || global.is_sparse))
		return shard_reader_refuse(r, e->header_at, "a global pax header with a path, a size or sparse files");
	return result;
}

static int take_extended(struct shard_reader *r, struct tar_entry *e, char type, uint64_t data_at, uint64_t n)
{
	const uint8_t *data;
	int result;

	if (n > EXTENDED_MAX_BYTES || ++e->n_extended > EXTENDED_MAX)
		return shard_reader_refuse(r, e->header_at,
					   n > EXTENDED_MAX_BYTES ? "an extended header of more than 1 MiB"
								  : "more than 8 extended headers before one member");
	result = shard_reader_get(r, data_at, (size_t)n, &data);
	if (result < 0)
		return result;
	switch (type) {
	case 'L':
		return tar_take_name(r, e, (const char *)data, strnlen((const char *)data, (size_t)n));
	case 'x':
	case 'X':
		return take_records(r, e, (const char *)data, (size_t)n);
	case 'g':
		return take_global(r, e, (const char *)data, (size_t)n);
	default:
		return 0; /* 'K': where a link leads */
	}
}

/* ---- members ---- */

/* WebDataset's own files, such as "__index__", and what lies in such folders. */
static bool is_meta(const char *name, size_t n)
{
	const char *slash = memchr(name, '/', n);
	size_t n_first = slash ? (size_t)(slash - name) : n;

	return n_first >= 4 && !memcmp(name, "__", 2) && !memcmp(name + n_first - 2, "__", 2);
}

bool tar_is_sample(const struct tar_entry *e)
{
	return e->n_name && is_regular(e->type) && e->name[e->n_name - 1] != '/' && !is_meta(e->name, e->n_name);
}

int tar_take(struct members *m, const struct tar_entry *e)
{
	struct shard_reader *r = m->reader;
	int result = tar_check_name(r, e);

	if (result < 0)
		return result;
	if (e->type == 'S' || e->is_sparse)
		return shard_reader_refuse(r, e->header_at, "%.200s is a sparse file, which is not read: pack it whole",
					   e->name);
	if (!tar_is_sample(e))
		return 0;
	return members_add(
		m, &(struct member){ .name = e->name, .n_name = e->n_name, .at = e->data_at, .n_bytes = e->n_bytes });
}

/* Takes the header at e->header_at. *n_data: how many bytes follow it. 1: it is a member's, 0: one before a member. */
static int tar_take_header(struct shard_reader *r, struct tar_entry *e, const uint8_t *block, uint64_t *n_data)
{
	if (!checksum_fits(block))
		return refuse_header(r, e->header_at, block);
	if (!tar_parse_number(block + AT_SIZE, N_SIZE, n_data))
		return shard_reader_refuse(r, e->header_at, "a size that is negative or no number");
	e->type = (char)block[AT_TYPE];
	e->data_at = e->header_at + BLOCK;
	if (e->type && strchr("LKxXg", e->type))
		return take_extended(r, e, e->type, e->data_at, *n_data);
	e->n_bytes = e->has_size ? e->n_bytes : *n_data;
	*n_data = has_data(e->type) ? e->n_bytes : 0;
	/* The zeros that fill the member's last block belong to it: without them the shard ends too early, whatever it had
	 * after them. */
	if (padded(*n_data) > r->n_bytes - e->data_at)
		return shard_reader_refuse(r, e->header_at,
					   "a member of %llu bytes, beyond the shard's end: cut short?",
					   (unsigned long long)*n_data);
	if (!e->has_name)
		name_from_header(e, block);
	e->name[e->n_name] = '\0';
	return 1;
}

/* What follows the last member: nothing, or a block of zeros, which may be cut. */
static int is_end(struct shard_reader *r, uint64_t at, const uint8_t **block)
{
	uint64_t left = r->n_bytes - at;
	const char *told;
	int result = shard_reader_get(r, at, left < BLOCK ? (size_t)left : BLOCK, block);

	if (result < 0 || left >= BLOCK)
		return result < 0 ? result : is_zero(*block);
	told = at ? NULL : other_format(*block, left);
	if (told)
		return shard_reader_refuse(r, at, "%s", told);
	for (uint64_t i = 0; i < left; i++) {
		if ((*block)[i])
			return shard_reader_refuse(r, at,
						   at ? "the shard ends in the middle of a header: cut short?"
						      : "not a tar archive: shorter than a header");
	}
	return 1;
}

int tar_next(struct shard_reader *r, struct tar_entry *e)
{
	uint64_t n_data = 0;
	int result = 0;

	e->has_name = e->has_size = e->is_sparse = false;
	e->n_extended = 0;
	while (!result && e->next_at < r->n_bytes) {
		const uint8_t *block;

		result = is_end(r, e->next_at, &block);
		if (result) {
			r->lacks_end = false;
			return result < 0 ? result : 0;
		}
		e->header_at = e->next_at;
		result = tar_take_header(r, e, block, &n_data);
		e->next_at = e->data_at + padded(n_data);
	}
	if (!result)
		r->lacks_end = true;
	return result;
}

int tar_scan(struct members *m)
{
	struct tar_entry e = { 0 };
	int r = m->reader->n_bytes ? tar_next(m->reader, &e)
				   : shard_reader_refuse(m->reader, 0, "an empty file, not a tar archive");

	while (r > 0) {
		r = tar_take(m, &e);
		r = r < 0 ? r : tar_next(m->reader, &e);
	}
	return r < 0 ? r : members_end(m);
}
