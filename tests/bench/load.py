#!/usr/bin/env python3
"""The delay of one image through val224: batchd.load beside Pillow and torchvision in the same process.

    load.py [--n 300] [FOLDER]     with the package on PYTHONPATH; FOLDER has JPEGs

Both take turns over the same files, whose bytes are in memory. Prints p50 and p99 of the wall time and the processor
time of an image; on a machine with other work only the processor time means something."""

import argparse
import pathlib
import sys
import time

import numpy as np
from PIL import Image

import batchd

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import io  # noqa: E402

from vision import import_torchvision  # noqa: E402


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

    def load(data):
        return ops(Image.open(io.BytesIO(data)).convert("RGB"))

    return load


def measure(load, data):
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    load(data)
    return (time.perf_counter_ns() - wall) / 1e6, (time.process_time_ns() - cpu) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "folder", nargs="?", default=str(pathlib.Path(__file__).parents[3] / "shared" / "data" / "photos")
    )
    parser.add_argument("--n", type=int, default=300)
    args = parser.parse_args()
    files = sorted(p for p in pathlib.Path(args.folder).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        sys.exit(f"{args.folder} has no JPEG: name a folder that has some")
    contents = [p.read_bytes() for p in files[: args.n]]
    ways = {"Pillow+torchvision": torchvisions(), "batchd.load": batchd.load}
    took = {name: [] for name in ways}
    for name, load in ways.items():
        load(contents[0])  # imports, tables, buffers
    for i in range(args.n):
        for name, load in ways.items():
            took[name].append(measure(load, contents[i % len(contents)]))
    print(f"{'ms per image':20} {'p50':>8} {'p99':>8} {'CPU p50':>8}")
    p50 = {}
    for name, times in took.items():
        wall, cpu = np.array(times).T
        p50[name] = np.percentile(wall, 50)
        print(f"{name:20} {p50[name]:8.2f} {np.percentile(wall, 99):8.2f} {np.percentile(cpu, 50):8.2f}")
    print(f"p50 ratio {p50['batchd.load'] / p50['Pillow+torchvision']:.2f}")


if __name__ == "__main__":
    main()
