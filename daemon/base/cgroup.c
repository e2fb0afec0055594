/* See cgroup.h. /proc/self/cgroup has a line "0::/path" for the unified hierarchy and "N:controllers:/path" for each
 * old one. In a container the path may lie outside the mounted hierarchy; then only the files of the mounted root are
 * found, which are the container's. */
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

static int cgroup_read_text(const char *path, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");
	if (!f)
		return -1;
	size_t n = fread(buf, 1, size - 1, f);
	fclose(f);
	buf[n] = '\0';
	return n ? 0 : -1;
}

static int has_word(const char *list, const char *word)
{
	size_t n = strlen(word);
	for (const char *at = list; (at = strstr(at, word)); at += n) {
		if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
			return 1;
	}
	return 0;
}

/* The process's path in the unified hierarchy (controller NULL) or in a controller's. */
static int own_path(const char *root, const char *controller, char *out, size_t size)
{
	char path[512], text[8192];
	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	if (cgroup_read_text(path, text, sizeof(text)))
		return -1;
	char *save = NULL;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *list = strchr(line, ':');
		char *dir = list ? strchr(list + 1, ':') : NULL;
		if (!dir)
			continue;
		*dir++ = '\0';
		list++;
		if (controller ? has_word(list, controller) : *list == '\0') {
			snprintf(out, size, "%s", strcmp(dir, "/") ? dir : "");
			return 0;
		}
	}
	return -1;
}

static int cgroup_walk(const char *root, const char *mount, const char *controller, const char *file,
		       void (*fn)(void *arg, const char *text, const char *directory), void *arg)
{
	char own[1024], path[2048], dir[1800], text[256];
	int found = 0;
	if (own_path(root, controller, own, sizeof(own)))
		return 0;
	for (;;) {
		snprintf(dir, sizeof(dir), "%s/sys/fs/cgroup%s%s", root, mount, own);
		snprintf(path, sizeof(path), "%s/%s", dir, file);
		if (cgroup_read_text(path, text, sizeof(text)) == 0) {
			fn(arg, text, dir);
			found++;
		}
		char *slash = strrchr(own, '/');
		if (!slash)
			return found;
		*slash = '\0';
	}
}

void cgroup_each(const char *root, const char *file, const char *controller, const char *file_v1,
		 void (*fn)(void *arg, const char *text, const char *directory), void *arg)
{
	char mount[64];
	if (cgroup_walk(root, "", NULL, file, fn, arg))
		return;
	snprintf(mount, sizeof(mount), "/%s", controller);
	cgroup_walk(root, mount, controller, file_v1, fn, arg);
}
