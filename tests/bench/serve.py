"""The cost of batchd.serve compared with the DataLoader that it feeds from.

serve.py [--batches 40] [--rounds 3] [--trainers 1,2,4] [--workers 0,1] [--mib N] [--samples cheap|work] [--quick]

A torch data set makes a fresh batch per step (torch.full, 64x3x224x224 float32 unless --mib gives another size), or
torch collates 64 samples of 3x64x64 float32, which are there already (cheap) or take some us each (work). A
trainer iterates its DataLoader directly, or through batchd.serve in a process of its own, in share mode. With several
trainers torch makes the batches once for each, because it has no other way. Every trainer reads one value of each page
of a batch and drops the batch. Printed per batch that *one* trainer gets, medians over the rounds: wall time, and CPU
milliseconds of the trainer (which makes batches itself with torch and num_workers=0), of the makers (workers, and the
producer), of the daemon, and of all together.
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
SAMPLES, VALUES, WORK = 64, 100, 1500  # of a batch; batches until the values come again; steps of the work of a sample
SKIP = 6  # batches that do not count: slots are touched for the first time
START_S = 60


def cpu_s(pids):
    """All threads of these processes, as exactly as the kernel measures; without child processes."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids if pid)  # CPUCLOCK_SCHED of that process


# ---- processes ----


def loader_of(a, n):
    import torch

    class Samples(torch.utils.data.Dataset):
        def __init__(self):
            self.made = [torch.full((3, 64, 64), float(k)) for k in range(VALUES)]

        def __len__(self):
            return n * SAMPLES

        def __getitem__(self, i):
            if a.samples == "work":
                for _ in range(WORK):
                    pass
            return self.made[i // SAMPLES % VALUES]

    class Fresh(torch.utils.data.Dataset):
        def __len__(self):
            return n

        def __getitem__(self, i):
            if a.mib:
                return torch.full((a.mib * (1 << 18),), float(i))
            return torch.full((64, 3, 224, 224), float(i))

    torch.set_num_threads(1)
    if a.samples:
        return torch.utils.data.DataLoader(Samples(), SAMPLES, num_workers=a.workers)
    return torch.utils.data.DataLoader(Fresh(), batch_size=None, num_workers=a.workers)


def trainer(a):
    n = a.batches + SKIP
    if a.kind == "torch":
        loader = loader_of(a, n)
    else:
        import torch
        import batchd

        torch.set_num_threads(1)
        loader = batchd.DataLoader(
            "serve:bench", mode="share", rank=-1, world_size=1, job="serve", socket=a.socket, policy="wait"
        )
    print("ready", flush=True)
    sys.stdin.readline()
    import clock

    batches, first = iter(loader), None
    for i in range(n):
        x = next(batches)
        if i == SKIP:
            # Other processes have made batches ahead, then and at the end: between the two points they make as many
            # batches as are counted.
            makers = clock.family(os.getpid())[1:] + (clock.family(a.producer) if a.producer else [])
            begin = time.monotonic(), time.process_time(), cpu_s(makers), cpu_s([a.daemon])
        value = float(x.view(-1)[::1024].mean())
        first = value if first is None else first
        if abs((value - first - i) % VALUES if a.samples else value - first - i) > 1e-3:
            raise SystemExit(f"batch {i} after {first} holds {value}")
        if i == n - 1:
            end = time.monotonic(), time.process_time(), cpu_s(makers), cpu_s([a.daemon])
        del x
    n -= SKIP + 1
    print(
        json.dumps({k: 1000 * (e - b) / n for k, b, e in zip(("wall", "trainer", "makers", "daemon"), begin, end)}),
        flush=True,
    )
    sys.stdin.readline()  # workers and leases stay until all trainers have counted
    os._exit(0)


def producer(a):
    import batchd

    batchd.serve(
        loader_of(a, 100 * (a.batches + SKIP)), "bench", socket=a.socket, epochs=1
    )  # until it is ended, so that no trainer comes too late


def copy(a):
    """Making a batch; copying it to existing memory: milliseconds each."""
    import torch

    torch.set_num_threads(1)
    shape = (a.mib * (1 << 18),) if a.mib else (64, 3, 224, 224)
    to, made, copied = torch.zeros(shape), [], []
    for _ in range(15):
        t0 = time.thread_time()
        x = torch.full(shape, 1.0)
        t1 = time.thread_time()
        to.copy_(x)
        made.append(1000 * (t1 - t0))
        copied.append(1000 * (time.thread_time() - t1))
    print(json.dumps({"make": statistics.median(made), "copy": statistics.median(copied)}))


# ---- rounds ----


def start(a, role, **options):
    arguments = [
        f"--{k}={v}"
        for k, v in {"batches": a.batches, "mib": a.mib, "samples": a.samples, "build": a.build, **options}.items()
    ]
    environment = {
        **os.environ,
        "BATCHD_BUILD": str(a.build),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(REPO / "client/python"), str(HERE)]),
    }
    return subprocess.Popen(
        [sys.executable, __file__, "--role", role, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def say(process):
    process.stdin.write("go\n")
    process.stdin.flush()


def answers(trainers):
    for t in trainers:
        if t.stdout.readline() != "ready\n":
            raise SystemExit("a trainer did not start")
    for t in trainers:
        say(t)
    lines = [t.stdout.readline() for t in trainers]
    if not all(lines):
        raise SystemExit("a trainer failed")
    got = [json.loads(line) for line in lines]
    end(trainers)
    return {k: statistics.mean(g[k] for g in got) for k in got[0]}


def end(processes):
    for p in processes:
        p.stdin.close()
    for p in processes:
        p.wait(START_S)


def torch_round(a, workers, n_trainers):
    return answers([start(a, "trainer", kind="torch", workers=workers) for _ in range(n_trainers)])


def serve_round(a, workers, n_trainers):
    with tempfile.TemporaryDirectory() as folder:
        socket = folder + "/socket"
        daemon = subprocess.Popen(
            [str(a.build / "batchd"), "--foreground", "--socket", socket], stderr=subprocess.DEVNULL
        )
        made = None
        try:
            deadline = time.monotonic() + START_S
            while not os.path.exists(socket) and time.monotonic() < deadline:
                time.sleep(0.02)
            made = start(a, "producer", workers=workers, socket=socket)
            result = answers(
                [
                    start(a, "trainer", kind="serve", socket=socket, producer=made.pid, daemon=daemon.pid)
                    for _ in range(n_trainers)
                ]
            )
        finally:
            for process in filter(None, (made, daemon)):
                process.terminate()
                process.wait(START_S)
    return {**result, "makers": result["makers"] / n_trainers, "daemon": result["daemon"] / n_trainers}


def with_all(values):
    return f"{statistics.median(values):.2f} ({' '.join(format(v, '.2f') for v in values)})"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batches", type=int, default=40)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--trainers", default="1,2,4")
    p.add_argument("--workers", default="0,1")
    p.add_argument("--mib", type=int, default=0, help="of a batch; 0: 64x3x224x224 float32")
    p.add_argument("--samples", default="", help="that torch collates: cheap or work")
    p.add_argument("--quick", action="store_true", help="one round of 15 batches")
    p.add_argument("--build", type=pathlib.Path, default=REPO / "build")
    p.add_argument("--role", help=argparse.SUPPRESS)
    p.add_argument("--kind", help=argparse.SUPPRESS)
    p.add_argument("--socket", help=argparse.SUPPRESS)
    p.add_argument("--producer", type=int, default=0, help=argparse.SUPPRESS)
    p.add_argument("--daemon", type=int, default=0, help=argparse.SUPPRESS)
    a = p.parse_args()
    a.build = a.build.resolve()
    if a.role:
        a.workers = int(a.workers) if a.workers.isdigit() else 0
        return {"trainer": trainer, "producer": producer, "copy": copy}[a.role](a)
    if a.quick:
        a.rounds, a.batches = 1, 15
    floor = json.loads(start(a, "copy").communicate()[0])
    print(f"one batch: made in {floor['make']:.1f} ms of CPU, copied in {floor['copy']:.1f} ms\n")
    print(
        f"{'milliseconds per batch of a trainer':40} {'wall, median (all)':36} CPU: {'trainer':>8} {'makers':>8} {'daemon':>8}  all, median (all)"
    )
    for workers in map(int, a.workers.split(",")):
        for n in map(int, a.trainers.split(",")):
            both = {"torch": [], "serve": []}
            for _ in range(a.rounds):  # in turn, so that other load on the machine affects both
                both["torch"].append(torch_round(a, workers, n))
                both["serve"].append(serve_round(a, workers, n))
            for who, rounds in both.items():
                m = {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}
                everything = [r["trainer"] + r["makers"] + r["daemon"] for r in rounds]
                print(
                    f"{who}, num_workers={workers}, trainers={n:<11} {with_all([r['wall'] for r in rounds]):41} {m['trainer']:9.2f} "
                    f"{m['makers']:8.2f} {m['daemon']:8.2f}  {with_all(everything)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
