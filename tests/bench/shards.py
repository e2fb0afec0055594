"""Shards of tar and archives of zip: how fast their index is made, and pictures from them against the same pictures in a folder.

python tests/bench/shards.py --build build [--data DIR] [--samples 100000] [--bytes 10000] [--rounds 3]

The index is made of --samples samples (a picture of --bytes bytes and a label) in 10 shards, in the page cache: samples
a second and bytes of shards a second, once without a kept index and once with one, for tar and for zip. `train224` is the first epoch, without
caches, of the pictures in --data from a folder, from shards, and from archives of stored and of deflated pictures, in turn.
The folder is a copy written just before, as the shards are: beside the folder as it was found, which had been written
long before, shards took 7 % more CPU time, and none more beside a copy. A ratio is the median of the rounds' own ratios. CPU time is that of trainer and daemon.
"""

import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tarfile
import time
import zipfile

import formats

SHARDS = 10
SOURCES = {"folder": None, "tar": "tar", "stored": "zip", "deflated": "zip"}


def header(name, n_bytes):
    info = tarfile.TarInfo(name)
    info.size = n_bytes
    return info.tobuf(tarfile.USTAR_FORMAT)


def write_shards(folder, pictures):
    """pictures: (bytes, label) pairs."""
    folder.mkdir()
    for s in range(SHARDS):
        with open(folder / f"train-{s:03}.tar", "wb") as f:
            for i in range(len(pictures) * s // SHARDS, len(pictures) * (s + 1) // SHARDS):
                data, label = pictures[i]
                for name, part in ((f"{i:08}.cls", str(label).encode()), (f"{i:08}.jpg", data)):
                    f.write(header(name, len(part)) + part + bytes(-len(part) % 512))
            f.write(bytes(1024))


def write_archives(folder, pictures, method=zipfile.ZIP_STORED):
    folder.mkdir()
    for s in range(SHARDS):
        with zipfile.ZipFile(folder / f"train-{s:03}.zip", "w", method) as z:
            for i in range(len(pictures) * s // SHARDS, len(pictures) * (s + 1) // SHARDS):
                data, label = pictures[i]
                z.writestr(f"{label:04}/{i:08}.jpg", data)


class Same:
    """So many pictures that are one."""

    def __init__(self, n, n_bytes):
        self.n, self.picture = n, os.urandom(n_bytes)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.picture, i % 1000


def index(args, scratch):
    same = Same(args.samples, args.bytes)
    write_shards(scratch / "tar", same)
    index_one(args, scratch, "tar")
    write_archives(scratch / "zip", same)
    index_one(args, scratch, "zip")


def index_one(args, scratch, kind):
    n_bytes = sum(p.stat().st_size for p in (scratch / kind).iterdir())
    cache = scratch / f"cache-{kind}"
    cache.mkdir()
    tool = [args.build / "tests" / "tools" / "dataset", f"{kind}:{scratch}/{kind}"]
    rows = {"no kept index": [], "kept index": []}
    for _ in range(args.rounds):
        for label in rows:
            command = tool + ([cache] if label == "kept index" else [])
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.monotonic()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            wall = time.monotonic() - began
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            rows[label].append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    for label, times in rows.items():
        wall, cpu = (statistics.median(t[i] for t in times) for i in (0, 1))
        print(
            f"{kind}, {label:19} {args.samples / wall:10.0f} samples/s {n_bytes / wall / 1e9:6.2f} GB/s of shards   "
            f"{cpu / args.samples * 1e6:6.2f} us of CPU a sample (the list's printing included)"
        )


def train(args, runner, scratch):
    classes = sorted(p.name for p in args.data.iterdir() if p.is_dir())
    files = [
        (pathlib.Path(p).read_bytes(), classes.index(pathlib.Path(p).relative_to(args.data).parts[0]))
        for p in runner.pictures()
    ]
    write_shards(scratch / "few-tar", files)
    write_archives(scratch / "few-stored", files)
    write_archives(scratch / "few-deflated", files, zipfile.ZIP_DEFLATED)
    # A daemon each: what one reads ahead is not the other's CPU time.
    daemons = {label: runner.daemon(label, "cache: {jpeg: off, decoded: off}\n") for label in SOURCES}
    loaders = {
        label: runner.batchd(
            daemons[label],
            transform="train224",
            job=label,
            **({"dataset": f"{kind}:{scratch}/few-{label}"} if kind else {}),
        )
        for label, kind in SOURCES.items()
    }
    rates = {label: [] for label in loaders}
    for i in range(args.rounds + 1):
        for label, loader in loaders.items():
            time.sleep(0.5)  # until the other has read ahead as far as it goes
            m = loader.ask(args.epochs, 20)
            if i:
                rates[label].append((m["images"] / m["wall_s"], m["cpu_s"] / m["images"] * 1e3))
    formats.tell(rates, 14)
    for label in list(SOURCES)[1:]:
        ratio = statistics.median(t[1] / f[1] for f, t in zip(rates["folder"], rates[label]))
        print(f"CPU of {label} / folder: {ratio:.3f}")


if __name__ == "__main__":
    sys.exit(formats.main(__doc__, "shards", index, train))
