/* Names of users and groups become numbers when they are read: a misspelt name would otherwise silently lock out the
 * users that it was meant to admit. */
#include "base/user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/parse.h"

enum { MAX_ID_BUFFER = 65536 }; /* for one entry of the database */

/* Parses a number without querying the database. 0, or -ENOENT: not a valid number. */
static int id_number(const char *text, uint32_t *id)
{
	uint64_t number;

	if (number_parse(text, &number) < 0)
		return -ENOENT;
	if (number >= UINT32_MAX) /* (uid_t)-1 means no user in every system call */
		return -ENOENT;
	*id = (uint32_t)number;
	return 0;
}

int user_parse(const char *text, uid_t *uid)
{
	struct passwd pw, *found = NULL;

	if (id_number(text, uid) == 0)
		return 0;

	char *buf = malloc(MAX_ID_BUFFER);
	int e = buf ? getpwnam_r(text, &pw, buf, MAX_ID_BUFFER, &found) : ENOMEM;

	if (found)
		*uid = pw.pw_uid;
	free(buf);
	return found ? 0 : e ? -e : -ENOENT;
}

int group_parse(const char *text, gid_t *gid)
{
	struct group gr, *found = NULL;

	if (id_number(text, gid) == 0)
		return 0;

	char *buf = malloc(MAX_ID_BUFFER);
	int e = buf ? getgrnam_r(text, &gr, buf, MAX_ID_BUFFER, &found) : ENOMEM;

	if (found)
		*gid = gr.gr_gid;
	free(buf);
	return found ? 0 : e ? -e : -ENOENT;
}
