"""device="cuda" without torch: CuPy's arrays (gpu_cupy.py in its place), and what is stored for any other library, on the
fake driver."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

HERE = pathlib.Path(__file__).resolve().parents[1]

BEGIN = """
import gc, os, sys, threading, warnings
import numpy
import gpu_cupy, batchd
from batchd import _lib
warnings.simplefilter("error")
TRANSFORM = [["CenterCrop", 32], "RandomHorizontalFlip", "ToTensor", ["Normalize", {"mean": [0.5] * 3, "std": [0.25] * 3}]]
dataset = sys.argv[1]

def open_loader(device="cuda", **options):
    options = {"batch_size": 10, "transform": TRANSFORM, "seed": 3, "n_slots": 4, "shuffle": True, **options}
    return batchd.DataLoader(dataset, device=device, **options)

def expected(**options):
    with open_loader("cpu", arrays="numpy", **options) as loader:
        return [(images.copy("K"), labels) for images, labels in loader]

def held(loader):
    return _lib.n_leased(loader._handle)

def refused(kind, words, **options):
    try:
        open_loader(**options)
    except kind as e:
        assert words in str(e), e
    else:
        raise SystemExit(f"{options} was taken")

gpu_cupy.use()
"""


@pytest.fixture
def run(build, make_daemon, samples, monkeypatch):
    """Runs a program against a daemon that has the fake driver's GPU; it must succeed."""
    fake = build / "libfakecuda.so"
    if not fake.exists():
        pytest.skip(f"{fake} is not built")
    monkeypatch.setenv("BATCHD_LIBCUDA", str(fake))

    def run(program):
        make_daemon()
        env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]]))
        text = BEGIN + textwrap.dedent(program) + "\nassert 'torch' not in sys.modules\ngc.collect()\ngpu_cupy.done()\n"
        p = subprocess.run(
            [sys.executable, "-c", text, f"imagefolder:{samples}"], env=env, capture_output=True, text=True, timeout=300
        )
        assert p.returncode == 0 and p.stdout.endswith("done\n"), p.stdout + p.stderr

    return run


def test_cupys_images_are_those_of_the_cpu(run):
    """Every dtype and layout; memory is CuPy's own and holds no slot."""
    run("""
    for options in ({}, {"dtype": "float16"}, {"layout": "NHWC"}, {"dtype": "uint8"}, {"layout": "channels_last"}):
        if not open_loader(arrays="cupy", raw=True)._info.can_finish:
            break  # built without the kernel
        with open_loader(arrays="cupy", **options) as loader:
            for (images, labels), (i, l) in zip(loader, expected(**options), strict=True):
                assert isinstance(images, gpu_cupy.ndarray) and images.dtype == i.dtype
                assert (images.get() == i).all() and (labels.get() == l).all() and held(loader) == 0
                assert images.strides == i.strides
    images = labels = None
    """)


def test_cupy_without_the_kernel(run, monkeypatch):
    """Images are refused with what to write; as stored they come."""
    monkeypatch.setenv("FAKECUDA_FAIL", "cuModuleLoadData:1=200,cuModuleLoadData:2=222")
    run("""
    refused(RuntimeError, "raw=True", arrays="cupy")
    with open_loader(arrays="cupy", raw=True) as loader:
        for (images, labels), (i, l) in zip(loader, expected(dtype="uint8", layout="NHWC"), strict=True):
            assert (images.get() == i).all() and (labels.get() == l).all()
        images = labels = None
    """)


def test_raw_arrays_of_cupy_own_their_slots(run):
    """Any thread may drop them, and a program that keeps too many gets copies; another stream is noted."""
    run("""
    of_cpu = expected(dtype="uint8", layout="NHWC")
    with open_loader(arrays="cupy", raw=True) as loader:
        kept = []
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            batches = iter(loader)
            for i, l in of_cpu:
                images, labels = next(batches)
                kept.append(images)
                assert (images.get() == i).all() and (labels.get() == l).all()
        assert len(told) == 1 and "n_slots" in str(told[0].message)
        assert all((k.get() == i).all() for k, (i, _) in zip(kept, of_cpu))
        other = gpu_cupy.Stream()
        loader.record_stream(kept[0], other)
        images = labels = None
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        assert held(loader) == 0
    with open_loader(arrays="cupy", raw=True, layout="channels_last") as loader:
        for (images, labels), (i, _) in zip(loader, of_cpu, strict=True):
            assert (images.get() == i.transpose(0, 3, 1, 2)).all() and images.strides[1] == 1
        images = labels = None
    gpu_cupy.ok(gpu_cupy._cu.cuStreamDestroy_v2(gpu_cupy.ctypes.c_void_p(other.ptr)))
    """)


def test_cupys_fields_views_and_mixes(run):
    run("""
    two = {"a": batchd.views(TRANSFORM, n=2), "b": batchd.views(TRANSFORM, n=2, stack=True)}
    if open_loader(arrays="cupy", raw=True)._info.can_finish:
        with open_loader(arrays="cupy", transform=two) as loader, open_loader("cpu", arrays="numpy", transform=two) as oracle:
            for (images, labels), (i, l) in zip(loader, oracle):
                assert all((x.get() == y).all() for x, y in zip(images["a"], i["a"]))
                assert (images["b"].get() == i["b"]).all() and (labels.get() == l).all()
        for mix in (batchd.MixUp(0.4, 4), batchd.CutMix(1.0)):
            with open_loader(arrays="cupy", mix=mix) as loader, open_loader("cpu", arrays="numpy", mix=mix) as oracle:
                for (images, targets), (i, t) in zip(loader, oracle):
                    assert (images.get() == i).all()
                    targets, t = (x if isinstance(x, tuple) else (x,) for x in (targets, t))
                    assert all((x.get() == y).all() for x, y in zip(targets, t, strict=True))
    images = labels = targets = x = None
    """)


def test_any_library_takes_what_is_stored(run):
    """As batchd.Array, once, without a copy; one that no library takes gives its slot back. So for JAX, which asks for no
    version."""
    run("""
    of_cpu = expected(dtype="uint8", layout="NHWC")
    with open_loader(arrays="dlpack", raw=True) as loader:
        batches = iter(loader)
        for k, (i, l) in enumerate(of_cpu):
            images, labels = next(batches)  # zip would keep the batch
            assert isinstance(images, batchd.Array) and (images.shape, images.dtype) == (i.shape, "uint8")
            assert isinstance(labels, numpy.ndarray) and (labels == l).all() and held(loader) == 1
            if k % 2:
                address = loader._struct.device_data
                taken = gpu_cupy.ndarray(gpu_cupy.imported(images, stream=gpu_cupy.current.ptr), i.shape, "u1")
                try:
                    gpu_cupy.from_dlpack(images)
                    raise SystemExit("taken twice")
                except BufferError as e:
                    assert "keep the array" in str(e), e
                assert taken.data.ptr == address and (taken.get() == i).all()
                del images
                assert held(loader) == 1
                del taken
            try:
                numpy.asarray(images if not k % 2 else batchd.Array.__new__(batchd._dlpack.DeviceArray))
                raise SystemExit("read")
            except TypeError as e:
                assert "on a GPU" in str(e)
            images = None
            assert held(loader) == 0
        kept = []
        try:
            for images, _ in loader:
                kept.append(images)
            raise SystemExit("all were kept")
        except batchd.Error as e:
            assert "n_slots" in str(e), e
        kept = images = None
    """)


def test_what_a_library_cannot_do_is_refused(run):
    run("""
    refused(ValueError, "give raw=True", arrays="dlpack")
    refused(RuntimeError, "arrays='cupy', 'jax' or 'dlpack'", arrays="numpy")
    refused(ValueError, "give device='cuda', or arrays='numpy'", device="cpu", arrays="cupy")
    refused(TypeError, "no bfloat16", arrays="cupy", dtype="bfloat16")
    refused(ValueError, "cuda[:n]", arrays="cupy", device="gpu")
    refused(ValueError, "cuda[:n]", arrays="dlpack", raw=True, device="cuda:")
    with open_loader(arrays="cupy", raw=True) as loader:
        try:
            loader.next_into(numpy.zeros(1))
            raise SystemExit("written")
        except TypeError as e:
            assert "arrays='torch'" in str(e), e
    with open_loader(arrays="dlpack", raw=True) as loader:
        try:
            loader.record_stream(next(iter(loader))[0], None)
            raise SystemExit("noted")
        except ValueError as e:
            assert "its own streams" in str(e), e
    """)
