"""How much of their throughput other jobs keep while a file system hangs: a FUSE server (tests/fake/fuse/fuse.h) that is stopped
between two epochs.

hung.py [--build build] [--seconds 10] [--workers N] [--jobs 4] [--images FOLDER]

Needs root, because it mounts. Measures the batches per second of a job on `random:` and of a job on a local image
folder: each alone, then beside --jobs jobs on the server's files while the server answers, then while it hangs; three
times over, medians. Prints JSON. `kept` is hung / alone and must be at least 0.9: otherwise the exit status is 1. Run
it on a machine that does nothing else.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]

IN_A_NAMESPACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd, folder, program = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x44000, None) or libc.mount(b"batchd", folder.encode(), b"fuse", 6, options):
    sys.exit("mounting FUSE is not allowed here: " + os.strerror(ctypes.get_errno()))
os.close(fd)
os.execv(program[0], program)
"""

TRAINER = """
import json, sys, time
import batchd
dataset, job, options = json.loads(sys.argv[1])
loader = batchd.DataLoader(dataset, 64, shuffle=True, job=job, arrays="numpy", **options)
def batches():
    while True:
        yield from loader
it = batches()
next(it)
print("ready", flush=True)
for line in sys.stdin:
    end, n = time.monotonic() + float(line), 0
    while time.monotonic() < end:
        next(it)
        n += 1
    print(n / float(line), flush=True)
"""


class Trainer:
    def __init__(self, env, dataset, job, **options):
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, json.dumps([dataset, job, options])],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n", "a trainer ended"

    def start(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()

    def rate(self):
        return float(self.process.stdout.readline())

    def end(self):
        self.process.kill()
        self.process.wait()


def measure(a, folder, images):
    far = folder / "far"
    far.mkdir()
    fuse = os.open("/dev/fuse", os.O_RDWR)
    config = f"bad_data: 100%\nlinger: 0s\ncache: {{decoded: off}}\ndatasets:\n  - name: far\n    source: imagefolder:{far}\n"
    (folder / "batchd.yaml").write_text(config + (f"workers: {a.workers}\n" if a.workers else ""))
    sock = folder / "socket"
    server = subprocess.Popen([a.build / "tests/tools/fuse", str(fuse), str(images)], pass_fds=[fuse])
    daemon = subprocess.Popen(
        [
            sys.executable,
            "-c",
            IN_A_NAMESPACE,
            str(fuse),
            str(far),
            str(a.build / "batchd"),
            "--foreground",
            "--socket",
            str(sock),
            "--config",
            str(folder / "batchd.yaml"),
        ],
        pass_fds=[fuse],
        stderr=subprocess.DEVNULL,
    )
    os.close(fuse)
    while not sock.exists():
        assert daemon.poll() is None, "batchd ended"
        time.sleep(0.01)
    env = {
        **os.environ,
        "BATCHD_SOCKET": str(sock),
        "PYTHONPATH": str(REPO / "client/python"),
        "BATCHD_LIBRARY": str(a.build / "libbatchd.so"),
    }
    trainers = []

    def start(*args, **options):
        trainers.append(Trainer(env, *args, **options))
        return trainers[-1]

    try:
        others = {
            "random": lambda: start("random:length=65536,shape=3072", "random"),
            "images": lambda: start(f"imagefolder:{images}", "images", transform="train224", dtype="uint8"),
        }
        results = {}
        for name, make in others.items():
            job = make()
            rates = {"alone": [], "beside": [], "hung": []}

            def one(state, seconds=a.seconds):
                job.start(seconds)
                rates[state].append(job.rate())

            for _ in range(3):
                one("alone")
                jobs = [start("far", f"far{len(trainers)}", transform="train224", dtype="uint8") for _ in range(a.jobs)]
                for j in jobs:
                    j.start(10**6)
                one("beside")
                server.send_signal(signal.SIGSTOP)
                one("hung")
                server.send_signal(signal.SIGCONT)
                for j in jobs:
                    j.end()
            job.end()
            medians = {state: statistics.median(r) for state, r in rates.items()}
            results[name] = {
                **{k: round(v, 1) for k, v in medians.items()},
                "kept": round(medians["hung"] / medians["alone"], 3),
            }
        return results
    finally:
        server.send_signal(signal.SIGCONT)
        for t in trainers:
            t.end()
        daemon.terminate()
        daemon.wait()
        server.kill()
        server.wait()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", type=pathlib.Path, default=REPO / "build")
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--jobs", type=int, default=4)
    p.add_argument("--images", type=pathlib.Path)
    a = p.parse_args()
    a.build = a.build.resolve()
    with tempfile.TemporaryDirectory(prefix="batchd-hung-") as folder:
        folder = pathlib.Path(folder)
        images = a.images
        if not images:
            images = folder / "images"
            subprocess.run(
                [a.build / "batchctl", "sample-data", images, "--classes", "4", "--per-class", "100"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        results = measure(a, folder, images.resolve())
    print(json.dumps(results, indent=2))
    sys.exit(any(r["kept"] < 0.9 for r in results.values()))


if __name__ == "__main__":
    main()
