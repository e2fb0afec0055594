"""What a loader for each validation costs: time and the daemon's memory, beside one loader that is kept.

    BATCHD_BUILD=build build/venv/bin/python tests/bench/validations.py PICTURES [VALIDATIONS]

PICTURES: a folder of class folders; 100 pictures of it are taken, with val224 in batches of 64. Memory is the daemon's
PSS, the largest after a validation. The limit: a loader has the pages of the one before, and its pictures come from the
decoded cache.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "client" / "python"))
import batchd  # noqa: E402

PICTURES, BATCH = 100, 64


def pss_mb(pid):
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def take(folder, into):
    """Links to the first pictures of the folder, in one class."""
    found = sorted(p for p in pathlib.Path(folder).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if len(found) < PICTURES:
        sys.exit(f"{folder} has {len(found)} pictures; give a folder with at least {PICTURES}")
    (into / "class").mkdir(parents=True)
    for i, picture in enumerate(found[:PICTURES]):
        (into / "class" / f"{i}{picture.suffix}").symlink_to(picture.resolve())
    return f"imagefolder:{into}"


def through(loader):
    return sum(len(labels) for _, labels in loader)


def again(data, socket):
    with batchd.DataLoader(data, BATCH, transform="val224", socket=socket) as loader:
        return through(loader)


def measure(name, pid, n, validate):
    seconds, most_mb = [], 0
    for _ in range(n):
        began = time.perf_counter()
        rows = validate()
        seconds.append(time.perf_counter() - began)
        assert rows == PICTURES
        most_mb = max(most_mb, pss_mb(pid))
    print(f"  {name:24} {statistics.median(seconds) * 1000:7.1f} ms      the daemon: {most_mb:6.0f} MB")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    build = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build")).resolve()
    with tempfile.TemporaryDirectory(prefix="batchd-bench-") as folder:
        data, socket = take(sys.argv[1], pathlib.Path(folder, "data")), f"{folder}/s"
        daemon = subprocess.Popen([build / "batchd", "--foreground", "--socket", socket], stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(socket):
                time.sleep(0.01)
            print(f"{n} validations of {PICTURES} pictures, val224, batches of {BATCH}, medians:")
            measure("a loader each", daemon.pid, n, lambda: again(data, socket))
            with batchd.DataLoader(data, BATCH, transform="val224", socket=socket) as kept:
                measure("one loader, kept", daemon.pid, n, lambda: through(kept))
        finally:
            daemon.terminate()
            daemon.wait()


if __name__ == "__main__":
    main()
