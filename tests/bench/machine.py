"""The facts without which a figure means nothing: machine, data, sizes."""

import datetime
import os
import pathlib
import platform


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Processor")):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe(args):
    sizes = sorted(os.path.getsize(os.path.join(folder, f)) for folder, _, files in os.walk(args.data) for f in files)
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {len(os.sched_getaffinity(0))} processors, Linux {platform.release()}",
        "data": f"{args.data.name}: {len(sizes)} files, median {sizes[len(sizes) // 2] / 1000:.0f} kB, {sum(sizes) / 1e6:.0f} MB, in page cache",
        "sizes": f"batch {args.batch_size}, float32 NCHW, {args.workers} workers or threads each, {args.rounds} rounds",
    }
