"""Atomic instructions that a row executes: python tests/bench/atomics.py --build build [--workers 2 8]

Runs a daemon under valgrind's callgrind with few and with more epochs, counts how often each instruction with a lock
prefix, or an exchange with memory, was executed in the daemon and its libraries, and prints what the additional rows
cost the workers and the I/O threads, for each function. The loop's thread is left out: it works for batches, and
answers batchctl. Taking a free mutex is one of them in the C library, and releasing it another one. Valgrind runs one
thread at a time: contention.py has how often a lock is taken already. It does not know openat2, without which each
file is left to an I/O thread, so the pictures lie in a tar file.
"""

import argparse
import collections
import functools
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time

PICTURES, TRAIN = "pictures.tar", "train224"
KINDS = {
    "no cache": (PICTURES, "cache:\n  jpeg: off\n  decoded: off\n"),
    "index": (PICTURES, "cache:\n  jpeg: auto\n  decoded: off\n"),
    "decoded": (PICTURES, "cache:\n  jpeg: off\n  decoded: auto\n"),
    "arrays": ("random:length=2048,shape=3x32x32,dtype=float32", ""),
}
FEW, MORE, N_PICTURES, N_ARRAYS = 3, 9, 32, 2048
ATOMIC = re.compile(r"^\s*([0-9a-f]+):\s.*(\block\s|\bxchg\s.*\()", re.M)
BEGINS_S = 60


@functools.cache
def atomics_of(binary):
    """The addresses of the atomic instructions of a program or library."""
    argv = ["objdump", "-d", "--no-show-raw-insn", binary]
    text = subprocess.run(argv, capture_output=True, text=True).stdout if os.path.exists(binary) else ""
    return {int(m[1], 16) for m in ATOMIC.finditer(text)}


def read(path):
    """{(program or library, function): executions of its atomic instructions} of one thread, from callgrind's file.

    None: the thread is neither a worker nor an I/O thread."""
    counts = collections.Counter()
    text = path.read_text()
    if not re.search(r"^fn=(pool_worker_main|pool_relief_main|pool_io_main)$", text, re.M):
        return None
    binary = function = None
    called = False  # the line behind calls= has what the callee executed
    for line in text.splitlines():
        if line.startswith("ob="):
            binary = line[3:]
        elif line.startswith("fn="):
            function = line[3:]
        elif line.startswith("calls="):
            called = True
        elif line.startswith("0x"):
            address, _, times, *_ = line.split() + ["0"]
            if not called and int(address, 16) in atomics_of(binary):
                counts[pathlib.Path(binary).name, function] += int(times)
            called = False
    return counts


def make_tar(path, folder):
    """The pictures of the folder with their labels."""
    with tarfile.open(path, "w") as tar:
        for i, picture in enumerate(sorted(folder.rglob("*.jpg"))):
            tar.add(picture, f"{i:04}.jpg")
            label = tarfile.TarInfo(f"{i:04}.cls")
            label.size = 1
            tar.addfile(label, io.BytesIO(b"%d" % (i % 2)))


def measure(args, scratch, workers, kind, epochs):
    """What a daemon has executed over so many epochs, and its start and end."""
    data, config = KINDS[kind]
    name = f"{kind.replace(' ', '-')}-{workers}-{epochs}"
    home, out = scratch / name, scratch / f"{name}.callgrind"
    home.mkdir()
    (home / "batchd.yaml").write_text(config + "log_level: error\n")
    environment = os.environ | {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
    argv = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"]
    argv += [
        "--fair-sched=yes",
        "--separate-threads=yes",
        f"--callgrind-out-file={out}",
        args.build / "batchd",
        "--socket",
        home / "socket",
    ]
    argv += ["--config", home / "batchd.yaml", "--workers", str(workers)]
    with open(home / "log", "wb") as log:
        daemon = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until = time.monotonic() + BEGINS_S
        asks = [args.build / "batchctl", "status", "--socket", home / "socket"]
        while subprocess.run(asks, env=environment, stdin=subprocess.DEVNULL, capture_output=True).returncode:
            if daemon.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"atomics: the daemon did not start:\n{(home / 'log').read_text()}")
            time.sleep(0.1)
        argv = [args.build / "batchctl", "bench", f"tar:{scratch / data}" if data == PICTURES else data]
        argv += ["--socket", home / "socket", "--batch-size", str(args.batch_size), "--epochs", str(epochs), "--quiet"]
        argv += ["--transform", TRAIN] if data == PICTURES else []
        subprocess.run(argv, check=True, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()
    threads = [read(path) for path in scratch.glob(f"{out.name}*")]
    return sum((counts for counts in threads if counts), collections.Counter())


def per_row(args, scratch, workers, kind):
    """[(executions, program or library, function)] for a row, the most frequent first."""
    few, more = (measure(args, scratch, workers, kind, n) for n in (FEW, MORE))
    more.subtract(few)
    rows = (N_PICTURES if KINDS[kind][0] == PICTURES else N_ARRAYS) * (MORE - FEW)
    return [(n / rows, *where) for where, n in more.most_common()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.build = args.build.resolve()
    for tool in ("valgrind", "objdump"):
        if not shutil.which(tool):
            raise SystemExit(f"atomics: {tool} is not installed")
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="batchd-atomics-"))
    found = {}
    try:
        argv = [args.build / "batchctl", "sample-data", scratch / "pictures", "--classes", "2", "--quiet"]
        argv += ["--per-class", str(N_PICTURES // 2)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        make_tar(scratch / PICTURES, scratch / "pictures")
        for kind in KINDS if not args.only else [args.only]:
            for workers in args.workers:
                table = per_row(args, scratch, workers, kind)
                own = sum(n for n, binary, _ in table if binary == "batchd")
                others = sum(n for n, *_ in table) - own
                found[f"{kind}, {workers} workers"] = {"batchd": own, "libraries": others}
                if args.json:
                    continue
                print(f"{kind}, {workers} workers: {own:.2f} in the daemon, {others:.2f} in libraries, a row")
                for n, binary, function in table:
                    if n >= 0.02:
                        print(f"   {n:6.2f}  {function} ({binary})", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
