"""Measurements on a GPU, in parts, each with a time limit, and --seconds for all of them: bench.py [PART]...

RESULTS.md, results.json and results.svg in --out are rewritten after each figure, so that a measurement that hangs loses
none. With --add, what earlier runs have left there stays, except for parts that are measured again. Parts for which the
time is too short, and those that were cut off, are named there and on standard output.

--fake: small sizes on the fake driver, to check that all of it runs; the numbers mean nothing. Exit status 1 if a
program failed, or a part did not come to its end.
"""

import argparse
import contextlib
import importlib.util
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import costs
import facts
import npy_file
import own_daemon
from outcomes import read
from results import Results

REPO = pathlib.Path(__file__).resolve().parents[2]
PICTURE = 224 * 224 * 3
END_S = 15  # for ending processes and for writing
N_ROWS = 4096
NOBODY = 65534


class OutOfTime(Exception):
    pass


class Bench(Results):
    def __init__(self, options):
        super().__init__(options.gpu, options.fake)
        self.build, self.out, self.work = (pathlib.Path(p) for p in (options.build, options.out, options.work))
        self.name, self.n_faults = "", 0  # the part that is being measured
        self.work.mkdir(parents=True, exist_ok=True)
        self.env = os.environ | {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(self.build), os.environ.get("LD_LIBRARY_PATH")])),
            "BATCHD_BUILD": str(self.build),
            "PATH": f"{self.build}{os.pathsep}{os.environ['PATH']}",
        }
        self.env.pop("BATCHD_LIBCUDA", None)
        if self.fake:
            self.env |= {
                "BATCHD_LIBCUDA": str(self.build / "libfakecuda.so"),
                "FAKECUDA_QUIET": "1",
                "FAKECUDA_DIR": str(self.work),
                "TRAIN_DEVICE": "cpu",
            }
        self.began = time.monotonic()
        self.deadline = self.began + options.seconds - END_S
        self.patience = int(os.environ.get("BATCHD_GPU_PATIENCE", 1))  # tests/gpu/run says what for

    def write(self):
        super().write(self.out)

    # ---- running ----

    def tool(self, name):
        return str(self.build / "tests" / "gpu" / name)

    def left(self, limit):
        """The seconds that a program may take whose own limit is `limit`."""
        seconds = min(limit * self.patience, self.deadline - time.monotonic())
        if seconds < 0.1:
            raise OutOfTime
        return seconds

    def part(self, name, measure, least):
        """One part, unless less time is left than it takes at least. A part that fails does not stop the others."""
        began = time.monotonic()
        if self.deadline - began < least:
            self.skipped.append(name)
            print(f"{name}: NOT RUN, no time left", flush=True)
            self.write()
            return
        print(f"{name} ({began - self.began:.0f} s)", flush=True)
        self.forget(name)
        self.name = name
        self.unfinished.append(name)  # in the files until it has ended
        self.write()
        try:
            measure()
        except OutOfTime:
            print(f"{name}: CUT OFF, no time left", flush=True)
            return
        except Exception as e:
            self.fault(f"{type(e).__name__}: {e}")
        self.unfinished.remove(name)
        self.took[name] = round(time.monotonic() - began, 1)
        self.write()

    def lines(self, argv, limit, **env):
        """Lines of the conformance program, for the values measured there."""
        found, limit = self.work / "case", self.left(limit)
        with open(found, "w") as f:
            try:
                subprocess.run(
                    [str(a) for a in argv],
                    env=self.env | env,
                    stdin=subprocess.DEVNULL,
                    stdout=f,
                    stderr=subprocess.DEVNULL,
                    timeout=limit,
                )
            except subprocess.TimeoutExpired:
                self.fault(f"{' '.join(str(a) for a in argv[1:])}: took more than {limit:.0f} s")
        return read(found)

    def times(self, group, lines, prefix=""):
        """Their measured values as rows."""
        for (_, kind, name), value in lines.items():
            number, _, unit = value.partition(" ")
            if kind == "time":
                self.put(group, prefix + name, float(number), unit)
            elif kind == "exact" and ("case ends here" in value or name.startswith("case ")):
                self.fault(f"{group}: {prefix}{name}: {value}")

    def run(self, argv, limit, errors=False, **env):
        """Its lines as {name: (value, unit)}; errors go to the notes, with `errors` the whole standard error."""
        limit = self.left(limit)
        try:
            p = subprocess.run(
                [str(a) for a in argv],
                env=self.env | env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit,
            )
            out, err, status = p.stdout, p.stderr, p.returncode
        except subprocess.TimeoutExpired as e:
            out, err, status = (e.stdout or b"").decode(errors="replace"), "", f"took more than {limit:.0f} s"
        if status:
            how = f"ended with status {status}" if isinstance(status, int) else status
            self.fault(f"`{pathlib.Path(argv[0]).name}` {how}: {(err.strip().splitlines() or [''])[-1]}")
        elif errors:
            for line in err.strip().splitlines():
                self.note(line)
        return values(out)

    def stream(self, group, argv, limit, **env):
        """The same, but each line becomes a row as it comes, so that a program that is cut off leaves what it has
        measured. Lines "! TEXT" become notes."""
        limit, found = self.left(limit), {}
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            p = subprocess.Popen(
                [str(a) for a in argv],
                env=self.env | env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # its processes have its output, too, and end with it
            )
            ended_by = []
            guard = threading.Timer(limit, lambda: (ended_by.append("limit"), end_group(p)))
            guard.start()
            for line in p.stdout:
                if line.startswith("! "):
                    self.note(line[2:].strip())
                new = values(line)
                found |= new
                self.take(group, new)
            status = p.wait()
            guard.cancel()
            end_group(p)
            errors.seek(0)
            said = errors.read()
        print(said[-4000:], end="", flush=True)
        if status:
            how = f"took more than {limit:.0f} s" if ended_by else f"ended with status {status}"
            self.fault(f"`{pathlib.Path(str(argv[1])).name}` {how}: {(said.strip().splitlines() or [''])[-1]}")
        return found

    def note(self, text):
        print(f"  ! {text}", flush=True)
        self.notes.append((self.name, text))
        self.write()

    def fault(self, text):
        """A note that also makes the exit status 1."""
        self.n_faults += 1
        self.note(text)

    def sum_up(self, text):
        """What the part's line in verdict.md is to say."""
        print(f"  = {text}", flush=True)

    def put(self, group, what, value, unit):
        print(f"  {what}: {value:.4g} {unit}", flush=True)
        self.rows.append((self.name, group, what, value, unit))
        self.write()

    def claim(self, what, wanted, value, unit, met):
        print(f"  {'met' if met else 'NOT MET'}: {what}: {value:.4g} {unit} (wanted: {wanted})", flush=True)
        self.claims.append((self.name, what, wanted, f"{value:.4g} {unit}", "yes" if met else "**no**"))
        self.write()

    def take(self, group, found):
        for what, (value, unit) in found.items():
            self.put(group, what, value, unit)

    # ---- a daemon ----

    class Daemon(own_daemon.Daemon):
        def __init__(self, bench, *args, env=None, user=None, config=None):
            self.bench, self.more = bench, env or {}
            whole = bench.env | self.more
            if user is not None:
                whole.pop("FAKECUDA_DIR", None)  # another user cannot write there
            super().__init__(bench.build, *args, env=whole, user=user, config=config)

        def __exit__(self, *error):
            super().__exit__(*error)
            if self.wrong:
                self.bench.fault(self.wrong)

        def start(self, *args):
            return subprocess.Popen(
                [self.bench.tool("step"), *map(str, args)],
                env=self.env | {"BATCHD_SOCKET": self.socket},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

        def step(self, limit, *args):
            return self.bench.run([self.bench.tool("step"), *args], limit, **self.more, BATCHD_SOCKET=self.socket)

    def daemon(self, *args, **options):
        return self.Daemon(self, *args, **options)

    def rows_of_file(self):
        """Pictures as rows of a .npy file in the page cache: the daemon only copies them, and leaves the processors to
        the trainer."""
        n = 64 if self.fake else N_ROWS
        return npy_file.pair(self.work, "rows", "|u1", (n, 3, 224, 224), (os.urandom(PICTURE) for _ in range(n)))

    def sample_data(self, name, classes, per_class):
        """An image folder of drawn pictures."""
        folder = self.work / name
        if not (folder / ".made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            argv = [self.build / "batchctl", "sample-data", folder, "--classes", classes, "--per-class", per_class]
            subprocess.run(
                [str(a) for a in argv],
                env=self.env,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=self.left(120),
            )
            (folder / ".made").touch()
        return folder

    def random(self):
        return f"random:length={'2000' if self.fake else '2000000'},shape=224x224x3,dtype=uint8,classes=1000"

    # ---- measurements ----

    def machine(self):
        self.facts = facts.collect(self.build, self.env)
        self.write()

    def attach_stages(self, how):
        """From nothing to an open slab, in a process of its own, with the daemon's steps."""
        lines = self.lines([self.tool("conformance"), "attach"], 60)
        self.times("Attaching, stage by stage", lines, f"{how}: ")

    def copies_and_kernels(self):
        found = self.run([self.tool("measure"), *(["--small"] if self.fake else [])], 120)
        self.take("Copies and the finishing kernel", found)
        if "daemon of driver" in found:
            value = found["daemon of driver"][0]
            self.claim(
                "host-to-device copies of the daemon, of the card's own rate", "at least 95 %", value, "%", value >= 95
            )
        kernels = {k: v[0] for k, v in found.items() if k.endswith("of device to device")}
        if kernels:
            worst = min(kernels, key=kernels.get)
            self.put(
                "Copies and the finishing kernel",
                "slowest finishing kernel, of the device-to-device rate",
                kernels[worst],
                "%",
            )
            self.claim(
                f"slowest finishing kernel ({worst.split(',')[1].strip()}), of the device-to-device rate by bytes",
                "at least 80 %",
                kernels[worst],
                "%",
                kernels[worst] >= 80,
            )
        for name, kept in (
            ("4 KiB copied and seen, driver alone", "bare_us"),
            ("4 KiB copied and seen by a thread that slept, driver alone", "asleep_us"),
        ):
            if name in found:
                setattr(self, kept, found[name][0])

    def page_kinds(self):
        """Huge pages have to be allowed and reserved, which root may do; the former settings are restored."""
        group = "Copies to the GPU by kind of pages, slots of 38.5 MB"
        huge = 2 << 20
        with contextlib.ExitStack() as stack:
            if not self.fake and os.geteuid() == 0:
                stack.enter_context(self.setting(facts.THP / "shmem_enabled", "advise"))
                stack.enter_context(self.setting("/proc/sys/vm/nr_hugepages", str(-(-17 * 256 * PICTURE // huge))))
            argv = [self.tool("h2d"), *(["--small"] if self.fake else [])]
            found = self.run(argv, 60, errors=True)
        self.take(group, found)
        best = lambda kind: max(
            (v for k, (v, unit) in found.items() if k.startswith(f"{kind}: ") and unit == "GB/s"), default=None
        )
        allocated, memfd, raw = best("cuMemHostAlloc"), best("memfd"), facts.pcie_raw(self.facts)
        if allocated and memfd:
            self.put(group, "memfd pages, of the rate of cuMemHostAlloc", memfd / allocated * 100, "%")
        for kind in ("cuMemHostAlloc", "memfd", "memfd, transparent huge pages", "memfd, hugetlb"):
            if raw and best(kind):
                self.put(group, f"{kind}: of PCIe's raw rate", best(kind) / raw * 100, "%")

    @contextlib.contextmanager
    def setting(self, path, value):
        """Changes a setting of this machine's kernel for the duration of a block."""
        path = pathlib.Path(path)
        try:
            before = facts.chosen(path.read_text().strip())
            path.write_text(value)
        except OSError as e:
            self.note(f"{path} stays as it is: {e.strerror}")
            yield
            return
        try:
            yield
        finally:
            path.write_text(before)

    def to_the_trainer(self):
        """The time from "copy done" to "trainer can launch" is a part of the time of a tiny batch from the release of
        its slot to the return of batchd_next. The same in host memory has all of it except the copy and the GPU's
        thread."""
        group, n = "From copy done to the trainer", "20" if self.fake else "3000"
        with self.daemon() as d:
            cpu = self.run([self.tool("cycle"), "cpu", n], 60, BATCHD_SOCKET=d.socket)
            gpu, handover = self.cycle_on_gpu(d, n)
        if "cycle" not in cpu or "cycle" not in gpu:
            return
        for name, found in (("host memory", cpu), ("with the copy to the GPU", gpu)):
            self.put(
                group,
                f"a slot is given back, filled with 4 KiB, published, and the trainer goes on: {name}",
                found["cycle"][0],
                "us",
            )
            self.put(group, f"the same, 99th percentile: {name}", found["cycle, 99th percentile"][0], "us")
        for name, key in (("middle", "p50_us"), ("99th percentile", "p99_us")):
            if key in handover:
                self.put(
                    group,
                    f"by the daemon's clock, from a copy seen complete to the trainer told, {name}",
                    handover[key],
                    "us",
                )
        if handover.get("batches"):
            self.claim(
                "from a copy seen complete to the trainer told, middle",
                "at most 50 us",
                handover["p50_us"],
                "us",
                handover["p50_us"] <= 50,
            )
        if hasattr(self, "asleep_us"):
            added = gpu["cycle"][0] - cpu["cycle"][0] - self.asleep_us
            self.put(group, "the bare copy, waited for asleep as the daemon does", self.asleep_us, "us")
            self.claim(
                "what a GPU adds to a batch's way beyond the bare copy", "at most 50 us", added, "us", added <= 50
            )

    def cycle_on_gpu(self, d, n):
        """The output of `cycle`, and the daemon's status about the handover while that session lasts."""
        p = subprocess.Popen(
            [self.tool("cycle"), "cuda", n, "stay"],
            env=d.env | {"BATCHD_SOCKET": d.socket},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        guard = threading.Timer(self.left(60), p.kill)
        guard.start()
        said, line = "", None
        while line != "" and "99th percentile" not in said:
            line = p.stdout.readline()
            said += line
        handover = handover_of(d.status())
        guard.cancel()
        return values(said) | self.ended(p, 20), handover

    def slow_down(self, name, kernel, *daemon_args, turns=3, **env):
        """The same kernel alone and with batches, in turn, after a warm-up that raises the clocks. All steps together
        count, as what takes turns with another process shows in few of them."""
        ms, steps, warm = ("1", "10", "2") if self.fake else ("5", "200", "200")
        with self.daemon(*daemon_args, env=env) as d:
            common = ["--kernel", kernel, "--warm", warm]
            rounds = str(int(d.step(60, *common, "--steps", "5", "--ms", ms).get("rounds", (0, ""))[0]) or 1000)
            alone, streamed = [], []
            for i in range(1 if self.fake else turns):
                alone.append(d.step(30, *common, "--steps", steps, "--rounds", rounds))
                streamed.append(
                    d.step(
                        60,
                        *common,
                        "--steps",
                        steps,
                        "--rounds",
                        rounds,
                        "--dataset",
                        self.rows_of_file(),
                        "--batch",
                        "16" if self.fake else "256",
                        "--job",
                        f"slow-{i}",
                        "--rank",
                        "0",
                        "--world",
                        "1",
                    )
                )
            pageable = d.copies()[1]
        if not all("step" in found for found in alone + streamed):
            self.fault(f"{name}: not every run came to its end")
            return
        middle = lambda found, what: statistics.median(f[what][0] for f in found)
        group = f"A step beside the daemon: {name}"
        outliers = "kernel of a step, above 1.2 x the middle"
        for what, unit in (
            ("step", "ms"),
            ("kernel of a step, middle", "ms"),
            ("kernel of a step, 99th percentile", "ms"),
            (outliers, "% of the steps"),
        ):
            self.put(group, f"{what}, alone", middle(alone, what), unit)
            self.put(group, f"{what}, batches streaming", middle(streamed, what), unit)
        for what, unit in (
            ("in batchd_next, middle", "ms"),
            ("in batchd_next, 99th percentile", "ms"),
            ("processor time of batchd_next, middle", "us"),
            ("processor time of batchd_next, 99th percentile", "us"),
        ):
            self.put(group, what, middle(streamed, what), unit)
        self.put(group, "pictures", middle(streamed, "rows"), "images/s")
        self.put(group, "pageable copies of the daemon", pageable, "")
        slower = (middle(streamed, "step") / middle(alone, "step") - 1) * 100
        most = 2 if kernel == "arithmetic" else 5
        self.claim(
            f"steps are slower beside the daemon, all of them together, {name}",
            f"less than {most} %",
            slower,
            "%",
            slower < most,
        )
        share = max(found[outliers][0] for found in streamed)
        self.claim(
            f"steps whose kernel takes more than 1.2 times the median, {name}", "at most 1 %", share, "%", share <= 1
        )
        if daemon_args:
            cpu_us = middle(streamed, "processor time of batchd_next, middle")
            self.claim(
                "processor time of batchd_next where the trainer copies",
                "less than 100 us a batch",
                cpu_us,
                "us",
                cpu_us < 100,
            )

    def real_step(self, name, *daemon_args):
        """resnet50 with mixed precision, the whole step, batchd's pictures against data that stays on the GPU."""
        python = self.torch_python()
        if not python:
            return
        folder, _, _ = self.many_pictures()
        group = f"resnet50, channels_last, mixed precision, batch 128, decoded pictures in memory: {name}"
        with self.daemon(*daemon_args, config="pin_memory: on\ncache:\n  filling: always\n") as d:
            argv = [python, REPO / "tests/gpu/train_step.py", folder]
            found = self.stream(group, argv, 90, BATCHD_SOCKET=d.socket)
            caches = {cache["tier"]: cache for cache in d.status()["cache"]}
        hits, misses = (caches["decoded"][key] for key in ("hits", "misses"))
        self.put(group, "pictures that were kept decoded", hits / max(hits + misses, 1) * 100, "% of all")
        means = {
            what.partition(", mean of all")[0]: value for what, (value, _) in found.items() if ", mean of all" in what
        }
        alone = means.get("step with data on the GPU")
        for kind in ("NHWC", "NCHW"):
            if alone and f"step with batchd, {kind}" in means:
                slower = (means[f"step with batchd, {kind}"] / alone - 1) * 100
                self.put(group, f"steps are slower with batchd, {kind}, all of them together", slower, "%")
                if kind == "NHWC":
                    self.claim(
                        f"training steps are slower with batchd's pictures than with data that lies on the GPU, all of them together, {name}",
                        "less than 2 %",
                        slower,
                        "%",
                        slower < 2,
                    )
                    self.sum_up(f"a training step is {slower:.2f} % slower with batchd's pictures, {name}")

    def attach_beside(self):
        """The worst step of one trainer while another attaches with gigabytes to pin."""
        group = "One trainer while another attaches"
        slots, batch = ("3", "16") if self.fake else ("64", "256")
        with self.daemon() as d:
            args = [
                "--dataset",
                self.rows_of_file(),
                "--batch",
                "16" if self.fake else "64",
                "--rank",
                0,
                "--world",
                1,
                "--warm",
                2 if self.fake else 100,
            ]
            for name, disturbed in (("undisturbed", False), ("while another attaches", True)):
                t = d.start(*args, "--job", f"beside-{disturbed}", "--ms", 1, "--steps", 30 if self.fake else 2000)
                if disturbed:
                    self.until_attached(t)
                other = (
                    d.start(
                        *args[:2],
                        "--batch",
                        batch,
                        "--slots",
                        slots,
                        "--job",
                        "other",
                        "--ms",
                        0,
                        "--steps",
                        5,
                        "--rank",
                        0,
                        "--world",
                        1,
                    )
                    if disturbed
                    else None
                )
                found = self.ended(t, 60)
                if other:
                    took = self.ended(other, 60).get("attach")
                    if took:
                        self.put(group, "the other attaches in", took[0], "ms")
                for what in ("from step to step, middle", "from step to step, worst", "in batchd_next, worst"):
                    if what in found:
                        self.put(group, f"{what}, {name}", found[what][0], "ms")
                        if what == "from step to step, worst" and disturbed:
                            self.claim(
                                "the worst step of a trainer while another attaches",
                                "at most 20 ms",
                                found[what][0],
                                "ms",
                                found[what][0] <= 20,
                            )

    def until_attached(self, trainer):
        """Waits until it has had its first batch, or has ended."""
        guard = threading.Timer(self.left(40), trainer.kill)
        guard.start()
        line = ""
        while not line.startswith("attach and first") and (line := trainer.stdout.readline()):
            pass
        guard.cancel()

    def ended(self, process, limit):
        """The output of a started program at its end."""
        try:
            out, err = process.communicate(timeout=self.left(limit))
        except (subprocess.TimeoutExpired, OutOfTime):
            process.kill()
            out, err = process.communicate()
            self.fault(f"{pathlib.Path(process.args[0]).name}: took more than {limit} s")
        if process.returncode:
            self.fault(f"{pathlib.Path(process.args[0]).name}: {err.strip()[-300:]}")
        return values(out)

    @contextlib.contextmanager
    def under_mps(self):
        """The environment of processes under MPS, with a control daemon of its own, in a folder of its own: other users
        of the GPU, and its compute mode, are not affected. None, with a note, where there is none."""
        control = shutil.which("nvidia-cuda-mps-control")
        if not control and not self.fake:
            self.note("nvidia-cuda-mps-control is not installed")
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="batchd-mps-") as folder, contextlib.ExitStack() as stack:
            env = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
            if self.fake:
                env["FAKECUDA_PERSONALITY"] = "exclusive,mps"
            else:
                server = subprocess.Popen(
                    [control, "-f"],
                    env=self.env | env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                stack.callback(stop, server)
                stack.callback(
                    subprocess.run,
                    [control],
                    input="quit -t 5\n",
                    env=self.env | env,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    timeout=20,
                )
                until = time.monotonic() + 10
                while not os.path.exists(os.path.join(folder, "control")) and time.monotonic() < until:
                    time.sleep(0.05)
            said = facts.say([self.tool("conformance"), "--facts"], self.env | env) or ""
            if "attribute 133, MPS\t1" not in said:
                self.note("the control daemon runs, but a process does not come under it (attribute 133 is not 1)")
                env = None
            yield env

    def mps(self):
        with self.under_mps() as env:
            if not env:
                return
            self.times("Two processes under MPS", self.lines([self.tool("conformance"), "overlap"], 60, **env))
            self.slow_down("arithmetic, under MPS", "arithmetic", turns=1, **env)

    def torch_python(self):
        """This Python, where it has torch; what is run with it finds out whether that can use the GPU."""
        if importlib.util.find_spec("torch"):
            return sys.executable
        self.note("left out, as it needs torch")
        return None

    def copied_by_the_trainer(self):
        """The daemon lends no GPU memory: the path for machines where memory cannot be shared."""
        self.one_trainer("--gpu-memory off", self.daemon("--gpu-memory", "off"), self.rows_of_file())

    def of_another_user(self):
        """The installed service's case: the daemon runs as a user of its own. It makes its data itself, because it may
        not be able to read files here."""
        if os.geteuid():
            self.note("left out, as only root can start one")
            return
        self.one_trainer("the daemon is of another user", self.daemon(user=NOBODY), self.random())

    def one_trainer(self, name, daemon, dataset):
        """As fast as batches come; the path that they took is part of the heading."""
        with daemon as d:
            steps, batch = ("10", "16") if self.fake else ("300", "256")
            found = d.step(
                60,
                "--steps",
                steps,
                "--ms",
                "0",
                "--dataset",
                dataset,
                "--batch",
                batch,
                "--job",
                "one",
                "--rank",
                "0",
                "--world",
                "1",
            )
        path = next((line.removeprefix("path: ") for line in found if line.startswith("path: ")), "no batch came")
        group = f"Streaming, {name}: {path}"
        if "rows" in found:
            self.put(group, "pictures", found["rows"][0], "images/s")
            self.put(group, "to the GPU", found["rows"][0] * PICTURE / 1e9, "GB/s")
            self.put(group, "attach and first batch", found["attach and first batch finished"][0], "ms")
            for what, unit in (
                ("in batchd_next, middle", "ms"),
                ("in batchd_next, 99th percentile", "ms"),
                ("processor time of batchd_next, middle", "us"),
            ):
                self.put(group, what, found[what][0], unit)

    def streaming(self):
        """As fast as batches come: one trainer alone, then 2 and 4 that share each batch."""
        for n in (1, 2, 4):
            with self.daemon() as d:
                steps, batch = (10, 16) if self.fake else (300, 256)
                args = [
                    "--steps",
                    steps,
                    "--ms",
                    0,
                    "--dataset",
                    self.rows_of_file(),
                    "--batch",
                    batch,
                    "--job",
                    "stream",
                    "--world",
                    n,
                ]
                trainers = [d.start(*args, "--rank", i, *(["--mode", "share"] if n > 1 else [])) for i in range(n)]
                rows, attach, n_ipc = [], [], 0
                for t in trainers:
                    try:
                        out, err = t.communicate(timeout=self.left(60))
                    except (subprocess.TimeoutExpired, OutOfTime):
                        t.kill()
                        out, err = t.communicate()
                        self.fault(f"{n} trainers: one took too long")
                    for line in out.splitlines():
                        if line.startswith("rows\t"):
                            rows.append(float(line.split("\t")[1]))
                        if line.startswith("attach and first"):
                            attach.append(float(line.split("\t")[1]))
                        n_ipc += line.startswith("path: CUDA IPC")
                    if t.returncode:
                        self.fault(f"{n} trainers: {err.strip()[-300:]}")
                n_copies, n_pageable = d.copies()
            if len(rows) != n:
                continue
            if n_ipc != n:
                self.note(
                    f"{n} trainers: {n - n_ipc} of them copied by themselves, as CUDA IPC did not work: see doctor and the daemon's log"
                )
            group = "Streaming, uint8 pictures out of a file in memory"
            each = sum(rows) / n
            name = f"{n} trainer{'s sharing' if n > 1 else ''}"
            self.put(group, f"{name}: each gets", each, "images/s")
            self.put(group, f"{name}: to the GPU, once", each * PICTURE / 1e9, "GB/s")
            self.put(group, f"{name}: attach and first batch, slowest", max(attach), "ms")
            self.put(group, f"{name}: copies of the daemon", n_copies, "copies")
            if n > 1:
                taken = steps + 11
                self.claim(
                    f"{n} trainers get each batch from one copy: copies per batch",
                    "1 (some are made ahead)",
                    n_copies / taken,
                    "",
                    n_ipc == n and steps <= n_copies < taken * 1.5,
                )
            if n == 4:
                self.claim("seconds, not minutes, to attach", "below 5 s", max(attach) / 1e3, "s", max(attach) < 5000)
            if n == 4:
                self.claim("pageable copies", "0", n_pageable, "copies", n_pageable == 0 and n_copies > 0)

    def memory(self):
        group = "Memory of the GPU, by cuMemGetInfo"
        with costs.used_memory(self) as used:
            before = used()
            with self.daemon("--gpu-memory", "1GiB") as d:
                idle = used()
                t = d.start(
                    "--steps",
                    100000,
                    "--ms",
                    1,
                    "--dataset",
                    self.random(),
                    "--batch",
                    16 if self.fake else 256,
                    "--job",
                    "memory",
                    "--rank",
                    0,
                    "--world",
                    1,
                )
                self.until_attached(t)
                time.sleep(0.5)
                during, gpus = used(), d.status()["gpus"]
                t.kill()
                t.communicate()
                time.sleep(1)
                after = used()
            time.sleep(0.5)
            end = used()
        self.put(group, "daemon started, no trainer attached", idle - before, "MiB")
        self.put(group, "one trainer attached: both contexts, slabs, tensors", during - before, "MiB")
        self.put(
            group,
            "after the trainer was killed: the daemon's context, if it is still there, and what lingers",
            after - before,
            "MiB",
        )
        self.put(group, "after the daemon's end", end - before, "MiB")
        if not gpus:
            self.fault("the daemon has used no GPU")
            return
        for key in ("slab_bytes", "budget_bytes", "pinned_bytes"):
            self.put(group, f"the daemon's own count: {key}", gpus[0][key] / (1 << 20), "MiB")
        slab, budget = gpus[0]["slab_bytes"], gpus[0]["budget_bytes"]
        self.claim(
            "memory used on the GPU for batches, with gpu_memory: 1GiB",
            "more than 0, at most 1024 MiB",
            slab / (1 << 20),
            "MiB",
            0 < slab <= budget == 1 << 30,
        )

    def loaders(self):
        python = self.torch_python()
        if not python:
            return
        folder = self.sample_data("pictures-bench", 10, 20 if self.fake else 200)
        self.rows_of_file()
        seconds, workers = ("0.3", "2") if self.fake else ("5", str(os.cpu_count()))
        for what, group in (
            (
                "arrays",
                "Loaders compared: rows of 150528 bytes from one file, batch 128, made float16 on the GPU, four matrix products a step",
            ),
            ("pictures", "Loaders compared: train224 pictures, batch 128, four matrix products a step"),
        ):
            with self.daemon() as d:
                found = self.run(
                    [
                        python,
                        REPO / "tests/gpu/loaders.py",
                        what,
                        folder if what == "pictures" else self.work,
                        seconds,
                        workers,
                    ],
                    80,
                    BATCHD_SOCKET=d.socket,
                )
            self.take(group, {f"{what}: {k}": v for k, v in found.items()})

    def rate(self):
        """JPEG files to a training ResNet-50, by decoding threads: how many feed this GPU?"""
        threads = [1, 2] if self.fake else [1, 2, 4, 8, 16]
        found = self.rate_of("threads", threads)
        name, best = "data that stays on the GPU", found.get("data that stays on the GPU", (0, ""))[0]
        rates = {n: found[f"{n} threads"][0] for n in threads if f"{n} threads" in found}
        if not best or not rates:
            return
        self.sum_up(
            f"{best:.0f} images/s with {name}; "
            + ", ".join(f"{n} threads {rate:.0f} ({rate / best * 100:.0f} %)" for n, rate in rates.items())
            + f"; {next((n for n in rates if rates[n] >= 0.98 * best), f'more than {max(rates)}')} threads feed this GPU to 98 %"
        )

    def trainers(self, what="trainers", how="", **env):
        """Several processes that train on one GPU, and share each batch, or have a part of the epoch each."""
        numbers = [1, 2] if self.fake else [2, 4]
        found = self.rate_of(what, numbers, how, **env)
        said = []
        for n in numbers:
            begin, end = f"{n} trainers, ", ", sum"
            sums = {
                what[len(begin) : -len(end)]: v
                for what, (v, _) in found.items()
                if what.startswith(begin) and what.endswith(end)
            }
            said.append(f"{n}: {', '.join(f'{kind} {value:.0f}' for kind, value in sums.items())} images/s")
        if found:
            self.sum_up(f"trainers on one GPU{how}: {'; '.join(said)}")

    def trainers_under_mps(self):
        with self.under_mps() as env:
            if env:
                self.trainers("sharing", ", under MPS", **env)

    def rate_of(self, what, numbers, how="", **env):
        python = self.torch_python()
        if not python:
            return {}
        seconds = 7 if what == "threads" else 3
        group, folder = self.of_files(f"to ResNet-50 training: {'threads' if what == 'threads' else 'trainers'}{how}")
        limit = self.left(110)
        argv = [python, REPO / "tests/gpu/rate.py", what, folder, 1 if self.fake else seconds, f"{limit - 6:.0f}"]
        return self.stream(group, [*argv, *numbers], limit, **env)

    def peers(self):
        """The best that torch can do with the same files, in turn with batchd."""
        python = self.torch_python()
        if not python:
            return
        group, folder = self.of_files("to the GPU by batchd and by torch")
        limit = self.left(110)
        argv = [python, REPO / "tests/gpu/peers.py", folder, 1 if self.fake else 3, f"{limit - 4:.0f}"]
        found = self.stream(group, [*argv, 2 if self.fake else os.cpu_count()], limit)
        rates = {what: value for what, (value, unit) in found.items() if unit == "images/s"}
        self.sum_up("; ".join(f"{what} {rate:.0f}" for what, rate in rates.items() if "meanwhile" not in what))

    def of_files(self, what):
        """The heading of measurements that read JPEG files, and the folder."""
        folder, n, mean = self.many_pictures()
        return f"JPEG files ({n} drawn ones of {mean / 1e3:.0f} kB, none cached decoded) {what}", folder

    def many_pictures(self):
        """An image folder in which an epoch of batches of 256 is long enough to measure, how many pictures it has, and
        their mean size: each picture has eight names."""
        drawn = self.sample_data("drawn", *((2, 20) if self.fake else (32, 64)))
        pictures = list(drawn.glob("*/*.jpg"))
        folder = self.work / "many"
        if not (folder / ".made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            for picture in pictures:
                for k in range(8):
                    to = folder / f"{picture.parent.name}-{k}"
                    to.mkdir(parents=True, exist_ok=True)
                    os.link(picture, to / picture.name)
            (folder / ".made").touch()
        return folder, 8 * len(pictures), statistics.mean(p.stat().st_size for p in pictures)


def values(text):
    """Lines "NAME<tab>VALUE<tab>UNIT" as {name: (value, unit)}; others are left out."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition("\t")
        value, _, unit = rest.partition("\t")
        try:
            found[name] = (float(value), unit)
        except ValueError:
            pass
    return found


def handover_of(status):
    """{"batches", "p50_us", "p99_us"} of the session that has a GPU; {} where the daemon counts none."""
    return next((s["gpu_handover"] for s in status.get("sessions", ()) if "gpu_handover" in s), {})


def end_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def stop(process):
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# With the seconds that each takes at least. Attaching to a GPU that no process uses is measured before any process uses it.
PARTS = {
    "attach without a holder": (lambda b: b.attach_stages("no other process uses the GPU"), 15),
    "attach": (lambda b: b.attach_stages("another process holds a context"), 10),
    "copies and kernels": (Bench.copies_and_kernels, 20),
    "page kinds": (Bench.page_kinds, 15),
    "streaming": (Bench.streaming, 20),
    "copied by the trainer": (Bench.copied_by_the_trainer, 10),
    "daemon of another user": (Bench.of_another_user, 10),
    "to the trainer": (
        Bench.to_the_trainer,
        10,
    ),  # takes the bare copy's time from "copies and kernels" of the same run
    "slow-down, arithmetic": (lambda b: b.slow_down("arithmetic", "arithmetic"), 20),
    "slow-down, memory": (lambda b: b.slow_down("reading and writing memory", "memory"), 20),
    "slow-down, the trainer copies": (
        lambda b: b.slow_down("reading and writing memory, copied by the trainer", "memory", "--gpu-memory", "off"),
        20,
    ),
    "training step": (lambda b: b.real_step("CUDA IPC"), 30),
    "training step, the trainer copies": (lambda b: b.real_step("the trainer copies", "--gpu-memory", "off"), 30),
    "attach beside a trainer": (Bench.attach_beside, 15),
    "memory": (Bench.memory, 10),
    "MPS": (Bench.mps, 12),
    "loaders": (Bench.loaders, 40),
    "rate": (Bench.rate, 45),
    "several trainers": (Bench.trainers, 30),
    "several trainers under MPS": (Bench.trainers_under_mps, 30),
    "peers": (Bench.peers, 30),
    "copies beside decoding": (costs.copies_beside_decoding, 8),
    "processor time": (costs.processor_time, 6),
    "attach and leave": (costs.attaches_and_leaves, 30),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--gpu", required=True, help="its name")
    parser.add_argument("--out", required=True, help="folder for the results")
    parser.add_argument("--work", required=True, help="folder for what is made on the way")
    parser.add_argument("--answers", help="folder with the conformance program's")
    parser.add_argument("--commit", help="of batchd")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"all of them if none is named: {', '.join(PARTS)}")
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # changed settings are restored
    bench = Bench(options)
    former = bench.out / "results.json"
    if options.add and former.exists():
        bench.add(Results.read(former))
        bench.gpu, bench.fake = options.gpu, options.fake
    if options.commit and options.commit not in bench.commits:
        bench.commits.append(options.commit)
    if options.answers:
        bench.read_answers(options.answers)
    print(f"On {bench.gpu}")
    if not bench.facts:
        bench.machine()
    chosen = [name for name in PARTS if not options.parts or name in options.parts]
    for name in chosen:
        measure, least = PARTS[name]
        bench.part(name, lambda: measure(bench), 1 if bench.fake else least)
    bench.write()
    incomplete = [name for name in chosen if name not in bench.took]
    if incomplete:
        print(f"Not run, or cut off, as there was no time left: {', '.join(incomplete)}")
    print(f"Results in {bench.out / 'RESULTS.md'} ({time.monotonic() - bench.began:.0f} s)")
    return 1 if incomplete or bench.n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
