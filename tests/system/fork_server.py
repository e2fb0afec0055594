"""A process that has imported what scripts need, and runs each script in a fork of itself. Python takes two seconds of
processor time to import torch, and as many again for a framework on top of it.

As a program: fork_server.py FD MODULE... A request is a line of JSON on standard input, {"ranks", "jobs": [{"argv", "env",
"output"}]}: the jobs run at the same time. The answer is a line with the exit status of each. ranks: the jobs are the
ranks of one torchrun, whose variables they get. Where one job fails, the others end, as under torchrun.
A packet on the socket FD is a job that runs beside all others, {"argv", "env"}, with four descriptors: its standard
input, output and error, and a pipe, to which its process's number is written when it has no parent any more.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import inspect
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types

LIMIT_S = 400


class ForkServer:
    """The process, from the side of the tests. modules: those to import; a module that is missing is left to the
    scripts."""

    def __init__(self, folder, *modules, python=sys.executable, env=None):
        self._folder, self._n_jobs = folder, 0
        self._socket, its_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._env = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **(env or {})}  # tests run beside each other
        self._process = subprocess.Popen(
            [python, __file__, str(its_socket.fileno()), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._env},
            start_new_session=True,
            pass_fds=[its_socket.fileno()],
        )
        its_socket.close()

    def run(self, *jobs, ranks=False):
        """Runs scripts, each a list of its path and arguments or (that list, variables), at the same time. Returns
        (exit status, what it printed) of each."""
        asked = []
        for job in jobs:
            argv, env = job if isinstance(job, tuple) else (job, {})
            self._n_jobs += 1
            asked.append(
                {
                    "argv": list(map(str, argv)),
                    "env": {**os.environ, **self._env, **env},
                    "output": str(self._folder / f"output-{self._n_jobs}"),
                }
            )
        self._process.stdin.write(json.dumps({"jobs": asked, "ranks": ranks}) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], LIMIT_S)[0]:
            self.close()
            with_torch.cache_clear()
        answer = self._process.stdout.readline()
        outputs = [pathlib.Path(job["output"]) for job in asked]
        outputs = [path.read_text(errors="replace") if path.exists() else "" for path in outputs]
        assert answer, "\n".join([f"the scripts did not end within {LIMIT_S} s, or their server died", *outputs])
        return list(zip(json.loads(answer), outputs))

    def popen(self, argv, env=None, stdin=subprocess.DEVNULL, **streams):
        """As subprocess.Popen([sys.executable, *argv], text=True, ...). argv begins with a script's path, or has "-c"
        and a program."""
        env = {**(os.environ if env is None else env), "OMP_NUM_THREADS": "1"}
        return Forked(self._socket, list(map(str, argv)), env, stdin, **streams)

    def python(self, argv, env=None):
        """Runs it to its end, as subprocess.run with capture_output=True."""
        process = self.popen(argv, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def close(self):
        """Also ends scripts that still run, and processes that they have left."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._socket.close()


@functools.cache
def with_torch():
    """The one of this process whose programs have torch. It ends with this process."""
    server = ForkServer(pathlib.Path(tempfile.mkdtemp(prefix="torch-")), "torch")
    atexit.register(server.close)
    return server


class Forked(subprocess.Popen):
    """A child of this process whose program a server has begun, in a fork of itself."""

    def __init__(self, server, argv, env, stdin, stdout=None, stderr=None):
        self._server, self._job_env = server, env
        super().__init__(argv, stdin=stdin, stdout=stdout, stderr=stderr, text=True)

    def _execute_child(self, *arguments):
        names = inspect.signature(super()._execute_child).bind(*arguments).arguments
        ends = [names[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        job = json.dumps({"argv": names["args"], "env": self._job_env}).encode()
        said, says = os.pipe()
        with open(said) as said:
            subreaper(True)  # the server's child, whose own parent ends at once, becomes ours
            socket.send_fds(self._server, [job], [end if end >= 0 else own for own, end in enumerate(ends)] + [says])
            os.close(says)
            self.pid = int(said.read())
            subreaper(False)
        self._child_created = True
        self._close_pipe_fds(*(names[n] for n in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")))


def subreaper(on):
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def end_with_parent():
    """A test run that is killed leaves nothing."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def fork(begin):
    """A child that begins so, and then ends as Python does."""
    pid = os.fork()
    if pid == 0:
        end_with_parent()
        begin()
        sys.exit()
    return pid


def start(job):
    os.environ.clear()
    os.environ.update(job["env"])
    with open(job["output"], "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = job["argv"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


def run_program(argv):
    """As Python does with these arguments."""
    sys.path[0] = "" if argv[0] == "-c" else os.path.dirname(argv[0])
    sys.path[1:1] = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p not in sys.path]
    if argv[0] != "-c":
        sys.argv = argv
        return runpy.run_path(argv[0], run_name="__main__")
    sys.argv = ["-c", *argv[2:]]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(argv[1], "<string>", "exec"), main.__dict__)


def begin(job, parent, streams):
    """In the child of a process that ends: it belongs to the tests when that has ended."""
    while os.getppid() == parent:
        time.sleep(0.0002)
    end_with_parent()
    os.environ.clear()
    os.environ.update(job["env"])
    for own, fd in enumerate(streams):
        os.dup2(fd, own)
        os.close(fd)
    sys.stdin, sys.stdout, sys.stderr = (open(fd, mode, closefd=False) for fd, mode in ((0, "r"), (1, "w"), (2, "w")))
    run_program(job["argv"])


def spawn(job, fds, mine):
    parent = os.fork()
    if parent == 0:
        own = os.getpid()
        pid = os.fork()
        if pid:
            os.write(fds[3], str(pid).encode())
            os._exit(0)
        for file in mine:
            file.close()
        os.close(fds[3])
        begin(job, own, fds[:3])
        sys.exit()
    os.waitpid(parent, 0)
    for fd in fds:
        os.close(fd)


def serve_store(port_to):
    """The ranks meet here, as in the store of torchrun's agent: a port that torch chooses is nobody else's."""
    import torch.distributed

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(port_to, f"{store.port}\n".encode())
    signal.pause()


def torchrun_variables(port, rank, n):
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "ROLE_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(n),
        "LOCAL_WORLD_SIZE": str(n),
        "ROLE_WORLD_SIZE": str(n),
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": f"run-{port}",
    }


def end(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # it has ended, and been waited for
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def run(request):
    jobs, store = request["jobs"], []
    if request["ranks"]:
        port_from, port_to = os.pipe()
        store.append(fork(lambda: serve_store(port_to)))
        os.close(port_to)
        with open(port_from) as f:
            port = int(f.readline())
        for rank, job in enumerate(jobs):
            job["env"].update(torchrun_variables(port, rank, len(jobs)))
    pids = [fork(lambda job=job: start(job)) for job in jobs]
    running, statuses = set(pids), {}
    while running:
        pid, status = os.wait()
        running.discard(pid)
        statuses[pid] = os.waitstatus_to_exitcode(status)
        if status:
            for other in running:
                statuses[other] = -signal.SIGKILL
            end(running)
            break
    end(store)
    return [statuses[pid] for pid in pids]


def main():
    end_with_parent()
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    spawns = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            __import__(name)
    # A fork has no other thread, and locks of one stay locked. pyarrow's allocator knows that.
    names = {path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("[0-9]*/comm")}
    assert len(names - {"jemalloc_bg_thd"}) == 1 == threading.active_count(), f"a module has started a thread: {names}"
    gc.freeze()  # the forks' collections leave the modules alone, and their pages shared
    while True:
        ready, _, _ = select.select([requests, spawns], [], [])
        if spawns in ready:
            packet, fds, _, _ = socket.recv_fds(spawns, 1 << 20, 4)
            if not packet:
                break
            spawn(json.loads(packet), fds, (requests, answers, spawns))
        else:
            line = requests.readline()
            if not line:
                break
            answers.write(json.dumps(run(json.loads(line))) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
