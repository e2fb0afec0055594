"""HuggingFace data sets: how fast their Arrow files are opened, and pictures from them against a folder and the package.

python tests/bench/hf.py --build build [--data DIR] [--samples 100000] [--bytes 10000] [--rounds 3]

Opening reads the places of --samples pictures of --bytes bytes and their labels, from files in the page cache. `train224` is
the first epoch, without caches, of the pictures in --data from a folder and from Arrow files, in turn, and through the
package's own way: set_transform with torchvision below torch's DataLoader with --workers. The folder is a copy written
just before, as the Arrow files are: see shards.py.
CPU time is that of trainer, worker processes and daemon.
"""

import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import datasets

import formats

FEATURES = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})


def save(folder, n, picture):
    def rows():
        for i in range(n):
            data, label = picture(i)
            yield {"image": {"bytes": data, "path": None}, "label": label}

    with tempfile.TemporaryDirectory(dir=folder.parent) as cache:
        made = datasets.Dataset.from_generator(rows, features=FEATURES, cache_dir=cache)
        made.save_to_disk(folder, num_shards=10)


def cpu(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def opening(args, scratch):
    content = os.urandom(args.bytes)
    save(scratch / "many", args.samples, lambda i: (content, i % 1000))
    times = []
    for _ in range(args.rounds):
        before, began = cpu(resource.RUSAGE_CHILDREN), time.monotonic()
        tool = [args.build / "tests" / "tools" / "dataset", f"arrow:{scratch}/many"]
        subprocess.run(tool, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        times.append((time.monotonic() - began, cpu(resource.RUSAGE_CHILDREN) - before))
    wall, used = (statistics.median(t[i] for t in times) for i in (0, 1))
    print(
        f"opening {args.samples / wall:10.0f} samples/s   {used / args.samples * 1e6:6.2f} us of CPU a sample (the list's "
        "printing included)"
    )


def package(args, folder, n):
    """ms of CPU an image: one epoch in a process of its own, whose workers end with it."""
    script = f"""
import datasets, sys, torch
sys.path.insert(0, {str(pathlib.Path(__file__).resolve().parents[1] / 'support')!r})
import vision
v2 = vision.import_torchvision().transforms.v2
t = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
data = datasets.load_from_disk({str(folder)!r})
data.set_transform(lambda rows: {{"x": [t(image.convert("RGB")) for image in rows["image"]], "y": rows["label"]}})
for _ in range({args.epochs}):
    for batch in torch.utils.data.DataLoader(data, {args.batch_size}, shuffle=True, num_workers={args.workers}):
        pass
"""
    before, began = cpu(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, "-c", script], check=True, stdin=subprocess.DEVNULL)
    n *= args.epochs
    return n / (time.monotonic() - began), (cpu(resource.RUSAGE_CHILDREN) - before) / n * 1e3


def train(args, runner, scratch):
    paths = [pathlib.Path(p) for p in runner.pictures()]
    save(scratch / "few", len(paths), lambda i: (paths[i].read_bytes(), i % 7))
    daemons = {label: runner.daemon(label, "cache: {jpeg: off, decoded: off}\n") for label in ("folder", "arrow")}
    loaders = {
        "folder": runner.batchd(daemons["folder"], transform="train224", job="folder"),
        "arrow": runner.batchd(daemons["arrow"], transform="train224", job="arrow", dataset=f"arrow:{scratch}/few"),
    }
    rates = {label: [] for label in (*loaders, "datasets")}
    for i in range(args.rounds + 1):
        for label, loader in loaders.items():
            time.sleep(0.5)  # until the other has read ahead as far as it goes
            m = loader.ask(args.epochs, 20)
            if i:
                rates[label].append((m["images"] / m["wall_s"], m["cpu_s"] / m["images"] * 1e3))
        if i:
            rates["datasets"].append(package(args, scratch / "few", len(paths)))
    formats.tell(rates, 10)
    for other in ("folder", "datasets"):
        ratio = statistics.median(a[1] / o[1] for o, a in zip(rates[other], rates["arrow"]))
        print(f"CPU of arrow / {other}: {ratio:.3f}")


if __name__ == "__main__":
    sys.exit(formats.main(__doc__, "hf", opening, train))
