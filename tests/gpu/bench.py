"""The measurements on a GPU, one after the other, each with a time limit, and --seconds for all; RESULTS.md, results.json and results.svg are written anew after each, so that
what was measured stays if something hangs.

--double: small sizes on the driver double, to see that all of it runs; the numbers mean nothing and go elsewhere.
"""
import argparse
import ctypes
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
PICTURE = 224 * 224 * 3


class Bench:
    def __init__(self, options):
        self.build, self.gpu, self.double = pathlib.Path(options.build), options.gpu, options.double
        self.out = pathlib.Path(options.out)
        self.work = self.build / "gpu"
        self.work.mkdir(exist_ok=True)
        self.env = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(self.build), os.environ.get("LD_LIBRARY_PATH")])),
                                 "BATCHD_BUILD": str(self.build), "PATH": f"{self.build}{os.pathsep}{os.environ['PATH']}"}
        self.env.pop("BATCHD_LIBCUDA", None)
        if self.double:
            self.env |= {"BATCHD_LIBCUDA": str(self.build / "libfakecuda.so"), "FAKECUDA_QUIET": "1", "FAKECUDA_DIR": str(self.work), "TRAIN_DEVICE": "cpu"}
        self.rows, self.claims, self.notes, self.began = [], [], [], time.monotonic()
        self.deadline = self.began + options.seconds - 15  # for what is to be ended, and written
        self.took = {}

    # ---- running ----

    def tool(self, name):
        return str(self.build / "tests" / "gpu" / name)

    def left(self, limit):
        """Seconds that something may take which should take at most `limit`."""
        return max(1.0, min(limit, self.deadline - time.monotonic()))

    def run(self, argv, limit, **env):
        """Its lines as {name: (value, unit)}; what it says besides goes to the notes."""
        limit = self.left(limit)
        try:
            p = subprocess.run([str(a) for a in argv], env=self.env | env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)
            out, err, status = p.stdout, p.stderr, p.returncode
        except subprocess.TimeoutExpired as e:
            out, err, status = (e.stdout or b"").decode(errors="replace"), "", f"took more than {limit:.0f} s"
        if status:
            last = err.strip().splitlines()[-1:] or [""]
            self.note(f"`{pathlib.Path(argv[0]).name}` {'ended with' if isinstance(status, int) else ''} {status}: {last[0]}")
        found = {}
        for line in out.splitlines():
            name, _, rest = line.partition("\t")
            value, _, unit = rest.partition("\t")
            try:
                found[name] = (float(value), unit)
            except ValueError:
                pass
        return found

    def note(self, text):
        print(f"  ! {text}", flush=True)
        self.notes.append(text)
        self.write()

    def put(self, group, what, value, unit):
        print(f"  {what}: {value:.4g} {unit}", flush=True)
        self.rows.append((group, what, value, unit))
        self.write()

    def claim(self, what, wanted, value, unit, met):
        print(f"  {'met' if met else 'NOT MET'}: {what}: {value:.4g} {unit} (wanted: {wanted})", flush=True)
        self.claims.append((what, wanted, f"{value:.4g} {unit}", "yes" if met else "**no**"))
        self.write()

    def take(self, group, found):
        for what, (value, unit) in found.items():
            self.put(group, what, value, unit)

    # ---- a daemon ----

    class Daemon:
        def __init__(self, bench, *args):
            self.bench, self.args = bench, args

        def __enter__(self):
            self.folder = tempfile.mkdtemp(prefix="batchd-gpu-")
            self.socket = os.path.join(self.folder, "s")
            self.log = open(os.path.join(self.folder, "log"), "wb")
            self.process = subprocess.Popen([str(self.bench.build / "batchd"), "--foreground", "--socket", self.socket, *self.args], env=self.bench.env,
                                            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
            for _ in range(200):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                    try:
                        s.connect(self.socket)
                        break
                    except OSError:
                        time.sleep(0.05)
            return self

        def __exit__(self, *_):
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.bench.note("the daemon did not stop within 20 s of SIGTERM")
            self.log.close()
            shutil.rmtree(self.folder, ignore_errors=True)

        def status(self):
            p = subprocess.run([str(self.bench.build / "batchctl"), "status", "--json"], env=self.bench.env | {"BATCHD_SOCKET": self.socket},
                               stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
            p.check_returncode()
            return json.loads(p.stdout)

        def copies(self):
            gpus = self.status()["gpus"]
            return sum(c["copies"] for g in gpus for c in g["copies"]), sum(g["pageable_copies"] for g in gpus)

        def start(self, *args):
            return subprocess.Popen([self.bench.tool("step"), *map(str, args)], env=self.bench.env | {"BATCHD_SOCKET": self.socket},
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def step(self, limit, *args):
            return self.bench.run([self.bench.tool("step"), *args], limit, BATCHD_SOCKET=self.socket)

    def daemon(self, *args):
        return self.Daemon(self, *args)

    def random(self):
        return f"random:length={'2000' if self.double else '2000000'},shape=224x224x3,dtype=uint8,classes=1000"

    # ---- what is measured ----

    def copies_and_kernels(self):
        found = self.run([self.tool("measure"), *(["--small"] if self.double else [])], 120)
        self.take("Copies and the finishing kernel", found)
        if "daemon of driver" in found:
            value = found["daemon of driver"][0]
            self.claim("host-to-device copies of the daemon, of the card's own rate", "at least 95 %", value, "%", value >= 95)
        kernels = {k: v[0] for k, v in found.items() if k.endswith("of device to device")}
        if kernels:
            worst = min(kernels, key=kernels.get)
            self.claim(f"slowest finishing kernel ({worst.split(',')[1].strip()}), of the device-to-device rate by bytes", "at least 80 %", kernels[worst], "%",
                       kernels[worst] >= 80)
        if "4 KiB copied and seen, driver alone" in found:
            self.bare_us = found["4 KiB copied and seen, driver alone"][0]

    def to_the_trainer(self):
        """From "copy done" to "trainer can launch" is a part of what a tiny batch takes from the release of its slot to the return of batchd_next."""
        group, n = "From copy done to the trainer", "20" if self.double else "3000"
        with self.daemon() as d:
            cpu = self.run([self.tool("cycle"), "cpu", n], 60, BATCHD_SOCKET=d.socket).get("cycle")
            gpu = self.run([self.tool("cycle"), "cuda", n], 60, BATCHD_SOCKET=d.socket).get("cycle")
        if not cpu or not gpu:
            return
        self.put(group, "a slot is given back, filled with 4 KiB, published, and the trainer goes on: host memory", cpu[0], "us")
        self.put(group, "the same with the copy to the GPU", gpu[0], "us")
        if hasattr(self, "bare_us"):
            rest = gpu[0] - self.bare_us
            self.put(group, "of it beyond the bare copy: release, filling, threads, publishing, waking", rest, "us")
            self.claim("from copy done to trainer can launch: not more than", "at most 50 us", rest, "us (release and filling included)", 0 < rest <= 50)
            self.put(group, "of it beyond the bare copy and the way in host memory: what the GPU's thread adds", rest - cpu[0], "us")

    def slow_down(self):
        """The same arithmetic alone and with batches, in turn; the middle of three."""
        ms, steps = ("1", "10") if self.double else ("5", "300")
        with self.daemon() as d:
            rounds = str(int(d.step(60, "--steps", "5", "--ms", ms).get("rounds", (0, ""))[0]) or 1000)
            alone, with_data, whole, last = [], [], [], {}
            for i in range(1 if self.double else 3):
                found = d.step(60, "--steps", steps, "--rounds", rounds)
                if "step" in found:
                    alone.append(found["arithmetic of a step"][0])
                found = d.step(90, "--steps", steps, "--rounds", rounds, "--dataset", self.random(), "--batch", "16" if self.double else "256",
                               "--job", f"slow-{i}", "--rank", "0", "--world", "1")
                if "step" in found:
                    with_data.append(found["arithmetic of a step"][0])
                    whole.append(found["step"][0])
                    last = found
            pageable = d.copies()[1]
        if not alone or not with_data:
            return
        middle = lambda values: sorted(values)[len(values) // 2]
        group = "A compute-bound step while the daemon streams to it"
        self.put(group, "arithmetic alone", middle(alone), "ms")
        self.put(group, "arithmetic, batches of 256 pictures streaming", middle(with_data), "ms")
        self.put(group, "whole step, batch and finishing included", middle(whole), "ms")
        self.put(group, "pictures", last["rows"][0], "images/s")
        self.put(group, "pageable copies", pageable, "")
        slower = (middle(with_data) / middle(alone) - 1) * 100
        self.claim("a compute-bound step slows down while the daemon streams by", "less than 2 %", slower, "%", slower < 2)

    def streaming(self):
        """As fast as batches come: one trainer alone, then 2 and 4 that share each batch."""
        for n in (1, 2, 4):
            with self.daemon() as d:
                steps, batch = (10, 16) if self.double else (300, 256)
                args = ["--steps", steps, "--ms", 0, "--dataset", self.random(), "--batch", batch, "--job", "stream", "--world", n]
                trainers = [d.start(*args, "--rank", i, *(["--mode", "share"] if n > 1 else [])) for i in range(n)]
                rows, attach, n_ipc = [], [], 0
                for t in trainers:
                    try:
                        out, err = t.communicate(timeout=self.left(60))
                    except subprocess.TimeoutExpired:
                        t.kill()
                        out, err = t.communicate()
                        self.note(f"{n} trainers: one took too long")
                    for line in out.splitlines():
                        if line.startswith("rows\t"):
                            rows.append(float(line.split("\t")[1]))
                        if line.startswith("attach and first"):
                            attach.append(float(line.split("\t")[1]))
                        n_ipc += line.startswith("path: CUDA IPC")
                    if t.returncode:
                        self.note(f"{n} trainers: {err.strip()[-300:]}")
                n_copies, n_pageable = d.copies()
            if len(rows) != n:
                continue
            if n_ipc != n:
                self.note(f"{n} trainers: {n - n_ipc} of them copied by themselves, as CUDA IPC did not work: see doctor and the daemon's log")
            group = "Streaming, uint8 pictures made by the daemon"
            each = sum(rows) / n
            name = f"{n} trainer{'s sharing' if n > 1 else ''}"
            self.put(group, f"{name}: each gets", each, "images/s")
            self.put(group, f"{name}: to the GPU, once", each * PICTURE / 1e9, "GB/s")
            self.put(group, f"{name}: attach and first batch, slowest", max(attach), "ms")
            self.put(group, f"{name}: copies of the daemon", n_copies, "copies")
            if n > 1:
                taken = steps + 11
                self.claim(f"{n} trainers get each batch from one copy: copies per batch", "1 (some are made ahead)", n_copies / taken, "",
                           n_ipc == n and steps <= n_copies < taken * 1.5)
            if n == 4:
                self.claim("seconds, not minutes, to attach", "below 5 s", max(attach) / 1e3, "s", max(attach) < 5000)
            if n == 4:
                self.claim("pageable copies", "0", n_pageable, "copies", n_pageable == 0 and n_copies > 0)

    def memory(self):
        """By cuMemGetInfo of a context of this process's own, which is there all the time."""
        cuda = ctypes.CDLL(self.env.get("BATCHD_LIBCUDA", "libcuda.so.1"))

        def call(name, *args):
            result = getattr(cuda, name)(*args)
            if result:
                raise OSError(f"{name} says {result}")

        def used():
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            return (total.value - free.value) / (1 << 20)

        context, group = ctypes.c_void_p(), "Memory of the GPU, by cuMemGetInfo"
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        call("cuCtxSetCurrent", context)
        before = used()
        with self.daemon("--gpu-memory", "1GiB") as d:
            idle = used()
            t = d.start("--steps", 100000, "--ms", 1, "--dataset", self.random(), "--batch", 16 if self.double else 256, "--job", "memory", "--rank", 0, "--world", 1)
            line, guard = "", threading.Timer(self.left(40), t.kill)
            guard.start()
            while not line.startswith("attach and first") and (line := t.stdout.readline()):
                pass
            guard.cancel()
            time.sleep(0.5)
            during, gpus = used(), d.status()["gpus"]
            t.kill()
            t.communicate()
            time.sleep(1)
            after = used()
        time.sleep(0.5)
        end = used()
        call("cuCtxSetCurrent", None)
        call("cuDevicePrimaryCtxRelease_v2", 0)
        self.put(group, "daemon started, nobody attached", idle - before, "MiB")
        self.put(group, "one trainer attached: both contexts, slabs, tensors", during - before, "MiB")
        self.put(group, "after the trainer was killed: the daemon's context, if it is still there, and what lingers", after - before, "MiB")
        self.put(group, "after the daemon's end", end - before, "MiB")
        if not gpus:
            self.note("memory: the daemon has used no GPU")
            return
        for key in ("slab_bytes", "budget_bytes", "pinned_bytes"):
            self.put(group, f"the daemon's own count: {key}", gpus[0][key] / (1 << 20), "MiB")
        slab, budget = gpus[0]["slab_bytes"], gpus[0]["budget_bytes"]
        self.claim("memory used on the GPU for batches, with gpu_memory: 1GiB", "more than 0, at most 1024 MiB", slab / (1 << 20), "MiB", 0 < slab <= budget == 1 << 30)

    def loaders(self):
        try:
            import torch
            if not self.double and not torch.cuda.is_available():
                raise ImportError("torch sees no GPU")
        except ImportError as e:
            self.note(f"no comparison with DataLoader: {e}")
            return
        folder = self.work / "pictures-bench"
        if not folder.exists():
            subprocess.run([str(self.build / "batchctl"), "sample-data", str(folder), "--classes", "10", "--per-class", "20" if self.double else "200"], env=self.env, check=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120)
        seconds, workers = ("0.3", "2") if self.double else ("8", str(os.cpu_count()))
        for what, group in (("arrays", "Loaders compared: rows of 150528 bytes from one file, batch 128, made float16 on the GPU, four matrix products a step"),
                            ("pictures", "Loaders compared: train224 pictures, batch 128, four matrix products a step")):
            with self.daemon() as d:
                found = self.run([sys.executable, REPO / "tests/gpu/loaders.py", what, folder if what == "pictures" else self.work, seconds, workers], 100,
                                 BATCHD_SOCKET=d.socket)
            self.take(group, {f"{what}: {k}": v for k, v in found.items()})

    def conformance(self):
        """The open questions of CUDA-NOTES section 11, and where the double is wrong."""
        md = self.work / "conformance.md"
        lines = {}
        for name, env in (("double", {"FAKECUDA_DIR": str(self.work), "BATCHD_LIBCUDA": str(self.build / "libfakecuda.so"), "FAKECUDA_QUIET": "1"}), ("real", {})):
            path = self.work / f"conformance.{name}"
            with open(path, "w") as f:
                try:
                    subprocess.run([self.tool("conformance")], env=self.env | env, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.DEVNULL, timeout=self.left(120))
                except subprocess.TimeoutExpired:
                    self.note(f"conformance of the {name} driver took too long")
            lines[name] = path
        subprocess.run([sys.executable, str(REPO / "tests/gpu/compare"), str(lines["double"]), str(lines["real"]), str(md)], stdout=subprocess.DEVNULL)
        self.write()

    # ---- writing ----

    def write(self):
        lines = ["# Measured on a GPU", "",
                 f"{time.strftime('%Y-%m-%d %H:%M')}, {self.gpu}, {os.cpu_count()} processors ({processor()}), Linux {platform.release()}. Made by "
                 "`make bench-gpu`; every line is of this one run.", ""]
        if self.double:
            lines += ["**On the driver double: the numbers mean nothing.**", ""]
        if self.claims:
            lines += ["## What was promised", "", "| what | wanted | measured | met |", "|---|---|---|---|"]
            lines += [f"| {' | '.join(c)} |" for c in self.claims] + [""]
        lines += ["![rates](results.svg)", ""]
        group = None
        for g, what, value, unit in self.rows:
            if g != group:
                lines += ["", f"## {g}", "", "| what | |", "|---|---:|"] if group else [f"## {g}", "", "| what | |", "|---|---:|"]
                group = g
            lines.append(f"| {what} | {value:.4g} {unit} |")
        if self.notes:
            lines += ["", "## What did not work", ""] + [f"- {n}" for n in self.notes]
        md = self.work / "conformance.md"
        if md.exists():
            lines += ["", "## The driver double against this driver", "", md.read_text().rstrip()]
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "RESULTS.md").write_text("\n".join(lines) + "\n")
        (self.out / "results.json").write_text(json.dumps({
            "gpu": self.gpu, "double": self.double, "when": time.strftime("%Y-%m-%dT%H:%M:%S"), "processor": processor(), "processors": os.cpu_count(),
            "kernel": platform.release(), "seconds": self.took, "notes": self.notes,
            "claims": [dict(zip(("what", "wanted", "measured", "met"), c)) for c in self.claims],
            "rows": [dict(zip(("group", "what", "value", "unit"), r)) for r in self.rows]}, indent=1) + "\n")
        (self.out / "results.svg").write_text(svg([(w, v, u) for _, w, v, u in self.rows if u in ("GB/s", "images/s")]))


def processor():
    try:
        return re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
    except (OSError, AttributeError):
        return platform.machine()


def svg(rows):
    """Bars, each unit on a scale of its own."""
    most = {}
    for _, value, unit in rows:
        most[unit] = max(most.get(unit, 0), value)
    height = 22 * len(rows) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="900" height="{height}" fill="white"/>']
    for i, (name, value, unit) in enumerate(rows):
        y, width = 10 + 22 * i, 330 * value / (most[unit] or 1)
        text = name.replace("&", "&amp;").replace("<", "&lt;")
        out.append(f'<text x="430" y="{y + 13}" text-anchor="end">{text}</text><rect x="440" y="{y}" width="{width:.1f}" height="17" '
                   f'fill="{"#4477aa" if unit == "GB/s" else "#228833"}"/><text x="{446 + width:.0f}" y="{y + 13}">{value:.4g} {unit}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--without", action="append", default=[], metavar="PART")
    options = parser.parse_args()
    bench = Bench(options)
    print(f"On {bench.gpu}")
    for part in (bench.copies_and_kernels, bench.conformance, bench.streaming, bench.to_the_trainer, bench.memory, bench.slow_down, bench.loaders):
        if part.__name__ in options.without:
            continue
        began = time.monotonic()
        print(f"{part.__name__.replace('_', ' ')} ({began - bench.began:.0f} s)", flush=True)
        try:
            if bench.deadline - began < 5:
                raise TimeoutError("no time left")
            part()
        except Exception as e:  # the rest is worth having
            bench.note(f"{part.__name__}: {type(e).__name__}: {e}")
        bench.took[part.__name__] = round(time.monotonic() - began, 1)
    bench.write()
    print(f"Results in {bench.out / 'RESULTS.md'} ({time.monotonic() - bench.began:.0f} s)")


if __name__ == "__main__":
    main()
