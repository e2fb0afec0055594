"""Two training processes, one loader: batchd demonstrated in a minute or two.

Makes sample pictures (or takes --data DIR, a folder with one sub-folder per class), starts a daemon of its own, trains
a small model in two rank processes for four epochs, and counts: every sample must have arrived exactly once per epoch,
over both ranks together. The same job then runs with each rank loading for itself: with PyTorch's DataLoader where that
is installed, otherwise with a similar one (baseline.py). Exit code 0 only if no sample is missing or duplicated.
"""

import argparse
import collections
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import queue

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
RANKS = 2
PICTURES = (".jpg", ".jpeg", ".png", ".webp")
START_S = 30
SILENCE_S = 180  # a rank that prints nothing for so long is stuck


class Failed(Exception):
    """An error that ends the demonstration, with a text for the user."""


class Progress:
    """One line that is rewritten on a terminal; elsewhere only its final form is printed."""

    def __init__(self):
        self.live = sys.stdout.isatty()

    def show(self, text):
        if self.live:
            print(f"\r\x1b[K{text}", end="", flush=True)

    def settle(self, text):
        print(f"\r\x1b[K{text}" if self.live else text, flush=True)


def step(text):
    print(f"\n== {text}", flush=True)


def imports(*modules):
    return (
        subprocess.run(
            [sys.executable, "-c", "import " + ",".join(modules)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode
        == 0
    )


def cpu_s_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- processes to end at exit ----


class Daemon:
    """batchd in the foreground, on a socket in a folder that disappears afterwards."""

    def __init__(self, build, folder, environment):
        self.socket, self.log = folder / "batchd.sock", folder / "batchd.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [build / "batchd", "--foreground", "--socket", self.socket],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )
        deadline = time.monotonic() + START_S
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failed("the daemon did not start. It said:\n" + self.log.read_text(errors="replace"))
            time.sleep(0.02)

    def cpu_s(self):
        return cpu_s_of(self.process.pid)

    def stop(self):
        self.process.terminate()
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failed("the daemon did not stop within 20 s") from None
        if code:
            raise Failed(
                f"the daemon ended with exit code {code}. It said:\n" + self.log.read_text(errors="replace")[-4000:]
            )


class Ranks:
    """The training processes and the stream of their events."""

    def __init__(self, args, folder, loader, n_classes, environment):
        self.events, self.processes, self.logs, self.done = queue.Queue(), [], [], set()
        workers = max(1, len(os.sched_getaffinity(0)) // RANKS)
        for rank in range(RANKS):
            log = folder / f"{loader}-rank{rank}.log"
            self.logs.append(log)
            with open(log, "wb") as stderr:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        HERE / "rank.py",
                        "--loader",
                        loader,
                        "--data",
                        args.data,
                        "--batch-size",
                        str(args.batch_size),
                        "--epochs",
                        str(args.epochs),
                        "--seed",
                        str(args.seed),
                        "--classes",
                        str(n_classes),
                        "--num-workers",
                        str(workers),
                        "--rendezvous",
                        folder / f"{loader}-rendezvous",
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                    start_new_session=True,
                    env={
                        **environment,
                        "RANK": str(rank),
                        "LOCAL_RANK": str(rank),
                        "WORLD_SIZE": str(RANKS),
                        "LOCAL_WORLD_SIZE": str(RANKS),
                    },
                )
            self.processes.append(process)
            threading.Thread(target=self.listen, args=(rank, process), daemon=True).start()

    def listen(self, rank, process):
        for line in process.stdout:
            self.events.put((rank, json.loads(line)))
        self.events.put((rank, {"event": "end", "code": process.wait()}))

    def next(self):
        try:
            rank, event = self.events.get(timeout=SILENCE_S)
        except queue.Empty:
            raise Failed(f"the ranks have said nothing for {SILENCE_S} s") from None
        if event["event"] == "done":
            self.done.add(rank)
        if event["event"] == "end" and rank not in self.done:
            raise Failed(
                f"rank {rank} ended with exit code {event['code']}. It said:\n"
                + self.logs[rank].read_text(errors="replace")[-4000:]
            )
        return rank, event

    def wait_for(self, kind):
        """The events of that kind, one from each rank, in rank order."""
        found = {}
        while len(found) < RANKS:
            rank, event = self.next()
            if event["event"] == kind:
                found[rank] = event
        return [found[rank] for rank in range(RANKS)]

    def begin(self):
        for process in self.processes:
            process.stdin.write("go\n")
            process.stdin.flush()

    def stop(self):
        """Ends the processes that still run, worker processes too."""
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


# ---- one training job ----


class Job:
    """The reports of the ranks."""

    def __init__(self):
        self.epochs = collections.defaultdict(dict)  # epoch -> rank -> its "epoch" event
        self.loading_cpu_s = 0.0
        self.ends = {}  # epoch -> seconds from the beginning of the job until both ranks had done it
        self.n_samples = 0  # as the loader counts them

    def rows(self):
        return sum(e["rows"] for ranks in self.epochs.values() for e in ranks.values())

    def rates(self):
        """Images per second: of the first epoch, of the later ones (0: there are none), of all."""
        ends = [0.0] + [self.ends[epoch] for epoch in sorted(self.ends)]
        rows = [sum(e["rows"] for e in self.epochs[epoch].values()) for epoch in sorted(self.ends)]
        later_s = ends[-1] - ends[1]
        return rows[0] / ends[1], sum(rows[1:]) / later_s if later_s else 0.0, sum(rows) / ends[-1]

    def cpu_ms_per_image(self):
        return 1000 * self.loading_cpu_s / self.rows()


def train(args, folder, loader, n_samples, n_classes, environment, daemon=None):
    ranks = Ranks(args, folder, loader, n_classes, environment)
    job, progress, seen, expected = Job(), Progress(), {}, -(-n_samples // RANKS) * RANKS
    try:
        model = ranks.wait_for("ready")[0]["model"]
        print(f"   model: {model}")
        daemon_before = daemon.cpu_s() if daemon else 0.0
        began = time.monotonic()
        ranks.begin()
        done = 0
        while done < RANKS:
            rank, event = ranks.next()
            if event["event"] == "open":
                job.n_samples, expected = event["n_samples"], -(-event["n_samples"] // RANKS) * RANKS
            elif event["event"] == "batch":
                seen[rank] = event
                rows = sum(e["rows"] for e in seen.values() if e["epoch"] == event["epoch"])
                width = 30 * rows // expected
                progress.show(
                    f"   epoch {event['epoch'] + 1}/{args.epochs} [{'#' * width}{'.' * (30 - width)}] {rows}/{expected} images,"
                    f" loss {event['loss']:.3f}"
                )
            elif event["event"] == "epoch":
                this = job.epochs[event["epoch"]]
                this[rank] = event
                job.loading_cpu_s -= event["training_s"]
                if len(this) == RANKS:
                    rows, seconds = sum(e["rows"] for e in this.values()), max(e["seconds"] for e in this.values())
                    job.ends[event["epoch"]] = time.monotonic() - began
                    progress.settle(
                        f"   epoch {event['epoch'] + 1}/{args.epochs}: {rows} images in {seconds:.1f} s, {rows / seconds:.0f} images/s,"
                        f" loss {sum(e['loss'] for e in this.values()) / rows:.3f},"
                        f" accuracy {100 * sum(e['right'] for e in this.values()) / rows:.0f} %"
                    )
            elif event["event"] == "done":
                done += 1
                job.loading_cpu_s += event["cpu_s"]
        if daemon:
            job.loading_cpu_s += daemon.cpu_s() - daemon_before
        return job
    finally:
        ranks.stop()


def count(job):
    """Samples missing and duplicated over all epochs; padding rows are not samples."""
    n_samples = job.n_samples
    missing = duplicated = 0
    for ranks in job.epochs.values():
        times = collections.Counter(i for event in ranks.values() for i in event["indices"])
        missing += sum(times[i] == 0 for i in range(n_samples))
        duplicated += sum(n - 1 for n in times.values()) + sum(i not in range(n_samples) for i in times)
    return missing, duplicated


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print(
            "   "
            + "  ".join(text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths)))
        )


def report(job, own, with_torch):
    rows = [["batchd", "images/s", "batches", "samples", "padding", "loss", "accuracy"]]
    for epoch, ranks in sorted(job.epochs.items()):
        for rank, e in sorted(ranks.items()):
            rows.append(
                [
                    f"epoch {epoch + 1}, rank {rank}",
                    f"{e['rows'] / e['seconds']:.0f}",
                    str(e["batches"]),
                    str(len(e["indices"])),
                    str(e["padding"]),
                    f"{e['loss'] / e['rows']:.3f}",
                    f"{100 * e['right'] / e['rows']:.0f} %",
                ]
            )
    table(rows)
    missing, duplicated = count(job)
    print(
        f"\n   samples missing: {missing}   samples duplicated: {duplicated}   (of {job.n_samples} in each of {len(job.epochs)} epochs)\n"
    )
    jobs = [("one batchd for both", job)] + ([("each rank its own workers", own)] if own else [])
    rows = [["both ranks, images/s", "first epoch", "later epochs", "all", "CPU ms per image to load"]]
    rows += [[name, *(f"{rate:.0f}" for rate in j.rates()), f"{j.cpu_ms_per_image():.2f}"] for name, j in jobs]
    if own:
        rows += [
            [
                "ratio",
                *(f"{a / b:.2f} x" if b else "" for a, b in zip(job.rates(), own.rates())),
                f"{job.cpu_ms_per_image() / own.cpu_ms_per_image():.2f} x",
            ]
        ]
    table(rows)
    print(
        "\n   In its first epoch batchd also takes memory and keeps the decoded pixels, from which the later epochs come."
    )
    if not own:
        print("   (The comparison with each rank's own workers needs Pillow, which is not installed.)")
    elif not with_torch:
        print(
            "   (The workers are plain processes in the manner of PyTorch's DataLoader, as PyTorch is not installed.\n"
            "   `make demo TORCH=1` installs it into build/demo-venv, up to 3 GB, and compares with its own.)"
        )
    return job.n_samples > 0 and missing == 0 and duplicated == 0


# ---- the demonstration ----


def sample_data(build, folder, quick):
    per_class = 16 if quick else 80
    subprocess.run(
        [build / "batchctl", "sample-data", folder, "--classes", "8", "--per-class", str(per_class)],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def look_at(data):
    """Number of images and of classes in an image folder."""
    if not data.is_dir():
        raise Failed(f"'{data}' is not a folder. DATA must name one that has a sub-folder of images for each class.")
    classes = [d for d in data.iterdir() if d.is_dir()]
    n = sum(
        name.lower().endswith(PICTURES)
        for c in classes
        for _, _, names in os.walk(c, followlinks=True)
        for name in names
    )
    if n < RANKS:
        raise Failed(
            f"'{data}' has no images in sub-folders. DATA must name a folder that has a sub-folder of images for each class."
        )
    return n, len(classes)


def demonstrate(args, folder):
    of_the_tree = {
        "PYTHONPATH": os.pathsep.join([str(REPO / "client" / "python"), str(HERE)]),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(args.build), os.environ.get("LD_LIBRARY_PATH")])),
    }
    environment = {
        **os.environ,
        **({} if args.installed else of_the_tree),
        "OMP_NUM_THREADS": "1",
        "BATCHD_SOCKET": str(folder / "batchd.sock"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    if args.data is None:
        step("Sample data")
        args.data = folder / "data"
        sample_data(args.build, args.data, args.quick)
    n_samples, n_classes = look_at(args.data)

    step(
        f"Training with batchd: {RANKS} ranks share one loader, {n_samples} images, {n_classes} classes, {args.epochs} epochs,"
        f" batches of {args.batch_size}"
    )
    daemon = Daemon(args.build, folder, environment)
    try:
        job = train(args, folder, "batchd", n_samples, n_classes, environment, daemon)
    finally:
        daemon.stop()

    own = None
    with_torch = imports("torch.utils.data")
    if imports("PIL"):
        workers = (
            "torch.utils.data.DataLoader: each" if with_torch else "worker processes that decode with Pillow: each"
        )
        step(f"The same training with {workers} rank has its own")
        own = train(args, folder, "own", n_samples, n_classes, environment)

    step("Result")
    return report(job, own, with_torch)


def programs_of_the_package():
    """Where a wheel has its programs. Not imported: this process does no training."""
    found = importlib.util.find_spec("batchd")
    if found is None:
        sys.exit(f"{sys.executable} has no package batchd: `pip install` the wheel of `make wheel`")
    return pathlib.Path(found.origin).parent / "_bin"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=REPO / "build")
    parser.add_argument("--installed", action="store_true", help="batchd as pip installed it for this Python")
    parser.add_argument("--data", type=pathlib.Path, help="an image folder (default: sample images made for this)")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="fewer images")
    args = parser.parse_args()
    args.build = programs_of_the_package() if args.installed else args.build.resolve()
    args.data = args.data and args.data.resolve()

    def interrupted(*_):
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="batchd-demo-"))
    try:
        return 0 if demonstrate(args, folder) else 1
    except Failed as e:
        print(f"\nThe demonstration failed: {e}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as e:
        print(f"\nThe demonstration failed: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; everything is stopped and cleaned up.", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
