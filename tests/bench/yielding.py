"""What a daemon that decodes costs a trainer that computes, by the priority of the daemon's workers.

    BATCHD_BUILD=build build/venv/bin/python tests/bench/yielding.py PICTURES [ROUNDS] [--seconds S] [--size N]

PICTURES: a folder of class folders, which train224 decodes again in each epoch: the daemons have no caches. All settings
have a daemon of their own and take turns in each round; their workers get their priority from here. Two cases:

beside: a trainer that computes with all processors, while another program takes batches as fast as they come.
loop: one trainer that computes on each batch of 32, about as long as the decoding takes.

A step is one product of two matrices by torch's threads. Printed are the medians of the rounds: the step beside as a
multiple of the step with nothing else, processor time of the trainer for a step, as a multiple too (threads that wait at
a barrier for one that a worker has displaced turn in circles), the pictures that the other program got, and the
loop's time for a batch.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path.insert(0, str(REPO / "client" / "python"))

BATCH = 32


def scheduled(policy):
    return lambda tid: os.sched_setscheduler(tid, policy, os.sched_param(0))


def nice(n):
    def to(tid):
        scheduled(os.SCHED_OTHER)(tid)
        os.setpriority(os.PRIO_PROCESS, tid, n)

    return to


SETTINGS = {
    "as all others": nice(0),
    "SCHED_BATCH": scheduled(os.SCHED_BATCH),
    "nice 5": nice(5),
    "nice 10": nice(10),
    "nice 19": nice(19),
    "SCHED_IDLE": scheduled(os.SCHED_IDLE),
}


def workers_of(pid):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() in ("batchd-worker", "batchd-relief"):
            yield int(task.name)


# ---- processes of their own: each reads lines of JSON and answers with one ----


def open_loader(data, socket, job):
    import batchd

    return batchd.DataLoader(
        data, BATCH, transform="train224", shuffle=True, drop_last=True, job=job, socket=socket, arrays="numpy"
    )


def forever(loader):
    while True:
        yield from loader


def reader(data):
    """Takes batches of a daemon for some seconds; answers with the pictures of a second."""
    loaders = {}
    for line in sys.stdin:
        a = json.loads(line)
        socket = a["socket"]
        if socket not in loaders:
            loaders[socket] = forever(open_loader(data, socket, "reader"))
        next(loaders[socket])
        began, n = time.monotonic(), 0
        while time.monotonic() < began + a["seconds"]:
            next(loaders[socket])
            n += BATCH
        print(json.dumps(n / (time.monotonic() - began)), flush=True)


def computer(data, size):
    """Computes for some seconds, or a number of steps for each batch of a daemon for some seconds. Answers with the median
    time and the processor time of a step, or with the time of a batch and the processor time for one."""
    import torch

    loaders = {}
    left, right, out = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)

    def step():
        torch.mm(left, right, out=out)

    for line in sys.stdin:
        a = json.loads(line)
        steps = a.get("steps")
        if steps:
            if a["socket"] not in loaders:
                loaders[a["socket"]] = forever(open_loader(data, a["socket"], "computer"))
            batches = loaders[a["socket"]]
            for _ in range(4):
                next(batches)
        taken, cpu, began = [], time.process_time(), time.monotonic()
        while time.monotonic() < began + a["seconds"]:
            before = time.perf_counter()
            if steps:
                next(batches)
            for _ in range(steps or 1):
                step()
            taken.append(time.perf_counter() - before)
        told = {
            "step": statistics.median(taken),
            "mean": (time.monotonic() - began) / len(taken),
            "cpu": (time.process_time() - cpu) / len(taken),
        }
        print(json.dumps(told), flush=True)


# ---- the measurement ----


class Other:
    def __init__(self, role, data, size):
        self.process = subprocess.Popen(
            [sys.executable, __file__, data, "--role", role, "--size", str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def start_daemon(folder, name, build):
    config, socket = folder / f"{name}.yaml", folder / name
    config.write_text("cache: {decoded: off, jpeg: off}\n")
    daemon = subprocess.Popen(
        [build / "batchd", "--foreground", "--config", config, "--socket", socket], stderr=subprocess.DEVNULL
    )
    while not socket.exists():
        time.sleep(0.01)
    return daemon, str(socket)


def measure(a, daemons, them, me):
    """One round; for each setting what was seen."""
    seen = {}
    for name, (_, socket) in daemons.items():
        me.ask(seconds=a.seconds)
        alone = me.answer()
        them.ask(socket=socket, seconds=a.seconds + 0.4)
        time.sleep(0.2)
        me.ask(seconds=a.seconds)
        beside, rate = me.answer(), them.answer()
        steps = max(1, round(a.decode_ms * BATCH / 1000 / len(os.sched_getaffinity(0)) / alone["mean"]))
        me.ask(socket=socket, seconds=a.seconds, steps=steps)
        loop = me.answer()
        seen[name] = {
            "step": beside["mean"] / alone["mean"],
            "cpu": beside["cpu"] / alone["cpu"],
            "rate": rate,
            "loop": loop["mean"] * 1000,
            "loop cpu": loop["cpu"] * 1000,
        }
    return seen, alone


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("pictures")
    p.add_argument("rounds", nargs="?", type=int, default=5)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--size", type=int, default=512)
    p.add_argument("--decode-ms", type=float, default=0.5, help="processor time of a picture, for the loop's steps")
    p.add_argument("--only", help="settings, separated by commas")
    p.add_argument("--role")
    a = p.parse_args()
    if a.role:
        return reader(a.pictures) if a.role == "reader" else computer(a.pictures, a.size)
    build = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build")).resolve()
    data = f"imagefolder:{pathlib.Path(a.pictures).resolve()}"
    names = a.only.split(",") if a.only else list(SETTINGS)
    with tempfile.TemporaryDirectory(prefix="batchd-bench-") as folder:
        daemons = {name: start_daemon(pathlib.Path(folder), name.replace(" ", "-"), build) for name in names}
        them, me = Other("reader", data, a.size), Other("computer", data, a.size)
        try:
            measure(a, daemons, them, me)  # then all threads and loaders are there
            for name, (daemon, _) in daemons.items():
                for tid in workers_of(daemon.pid):
                    SETTINGS[name](tid)
            rounds = [measure(a, daemons, them, me) for _ in range(a.rounds)]
        finally:
            them.end()
            me.end()
            for daemon, _ in daemons.values():
                daemon.terminate()
                daemon.wait()
    alone = statistics.median(r[1]["mean"] for r in rounds)
    print(f"a step alone: {alone * 1000:.2f} ms; medians of {a.rounds} rounds of {a.seconds} s:")
    print(f"  {'workers':14} {'step':>6} {'its CPU':>8} {'pictures/s':>11} {'loop: ms a batch':>17} {'CPU':>6}")
    for name in names:
        of = {k: statistics.median(r[0][name][k] for r in rounds) for k in rounds[0][0][name]}
        print(
            f"  {name:14} {of['step']:6.2f} {of['cpu']:8.2f} {of['rate']:11.0f} {of['loop']:17.1f} {of['loop cpu']:6.1f}"
        )


if __name__ == "__main__":
    main()
