/* See mounts.h. proc(5) describes the list: "36 35 98:0 /root /mount/point options - type source options". */
#include "base/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { FIRST_BYTES = 16384, MOST_LINKS = 40 };

/* ---- the list ---- */

/* The whole file, which has no size. NULL: errno says why. */
static char *read_text(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (!f)
		return NULL;
	if (getdelim(&text, &size, '\0', f) < 0) {
		free(text);
		text = NULL;
	}
	fclose(f);
	return text;
}

/* Octal numbers stand for blanks, tabs, line feeds and backslashes. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *at = text; *at; to++) {
		if (at[0] == '\\' && at[1] && at[2] && at[3]) {
			*to = (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0'));
			at += 4;
		} else {
			*to = *at++;
		}
	}
	*to = '\0';
}

/* Cuts the line into pieces that the mount points to. False: it is not such a line. */
static bool read_line(char *line, struct mount *out)
{
	char *piece[5] = { NULL }, *rest = strstr(line, " - "), *save;
	unsigned major, minor;

	if (!rest)
		return false;
	*rest = '\0';
	out->type = strtok_r(rest + 3, " ", &save);
	for (int i = 0; i < 5; i++)
		piece[i] = strtok_r(i ? NULL : line, " ", &save);
	if (!out->type || !piece[4] || sscanf(piece[2], "%u:%u", &major, &minor) != 2)
		return false;
	out->id = strtoull(piece[0], NULL, 10);
	out->dev = makedev(major, minor);
	unescape(piece[4]);
	out->path = piece[4];
	return true;
}

int mounts_read(struct mounts *m)
{
	char *save = NULL;
	size_t n = 1;

	*m = (struct mounts){ .text = read_text("/proc/self/mountinfo") };
	if (!m->text)
		return errno ? -errno : -EIO;
	for (const char *at = m->text; *at; at++)
		n += *at == '\n';
	m->list = calloc(n, sizeof(*m->list));
	if (!m->list) {
		mounts_finish(m);
		return -ENOMEM;
	}
	for (char *line = strtok_r(m->text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		m->n += read_line(line, &m->list[m->n]);
	return 0;
}

void mounts_finish(struct mounts *m)
{
	free(m->text);
	free(m->list);
	*m = (struct mounts){ 0 };
}

bool mount_is_local(const struct mount *mount)
{
	/* As dataset/file.c has them by number; and those that are no disks but answer by themselves. */
	static const char *const local[] = { "ext2",     "ext3",     "ext4",    "xfs",      "btrfs", "tmpfs",
					     "ramfs",    "f2fs",     "zfs",     "bcachefs", "erofs", "squashfs",
					     "jfs",      "nilfs2",   "vfat",    "exfat",    "ntfs3", "udf",
					     "iso9660",  "reiserfs", "overlay", "rootfs",   "proc",  "sysfs",
					     "devtmpfs", "devpts",   "cgroup2", "hugetlbfs" };

	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
		if (!strcmp(mount->type, local[i]))
			return true;
	}
	return false;
}

/* ---- looking up ---- */

const struct mount *mounts_of_dev(const struct mounts *m, uint64_t dev)
{
	for (size_t i = 0; i < m->n; i++) {
		if (m->list[i].dev == dev)
			return &m->list[i];
	}
	return NULL;
}

const struct mount *mounts_of_fd(const struct mounts *m, int fd)
{
	char path[64], *text;
	const char *line;
	uint64_t id = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	text = read_text(path);
	line = text ? strstr(text, "mnt_id:") : NULL;
	if (line)
		id = strtoull(line + strlen("mnt_id:"), NULL, 10);
	free(text);
	for (size_t i = 0; line && i < m->n; i++) {
		if (m->list[i].id == id)
			return &m->list[i];
	}
	return NULL;
}

/* A path without links: the mount with the longest way to it, of several at one place the last. */
static const struct mount *mount_at(const struct mounts *m, const char *path)
{
	const struct mount *found = NULL;
	size_t most = 0;

	for (size_t i = 0; i < m->n; i++) {
		const char *at = m->list[i].path;
		size_t n = strcmp(at, "/") == 0 ? 0 : strlen(at);

		if (strncmp(path, at, n) == 0 && (path[n] == '/' || !path[n]) && (!found || n >= most)) {
			found = &m->list[i];
			most = n;
		}
	}
	return found;
}

/* A way of which `at` is done, without links, and `rest` is to be done. */
struct way {
	char at[PATH_MAX], rest[PATH_MAX];
	unsigned n_links;
};

/* If the way has come to a link, its text comes before the rest. False: there are too many, or they are too long. */
static bool follow_link(struct way *w)
{
	char link[PATH_MAX], rest[PATH_MAX];
	ssize_t n = readlink(w->at, link, sizeof(link) - 1);

	if (n < 0)
		return true;
	link[n] = '\0';
	*(link[0] == '/' ? w->at : strrchr(w->at, '/')) = '\0';
	memcpy(rest, w->rest, sizeof(rest));
	return ++w->n_links <= MOST_LINKS &&
	       snprintf(w->rest, sizeof(w->rest), "%s/%s", link, rest) < (int)sizeof(w->rest);
}

/* One step on. False: the way is at its end. */
static bool step(struct way *w)
{
	char *from = w->rest + strspn(w->rest, "/");
	size_t n = strcspn(from, "/"), at = strlen(w->at);
	bool up = n == 2 && !memcmp(from, "..", 2);

	if (n == 0 || at + n + 2 > sizeof(w->at))
		return false;
	if (up && at)
		*strrchr(w->at, '/') = '\0';
	else if (!up && !(n == 1 && *from == '.'))
		snprintf(w->at + at, sizeof(w->at) - at, "/%.*s", (int)n, from);
	memmove(w->rest, from + n, strlen(from + n) + 1);
	return true;
}

const struct mount *mounts_of_path(const struct mounts *m, const char *path, size_t n)
{
	struct way *w = calloc(1, sizeof(*w));
	const struct mount *mount = NULL;

	if (!w)
		return NULL;
	snprintf(w->rest, sizeof(w->rest), "%.*s", (int)(n < PATH_MAX ? n : PATH_MAX - 1), path);
	do
		mount = mount_at(m, w->at);
	while (mount && mount_is_local(mount) && follow_link(w) && step(w));
	free(w);
	return mount;
}
