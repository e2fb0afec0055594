/* See locate.h. */
#include "dataset/locate.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "dataset/impl.h"
#include "dataset/servers.h"
#include "base/mounts.h"

struct search {
	struct mounts mounts;
	bool trusted;
	struct location *out;
};

static void name_mount(struct location *out, const struct mount *mount)
{
	if (out->server & SERVERS_SEVERAL)
		snprintf(out->name, sizeof(out->name), "several file systems");
	else if (mount)
		snprintf(out->name, sizeof(out->name), "%.40s at %.200s", mount->type, mount->path);
	else
		snprintf(out->name, sizeof(out->name), "a file system that is not mounted in the daemon's namespace");
}

static void add(struct search *s, uint64_t dev, const struct mount *mount)
{
	s->out->server = servers_both(s->out->server, dev ? dev : 1);
	name_mount(s->out, mount);
}

/* A peer that is not trusted can mount an overlay over a server's folder. */
static bool is_local(const struct search *s, const struct mount *mount)
{
	return mount_is_local(mount) && (s->trusted || strcmp(mount->type, "overlay") != 0);
}

/* A mount of another namespace is found by the device of its file system, if that is mounted here, too. The kernel knows
 * the device without asking the file system. */
static void look_at_fd(struct search *s, int fd)
{
	const struct mount *mount = mounts_of_fd(&s->mounts, fd);
	uint64_t dev = mount ? mount->dev : 0;
	struct statx st;

	if (!mount) {
		if (fcntl(fd, F_GET_SEALS) >= 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) < 0)
			return; /* memory */
		dev = makedev(st.stx_dev_major, st.stx_dev_minor);
		mount = mounts_of_dev(&s->mounts, dev);
	}
	if (!mount || !is_local(s, mount))
		add(s, dev, mount);
}

static int look_at_path(void *arg, const char *path)
{
	struct search *s = arg;
	const struct mount *mount = *path == '/' ? mounts_of_path(&s->mounts, path, strlen(path)) : NULL;

	if (mount && !is_local(s, mount))
		add(s, mount->dev, mount);
	return 0;
}

void locate_source(const struct dataset_source *source, struct location *out)
{
	struct search s = { .trusted = source->access->trusted, .out = out };

	*out = (struct location){ 0 };
	if (mounts_read(&s.mounts) < 0)
		return;
	for (unsigned i = 0; i < source->n_fds; i++)
		look_at_fd(&s, source->fds[i]);
	if (!source->n_fds)
		sources_each_path(source->sources, look_at_path, &s);
	mounts_finish(&s.mounts);
}

void locate_dataset(const struct dataset *ds, struct location *out)
{
	struct mounts mounts = { 0 };

	*out = (struct location){ .server = dataset_server(ds) };
	if (!out->server)
		return;
	mounts_read(&mounts);
	name_mount(out, mounts_of_dev(&mounts, out->server));
	mounts_finish(&mounts);
}
