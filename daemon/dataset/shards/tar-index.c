/* See tar-index.h.
 *
 * In an archive each member's header stands right in front of its data, and its data end where the next header begins. So
 * an index in which each offset follows from the member before, up to the archive's end, has every member at its place,
 * if the members before are those of the archive; no header needs to be read for that. Where blocks lie between (long
 * names, folders), and for one member in LOOK_EVERY, the headers are read and compared, so that the index of another
 * shard is found out. */
#include "dataset/shards/tar-index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_EVERY = 64, MAX_DIGITS = 18 };

/* ---- the text ---- */

struct cursor {
	const char *at, *end;
	uint64_t n_lines, line; /* promised; the one that is read, from 1 */
	bool is_old;            /* v1.1, which has no names */
};

/* A member of the text. */
struct place {
	const char *name, *extension;
	size_t n_name, n_extension;
	uint64_t at, n_bytes;
};

/* A word up to a blank or the line's end, which stays; *n 0: there is none. */
static const char *take_word(struct cursor *c, size_t *n)
{
	const char *word = c->at;

	while (c->at < c->end && *c->at != ' ' && *c->at != '\n')
		c->at++;
	*n = (size_t)(c->at - word);
	return word;
}

static bool tar_index_take_number(struct cursor *c, uint64_t *value)
{
	size_t n;
	const char *word = take_word(c, &n);
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		if (word[i] < '0' || word[i] > '9')
			return false;
		sum = sum * 10 + (uint64_t)(word[i] - '0');
	}
	*value = sum;
	return n && n <= MAX_DIGITS;
}

static bool take_byte(struct cursor *c, char byte)
{
	if (c->at == c->end || *c->at != byte)
		return false;
	c->at++;
	return true;
}

static bool tar_index_take_head(struct cursor *c)
{
	size_t n;
	const char *version = take_word(c, &n);

	c->is_old = n == 4 && !memcmp(version, "v1.1", 4);
	return (c->is_old || (n == 4 && !memcmp(version, "v1.2", 4))) && take_byte(c, ' ') &&
	       tar_index_take_number(c, &c->n_lines) && take_byte(c, '\n');
}

/* The next member of the text. 1; 0: there are no more; -1: damaged. */
static int take_place(struct cursor *c, struct place *p)
{
	bool is_first = c->at == c->end || c->at[-1] == '\n';

	if (is_first && c->line == c->n_lines)
		return c->at == c->end ? 0 : -1;
	c->line += is_first;
	p->extension = take_word(c, &p->n_extension);
	if (!take_byte(c, ' ') || !tar_index_take_number(c, &p->at) || !take_byte(c, ' ') ||
	    !tar_index_take_number(c, &p->n_bytes) || !take_byte(c, ' '))
		return -1;
	p->name = take_word(c, &p->n_name);
	return p->n_name && (take_byte(c, ' ') || take_byte(c, '\n')) ? 1 : -1;
}

/* The extension is what follows the first dot of the name's last part. */
static bool place_is_whole(const struct place *p)
{
	size_t n_key;

	for (size_t i = 0; i < p->n_name; i++) {
		if ((unsigned char)p->name[i] < ' ' || p->name[i] == 0x7f)
			return false;
	}
	if (p->n_name >= MEMBER_NAME_BYTES)
		return false;
	return !member_split(p->name, p->n_name, &n_key) ||
	       (n_key + 1 + p->n_extension == p->n_name && !memcmp(p->name + n_key + 1, p->extension, p->n_extension));
}

/* ---- checking ---- */

static int misfit(char why[TAR_INDEX_WHY_BYTES], const struct cursor *c, const char *what)
{
	snprintf(why, TAR_INDEX_WHY_BYTES, "line %llu: %s", (unsigned long long)c->line + 1, what);
	return 1;
}

/* Members that no sample has may be missing in the text: wds2idx leaves hidden files out, and batchctl all of them. */
static bool may_be_missing(const struct tar_entry *e)
{
	size_t n_key;

	return !tar_is_sample(e) || !member_split(e->name, e->n_name, &n_key);
}

/* Reads headers from e->next_at on, up to that of the place. */
static int compare(struct shard_reader *r, struct tar_entry *e, const struct cursor *c, const struct place *p,
		   char why[TAR_INDEX_WHY_BYTES])
{
	int got = tar_next(r, e);

	while (got > 0 && e->data_at < p->at && may_be_missing(e))
		got = tar_next(r, e);
	if (got < 0)
		return got;
	if (!got || e->data_at != p->at)
		return misfit(why, c, "the shard has no member at this offset");
	if (e->n_bytes != p->n_bytes || e->n_name != p->n_name || memcmp(e->name, p->name, p->n_name) != 0 ||
	    e->is_sparse || e->type == 'S')
		return misfit(why, c, "the shard has another member at this offset");
	return 0;
}

static int check_place(struct shard_reader *r, struct tar_entry *e, const struct cursor *c, const struct place *p,
		       bool look, char why[TAR_INDEX_WHY_BYTES])
{
	if (!place_is_whole(p))
		return misfit(why, c, "the name and the extension do not go together");
	if (p->at % TAR_BLOCK || p->at < e->next_at + TAR_BLOCK || p->at > r->n_bytes ||
	    p->n_bytes > r->n_bytes - p->at)
		return misfit(why, c, "the offset is not after the member before, or beyond the shard's end");
	if (look || p->at > e->next_at + TAR_BLOCK)
		return compare(r, e, c, p, why);
	e->next_at = p->at + (p->n_bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
	return 0;
}

/* The last member is compared with its header, and after it only members follow that no sample has. */
static int check_end(struct shard_reader *r, struct tar_entry *e, uint64_t last_at, const struct cursor *c,
		     const struct place *last, char why[TAR_INDEX_WHY_BYTES])
{
	int got;

	e->next_at = last_at;
	got = compare(r, e, c, last, why);
	if (got)
		return got;
	while ((got = tar_next(r, e)) > 0) {
		if (!may_be_missing(e))
			return misfit(why, c, "the shard has more members");
	}
	return got;
}

static int check_text(struct shard_reader *r, const char *text, size_t n, char why[TAR_INDEX_WHY_BYTES])
{
	struct cursor c = { .at = text, .end = text + n };
	struct tar_entry e = { 0 };
	struct place p = { 0 };
	uint64_t i = 0, last_at = 0;
	int got, result = 0;

	why[0] = '\0';
	if (!tar_index_take_head(&c))
		return misfit(why, &c, "expected v1.2 and the number of samples");
	if (c.is_old)
		return misfit(why, &c, "v1.1 has no names of members: write the index again (batchctl index)");
	while ((got = take_place(&c, &p)) > 0 && !result) {
		last_at = e.next_at;
		result = check_place(r, &e, &c, &p, i++ % LOOK_EVERY == 0, why);
	}
	if (result)
		return result;
	if (got < 0 || !i)
		return misfit(why, &c, i ? "damaged, or a name with a blank" : "no member");
	return check_end(r, &e, last_at, &c, &p, why);
}

/* Behind a wrong length a header is looked for among data, so damage may be the text's as well as the shard's. */
bool tar_index_fits(struct shard_reader *r, const char *text, size_t n, char why[TAR_INDEX_WHY_BYTES])
{
	int result = check_text(r, text, n, why);

	if (result < 0) {
		snprintf(why, TAR_INDEX_WHY_BYTES, "%.*s", TAR_INDEX_WHY_BYTES - 1, r->err->text);
		r->err->text[0] = '\0';
	}
	return !result;
}

/* ---- members ---- */

int tar_index_scan(struct members *m, const char *text, size_t n)
{
	struct cursor c = { .at = text, .end = text + n };
	struct tar_entry e = { .type = '0' };
	struct place p;
	int result = 0;

	(void)tar_index_take_head(&c);
	while (!result && take_place(&c, &p) > 0) {
		memcpy(e.name, p.name, p.n_name);
		e.name[p.n_name] = '\0';
		e.n_name = p.n_name;
		e.data_at = p.at;
		e.header_at = p.at - TAR_BLOCK;
		e.n_bytes = p.n_bytes;
		result = tar_take(m, &e);
	}
	return result < 0 ? result : members_end(m);
}

/* ---- writing ---- */

static int put_member(FILE *f, const struct tar_entry *e, size_t n_key, bool is_first)
{
	return fprintf(f, "%s%s %llu %llu %s", is_first ? "" : " ", e->name + n_key + 1, (unsigned long long)e->data_at,
		       (unsigned long long)e->n_bytes, e->name);
}

/* Lines of all samples; a line ends when the next sample begins. */
static int put_members(struct shard_reader *r, FILE *f, uint64_t *n_samples, char why[TAR_INDEX_WHY_BYTES])
{
	struct tar_entry e = { 0 };
	char key[MEMBER_NAME_BYTES] = "";
	size_t n_last = 0, n_key;
	int got;

	while ((got = tar_next(r, &e)) > 0) {
		bool is_new;

		if (may_be_missing(&e) || !member_split(e.name, e.n_name, &n_key))
			continue;
		if (strchr(e.name, ' ') || e.is_sparse || e.type == 'S') {
			snprintf(why, TAR_INDEX_WHY_BYTES, "%.120s: %s", e.name,
				 strchr(e.name, ' ') ? "a name with a blank" : "a sparse file");
			return 1;
		}
		is_new = !*n_samples || n_key != n_last || memcmp(key, e.name, n_key) != 0;
		if (is_new && (*n_samples)++)
			fputc('\n', f);
		put_member(f, &e, n_key, is_new);
		memcpy(key, e.name, n_key);
		n_last = n_key;
	}
	return got;
}

int tar_index_write(struct shard_reader *r, FILE *out, uint64_t *n_samples, char why[TAR_INDEX_WHY_BYTES])
{
	char *lines = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&lines, &n);
	int result;

	*n_samples = 0;
	why[0] = '\0';
	if (!f)
		return dataset_fail_errno(r->err, ENOMEM, r->name);
	result = put_members(r, f, n_samples, why);
	if (fclose(f) && !result)
		result = dataset_fail_errno(r->err, ENOMEM, r->name);
	if (!result && !*n_samples) {
		snprintf(why, TAR_INDEX_WHY_BYTES, "no sample");
		result = 1;
	}
	if (!result)
		fprintf(out, "v1.2 %llu\n%s\n", (unsigned long long)*n_samples, lines);
	free(lines);
	return result;
}
