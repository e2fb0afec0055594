"""device="cuda" in Python, with the complete daemon and C library, on the fake driver; gpu_torch.py replaces torch
where it touches a GPU."""

import os
import pathlib
import textwrap

import pytest

import batchd

from fork_server import with_torch

torch = pytest.importorskip("torch")
HERE = pathlib.Path(__file__).resolve().parents[1]
TRANSFORM = [
    ["CenterCrop", 32],
    "RandomHorizontalFlip",
    "ToTensor",
    ["Normalize", {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}],
]

BEGIN = """
import gc, os, sys, threading, time, warnings
import torch as real
import gpu_torch, batchd
from batchd import _lib
from test_cuda_loader import TRANSFORM
warnings.simplefilter("error")
dataset = sys.argv[1]

def open_loader(device="cuda", **options):
    options = dict(dict(batch_size=10, transform=TRANSFORM, seed=3, n_slots=4, shuffle=True, job="of this test"), **options)
    return batchd.DataLoader(dataset, device=device, **options)

def expected(**options):
    with open_loader("cpu", job="on the CPU", **options) as loader:
        loader.set_epoch(2)
        return [(images.clone(), labels.clone(), loader.last_batch.indices) for images, labels in loader]

wanted = expected()
gpu_torch.use()
"""


@pytest.fixture
def run(build, make_daemon, samples, monkeypatch):
    """Runs a program against a daemon that has the fake driver's GPU; it must succeed."""
    fake = build / "libfakecuda.so"
    if not fake.exists():
        pytest.skip(f"{fake} is not built")
    monkeypatch.setenv("BATCHD_LIBCUDA", str(fake))

    def run(program, personality=None):
        if personality:
            monkeypatch.setenv("FAKECUDA_PERSONALITY", personality)
        make_daemon()
        env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE), str(HERE / "gpu"), os.environ["PYTHONPATH"]]))
        text = BEGIN + textwrap.dedent(program) + "\ngc.collect()\ngpu_torch.done()\n"
        p = with_torch().python(["-c", text, f"imagefolder:{samples}"], env)
        assert p.returncode == 0 and p.stdout.endswith("done\n"), p.stdout + p.stderr
        return p

    return run


ORDINARY = """
    for options in (dict(), dict(dtype="float16"), dict(layout="NHWC"), dict(dtype="uint8"), dict(dtype="uint8", layout="NHWC"), dict(dtype="bfloat16"),
                    dict(layout="channels_last"), dict(dtype="float16", layout=real.channels_last),
                    dict(dtype="uint8", layout="channels_last"), dict(dtype="bfloat16", layout="channels_last")):
        name = options.get("dtype")
        permuted = "channels_last" in str(options.get("layout"))
        of_cpu = wanted if not options else expected(**options) if name != "bfloat16" else [(i.to(real.bfloat16), l, n) for i, l, n in wanted]
        with open_loader(**options) as loader:
            if not loader._info.can_finish and options != dict(dtype="uint8", layout="NHWC"):
                continue  # built without the kernel: torch's own operations, which only torch itself can do
            for _ in range(2):
                loader.set_epoch(2)
                for (images, labels), (i, l, n) in zip(loader, of_cpu, strict=True):
                    assert images.dtype == i.dtype and real.equal(images.cpu(), i), options
                    assert not permuted or images.cpu().is_contiguous(memory_format=real.channels_last), options
                    assert real.equal(labels.cpu(), l) and (loader.last_batch.indices == n).all()
                    assert _lib.n_leased(loader._handle) == 0
        images = labels = None
    assert gpu_torch.counter("pageable") == 0
"""


def test_images_are_those_of_the_cpu(run):
    """Every dtype and layout, shuffled and flipped alike, labels and indices; memory is torch's own and holds no
    slot."""
    run(ORDINARY)


def test_without_ipc_it_is_said_once_and_works(run):
    """One warning with the reason for each loader, and the same numbers."""
    run(
        """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loader = open_loader()
    assert len(told) == 1 and "copied to cuda:0 by this process" in str(told[0].message) and "doctor" in str(told[0].message), [str(w.message) for w in told]
    assert told[0].filename == "<string>", told[0]
    warnings.simplefilter("ignore")
    loader.close()
    """
        + textwrap.indent(textwrap.dedent(ORDINARY), "    "),
        "no-ipc",
    )


def test_a_driver_that_refuses_the_kernel_is_said_once(run, monkeypatch):
    """One warning with both of the driver's reasons when the loader opens; without a kernel in the library there is no
    warning."""
    monkeypatch.setenv("FAKECUDA_FAIL", "cuModuleLoadData:1=200,cuModuleLoadData:2=222")
    run("""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loader = open_loader()
    built_in = open(os.path.join(os.environ["BATCHD_BUILD"], ".cuda")).read().strip() == "1"
    assert not loader._info.can_finish and len(told) == built_in, [str(w.message) for w in told]
    for words in ("torch's own operations", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION") if built_in else ():
        assert words in str(told[0].message), told[0]
    loader.close()
    """)


def test_raw_images_in_channels_last(run):
    """A view of the daemon's memory that is in torch's format; next_into fills tensors of that format."""
    run("""
    of_cpu = expected(dtype="uint8", layout="NHWC")
    with open_loader(raw=True, layout="channels_last") as loader:
        loader.set_epoch(2)
        for (images, labels), (i, _, _) in zip(loader, of_cpu, strict=True):
            assert images.shape == (len(i), 3, 32, 32) and images.data_ptr() == loader._struct.device_data
            assert images.cpu().is_contiguous(memory_format=real.channels_last)
            assert real.equal(images.cpu().permute(0, 2, 3, 1), i)
        images = labels = None
    with open_loader(layout="channels_last") as loader:
        x = gpu_torch.empty((10, 32, 32, 3), dtype=real.float32).movedim(-1, -3)
        loader.set_epoch(2)
        for i, _, _ in wanted if loader._info.can_finish else ():
            assert loader.next_into(x) == len(i) and real.equal(x.cpu()[: len(i)], i)
        try:
            loader.next_into(gpu_torch.empty((10, 3, 32, 32), dtype=real.float32))
            raise SystemExit("another format was taken")
        except ValueError as e:
            assert "memory_format=torch.channels_last" in str(e), e
    x = None
    """)


def test_raw_images_are_the_daemons_memory(run):
    """No copy, as stored; they stay valid while they are referenced, any thread may free them, and a program that keeps
    too many gets copies and one warning."""
    run("""
    of_cpu = expected(dtype="uint8", layout="NHWC")
    loader = open_loader(raw=True)
    assert loader.normalize[1] == tuple(real.tensor([0.229, 0.224, 0.225]).tolist())
    loader.set_epoch(2)
    kept = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for (images, labels), (i, l, _) in zip(loader, of_cpu, strict=True):
            if len(kept) < 4:
                kept.append((images, i))
            assert images.dtype == real.uint8 and real.equal(images.cpu(), i) and real.equal(labels.cpu(), l)
    assert len(told) == 1 and "n_slots" in str(told[0].message), [str(w.message) for w in told]
    assert len({k.data_ptr() for k, _ in kept}) == 4 and all(real.equal(k.cpu(), i) for k, i in kept)
    other = gpu_torch.Stream()
    loader.record_stream(kept[0][0], other)
    loader.record_stream(kept[3][0], other)  # a copy
    assert kept[3][0]._memory.streams == [gpu_torch.current, other]
    assert len(loader._cuda._exported) <= 4
    try:
        loader.record_stream(kept[3][0].clone(), other)
        raise SystemExit("a clone is not raw")
    except ValueError:
        pass
    images = labels = k = i = None
    the_copy = kept.pop()
    t = threading.Thread(target=kept.clear)
    t.start()
    t.join()
    gc.collect()
    assert _lib.n_leased(loader._handle) == 0
    for images, labels in loader:  # slots are there again
        pass
    loader.close()
    images = images.cpu()          # the last one outlives the loader, until here
    labels = the_copy = None
    gpu_torch.ok(gpu_torch._cu.cuStreamDestroy_v2(other._p))
    with open_loader(raw=True) as loader:  # another loader's calls clear up after the first
        while not gpu_torch.counter("cuIpcCloseMemHandle"):
            for images, labels in loader:
                pass
        images = labels = None
    """)


def test_batches_into_the_callers_own_tensors(run):
    """next_into writes every dtype and layout where the caller says, the last, smaller batch too, and keeps no slot;
    autograd notices the write; unsuitable tensors are refused before a batch is taken."""
    run("""
    def buffers(images, labels, rows=10):
        made = gpu_torch.empty((rows, *images.shape[1:]), dtype=images.dtype), gpu_torch.empty((rows,), dtype=real.int64)
        for tensor in made:
            gpu_torch.ok(gpu_torch._cu.cuMemsetD8Async(real_pointer(tensor), 7, tensor.n_bytes, gpu_torch.current._p))
        return made

    import ctypes
    real_pointer = lambda tensor: ctypes.c_uint64(tensor.data_ptr())
    for options in (dict(), dict(dtype="float16"), dict(layout="NHWC"), dict(dtype="uint8", layout="NHWC"), dict(dtype="bfloat16"), dict(raw=True)):
        name = options.get("dtype")
        plain = dict(dtype="uint8", layout="NHWC") if "raw" in options else options
        of_cpu = [(i.to(real.bfloat16), l, n) for i, l, n in wanted] if name == "bfloat16" else expected(**plain)
        with open_loader(**options) as loader:
            if not loader._info.can_finish and plain != dict(dtype="uint8", layout="NHWC"):
                continue
            x, y = buffers(*of_cpu[0][:2])
            for epoch in range(2):
                loader.set_epoch(2)
                for i, l, n in of_cpu:
                    before = x._version, y._version
                    assert loader.next_into(x, y) == len(n) and (loader.last_batch.indices == n).all()
                    assert _lib.n_leased(loader._handle) == 0 and (x._version, y._version) == (before[0] + 1, before[1] + 1)
                    assert real.equal(x.cpu()[:len(n)], i) and real.equal(y.cpu()[:len(n)], l), options
                assert len(n) == 6 and loader.next_into(x, y) is None
            loader.set_epoch(2)
            assert loader.next_into(x) == 10 and real.equal(y.cpu()[:6], of_cpu[-1][1])  # labels were left alone
            images = of_cpu[0][0]
            for wrong, words in ((real.empty((10, *images.shape[1:]), dtype=images.dtype), "is on cpu, and this loader's batches are on cuda:0"),
                                 (gpu_torch.empty((9, *images.shape[1:]), dtype=images.dtype), "or more rows"),
                                 (gpu_torch.empty((10, *images.shape[1:]), dtype=real.float64), "is float64")):
                try:
                    loader.next_into(wrong, y)
                    raise SystemExit(f"{words}: was taken")
                except (TypeError, ValueError) as e:
                    assert words in str(e), e
            assert loader.next_into(x, y) == 10 and (loader.last_batch.indices == of_cpu[1][2]).all()  # nothing was lost
            x = y = wrong = None
    assert gpu_torch.counter("pageable") == 0
    """)


def test_a_batch_that_cannot_be_written_is_the_next_one_again(run):
    """Inside the capture of a graph a batch cannot be written, and the error says what to do; no batch of the epoch is
    lost by it."""
    run("""
    import ctypes
    of_cpu = expected(dtype="uint8", layout="NHWC")
    with open_loader(dtype="uint8", layout="NHWC") as loader:
        loader.set_epoch(2)
        x, y = gpu_torch.empty((10, 32, 32, 3), dtype=real.uint8), gpu_torch.empty((10,), dtype=real.int64)
        graph = ctypes.c_void_p()
        gpu_torch.ok(gpu_torch._cu.cuStreamBeginCapture_v2(gpu_torch.current._p, 2))
        try:
            loader.next_into(x, y)
            raise SystemExit("it was captured")
        except batchd.Error as e:
            assert "before the replay" in str(e), e
        gpu_torch.ok(gpu_torch._cu.cuStreamEndCapture(gpu_torch.current._p, ctypes.byref(graph)))
        gpu_torch.ok(gpu_torch._cu.cuGraphDestroy(graph))
        for i, l, n in of_cpu:
            assert loader.next_into(x, y) == len(n) and real.equal(x.cpu()[:len(n)], i) and real.equal(y.cpu()[:len(n)], l)
        assert loader.next_into(x, y) is None
        x = y = None
    """)


def test_export_follows_the_protocol(run):
    """Versioned capsules only on request, streams as the array API defines them, no silent copy to another device; an
    unused capsule gives its slot back."""
    run("""
    from batchd import _dlpack
    loader = open_loader(raw=True)
    taken = []
    def export():
        assert _lib.next(loader._handle, loader._struct_at, -1) == 0
        return _dlpack.Export(loader._handle, loader._struct, 0)
    iter(loader)
    e = export()
    for wrong, error in ((dict(stream=0), ValueError), (dict(dl_device=(1, 0)), BufferError), (dict(copy=True), BufferError)):
        try:
            e.__dlpack__(**wrong)
            raise SystemExit(f"{wrong} was taken")
        except error:
            pass
    first = gpu_torch.Imported(e.__dlpack__(stream=1, dl_device=(2, 0)))
    assert first.name == b"dltensor"
    try:
        e.__dlpack__()
        raise SystemExit("handed out twice")
    except batchd.Error:
        pass
    second = gpu_torch.Imported(export().__dlpack__(stream=gpu_torch.current.cuda_stream, max_version=(1, 1)))
    assert second.name == b"dltensor_versioned" and second.managed.flags == 1 and second.managed.major == 1
    capsule = export().__dlpack__(max_version=(0, 8))
    assert "dltensor" in repr(capsule) and _lib.n_leased(loader._handle) == 3
    del capsule
    assert _lib.n_leased(loader._handle) == 2
    if os.fork() == 0:
        del first, second              # a child takes nothing
        os._exit(0)
    assert os.wait()[1] == 0 and _lib.n_leased(loader._handle) == 2
    del first, second
    assert _lib.n_leased(loader._handle) == 0
    loader.close()
    """)


def test_a_stuck_gpu_does_not_stop_ctrl_c_and_timeouts(run):
    """All slots wait for the GPU: the wait for a batch ends as requested, and continues when the GPU does."""
    run("""
    loader = open_loader(dtype="uint8", layout="NHWC", timeout=0.3)
    batches = iter(loader)
    gpu_torch.hold(True)
    kept = [next(batches) for _ in range(loader._info.window)]
    try:
        next(batches)
        raise SystemExit("a batch came from nowhere")
    except TimeoutError:
        pass
    threading.Timer(0.2, gpu_torch.hold, [False]).start()
    loader.timeout, loader._timeout_ms = 0, _lib.UNTIL_SIGNAL
    kept.append(next(batches))
    loader.close()
    kept.clear()
    """)


def test_another_daemon_in_mid_epoch(run):
    """The daemon crashes and a new one takes its place: the same epoch, batch for batch, earlier raw batches included;
    one warning."""
    run("""
    import select, signal, subprocess
    of_cpu = expected(dtype="uint8", layout="NHWC")
    loader = open_loader(raw=True, reconnect=60, n_slots=2)
    loader.set_epoch(2)
    batches = iter(loader)
    kept = next(batches)[0]
    socket = os.environ["BATCHD_SOCKET"]
    pid = batchd.status()["daemon"]["pid"]
    gone = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([gone], [], [], 30)[0]  # a daemon does not start where another still answers
    daemon = subprocess.Popen([os.path.join(os.environ["BATCHD_BUILD"], "batchd"), "--foreground", "--socket", socket], stderr=subprocess.DEVNULL)
    found = [kept.cpu()]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for images, labels in batches:
            kept = None  # the old daemon's
            found.append(images.cpu())
            images = None
    assert len(found) == len(of_cpu) and all(real.equal(f, i) for f, (i, _, _) in zip(found, of_cpu))
    assert [1 for w in told if "goes on where it was" in str(w.message)] == [1], [str(w.message) for w in told]
    labels = None
    loader.close()
    daemon.terminate()
    assert daemon.wait() == 0
    """)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("normalize", [True, False])
def test_torchs_own_operations_give_the_kernels_numbers(daemon, samples, dtype, layout, normalize):
    """The replacement for the kernel in a library without one, run on the CPU: bit for bit the daemon's result."""
    from batchd import _cuda

    transform = TRANSFORM if normalize else TRANSFORM[:3]
    raw, finished = (
        batchd.DataLoader(
            f"imagefolder:{samples}", batch_size=32, transform=transform, dtype=d, layout=l, arrays="torch"
        )
        for d, l in (("uint8", "NHWC"), (dtype, layout))
    )
    with raw, finished:
        for (r, _), (f, _) in zip(raw, finished, strict=True):
            made = _cuda.finish(torch, r, getattr(torch, dtype), layout == "NCHW", raw.normalize)
            assert made.dtype == f.dtype and made.is_contiguous() and torch.equal(made, f)


def test_torchs_own_uint8(daemon, samples):
    """Only the layout changes, into memory of its own."""
    from batchd import _cuda

    with batchd.DataLoader(
        f"imagefolder:{samples}", batch_size=8, transform=TRANSFORM, dtype="uint8", layout="NHWC", arrays="torch"
    ) as loader:
        images, _ = next(iter(loader))
        made = _cuda.finish(torch, images, torch.uint8, True, None)
        assert (
            made.is_contiguous()
            and torch.equal(made, images.permute(0, 3, 1, 2))
            and made.data_ptr() != images.data_ptr()
        )


def test_what_does_not_go_together(daemon, samples):
    """Refused before anything is opened."""
    with pytest.raises(ValueError, match="raw"):
        batchd.DataLoader(f"imagefolder:{samples}", raw=True)
    with pytest.raises(ValueError, match="bfloat16"):
        batchd.DataLoader(f"imagefolder:{samples}", dtype=torch.bfloat16)
