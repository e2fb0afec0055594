/* Which processes may open which processes' memory: by a legacy handle, and by the descriptor of memory that
 * cuMemCreate made, sent over a socket. For each relation an exporter and an importer, both forked before this process
 * initialises CUDA. */
#include "case.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOT = 0, SERVICE = 65533, NOBODY = 65534 }; /* SERVICE: an arbitrary user that is neither of the others */

struct relation {
	const char *name;
	uid_t exporter, importer;
	int namespace; /* of the importer: CLONE_NEWPID ...; 0: the exporter's */
};

/* What the exporter sends; the descriptor comes with it. */
struct offer {
	CUresult begun, got_handle, got_fd;
	CUipcMemHandle handle;
};

/* The importer's report. */
struct outcome {
	CUresult begun, opened, imported;
	bool legacy_bytes, fd_bytes; /* as the exporter wrote them */
};

static CUresult begin_quietly(void)
{
	CUresult r = cu.cuInit(0);

	if (!r)
		r = cu.cuDevicePrimaryCtxRetain(&ctx, 0);
	return r ? r : cu.cuCtxSetCurrent(ctx);
}

/* With raw system calls: the C library would change the user of all threads. */
static bool become(uid_t uid)
{
	if (uid == geteuid())
		return true;
	if (syscall(SYS_setgroups, 0, NULL) || syscall(SYS_setresgid, uid, uid, uid) ||
	    syscall(SYS_setresuid, uid, uid, uid))
		return false;
	/* A change of user makes /proc/self root's, which does not happen to a process that started as this user. */
	return !prctl(PR_SET_DUMPABLE, 1);
}

static bool send_offer(int to, const struct offer *offer, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)offer, sizeof *offer };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (fd >= 0) {
		m.msg_control = control, m.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	do
		n = sendmsg(to, &m, 0);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof *offer;
}

static bool take_offer(int from, struct offer *offer, int *fd)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { offer, sizeof *offer };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
	ssize_t n;

	*fd = -1;
	do
		n = recvmsg(from, &m, MSG_WAITALL);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof *offer && CMSG_FIRSTHDR(&m))
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof *fd);
	return n == (ssize_t)sizeof *offer;
}

/* Offers memory of both kinds and keeps it until the other end is closed. */
static void export_both(int to)
{
	struct offer offer = { .begun = begin_quietly() };
	CUmemGenericAllocationHandle h;
	CUdeviceptr a;
	int fd = -1;
	char c;

	if (!offer.begun) {
		offer.got_handle = cu.cuMemAlloc_v2(&a, SLAB);
		if (!offer.got_handle)
			offer.got_handle = cu.cuMemsetD32_v2(a, 0x12345678, SLAB / 4);
		if (!offer.got_handle)
			offer.got_handle = cu.cuIpcGetMemHandle(&offer.handle, a);
		offer.got_fd = vmm_create(&h, SLAB);
		if (!offer.got_fd)
			offer.got_fd = vmm_map(h, SLAB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &a);
		if (!offer.got_fd)
			offer.got_fd = cu.cuMemsetD32_v2(a, 0x23456789, SLAB / 4);
		if (!offer.got_fd)
			offer.got_fd =
				cu.cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		cu.cuCtxSynchronize();
	}
	if (send_offer(to, &offer, fd))
		while (recv(to, &c, 1, 0) < 0 && errno == EINTR)
			;
}

static CUresult read_word(CUdeviceptr a, uint32_t wanted, bool *same)
{
	uint32_t word = 0;
	CUresult r = cu.cuMemcpyDtoH_v2(&word, a, 4);

	*same = !r && word == wanted;
	return r;
}

/* Tries both on the line to the case. */
static void import_both(int from)
{
	struct outcome outcome = { 0 };
	CUmemGenericAllocationHandle h;
	struct offer offer;
	CUdeviceptr a;
	int fd;

	if (!take_offer(from, &offer, &fd))
		return;
	outcome.begun = offer.begun ? offer.begun : begin_quietly();
	outcome.opened = offer.got_handle;
	outcome.imported = offer.got_fd;
	if (!outcome.begun && !outcome.opened) {
		outcome.opened = open_handle(&a, offer.handle);
		if (!outcome.opened)
			outcome.opened = read_word(a, 0x12345678, &outcome.legacy_bytes);
	}
	if (!outcome.begun && !outcome.imported) {
		outcome.imported = cu.cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
								     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
		if (!outcome.imported)
			outcome.imported = vmm_map(h, SLAB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &a);
		if (!outcome.imported)
			outcome.imported = read_word(a, 0x23456789, &outcome.fd_bytes);
	}
	tell(&outcome, sizeof outcome);
}

static pid_t start(const struct relation *r, bool importer, int line, int other_end)
{
	pid_t pid = forked();

	if (pid)
		return pid;
	close(other_end);
	alarm(SECONDS / 2);
	if (is_double)
		unsetenv("FAKECUDA_DIR"); /* other users cannot write there */
	/* A container has a /proc of its PID namespace: with another's, a process does not find itself. */
	if (importer && r->namespace && unshare(r->namespace | (r->namespace == CLONE_NEWPID ? CLONE_NEWNS : 0)))
		_exit(77);
	if (importer && r->namespace == CLONE_NEWPID) { /* only children are in it */
		pid_t child = fork();
		int status = 0;

		if (child) {
			waitpid(child, &status, 0);
			_exit(WEXITSTATUS(status));
		}
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("proc", "/proc", "proc", 0, NULL))
			_exit(77);
	}
	if (!become(importer ? r->importer : r->exporter))
		_exit(77);
	if (importer)
		import_both(line);
	else
		export_both(line);
	_exit(0); /* no exec: that user may not be able to reach the program */
}

static void say(const char *kind, const char *relation, const struct outcome *o, CUresult r, bool same, bool documented)
{
	char name[96], text[64];

	snprintf(name, sizeof name, "%s, %s", kind, relation);
	snprintf(text, sizeof text, "%s", o->begun ? "no context there" : r || same ? cuda_name(r) : "other bytes");
	if (documented)
		exact(name, text);
	else
		open_of(name, text);
}

static void try_relation(const struct relation *r)
{
	struct outcome o;
	pid_t exporter, importer;
	int ends[2], line;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		must(CUDA_ERROR_OPERATING_SYSTEM, "socketpair");
	exporter = start(r, false, ends[0], ends[1]);
	close(line_fd);
	importer = start(r, true, ends[1], ends[0]);
	line = line_fd;
	close(ends[0]);
	close(ends[1]);
	line_fd = line;
	/* all of the relations have to fit into the case's time, even if none answers */
	if (hear_soon(&o, sizeof o, SECONDS * 1000 / 8)) {
		bool documented = !r->namespace && r->exporter == r->importer && r->exporter == geteuid();

		say("legacy handle", r->name, &o, o.opened, o.legacy_bytes, documented);
		say("descriptor", r->name, &o, o.imported, o.fd_bytes, documented);
	} else {
		char name[96];

		snprintf(name, sizeof name, "legacy handle, %s", r->name);
		open_of(name, "could not be tried");
		snprintf(name, sizeof name, "descriptor, %s", r->name);
		open_of(name, "could not be tried");
	}
	close(line);
	kill(importer, SIGKILL);
	kill(exporter, SIGKILL);
	waitpid(importer, NULL, 0);
	waitpid(exporter, NULL, 0);
}

void case_strangers(void)
{
	uid_t me = geteuid();
	const struct relation relations[] = {
		{ "same user", me, me, 0 },
		{ "root to another user", me, NOBODY, 0 },
		{ "a user to another user", SERVICE, NOBODY, 0 },
		{ "a user to root", NOBODY, me, 0 },
		{ "another PID namespace", me, me, CLONE_NEWPID },
		{ "another IPC namespace", me, me, CLONE_NEWIPC },
		{ "another network namespace", me, me, CLONE_NEWNET },
	};

	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < sizeof relations / sizeof *relations; i++)
		try_relation(&relations[i]);
}
