#!/usr/bin/env python3
"""The delay of images through val224: batchd.load, in this process and by a daemon's workers, beside Pillow and
torchvision in the same process.

    load.py [--n 300] [--list 8] [FOLDER]     with the package on PYTHONPATH; FOLDER has JPEGs

All take turns over the same files, whose bytes are in memory, one by one and in lists. Prints p50 and p99 of the wall time,
their ratio, the processor time of this process, and the page faults of an image (fresh memory makes a tail). A file that is
larger than others takes longer, so "of a file" and "CPU/file" have p99/p50 of the repetitions of each file: their median. On
a machine with other work only the processor time means something."""

import argparse
import io
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image

import batchd

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from vision import import_torchvision  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]


def torchvisions():
    import torch

    torch.set_num_threads(1)
    v2 = import_torchvision().transforms.v2
    ops = v2.Compose(
        [
            v2.Resize(256),
            v2.CenterCrop(224),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )

    def one(data):
        return ops(Image.open(io.BytesIO(data)).convert("RGB"))

    return lambda data: torch.stack([one(d) for d in data]) if isinstance(data, list) else one(data)


def measure(load, data):
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    result = load(data)
    took = (time.perf_counter_ns() - wall) / 1e6, (time.process_time_ns() - cpu) / 1e6
    del result
    return *took, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults


def tail(values, n):
    """p99 / p50 of each of n inputs, whose values take turns: their median."""
    return np.median([np.percentile(values[k::n], 99) / np.percentile(values[k::n], 50) for k in range(n)])


def table(title, ways, inputs, n):
    """n measurements of each way, in turn, over the inputs."""
    took = {name: [] for name in ways}
    for load in ways.values():
        for data in inputs[:3]:
            load(data)  # imports, tables, buffers
    for i in range(n):
        for name, load in ways.items():
            took[name].append(measure(load, inputs[i % len(inputs)]))
    heads = ("p50", "p99", "p99/p50", "of a file", "CPU p50", "CPU p99", "CPU/file", "faults")
    print(f"{title:24} " + " ".join(f"{head:>9}" for head in heads))
    p50 = {}
    for name, times in took.items():
        wall, cpu, faults = np.array(times).T
        p50[name] = np.percentile(wall, 50)
        p99 = np.percentile(wall, 99)
        numbers = (p50[name], p99, p99 / p50[name], tail(wall, len(inputs)))
        numbers += (np.percentile(cpu, 50), np.percentile(cpu, 99), tail(cpu, len(inputs)), np.mean(faults))
        print(f"{name:24} " + " ".join(f"{number:9.2f}" for number in numbers))
    for name in list(ways)[1:]:
        print(f"p50 of {name} / Pillow+torchvision: {p50[name] / p50['Pillow+torchvision']:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default=str(ROOT.parent / "shared" / "data" / "photos"))
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--list", type=int, default=8, help="images of a list")
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    args = parser.parse_args()
    files = sorted(p for p in pathlib.Path(args.folder).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        sys.exit(f"{args.folder} has no JPEG: name a folder that has some")
    contents = [p.read_bytes() for p in files[: args.files]]
    lists = [(contents * 2)[i : i + args.list] for i in range(0, len(contents), args.list)]
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/socket"
        daemon = subprocess.Popen(
            [args.build / "batchd", "--foreground", "--socket", socket], stderr=subprocess.DEVNULL
        )
        try:
            while not pathlib.Path(socket).exists():
                time.sleep(0.05)
            ways = {
                "Pillow+torchvision": torchvisions(),
                "inline=True": lambda data: batchd.load(data, inline=True),
                "inline=False": lambda data: batchd.load(data, inline=False, socket=socket),
            }
            table("ms per image", ways, contents, args.n)
            print()
            table(f"ms per list of {args.list}", ways, lists, max(args.n // args.list, 3))
        finally:
            daemon.terminate()
            daemon.wait()


if __name__ == "__main__":
    main()
