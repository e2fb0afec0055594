"""Cheap rows: windows of tokens beside one gather of the same bytes, arrays in memory beside torch's TensorDataset, small
tensors beside x[perm] in a loop, rows of a file beside its memory map, and digits (ToTensor, Normalize) beside the same
arithmetic on a whole batch of a tensor in memory. Small tensors cost no more than reading 400 bytes a row, digits than reading
784 and writing 3136: what is left to batchd is its bookkeeping of rows, batches and epochs.

    BATCHD_BUILD=build build/venv/bin/python tests/bench/rows.py [ROUNDS [tokens|arrays|small|mapped|digits]...]

Rounds alternate, and a ratio is the median of the rounds' own. Rates are of wall time; processor time of this process, of
the daemon and of torch's workers stands beside them, which other load on the machine disturbs less.
"""

import multiprocessing
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "client" / "python"))
import batchd  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402

T, B, TOKENS = 1024, 64, 64 << 20
ROWS, COLUMNS, ROW_BATCH = 100_000, 256, 128


def processor_time(pid):
    """Of this process, of the daemon `pid` and of torch's workers, in seconds. Clock ticks are too coarse for it."""
    pids = [pid, *(child.pid for child in multiprocessing.active_children())]
    threads = [path for one in pids for path in pathlib.Path(f"/proc/{one}/task").glob("*/schedstat")]
    return time.process_time() + sum(int(path.read_text().split()[0]) for path in threads) * 1e-9


def timed(batches, n, pid):
    """(batches a second, processor seconds a batch) of the next n."""
    for _ in range(20):
        next(batches)
    cpu, start = processor_time(pid), time.perf_counter()
    for _ in range(n):
        next(batches)
    return n / (time.perf_counter() - start), (processor_time(pid) - cpu) / n


def forever(loader):
    while True:
        yield from loader


def gathers(path):
    """One copy of as many bytes as x and y have, from the same places of the file widened once before."""
    data = numpy.memmap(path, "uint16", "r")[: 4 << 20].astype("int64")
    windows = numpy.lib.stride_tricks.sliding_window_view(data, T + 1)
    rng = numpy.random.default_rng(0)
    x, y = numpy.empty((B, T), "int64"), numpy.empty((B, T), "int64")
    while True:
        for i, start in enumerate(rng.integers(0, len(windows), B)):
            x[i], y[i] = data[start : start + T], data[start + 1 : start + 1 + T]
        yield x, y


def nanogpt(path):
    """nanoGPT's get_batch."""
    while True:
        data = numpy.memmap(path, dtype=numpy.uint16, mode="r")
        ix = torch.randint(len(data) - T, (B,))
        x = torch.stack([torch.from_numpy((data[i : i + T]).astype(numpy.int64)) for i in ix])
        y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + T]).astype(numpy.int64)) for i in ix])
        yield x, y


def report(title, loaders, rounds, n, pid):
    rates = {name: [] for name in loaders}
    costs = {name: [] for name in loaders}
    for _ in range(rounds):
        for name, batches in loaders.items():
            rate, cost = timed(batches, n, pid)
            rates[name].append(rate)
            costs[name].append(cost)
    print(title)
    first = next(iter(loaders))
    for name in loaders:
        ratio = statistics.median(a / b for a, b in zip(rates[first], rates[name]))
        work = statistics.median(b / a for a, b in zip(costs[first], costs[name]))
        print(
            f"  {name:28} {statistics.median(rates[name]):10.0f} batches/s {statistics.median(costs[name]) * 1e6:8.0f} us of processor"
            f"   {first} / this: {ratio:5.2f} in rate, {work:5.2f} in processor time"
        )


DIGITS, DIGIT_BATCH, MEAN, STD = 60_000, 64, 0.1307, 0.3081


def write_digits(folder):
    """MNIST's two files, with noise for pictures."""
    arrays = (
        numpy.random.default_rng(0).integers(0, 256, (DIGITS, 28, 28), "uint8"),
        (numpy.arange(DIGITS) % 10).astype("uint8"),
    )
    paths = [pathlib.Path(folder, name) for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")]
    for path, array in zip(paths, arrays):
        head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        path.write_bytes(head + array.tobytes())
    return paths, torch.from_numpy(arrays[0])[:, None], torch.from_numpy(arrays[1]).long()


def tensor_operations(images, labels):
    """What a user writes who has found that a DataLoader costs more than the network."""
    while True:
        order = torch.randperm(DIGITS)
        for at in range(0, DIGITS - DIGIT_BATCH + 1, DIGIT_BATCH):
            rows = order[at : at + DIGIT_BATCH]
            yield (images[rows].float() / 255 - MEAN) / STD, labels[rows]


def tokens(folder, socket):
    path = f"{folder}/train.bin"
    numpy.random.default_rng(0).integers(0, 50257, TOKENS, "uint16").tofile(path)
    options = dict(batch_size=B, length=T, socket=socket)
    return (
        f"tokens: x and y, {B} x {T} int64",
        400,
        {
            "batchd random": iter(batchd.DataLoader(f"tokens:{path},windows=random", **options)),
            "batchd in sequence": forever(batchd.DataLoader(f"tokens:{path}", **options)),
            "one gather of as many bytes": gathers(path),
            "nanoGPT": nanogpt(path),
        },
    )


def arrays(folder, socket):
    x, y = torch.randn(ROWS, COLUMNS), torch.arange(ROWS) % 10
    data = torch.utils.data.TensorDataset(x, y)

    def torchs(workers):
        more = dict(num_workers=workers, persistent_workers=workers > 0)
        return forever(torch.utils.data.DataLoader(data, ROW_BATCH, shuffle=True, **more))

    return (
        f"(x, y) in memory: {ROW_BATCH} x {COLUMNS} float32, shuffled",
        2000,
        {
            "batchd": forever(batchd.DataLoader((x, y), ROW_BATCH, shuffle=True, socket=socket)),
            "TensorDataset": torchs(0),
            "TensorDataset, 1 worker": torchs(1),
            "TensorDataset, 2 workers": torchs(2),
        },
    )


def permuted(*tensors, batch):
    """The loop that a user writes whose data fit into memory."""
    n = len(tensors[0])
    while True:
        order = torch.randperm(n)
        for at in range(0, n - batch + 1, batch):
            rows = order[at : at + batch]
            yield tuple(t[rows] for t in tensors)


def small_of(n_rows, n_columns):
    def small(folder, socket):
        x, y, batch = torch.randn(n_rows, n_columns), torch.arange(n_rows) % 10, 64
        loader = batchd.DataLoader((x, y), batch, shuffle=True, drop_last=True, socket=socket)
        return (
            f"tensors of {n_rows} x {n_columns} float32, {batch} rows a batch, shuffled",
            10_000,
            {"batchd": forever(loader), "x[perm] in a loop": permuted(x, y, batch=batch)},
        )

    return small


def mapped(folder, socket):
    """Rows of 150 kB, of which the page cache has all."""
    n_rows, batch = 4096, 64
    path = f"{folder}/rows.npy"
    numpy.save(path, numpy.random.default_rng(0).integers(0, 256, (n_rows, 3, 224, 224), "uint8"))
    data = numpy.load(path, mmap_mode="r")

    def indexed():
        while True:
            order = numpy.random.permutation(n_rows)
            for at in range(0, n_rows, batch):
                yield torch.from_numpy(data[order[at : at + batch]])

    return (
        f"rows of 150 kB from a file, {batch} a batch, shuffled",
        400,
        {
            "batchd": forever(batchd.DataLoader(f"npy:{path}", batch, shuffle=True, socket=socket)),
            "the rows of its memory map": indexed(),
        },
    )


def digits(folder, socket):
    paths, images, labels = write_digits(folder)
    ops = [["ToTensor"], ["Normalize", [MEAN], [STD]]]
    loader = batchd.DataLoader(
        "idx:" + ",".join(map(str, paths)), DIGIT_BATCH, shuffle=True, transform=ops, socket=socket
    )
    return (
        f"digits: {DIGIT_BATCH} x 28 x 28 to float32, normalised, shuffled",
        4000,
        {
            "batchd, IDX files": forever(loader),
            "tensor operations": tensor_operations(images, labels),
        },
    )


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    parts = {
        "tokens": [tokens],
        "arrays": [arrays],
        "small": [small_of(1000, 100), small_of(10_000, 256)],
        "mapped": [mapped],
        "digits": [digits],
    }
    chosen = sys.argv[2:] or list(parts)
    torch.set_num_threads(1)
    build = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build")).resolve()
    with tempfile.TemporaryDirectory(prefix="batchd-bench-") as folder:
        socket = f"{folder}/s"
        daemon = subprocess.Popen([build / "batchd", "--foreground", "--socket", socket], stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(socket):
                time.sleep(0.01)
            for make in (make for name in chosen for make in parts[name]):
                title, n, loaders = make(folder, socket)
                report(title, loaders, rounds, n, daemon.pid)
        finally:
            daemon.terminate()
            daemon.wait()


if __name__ == "__main__":
    main()
