/* One scalar key of the configuration: its kind, range and default, and the operations on it. Lists are config.c's. */
#ifndef BATCHD_CONFIG_KEY_H
#define BATCHD_CONFIG_KEY_H

#include "config/config.h"

enum kind {
	KIND_PATH,       /* char *, absolute */
	KIND_ADDRESS,    /* char *, metrics-address.h's */
	KIND_MODE,       /* mode_t */
	KIND_GROUP,      /* gid_t */
	KIND_COUNT,      /* uint32_t */
	KIND_COUNT_AUTO, /* uint32_t, auto is 0 */
	KIND_NUMBER,     /* uint64_t */
	KIND_SIZE,       /* uint64_t */
	KIND_SIZE_AUTO,  /* uint64_t, auto is 0 */
	KIND_CACHE,      /* uint64_t, off is 0 */
	KIND_DURATION,   /* uint64_t */
	KIND_DURATION_NEVER,
	KIND_SHARE,   /* double */
	KIND_LEVEL,   /* enum log_level */
	KIND_SWITCH,  /* enum config_switch */
	KIND_FILLING, /* enum config_filling */
};

struct key {
	const char *name; /* "workers"; "cache.jpeg" is jpeg under cache */
	size_t offset;    /* in struct config */
	enum kind kind;
	bool live;            /* a reload applies it at once */
	const char *standard; /* the default, in the file's syntax; NULL: nothing */
	uint64_t min, max;    /* in the value's unit */
};

extern const struct key config_keys[]; /* ends with a name of NULL */

const struct key *key_find(const char *name); /* NULL: there is no such key */
/* Text for a message: the expected value, such as "auto or a whole number from 1 to 1024". */
void key_expected(const struct key *k, char *buf, size_t size);

/* Sets it from text. 0, -EINVAL with err->text ("workers: 'x' is not valid; expected ..."), -ENOMEM. */
int key_set(struct config *c, const struct key *k, const char *text, struct config_error *err);
bool key_same(const struct key *k, const struct config *a, const struct config *b);
void key_finish(struct config *c, const struct key *k);

#endif
