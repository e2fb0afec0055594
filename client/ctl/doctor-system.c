/* What doctor finds without CUDA: the daemon, namespaces, limits, memory, device nodes. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batchd.h"
#include "doctor.h"
#include "util/memory.h"
#include "util/size.h"

/* ---- the daemon ---- */

/* Whether the process of that number here is a batchd: numbers of another PID namespace mean nothing here. */
static bool is_batchd(long pid)
{
	char path[64], name[32] = "";
	FILE *f;

	snprintf(path, sizeof path, "/proc/%ld/comm", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(name, sizeof name, f))
		*name = '\0';
	fclose(f);
	return strncmp(name, "batchd", 6) == 0;
}

/* 1: the same, 0: another, -1: cannot be told. */
static int same_namespace(long pid, const char *kind)
{
	char path[64];
	struct stat ours, theirs;

	snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
	if (stat(path, &ours) < 0)
		return -1;
	snprintf(path, sizeof path, "/proc/%ld/ns/%s", pid, kind);
	if (stat(path, &theirs) < 0)
		return -1;
	return ours.st_ino == theirs.st_ino;
}

static void check_shares(struct doctor *d, long pid, unsigned uid)
{
	static const char *const kinds[] = { "pid", "ipc" };
	static const char *const advice[] = {
		"run trainers and daemon in one PID namespace: docker run --pid=host, or --pid=container:NAME; in Kubernetes shareProcessNamespace",
		"run trainers and daemon in one IPC namespace: docker run --ipc=host, or --ipc=container:NAME",
	};

	if (!is_batchd(pid)) {
		doctor_say(
			d, FINDING_NOTE, "namespaces", advice[0],
			"the daemon's process %ld cannot be seen from here, so it is probably in another PID namespace, "
			"between which CUDA shares no memory; trainers will copy by themselves",
			pid);
		return;
	}
	for (unsigned i = 0; i < 2; i++)
		if (same_namespace(pid, kinds[i]) == 0)
			doctor_say(
				d, FINDING_NOTE, "namespaces", advice[i],
				"the daemon is in another %s namespace; CUDA IPC needs a common one, trainers will copy "
				"by themselves",
				i ? "IPC" : "PID");
	if (uid != geteuid())
		doctor_say(
			d, FINDING_NOTE, "user",
			"for batches on a GPU without a copy of the trainer's, run a daemon as the trainers' user (without --socket one is started)",
			"the daemon runs as user %u and you are %u; CUDA shares memory between processes of one user only",
			uid, (unsigned)geteuid());
}

void doctor_daemon(struct doctor *d)
{
	char err[1024] = "", *text = NULL;
	int r = batchd_status(d->socket, &text, err, sizeof err);
	json_t *root = r == 0 ? json_loads(text, 0, NULL) : NULL, *daemon = json_object_get(root, "daemon");
	const char *version = json_string_value(json_object_get(daemon, "version"));

	free(text);
	if (r == BATCHD_E_CONNECT && !d->socket) {
		doctor_say(d, FINDING_NOTE, "daemon", NULL,
			   "none is running; the first trainer starts one for its user");
	} else if (r < 0 || !version) {
		doctor_say(d, FINDING_PROBLEM, "daemon",
			   r == BATCHD_E_ACCESS ? "ask to be let into the group that owns the socket"
						: "see `systemctl status batchd`, or start one with `batchd`",
			   "%s", r < 0 ? err : "its answer is not a daemon's status");
	} else {
		if (strcmp(version, BATCHD_VERSION) == 0)
			doctor_say(d, FINDING_OK, "daemon", NULL, "batchd %s answers", version);
		else
			doctor_say(d, FINDING_NOTE, "daemon", "install one version and restart the daemon",
				   "it is batchd %s, and this is %s; they understand "
				   "each other, but newer features need both",
				   version, BATCHD_VERSION);
		check_shares(d, (long)json_integer_value(json_object_get(daemon, "pid")),
			     (unsigned)json_integer_value(json_object_get(daemon, "uid")));
	}
	json_decref(root);
}

/* ---- limits and memory ---- */

static void check_descriptors(struct doctor *d)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return;
	if (r.rlim_cur < 1024)
		doctor_say(d, FINDING_NOTE, "descriptors", "ulimit -n 4096, or LimitNOFILE= in a unit",
			   "only %llu may be open at once; a loader takes about 8, but "
			   "PyTorch itself wants more",
			   (unsigned long long)r.rlim_cur);
	else
		doctor_say(d, FINDING_OK, "descriptors", NULL, "%llu may be open at once",
			   (unsigned long long)r.rlim_cur);
}

static void check_memlock(struct doctor *d)
{
	char text[SIZE_TEXT_BYTES];
	struct rlimit r;

	if (getrlimit(RLIMIT_MEMLOCK, &r) < 0)
		return;
	if (r.rlim_cur == RLIM_INFINITY)
		snprintf(text, sizeof text, "unlimited");
	else
		size_format(r.rlim_cur, text, sizeof text);
	doctor_say(d, FINDING_OK, "memlock", NULL, "%s; CUDA's pinning is not counted against it", text);
}

static void check_memory(struct doctor *d)
{
	char all[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES];
	uint64_t bytes = memory_available(NULL), n_left = memory_left(NULL);

	size_format(bytes, all, sizeof all);
	size_format(n_left, left, sizeof left);
	if (n_left < bytes / 16)
		doctor_say(d, FINDING_NOTE, "memory",
			   "give the control group more, or set `memory` in batchd.yaml lower",
			   "%s of %s are left (machine and "
			   "control group); batches and pinned memory count against that",
			   left, all);
	else
		doctor_say(d, FINDING_OK, "memory", NULL, "%s of %s are left (machine and control group)", left, all);
}

static void check_huge_pages(struct doctor *d)
{
	char line[128] = "";
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
	const char *chosen;

	if (!f)
		return;
	if (!fgets(line, sizeof line, f))
		*line = '\0';
	fclose(f);
	chosen = strchr(line, '[');
	if (!chosen)
		return;
	chosen++;
	line[strcspn(line, "]")] = '\0';
	doctor_say(d, FINDING_OK, "huge pages", NULL, "of shared memory: %s%s", chosen,
		   strcmp(chosen, "never") == 0 ? " (advise would make pinning and first touches cheaper)" : "");
}

/* ---- device nodes ---- */

/* What there is in /dev of a GPU: nvidia0, nvidia1 ... are the GPUs themselves; nvidiactl and nvidia-uvm every CUDA
 * program needs besides, and the driver's library may make the first of them on a machine without a GPU, too. A WSL2
 * and a Jetson have other ones. */
enum node { NODE_NONE, NODE_GPU, NODE_CONTROL, NODE_UVM };

static enum node node_of(const char *name)
{
	if (strncmp(name, "nvidia", 6) == 0 && isdigit((unsigned char)name[6]))
		return name[6 + strspn(name + 6, "0123456789")] ? NODE_NONE : NODE_GPU;
	if (strcmp(name, "dxg") == 0 || strcmp(name, "nvhost-gpu") == 0)
		return NODE_GPU;
	return strcmp(name, "nvidiactl") == 0 ? NODE_CONTROL : strcmp(name, "nvidia-uvm") == 0 ? NODE_UVM : NODE_NONE;
}

static void say_nodes(struct doctor *d, const unsigned n[], unsigned n_closed, const char *first)
{
	const char *plural = n[NODE_GPU] == 1 ? "" : "s";

	if (!n[NODE_GPU])
		doctor_say(d, d->device_wanted ? FINDING_PROBLEM : FINDING_NOTE, "nodes",
			   "in a container: docker run --gpus all",
			   "there is no GPU's device node in /dev (nvidia0 ..., dxg, nvhost-gpu)%s",
			   n[NODE_CONTROL] ? ", only nvidiactl" : "");
	else if (n_closed)
		doctor_say(
			d, FINDING_PROBLEM, "nodes",
			"give this user read and write access (a group, PrivateDevices=no in a unit, or the container's device list)",
			"%u of %u device nodes that CUDA needs may not be opened: %s", n_closed,
			n[NODE_GPU] + n[NODE_CONTROL] + n[NODE_UVM], first);
	else if (n[NODE_CONTROL] && !n[NODE_UVM])
		doctor_say(
			d, FINDING_NOTE, "nodes",
			"as root: nvidia-modprobe -u -c 0; in a container: docker run --gpus all",
			"%u GPU device node%s in /dev, but no nvidia-uvm, without which CUDA does not start where it may not make it",
			n[NODE_GPU], plural);
	else
		doctor_say(d, FINDING_OK, "nodes", NULL, "%u GPU device node%s in /dev, accessible", n[NODE_GPU],
			   plural);
}

static void check_nodes(struct doctor *d)
{
	unsigned n[NODE_UVM + 1] = { 0 }, n_closed = 0;
	char path[300], first[400] = "";
	DIR *dir = opendir("/dev");

	for (struct dirent *e; dir && (e = readdir(dir));) {
		enum node node = node_of(e->d_name);

		if (node == NODE_NONE)
			continue;
		n[node]++;
		snprintf(path, sizeof path, "/dev/%s", e->d_name);
		if (access(path, R_OK | W_OK) < 0 && !n_closed++)
			snprintf(first, sizeof first, "%s: %s", path, strerror(errno));
	}
	if (dir)
		closedir(dir);
	say_nodes(d, n, n_closed, first);
}

void doctor_system(struct doctor *d)
{
	check_descriptors(d);
	check_memlock(d);
	check_memory(d);
	check_huge_pages(d);
	check_nodes(d);
}
