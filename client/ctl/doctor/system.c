/* Findings of doctor without CUDA and without a daemon: limits, memory, device nodes. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ctl/doctor/doctor.h"
#include "base/memory.h"
#include "base/size.h"

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
	doctor_say(d, FINDING_OK, "huge pages", NULL, "the kernel's setting for shared memory is '%s'%s", chosen,
		   strcmp(chosen, "never") == 0
			   ? ": batches get none, which is right for most; batchd.yaml(5) says how to try 'advise'"
			   : "");
}

/* ---- device nodes ---- */

/* Kinds of GPU nodes in /dev: nvidia0, nvidia1 ... are the GPUs themselves. Every CUDA program also needs nvidiactl and
 * nvidia-uvm, and the driver's library may create the first of these on a machine without a GPU, too. WSL2 and Jetson
 * have other nodes. */
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

	if (!n[NODE_GPU] && d->n_gpus)
		doctor_say(d, FINDING_NOTE, "nodes", NULL,
			   "there is no GPU's device node in /dev as it is known here, but the driver finds GPUs");
	else if (!n[NODE_GPU])
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

void doctor_nodes(struct doctor *d)
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
}
