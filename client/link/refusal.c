/* The socket's mode and group say which users may connect. The user database says whether this user is in that group,
 * and the process whether it has the group yet: a session keeps the groups that it began with. */
#include "link/refusal.h"

#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "address.h"

enum { NAME_BYTES = 64, ENTRY_BYTES = 16384, MAX_GROUPS = 1024 };

/* A number where the user has no name. */
static void name_user(uid_t uid, char name[NAME_BYTES])
{
	struct passwd entry, *found = NULL;
	char *bytes = malloc(ENTRY_BYTES);

	if (bytes && getpwuid_r(uid, &entry, bytes, ENTRY_BYTES, &found) == 0 && found)
		snprintf(name, NAME_BYTES, "%s", found->pw_name);
	else
		snprintf(name, NAME_BYTES, "%u", (unsigned)uid);
	free(bytes);
}

static void name_group(gid_t gid, char name[NAME_BYTES])
{
	struct group entry, *found = NULL;
	char *bytes = malloc(ENTRY_BYTES);

	if (bytes && getgrgid_r(gid, &entry, bytes, ENTRY_BYTES, &found) == 0 && found)
		snprintf(name, NAME_BYTES, "%s", found->gr_name);
	else
		snprintf(name, NAME_BYTES, "%u", (unsigned)gid);
	free(bytes);
}

/* Whether the database has the user in the group, regardless of the groups of this process. */
static bool is_listed(const char *user, gid_t gid)
{
	gid_t *groups = calloc(MAX_GROUPS, sizeof *groups);
	int n = MAX_GROUPS;
	bool found = false;

	if (groups && getgrouplist(user, getegid(), groups, &n) >= 0)
		for (int i = 0; i < n; i++)
			found |= groups[i] == gid && gid != getegid();
	free(groups);
	return found;
}

static bool is_socket(const char *address, struct stat *st)
{
	return stat(address, st) == 0 && S_ISSOCK(st->st_mode);
}

void refusal_describe(const char *address, char *out, size_t size)
{
	const char *whose = strcmp(address, ADDRESS_SYSTEM) == 0 ? "the system's batchd" : "the batchd";
	char user[NAME_BYTES], owner[NAME_BYTES], group[NAME_BYTES];
	struct stat st;

	name_user(geteuid(), user);
	if (!is_socket(address, &st)) {
		snprintf(out, size, "user %s may not use %s at %s: its directory does not let this user in", user,
			 whose, address);
		return;
	}
	name_user(st.st_uid, owner);
	name_group(st.st_gid, group);
	if (!(st.st_mode & S_IWGRP))
		snprintf(out, size, "user %s may not use %s at %s: it serves user %s alone (mode %04o; socket_mode)",
			 user, whose, address, owner, (unsigned)st.st_mode & 07777);
	else if (is_listed(user, st.st_gid))
		snprintf(
			out, size,
			"user %s may not use %s at %s yet: this session began before the user was in group %s; log in again",
			user, whose, address, group);
	else
		snprintf(
			out, size,
			"user %s may not use %s at %s, which is for group %s: `usermod -aG %s %s` as root and a new login "
			"let the user in",
			user, whose, address, group, group, user);
}
