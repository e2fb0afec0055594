"""How much a trainer is slowed down by other clients that cost a lot and do little.

neighbours.py [--build build] [--seconds 5] [--rounds 3] [--only idle|slow] [--json FILE] [--quick]

idle: 31 idle sessions of world_size 4096 beside a trainer of small arrays (64 rows of 12 KiB), then all closed at once.
Prints the trainer's throughput beside them as a ratio of its throughput alone, and the loop's longest absence: a probe
sends Hello every few milliseconds and waits for the answer.

slow: another user, whose rows take seconds (a picture through a long chain of Resizes), beside a trainer of small
pictures. The trainer pauses until the other user has every worker, then asks again. Prints the time to its first batch
that was not in stock, its longest wait while both run, and its throughput beside the other user as a ratio of its
throughput alone, of which its fair share of the workers is a half. Needs root, to have two users.

Run it on a quiet machine. Every figure is a median of the rounds, except the longest times, which are the longest of
all rounds.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

N_IDLE, WORLD = 31, 4096
OTHER_UID = 65534
STOCK = 5  # batches: the trainer's window, and the first batch after it
RESIZES, SIDE = 30, 3000  # about 50 ms each


# ---- processes of their own ----


def victim(a):
    """Reads lines, each a number of seconds. Answers with the number of batches in that time, the waits for the first
    ones, and the longest wait."""
    import batchd

    options = (
        {"batch_size": 8, "transform": [["Resize", [64, 64]], "ToTensor"]}
        if a.source.startswith("imagefolder:")
        else {"batch_size": 64}
    )
    loader = batchd.DataLoader(
        a.source, job="victim", rank=0, world_size=1, n_slots=4, seed=0, socket=a.socket, arrays="numpy", **options
    )

    def forever():
        while True:
            yield from loader

    batches = forever()
    next(batches)
    print("ready", flush=True)
    for line in sys.stdin:
        began = last = time.monotonic()
        waits = []
        while last < began + float(line):
            next(batches)
            now = time.monotonic()
            waits.append(now - last)
            last = now
        print(
            json.dumps(
                {
                    "rate": len(waits) / (last - began),
                    "fresh_ms": 1000 * sum(waits[:STOCK]),
                    "longest_ms": 1000 * max(waits),
                }
            ),
            flush=True,
        )
    os._exit(0)


def idle(a):
    import batchd

    loaders = [
        batchd.DataLoader(
            "random:length=1,shape=1", 1, job=f"idle-{i}", rank=0, world_size=WORLD, socket=a.socket, arrays="numpy"
        )
        for i in range(N_IDLE)
    ]
    print("ready", flush=True)
    sys.stdin.readline()
    for loader in loaders:
        loader.close()
    print("closed", flush=True)
    sys.stdin.readline()
    os._exit(0)


def slow(a):
    import batchd
    import numpy  # noqa: F401, while this user may still read it: Python may be in a home folder

    os.setgroups([])
    os.setgid(OTHER_UID)
    os.setuid(OTHER_UID)
    chain = [["Resize", [SIDE - i % 2, SIDE - i % 2]] for i in range(RESIZES)]
    loader = batchd.DataLoader(
        a.source,
        64,
        job="slow",
        rank=0,
        world_size=1,
        n_slots=2,
        transform=[*chain, ["Resize", [8, 8]], "ToTensor"],
        socket=a.socket,
        arrays="numpy",
    )
    batches = iter(loader)
    print("ready", flush=True)
    try:
        for _ in batches:
            pass
    finally:
        os._exit(0)


# ---- measurements ----


class Role:
    """This program again, in one of the roles above."""

    def __init__(self, runner, name, daemon, source=""):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--role", name, "--socket", daemon.socket, "--source", source],
            env=runner.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        runner.started.append(self)
        self.hear()

    def say(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("neighbours.py: a trainer has ended; its words are above")
        return line.strip()

    def ask(self, seconds):
        self.say(seconds)
        return json.loads(self.hear())

    def stop(self):
        self.process.kill()
        self.process.wait()


def hello_ms(path):
    """One connection, Hello and its answer: milliseconds."""
    body = b"\x08\x7f\x12\x05probe"  # the highest possible version, the program
    began = time.monotonic()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(path)
        s.send(b"\x0a" + bytes([len(body)]) + body)
        s.recv(65536)
    return 1000 * (time.monotonic() - began)


class Probe:
    """with Probe(path) as p: ...; p.longest_ms."""

    def __init__(self, path):
        self.path, self.longest_ms, self.ended = path, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended.is_set():
            self.longest_ms = max(self.longest_ms, hello_ms(self.path))
            self.ended.wait(0.003)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def idle_sessions(a, runner):
    rows = []
    for i in range(a.rounds):
        daemon = runner.daemon(f"idle-{i}", "linger: 0\n")
        trainer = Role(runner, "victim", daemon, "random:length=100000,shape=3072")
        trainer.ask(a.seconds / 4)
        with Probe(daemon.socket) as before:
            alone = trainer.ask(a.seconds)
        others = Role(runner, "idle", daemon)
        with Probe(daemon.socket) as beside:
            together = trainer.ask(a.seconds)
        with Probe(daemon.socket) as closing:
            others.say("")
            others.hear()
            trainer.ask(a.seconds / 2)
        runner.settle()
        rows.append(
            {
                "rate alone": alone["rate"],
                "rate beside": together["rate"],
                "ratio": together["rate"] / alone["rate"],
                "loop away, alone, ms": before.longest_ms,
                "loop away, beside, ms": beside.longest_ms,
                "loop away, closing, ms": closing.longest_ms,
            }
        )
    return rows


def wait_until_busy(path, n):
    import batchd

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and batchd.status(path)["workers"]["busy"] < n:
        time.sleep(0.01)
    time.sleep(0.2)  # they have been at work for a while


def slow_rows(a, runner):
    if os.geteuid() != 0:
        print("slow: left out: only root can be two users", file=sys.stderr)
        return []
    source = f"imagefolder:{runner.sample_data()}"
    os.chmod(runner.scratch, 0o755)
    rows = []
    for i in range(a.rounds):
        daemon = runner.daemon(f"slow-{i}", "socket_mode: 0666\ncache:\n  decoded: off\n")
        trainer = Role(runner, "victim", daemon, source)
        trainer.ask(a.seconds / 4)
        alone = trainer.ask(a.seconds)
        Role(runner, "slow", daemon, source)
        wait_until_busy(daemon.socket, a.workers)
        together = trainer.ask(a.seconds)
        runner.settle()
        rows.append(
            {
                "rate alone": alone["rate"],
                "rate beside": together["rate"],
                "ratio": together["rate"] / alone["rate"],
                "first fresh batch, ms": together["fresh_ms"],
                "longest wait, ms": together["longest_ms"],
            }
        )
    return rows


def table(name, rows):
    print(name)
    for key in rows[0] if rows else []:
        values = [row[key] for row in rows]
        value = max(values) if key.endswith("ms") else statistics.median(values)
        print(f"  {key:28} {value:10.3f}   {' '.join(f'{v:.3f}' for v in values)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="of the daemon (default: one per processor)"
    )
    parser.add_argument("--only", choices=["idle", "slow"])
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="every measurement")
    parser.add_argument("--quick", action="store_true", help="one short round: is it alive?")
    parser.add_argument("--role", choices=["victim", "idle", "slow"], help=argparse.SUPPRESS)
    parser.add_argument("--socket", help=argparse.SUPPRESS)
    parser.add_argument("--source", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.role:
        return {"victim": victim, "idle": idle, "slow": slow}[a.role](a)
    from runner import REPO, Runner

    sys.path.insert(0, str(REPO / "client" / "python"))
    a.build = a.build.resolve()
    if a.quick:
        a.rounds, a.seconds = 1, 1.0
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="batchd-bench-"))
    runner = Runner(a, scratch)
    os.environ["LD_LIBRARY_PATH"] = runner.environment["LD_LIBRARY_PATH"]
    os.environ["BATCHD_LIBRARY"] = str(a.build / "libbatchd.so")
    results = {}
    try:
        for name, measure in (("idle", idle_sessions), ("slow", slow_rows)):
            if a.only in (None, name):
                results[name] = measure(a, runner)
                table(name, results[name])
    finally:
        runner.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    if a.json:
        a.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
