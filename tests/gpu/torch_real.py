"""batchd under real torch on a real GPU: torch_real.py FOLDER [CASE...], or FOLDER --without CASE..., with a daemon at
$BATCHD_SOCKET; FOLDER holds pictures.

Each case is a process of its own, because some end the use of the GPU in theirs, and has a time limit; several run at
once. Every batch is compared with that of a CPU loader of the same seed. Exit status 1 if a case failed. With
TRAIN_DEVICE=cpu the cases run without a GPU as far as possible, to check that they do."""

import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

DEVICE = os.environ.get("TRAIN_DEVICE", "cuda")
ON_GPU = DEVICE != "cpu"
CASE_S, AT_ONCE, SKIPPED = 90 * int(os.environ.get("BATCHD_GPU_PATIENCE", 1)), 4, 77
TRANSFORM = [
    ["RandomResizedCrop", 64],
    "RandomHorizontalFlip",
    "ToTensor",
    ["Normalize", {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}],
]
# Writes to address 16, which is not mapped.
FAULT = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry fault()
{
	.reg .b64 %a; .reg .b32 %v;
	mov.u64 %a, 16; mov.u32 %v, 1; st.global.u32 [%a], %v;
	ret;
}
\0"""


class Skipped(Exception):
    pass


def needs_gpu(case):
    """Without such a module the case is skipped before torch is loaded."""
    case.needs_gpu = True
    return case


class Case:
    """Shared by the cases: loaders over the pictures, and their expected results."""

    def __init__(self, folder):
        import torch

        import batchd

        self.torch, self.batchd, self.folder = torch, batchd, folder
        self.job = f"torch-real-{os.getpid()}"

    def loader(self, device=DEVICE, **options):
        if not ON_GPU:
            if options.pop("raw", False):
                options |= dict(dtype="uint8", layout="NHWC")
            device = "cpu"
        merged = (
            dict(
                batch_size=8,
                shuffle=True,
                seed=5,
                transform=TRANSFORM,
                job=self.job,
                rank=0,
                world_size=1,
                autostart=False,
            )
            | options
        )
        return self.batchd.DataLoader(f"imagefolder:{self.folder}", device=device, **merged)

    def expected(self, **options):
        with self.loader("cpu", job=f"{self.job}-cpu", **options) as loader:
            return [(images.clone(), labels.clone()) for images, labels in loader]

    def expected_raw(self, **options):
        return self.expected(dtype="uint8", layout="NHWC", **options)

    def same(self, found, wanted, why):
        assert len(found) == len(wanted), f"{why}: {len(found)} batches, not {len(wanted)}"
        for i, (f, (images, labels)) in enumerate(zip(found, wanted)):
            assert self.torch.equal(f[0].cpu(), images), f"{why}: images of batch {i} differ"
            assert self.torch.equal(f[1].cpu(), labels), f"{why}: labels of batch {i} differ"

    def all_of(self, loader):
        with loader:
            return [(images.clone(), labels.clone()) for images, labels in loader]

    def leased(self, loader):
        from batchd import _lib

        return _lib.n_leased(loader._handle)

    # ---- the cases ----

    def dtypes_and_layouts(self):
        """Every dtype and layout is bit for bit the CPU loader's; bfloat16 is its float32, rounded."""
        for dtype in ("float32", "float16", "uint8"):
            for layout in ("NCHW", "NHWC"):
                options = dict(dtype=dtype, layout=layout)
                self.same(self.all_of(self.loader(**options)), self.expected(**options), f"{dtype} {layout}")
        if ON_GPU:
            wanted = [(images.to(self.torch.bfloat16), labels) for images, labels in self.expected()]
            self.same(self.all_of(self.loader(dtype="bfloat16")), wanted, "bfloat16")

    def autograd_keeps_raw_images(self):
        """Tensors that backward needs are not given back before it has run, and the gradient is right."""
        torch = self.torch

        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, images, weight):
                ctx.save_for_backward(images)
                return images.float().sum() * weight

            @staticmethod
            def backward(ctx, grad):
                return None, grad * ctx.saved_tensors[0].float().sum()

        weight = torch.ones((), device=DEVICE, requires_grad=True)
        wanted = self.expected_raw()
        with self.loader(raw=True, n_slots=4) as loader:
            batches = iter(loader)
            images, _ = next(batches)
            loss = Scale.apply(images, weight)
            images = None
            others = [next(batches)[0].clone() for _ in range(len(wanted) - 1)]  # all other slots are reused
            if ON_GPU:
                assert self.leased(loader) == 1, "the batch that backward needs was given back"
            loss.backward()
            want = wanted[0][0].to(DEVICE).float().sum()
            assert torch.equal(weight.grad, want), (weight.grad, want)
            del loss, others
            assert self.leased(loader) == 0, "backward has run, and its batch is still on loan"

    @needs_gpu
    def record_stream(self):
        """A raw batch that a slow side stream reads is not overwritten before the read has ended."""
        torch = self.torch
        wanted = self.expected_raw()
        side, found = torch.cuda.Stream(), []
        with self.loader(raw=True, n_slots=3) as loader:
            for images, labels in loader:
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    torch.cuda._sleep(20_000_000)  # some 10 ms
                    found.append((images.clone(), labels.clone()))
                    labels.record_stream(side)
                loader.record_stream(images, side)
                images = labels = None
            torch.cuda.synchronize()
        self.same(found, wanted, "side stream")

    @needs_gpu
    def side_stream(self):
        """Batches taken while another stream is current are right on that stream."""
        torch = self.torch
        wanted, found, side = self.expected(), [], torch.cuda.Stream()
        with torch.cuda.stream(side), self.loader() as loader:
            for images, labels in loader:
                found.append((images * 1, labels * 1))
        side.synchronize()
        self.same(found, wanted, "side stream")

    def slices_of_a_shared_batch(self):
        """Two trainers of one group take their own slices of its batches."""
        sizes, found, failures = (4, 8), {}, []

        def train(rank):
            try:
                found[rank] = self.all_of(
                    self.loader(mode="share", rank=rank, world_size=2, batch_size=sizes[rank], group_batch_size=16)
                )
            except Exception as e:  # in the thread that checks
                failures.append(f"rank {rank}: {type(e).__name__}: {e}")

        threads = [threading.Thread(target=train, args=(rank,)) for rank in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not failures, failures
        for rank, size in enumerate(sizes):
            self.same(found[rank], self.expected(batch_size=size), f"slices of {size}")

    @needs_gpu
    def cuda_graph(self):
        """Batches copied into a graph's input before each replay give the same as the same work without a graph."""
        torch = self.torch
        torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = True, False
        model = torch.nn.Conv2d(3, 8, 3).cuda().eval()
        with torch.no_grad(), self.loader(drop_last=True) as loader:
            static = torch.empty(8, 3, 64, 64, device="cuda")
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                model(static)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = model(static)
            for images, _ in loader:
                static.copy_(images)
                graph.replay()
                assert torch.allclose(out, model(images), atol=1e-4), "a replay differs"

    def next_into_static_tensors(self):
        """Batches written into permanent tensors, replayed by a graph on a GPU, equal those of a loop."""
        torch = self.torch
        with self.loader(drop_last=True) as loader:
            images, labels = torch.empty(8, 3, 64, 64, device=DEVICE), torch.empty(8, dtype=torch.int64, device=DEVICE)
            doubled, replay = images * 2, lambda: torch.mul(images, 2, out=doubled)
            if ON_GPU:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    torch.mul(images, 2, out=doubled)
                replay = graph.replay
            found = []
            while loader.next_into(images, labels):
                replay()
                found.append((doubled / 2, labels.clone()))
        self.same(found, self.expected(drop_last=True), "next_into")

    @needs_gpu
    def compiled(self):
        """torch.compile with mode="reduce-overhead", which makes CUDA graphs of its own, beside an active loader."""
        torch = self.torch
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 31 * 31, 4)
        ).cuda()
        fast = torch.compile(model, mode="reduce-overhead")
        with self.loader(drop_last=True) as loader:
            for images, labels in loader:
                torch.compiler.cudagraph_mark_step_begin()
                loss = torch.nn.functional.cross_entropy(fast(images), labels)
                loss.backward()
                with torch.no_grad():
                    want = torch.nn.functional.cross_entropy(model(images), labels)
                assert torch.allclose(loss, want, atol=1e-2), (loss, want)
                model.zero_grad(set_to_none=True)

    def prefetch_thread(self):
        """A thread takes batches ahead, the training thread uses them."""
        ahead, found = queue.Queue(4), []

        def fetch(loader):
            try:
                for images, labels in loader:
                    ahead.put((images, labels))
            finally:
                ahead.put(None)

        with self.loader() as loader:
            thread = threading.Thread(target=fetch, args=(loader,))
            thread.start()
            while (batch := ahead.get()) is not None:
                found.append((batch[0].clone(), batch[1].clone()))
                batch = None
            thread.join()
        self.same(found, self.expected(), "prefetched")

    def daemon_killed(self):
        """kill -9 of the daemon in mid-epoch; a new one takes its place: the same epoch, batch for batch, with one
        warning."""
        import warnings

        wanted = self.expected()
        with tempfile.TemporaryDirectory(prefix="batchd-") as place:
            socket = os.path.join(place, "s")
            daemon = start_daemon(socket)
            try:
                with warnings.catch_warnings(), self.loader(socket=socket, reconnect=60) as loader:
                    warnings.simplefilter("ignore")
                    batches = iter(loader)
                    found = [tuple(t.clone() for t in next(batches)) for _ in range(3)]
                    daemon.kill()
                    daemon.wait()
                    daemon = start_daemon(socket)
                    found += [(images.clone(), labels.clone()) for images, labels in batches]
                self.same(found, wanted, "across two daemons")
            finally:
                daemon.terminate()
                assert daemon.wait(30) == 0, "the second daemon did not end well"

    @needs_gpu
    def another_trainer_faults(self):
        """A trainer of the same daemon writes to an unmapped GPU address: it loses its context, this trainer and the
        daemon continue."""
        wanted, found = self.expected(), []
        pid = self.batchd.status()["daemon"]["pid"]
        with self.loader() as loader:
            batches = iter(loader)
            found.append(tuple(t.clone() for t in next(batches)))
            p = subprocess.run(
                [sys.executable, __file__, str(self.folder), "--role", "fault"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert "ILLEGAL" in p.stdout.upper(), p.stdout + p.stderr
            found += [(images.clone(), labels.clone()) for images, labels in batches]
        self.same(found, wanted, "beside a fault")
        assert self.batchd.status()["daemon"]["pid"] == pid, "the daemon ended"

    def fault(self):
        """Role: takes a batch, then writes to an unmapped address."""
        cuda = ctypes.CDLL("libcuda.so.1")
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        with contextlib.ExitStack() as stack:
            batches = iter(stack.enter_context(self.loader()))
            next(batches)
            for name, args in (
                ("cuModuleLoadData", (ctypes.byref(module), FAULT)),
                ("cuModuleGetFunction", (ctypes.byref(function), module, b"fault")),
                ("cuLaunchKernel", (function, 1, 1, 1, 1, 1, 1, 0, None, None, None)),
            ):
                assert getattr(cuda, name)(*args) == 0, name
            try:
                self.torch.cuda.synchronize()
            except RuntimeError as e:
                print(str(e).splitlines()[0], flush=True)
            os._exit(0)  # CUDA is unusable in this process now

    @needs_gpu
    def cupy_from_dlpack(self):
        """CuPy sees a raw batch's bytes without a copy."""
        try:
            import cupy
        except ImportError as e:
            raise Skipped(f"no CuPy: {e}") from None
        with self.loader(raw=True) as loader:
            images, _ = next(iter(loader))
            array = cupy.from_dlpack(images)
            assert array.data.ptr == images.data_ptr() and (cupy.asnumpy(array) == images.cpu().numpy()).all()
            del array, images

    @needs_gpu
    def jax_from_dlpack(self):
        """JAX gets a raw batch's bytes, as an array that outlives the batch."""
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        try:
            import jax
            import jax.dlpack
            import numpy
        except ImportError as e:
            raise Skipped(f"no JAX: {e}") from None
        wanted = self.expected_raw()
        with self.loader(raw=True) as loader:
            for (images, _), (want, _) in zip(loader, wanted, strict=True):
                array = jax.numpy.array(jax.dlpack.from_dlpack(images), copy=True)
                array.block_until_ready()
                del images
                assert (numpy.asarray(array) == want.numpy()).all()


CASES = (
    "dtypes_and_layouts",
    "autograd_keeps_raw_images",
    "record_stream",
    "side_stream",
    "slices_of_a_shared_batch",
    "cuda_graph",
    "next_into_static_tensors",
    "compiled",
    "prefetch_thread",
    "daemon_killed",
    "another_trainer_faults",
    "cupy_from_dlpack",
    "jax_from_dlpack",
)


def start_daemon(socket):
    daemon = subprocess.Popen(
        [os.path.join(os.environ["BATCHD_BUILD"], "batchd"), "--foreground", "--socket", socket],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 20
    while not os.path.exists(socket) and time.monotonic() < deadline:
        time.sleep(0.02)
    return daemon


running = set()  # groups of processes


def end_all(*_):
    """Cases are process groups of their own, which a signal to this one does not reach."""
    for group in list(running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    os._exit(143)


def run_case(folder, name):
    """(name, "ok" | "skipped" | "FAILED", last output, seconds)."""
    began = time.monotonic()
    if not ON_GPU and getattr(getattr(Case, name, None), "needs_gpu", False):
        return name, "skipped", "needs a GPU", 0.0
    p = subprocess.Popen(
        [sys.executable, __file__, str(folder), "--role", name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    running.add(p.pid)
    try:
        out, _ = p.communicate(timeout=CASE_S)
        said = "ok" if p.returncode == 0 else "skipped" if p.returncode == SKIPPED else "FAILED"
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        out, said = p.communicate()[0] + f"took more than {CASE_S} s", "FAILED"
    running.discard(p.pid)
    return name, said, out.strip(), time.monotonic() - began


def main(folder, names):
    n = {"ok": 0, "skipped": 0, "FAILED": 0}
    if names[:1] == ["--without"]:
        names = [name for name in CASES if name not in names]
    signal.signal(signal.SIGTERM, end_all)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for name, said, out, took in pool.map(lambda name: run_case(folder, name), names or CASES):
            n[said] += 1
            print(f"{said:8} {name.replace('_', ' ')} ({took:.1f} s)", end="")
            print("" if said == "ok" else ": " + (out.splitlines()[-1:] or [""])[0], flush=True)
            if said == "FAILED":
                print("    " + "\n    ".join(out.splitlines()[-20:]), flush=True)
    print(f"{n['ok']} cases hold, {n['FAILED']} failed, {n['skipped']} skipped")
    return 1 if n["FAILED"] or not n["ok"] else 0


def role(folder, name):
    try:
        getattr(Case(folder), name)()
    except Skipped as e:
        print(e)
        return SKIPPED
    return 0


if __name__ == "__main__":
    place = pathlib.Path(sys.argv[1]).resolve()
    sys.exit(role(place, sys.argv[3]) if sys.argv[2:3] == ["--role"] else main(place, sys.argv[2:]))
