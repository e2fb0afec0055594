"""The measurements. A scenario takes the runner and returns {"title", "unit", "rows": [{"who", "rate": [...], "cpu":
[...]}], "ratios": [...]}.

rate: images (samples, batches) a second, one value per round; cpu: CPU milliseconds for each; either may be missing. A
ratio is {"text", "values", "target", "at_least"}; values has one per round. "text" is printed as it is.
"""

import json
import os
import subprocess
import time

import crops

NO_CACHE = "cache:\n  jpeg: off\n  decoded: off\n"
JPEG_CACHE = "cache:\n  jpeg: auto\n  decoded: off\n"
IN_STOCK = 16  # batches; as many as any of these loaders makes ahead (slots: auto)
BOTH_CACHES = "cache:\n  jpeg: auto\n  decoded: auto\n"


class Limit:
    """libjpeg-turbo alone, with the interface of a loader."""

    def __init__(self, runner, lines):
        self.runner, self.lines = runner, "\n".join(lines) + "\n"

    def ask(self, epochs, skip):
        return self.runner.run(
            self.runner.args.build / "tests/bench/limit", self.runner.args.workers, epochs, input=self.lines
        )


def rounds(runner, loaders, warm_up=1, n_batches=None, measure=40, settle=True):
    """Measures all loaders in turn, again and again. Rows in the loaders' order; loaders that are None are left out.

    n_batches: of an epoch; measure: how many to measure at least; settle: whether to end the loaders and daemons. An idle loader has batches in stock, which would
    flatter it: every count leaves out the first batches.
    """
    loaders = {who: loader for who, loader in loaders.items() if loader}
    per_epoch = n_batches or -(-len(runner.pictures()) // runner.args.batch_size)
    skip = IN_STOCK
    epochs = -(-(skip + (measure // 5 if runner.args.quick else measure)) // per_epoch)
    for who, loader in loaders.items():
        loader.ask(warm_up, 1)
    rows = {who: {"who": who, "rate": [], "cpu": []} for who in loaders}
    for _ in range(runner.args.rounds):
        for who, loader in loaders.items():
            m = loader.ask(epochs, skip)
            rows[who]["rate"].append(m["images"] / m["wall_s"])
            rows[who]["cpu"].append(1000 * m["cpu_s"] / m["images"])
    if settle:
        runner.settle()
    return rows


def ratio(rows, what, above, below, text, target, at_least):
    """rows[above][what] / rows[below][what], round by round; None when one of them is absent."""
    if above not in rows or below not in rows:
        return None
    values = [a / b for a, b in zip(rows[above][what], rows[below][what])]
    return {"text": text, "values": values, "target": target, "at_least": at_least}


def result(title, rows, ratios, unit="images"):
    return {"title": title, "unit": unit, "rows": list(rows.values()), "ratios": [r for r in ratios if r]}


def first_epoch(runner, transform):
    daemon = runner.daemon(transform, NO_CACHE)
    loaders = {"batchd": runner.batchd(daemon, transform=transform)}
    for name in ("PyTorch", "DALI", "SPDL"):
        loaders[name] = runner.participant(name, transform=transform)
    return loaders


def train224(runner):
    """Every sample is new: everything is decoded."""
    loaders = first_epoch(runner, "train224")
    loaders["FFCV, its own quality 90 file"] = ffcv = runner.participant("FFCV", transform="train224")
    if ffcv:
        copy = crops.quality_90_copy(runner)
        daemon = runner.daemon("q90", NO_CACHE)
        loaders["batchd, the same at quality 90"] = runner.batchd(daemon, data=str(copy), transform="train224")
    loaders["libjpeg-turbo, full decode"] = Limit(runner, crops.full(runner))
    loaders["libjpeg-turbo, only the crops"] = Limit(runner, crops.train224(runner))
    rows = rounds(runner, loaders)
    return result(
        "train224, first epoch",
        rows,
        [
            ratio(
                rows,
                "cpu",
                "batchd",
                "libjpeg-turbo, only the crops",
                "CPU per image, batchd / libjpeg-turbo's region decode",
                1.15,
                False,
            ),
            ratio(rows, "rate", "batchd", "PyTorch", "images/s, batchd / PyTorch", 3, True),
            ratio(rows, "rate", "batchd", "DALI", "images/s, batchd / DALI", None, True),
            ratio(rows, "rate", "batchd", "SPDL", "images/s, batchd / SPDL", None, True),
            ratio(
                rows,
                "rate",
                "batchd, the same at quality 90",
                "FFCV, its own quality 90 file",
                "images/s, batchd / FFCV, quality 90",
                2,
                True,
            ),
        ],
    )


def val224(runner):
    loaders = first_epoch(runner, "val224")
    loaders["libjpeg-turbo, full decode"] = Limit(runner, crops.full(runner))
    loaders["libjpeg-turbo, only the centres"] = Limit(runner, crops.val224(runner))
    rows = rounds(runner, loaders)
    return result(
        "val224, first epoch",
        rows,
        [
            ratio(
                rows,
                "cpu",
                "batchd",
                "libjpeg-turbo, only the centres",
                "CPU per image, batchd / libjpeg-turbo's region decode",
                1.15,
                False,
            ),
            ratio(rows, "rate", "batchd", "PyTorch", "images/s, batchd / PyTorch", None, True),
        ],
    )


def indexed(runner):
    daemon = runner.daemon("indexed", JPEG_CACHE)
    loaders = {
        "batchd": runner.batchd(daemon, transform="train224"),
        "libjpeg-turbo, only the crops": Limit(runner, crops.train224(runner)),
    }
    rows = rounds(runner, loaders, warm_up=3)
    return result(
        "train224, later epochs with re-indexed JPEGs",
        rows,
        [
            ratio(
                rows,
                "cpu",
                "batchd",
                "libjpeg-turbo, only the crops",
                "CPU per image, batchd / libjpeg-turbo's region decode",
                0.75,
                False,
            )
        ],
    )


def cached(runner):
    daemon = runner.daemon("cached", BOTH_CACHES)
    loaders = {
        "batchd": runner.batchd(daemon, transform="train224"),
        "PyTorch": runner.participant("PyTorch", transform="train224"),
    }
    rows = rounds(runner, loaders, warm_up=3)
    return result(
        "train224, decoded cache holds everything",
        rows,
        [ratio(rows, "rate", "batchd", "PyTorch", "images/s, batchd / PyTorch", 10, True)],
    )


def share(runner):
    """Every trainer gets every batch. Images a second delivered to all of them together. Long enough that making the
    slots, once per loader, does not count."""
    daemon = runner.daemon("share", NO_CACHE)
    rows, decoded = {}, {}
    for _ in range(runner.args.rounds):
        for n in (1, 2, 4):
            m = runner.run(
                runner.args.build / "batchctl",
                "bench",
                runner.args.data,
                "--socket",
                daemon.socket,
                "--mode",
                "share",
                "--trainers",
                n,
                "--batch-size",
                runner.args.batch_size,
                "--epochs",
                2 if runner.args.quick else 32,
                "--transform",
                "train224",
                "--json",
                "--quiet",
            )["total"]
            row = rows.setdefault(n, {"who": f"{n} trainers" if n > 1 else "1 trainer", "rate": [], "cpu": []})
            row["rate"].append(m["images_per_s"])
            row["cpu"].append(m["cpu_ms_per_image"])
            decoded.setdefault(n, []).append(m["decoded"] / (m["images"] / n))
    runner.settle()
    ratios = [
        ratio(rows, "rate", 4, 1, "delivered images/s, 4 trainers / 1", 3.9, True),
        ratio(rows, "cpu", 4, 1, "CPU per delivered image, 4 trainers / 1", 0.26, False),
        {
            "text": "images decoded per image of the epoch, 4 trainers",
            "values": decoded[4],
            "target": 1.05,
            "at_least": False,
        },
    ]
    return result("share: every trainer gets every batch", rows, ratios)


def handover_parts(m):
    return {
        "CPU microseconds, trainer, batches that follow at once": m["mean_cpu_us"],
        "CPU microseconds, trainer, first batch after a sleep": m["after_sleep_cpu_us"],
        "CPU microseconds, daemon's loop, dispatching 64 samples included": m["loop_cpu_us"],
        "CPU microseconds, trainer, one by one with a sleep after each": m["steady_mean_cpu_us"],
        "CPU microseconds, daemon's loop, one by one": m["steady_loop_cpu_us"],
        "CPU microseconds, waking a sleeping thread on this machine": m["wake_us"],
        "trainer's system calls a batch, at once": m["calls"],
        "trainer's system calls a batch, one by one": m["steady_calls"],
        "wake-ups of the loop a batch, one by one": m["steady_loop_wakes"],
        "wake-ups of workers a batch, one by one": m["steady_worker_wakes"],
    }


def handover(runner):
    """A ready batch of 38.5 MB: CPU of both sides. The rate is of no interest here, so rows have CPU per batch only."""
    n = 10 if runner.args.quick else 40
    ours, few, peers = (
        {"who": who, "cpu": [], "parts_us": []}
        for who in ("batchd", "batchd, slots: 4", "PyTorch, copy of 38.5 MB included")
    )
    daemons = [(ours, runner.daemon("handover", "")), (few, runner.daemon("handover-4", "slots: 4\n"))]
    for _ in range(runner.args.rounds):
        for row, daemon in daemons:
            m = runner.run(runner.args.build / "tests/bench/handover", daemon.socket, daemon.pid, n)
            row["cpu"].append((m["mean_cpu_us"] + m["loop_cpu_us"]) / 1000)
            row["parts_us"].append(handover_parts(m))
        try:
            m = runner.python("torch_handover.py", n)
            peers["cpu"].append((m["cpu_us"] + m["worker_cpu_us"]) / 1000)
        except subprocess.CalledProcessError:
            runner.absent.setdefault("PyTorch's hand-over", "torch_handover.py failed")
    runner.settle()
    rows = {"batchd": ours, "few": few, **({"PyTorch": peers} if peers["cpu"] else {})}
    parts = {part: [p[part] for p in ours["parts_us"]] for part in ours["parts_us"][0]}
    return result(
        "hand-over of a ready batch",
        rows,
        [
            {
                "text": "CPU microseconds, both sides together",
                "values": [1000 * v for v in ours["cpu"]],
                "target": 20,
                "at_least": False,
            },
            *({"text": part, "values": values, "target": None, "at_least": False} for part, values in parts.items()),
            ratio(rows, "cpu", "PyTorch", "batchd", "CPU, PyTorch / batchd", None, True),
        ],
        unit="batches",
    )


def npy(runner):
    """10000 rows of 256 float32, batch 128."""
    import numpy

    files = [str(runner.scratch / name) for name in ("features.npy", "labels.npy")]
    generator = numpy.random.default_rng(0)
    numpy.save(files[0], generator.standard_normal((10000, 256), numpy.float32))
    numpy.save(files[1], generator.integers(0, 10, 10000))
    daemon = runner.daemon("npy")
    options = {"transform": None, "batch_size": 128, "files": files}
    loaders = {
        "batchd": runner.batchd(daemon, dataset="npy:" + ",".join(files), **options),
        "PyTorch TensorDataset, num_workers=0": runner.participant("TensorDataset", **options),
        "one numpy.take per batch": runner.participant("gather", **options),
    }
    rows = rounds(runner, loaders, n_batches=79, measure=5000)
    return result(
        "npy: 10000 x 256 float32, batch 128",
        rows,
        [
            ratio(
                rows,
                "rate",
                "batchd",
                "PyTorch TensorDataset, num_workers=0",
                "samples/s, batchd / TensorDataset",
                10,
                True,
            ),
            ratio(rows, "rate", "one numpy.take per batch", "batchd", "samples/s, one gather copy / batchd", 2, False),
        ],
        unit="samples",
    )


def first_batch(runner):
    """From the trainer's first call to its first batch, in milliseconds. Only this is shown, because a CPU column has
    no meaning here."""
    options = {
        "data": str(runner.args.data),
        "batch_size": runner.args.batch_size,
        "workers": runner.args.workers,
        "transform": "train224",
        "scratch": str(runner.scratch),
    }
    warm, cold, torch = [], [], []
    for i in range(runner.args.rounds):
        daemon = runner.daemon(f"first-{i}", NO_CACHE)
        ask = lambda job: runner.python(
            "first_batch.py", "batchd", json.dumps({**options, "socket": daemon.socket, "job": job})
        )["ms"]
        ask("warm-up")
        warm.append(ask("warm"))
        runner.settle()
        folder = runner.scratch / f"runtime-{i}"
        folder.mkdir(mode=0o700)
        cold.append(on_demand(runner, folder, options))
        try:
            torch.append(runner.python("first_batch.py", "PyTorch", json.dumps(options))["ms"])
        except subprocess.CalledProcessError:
            runner.absent.setdefault("PyTorch's first batch", "first_batch.py failed")
    rows = {
        "warm": {"who": "batchd, daemon runs", "ms": warm},
        "cold": {"who": "batchd, daemon started on demand", "ms": cold},
    }
    if torch:
        rows["torch"] = {"who": "PyTorch", "ms": torch}
    return result(
        "first batch",
        rows,
        [
            {"text": "ms, daemon runs", "values": warm, "target": 300, "at_least": False},
            {"text": "ms, with the daemon's own start", "values": cold, "target": 1000, "at_least": False},
        ],
    )


def on_demand(runner, folder, options):
    """Uses a runtime directory of its own, so that no daemon is there; ends the daemon that the call starts."""
    environment = dict(runner.environment)
    runner.environment = {
        **environment,
        "XDG_RUNTIME_DIR": str(folder),
        "XDG_CACHE_HOME": str(folder),
        "BATCHD_SOCKET": str(folder / "socket"),
    }
    runner.environment.pop("BATCHD_SOCKET")
    try:
        return runner.python("first_batch.py", "batchd", json.dumps({**options, "socket": None, "job": "cold"}))["ms"]
    finally:
        runner.environment = environment
        for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
            try:
                with open(f"/proc/{pid}/environ", "rb") as e, open(f"/proc/{pid}/comm") as comm:
                    if str(folder).encode() in e.read() and comm.read().strip() == "batchd":
                        os.kill(int(pid), 15)
            except OSError:
                pass


def memory(runner):
    """Resident memory of a daemon that works for two jobs within a budget."""
    budget = 512 << 20
    daemon = runner.daemon("memory", "memory: 512MiB\n" + BOTH_CACHES)
    over = []
    for _ in range(runner.args.rounds):
        jobs = [
            subprocess.Popen(
                [
                    runner.args.build / "batchctl",
                    "bench",
                    runner.args.data,
                    "--socket",
                    daemon.socket,
                    "--epochs",
                    "3",
                    "--transform",
                    t,
                    "--quiet",
                    "--json",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            for t in ("train224", "val224")
        ]
        while any(j.poll() is None for j in jobs):
            time.sleep(0.05)
        over.append((runner.memory(daemon)[1] - budget) / (1 << 20))
    runner.settle()
    rows = {"batchd": {"who": "batchd, two jobs, memory: 512MiB", "mib": [o + 512 for o in over]}}
    return result(
        "resident memory",
        rows,
        [{"text": "MiB above the budget, at most", "values": over, "target": 64, "at_least": False}],
    )


def kernels(runner):
    """The parts alone: programs with tables of their own."""
    quick = runner.args.quick
    programs = [("kernels", "11" if quick else "101"), ("decode", runner.args.data, "1" if quick else "5"), ("gather",)]
    texts = [
        subprocess.run(
            [runner.args.build / "tests/bench" / name, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout
        for name, *arguments in programs
    ]
    return {"title": "parts by themselves", "unit": "images", "rows": [], "ratios": [], "text": "\n".join(texts)}


SCENARIOS = {
    "train224": train224,
    "indexed": indexed,
    "cached": cached,
    "val224": val224,
    "share": share,
    "handover": handover,
    "npy": npy,
    "first-batch": first_batch,
    "memory": memory,
    "kernels": kernels,
}
