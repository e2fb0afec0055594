"""Four trials share a loader; one is slow, one is killed in the middle: what the other two get, and how fast.

batchd beside TensorSocket 0.0.5.

share_slow.py [--seconds 8] [--only batchd|tensorsocket] [--build build]

Both serve the same generated samples in the same order. Each sample holds its own number in every element, and every
batch of a trial is compared with that. A batch is *wrong* when its rows are not those of one batch of the order (other
samples, or rows that changed while they were read) and *repeated or missing* when it is not the one after the trial's
last. Each trial "trains" 5 ms a batch, the slow one 200 ms, and reads the batch at the end of that time, as a device
copy in progress would; the killed one gets SIGKILL after a third of the time.

TensorSocket runs on its CPU path (tensors in shared memory, pickled over ZeroMQ), as there is no GPU here. On a GPU its
buffer pool is the same code with CUDA IPC handles instead of the shared memory, so the slow trial's figures apply to
that path, too; its speed does not. TensorSocket is made for its own GPU path: the output says so beside the figures.
Peers that are not installed are reported as absent.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

N, BATCH, ROW = 4096, 32, 3 * 32 * 32
SLOW_S, FAST_S = 0.2, 0.005
START_S = 40


def consume(batches, slow, seconds):
    """Takes batches for that time: what was wrong with them, and when they came."""
    end, stamps, wrong, gaps, last = time.monotonic() + seconds, [], 0, 0, None
    for x in batches:
        first = [float(v) for v in x[:, 0]]  # the samples of this batch as it arrives
        time.sleep(SLOW_S if slow else FAST_S)
        rows = x.reshape(x.shape[0], -1)
        # The order is 0, 1, 2, ...: row i of batch k is sample k * BATCH + i in all of its elements, on arrival and
        # later.
        step = int(first[0]) // BATCH
        right = all(
            float(rows[i].min()) == float(rows[i].max()) == first[i] == step * BATCH + i for i in range(rows.shape[0])
        )
        wrong += not right
        if last is not None and right:
            gaps += step != (last + 1) % (N // BATCH)
        last = step if right else None
        stamps.append(time.monotonic())
        if stamps[-1] >= end:
            break
        del x, rows
    return {"n": len(stamps), "wrong": wrong, "gaps": gaps, "stamps": stamps}


# ---- batchd ----


def trial_batchd(a):
    import batchd

    loader = batchd.DataLoader(
        f"npy:{a.data}",
        BATCH,
        mode="share",
        job="slow",
        rank=-1,
        world_size=1,
        policy=a.policy,
        socket=a.socket,
        arrays="numpy",
    )

    def batches():
        while True:
            for got in loader:
                yield got[0] if isinstance(got, (tuple, list)) else got

    print("ready", flush=True)
    sys.stdin.readline()
    result = consume(batches(), a.slow, a.seconds)
    print(json.dumps({**result, "skipped": loader.n_skipped}), flush=True)
    os._exit(0)


class Batchd:
    def __init__(self, a, folder):
        self.policy = a.policy
        self.folder = folder
        import numpy

        data = numpy.repeat(numpy.arange(N, dtype="float32")[:, None], ROW, axis=1)
        numpy.save(folder / "data.npy", data)
        self.socket = folder / "socket"
        self.daemon = subprocess.Popen(
            [str(a.build / "batchd"), "--foreground", "--socket", str(self.socket)], stderr=subprocess.DEVNULL
        )
        while not self.socket.exists():
            time.sleep(0.01)

    def arguments(self):
        return ["--socket", str(self.socket), "--data", str(self.folder / "data.npy"), "--policy", self.policy]

    def close(self):
        self.daemon.terminate()
        self.daemon.wait()


# ---- TensorSocket ----


def serve_tensorsocket(a):
    import torch
    from tensorsocket import TensorProducer

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return N

        def __getitem__(self, i):
            return torch.full((ROW,), float(i)), i

    loader = torch.utils.data.DataLoader(Numbers(), BATCH, num_workers=1)
    producer = TensorProducer(loader, port=a.port, ack_port=a.port + 1, heart_ports=(a.port + 2, a.port + 3))
    print("ready", flush=True)
    while True:
        for _ in producer:
            pass


def trial_tensorsocket(a):
    from tensorsocket import TensorConsumer

    consumer = TensorConsumer(port=a.port, ack_port=a.port + 1, heart_ports=(a.port + 2, a.port + 3), batch_size=BATCH)

    def batches():
        while True:
            for got in consumer:
                yield got[0]

    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps({**consume(batches(), a.slow, a.seconds), "skipped": 0}), flush=True)
    os._exit(0)


class TensorSocket:
    def __init__(self, a, folder):
        self.port = 20000 + os.getpid() % 20000
        self.server = start("serve_tensorsocket", ["--port", str(self.port)])
        await_ready(self.server)

    def arguments(self):
        return ["--port", str(self.port)]

    def close(self):
        self.server.kill()
        self.server.wait()


# ---- the run ----


def start(role, arguments):
    return subprocess.Popen(
        [sys.executable, __file__, "--role", role, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def await_ready(process):
    """Skips what the peer logs to its output. The wait for a peer ends even if some of its trials never find its
    server."""
    timer = threading.Timer(START_S, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            if line == "ready\n":
                return
    finally:
        timer.cancel()
    raise TimeoutError(f"a process did not start within {START_S} s")


def run(kind, role, a, disturbed):
    """Four trials: what each got. disturbed: the third is slow, the fourth is killed after a third of the time."""
    with tempfile.TemporaryDirectory(prefix="share-slow-") as folder:
        peer = kind(a, pathlib.Path(folder))
        trials = []
        try:
            for i in range(4):
                slow = ["--slow"] if disturbed and i == 2 else []
                trials.append(start(role, [*peer.arguments(), "--seconds", str(a.seconds), *slow]))
            for t in trials:
                await_ready(t)
            for t in trials:
                t.stdin.write("go\n")
                t.stdin.flush()
            began = time.monotonic()
            time.sleep(a.seconds / 3)
            killed = time.monotonic()
            if disturbed:
                trials[3].kill()
            results = []
            for i, t in enumerate(trials):
                try:
                    out, _ = t.communicate(timeout=max(1, began + 2 * a.seconds + 5 - time.monotonic()))
                    results.append(json.loads(out.splitlines()[-1]) if out.endswith("}\n") else None)
                except subprocess.TimeoutExpired:
                    t.kill()
                    results.append(None)
            return results, began, killed
        finally:
            for t in trials:
                if t.poll() is None:
                    t.kill()
            peer.close()


def report(name, kind, role, a):
    alone, _, _ = run(kind, role, a, False)
    results, began, killed = run(kind, role, a, True)
    good = [r for r in results[:2] if r]
    rate = [r["n"] / a.seconds for r in good] or [0]
    calm = [r["n"] / a.seconds for r in alone[:2] if r] or [0]
    pauses = [max((y - x for x, y in zip(r["stamps"], r["stamps"][1:])), default=0) for r in good] or [a.seconds]
    slow = results[2]
    print(
        f"{name:34} {statistics.mean(calm):9.1f} {statistics.mean(rate):9.1f} {statistics.mean(rate) / max(statistics.mean(calm), 1e-9):7.0%}"
        f" {max(pauses):8.2f} s {sum(r['wrong'] + r['gaps'] for r in good):7d}"
        + (
            f" {slow['n']:9d} {slow['wrong']:6d} {slow['gaps']:6d} {slow['skipped']:7d}"
            if slow
            else "   it got nothing"
        ),
        flush=True,
    )


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--only", choices=("batchd", "tensorsocket"))
    p.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "build")
    for name, kind in (("--role", str), ("--socket", str), ("--data", str), ("--policy", str)):
        p.add_argument(name, type=kind, default=None, help=argparse.SUPPRESS)
    p.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    p.add_argument("--slow", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
    os.environ["BATCHD_BUILD"] = str(a.build.resolve())
    if a.role:
        return globals()[a.role](a)
    print(
        f"{'':34} {'-- the two others, batches/s --':>37} {'longest':>9} {'wrong':>8} {'- the slow one: batches, wrong, out of order, skipped':>12}"
    )
    print(f"{'':34} {'calm':>9} {'disturbed':>9} {'':>7} {'pause':>10}")
    for policy in ("detach", "skip") if a.only != "tensorsocket" else ():
        a.policy = policy
        report(f"batchd, policy {policy}", Batchd, "trial_batchd", a)
    if a.only == "batchd":
        return
    try:
        import importlib.metadata

        version = importlib.metadata.version("tensorsocket")
        import tensorsocket  # noqa: F401
    except ImportError:
        print("TensorSocket                       not installed (pip install tensorsocket==0.0.5): left out")
        return
    try:
        report(f"TensorSocket {version}, CPU path", TensorSocket, "trial_tensorsocket", a)
    except TimeoutError as e:
        print(f"TensorSocket {version}, CPU path         no figures: {e}")


if __name__ == "__main__":
    main()
