"""A process that has imported what scripts need, and runs each script in a fork of itself. Python takes two seconds of
processor time to import torch, and as many again for a framework on top of it.

As a program: fork_server.py MODULE... A request is a line of JSON on standard input, {"ranks", "jobs": [{"argv", "env",
"output"}]}: the jobs run at the same time. The answer is a line with the exit status of each. ranks: the jobs are the
ranks of one torchrun, whose variables they get. Where one job fails, the others end, as under torchrun.
"""

import contextlib
import ctypes
import gc
import json
import os
import pathlib
import runpy
import select
import signal
import subprocess
import sys
import threading

LIMIT_S = 400


class ForkServer:
    """The process, from the side of the tests. modules: those to import; a module that is missing is left to the
    scripts."""

    def __init__(self, folder, *modules, python=sys.executable, env=None):
        self._folder, self._n_jobs = folder, 0
        self._env = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **(env or {})}  # tests run beside each other
        self._process = subprocess.Popen(
            [python, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._env},
            start_new_session=True,
        )

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
        answer = self._process.stdout.readline()
        outputs = [pathlib.Path(job["output"]) for job in asked]
        outputs = [path.read_text(errors="replace") if path.exists() else "" for path in outputs]
        assert answer, "\n".join([f"the scripts did not end within {LIMIT_S} s, or their server died", *outputs])
        return list(zip(json.loads(answer), outputs))

    def close(self):
        """Also ends scripts that still run, and processes that they have left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()


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
    for name in sys.argv[1:]:
        with contextlib.suppress(ImportError):
            __import__(name)
    # A fork has no other thread, and locks of one stay locked. pyarrow's allocator knows that.
    names = {path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("[0-9]*/comm")}
    assert len(names - {"jemalloc_bg_thd"}) == 1 == threading.active_count(), f"a module has started a thread: {names}"
    gc.freeze()  # the forks' collections leave the modules alone, and their pages shared
    for line in requests:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
