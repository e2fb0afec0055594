"""Assignments to a loader, requests for torch's attributes, orders that are no samplers, and messages about bad data or
a missing torch."""

import os
import shutil
import subprocess
import sys
import textwrap
import warnings

import numpy
import pytest

import batchd

RANDOM = "random:length=100,shape=3x4x5,dtype=float32,classes=7"
TORCHS_OWN = (
    "collate_fn",
    "generator",
    "multiprocessing_context",
    "persistent_workers",
    "pin_memory",
    "pin_memory_device",
    "prefetch_factor",
    "worker_init_fn",
)

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def make(dataset=RANDOM, batch_size=8, n_slots=4, **options):
    return batchd.DataLoader(dataset, batch_size, n_slots=n_slots, **options)


def run_python(code, **env):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "BATCHD_ARRAYS": "numpy", **env},
    )


# ---- attributes ----


def test_assignments_that_would_change_nothing_are_refused(daemon):
    """torch raises ValueError for its own options; here every option does, and so do the other attributes of torch's
    loader."""
    loader = make()
    for name in (
        "dataset",
        "batch_size",
        "shuffle",
        "seed",
        "drop_last",
        "sampler",
        "batch_sampler",
        "transform",
        "dtype",
        "rank",
        "world_size",
        "job",
        "num_workers",
        "n_slots",
        *TORCHS_OWN,
    ):
        before = getattr(loader, name, None)
        with pytest.raises(ValueError, match=f"{name} cannot be changed"):
            setattr(loader, name, [[1, 2, 3]])
        assert getattr(loader, name, None) == before
    for name, says in (
        ("foo", "keep it in your own variable"),
        ("batchsize", "did you mean batch_size"),
        ("time_out", "timeout"),
    ):
        with pytest.raises(AttributeError, match=f"no {name}, and assigning it would change nothing.*{says}"):
            setattr(loader, name, 4)
        assert not hasattr(loader, name)
    loader.num_batches = loader.num_samples = 3  # where OpenCLIP counts
    assert loader.num_batches == 3 and len(loader) == 13
    loader.timeout = 20
    assert loader.timeout == 20 and sum(1 for _ in loader) == 13
    with pytest.raises(TypeError, match="timeout"):
        loader.timeout = "20"


class Mine(batchd.DataLoader):
    """Keeps something of its own."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.notes = []


def test_a_subclass_keeps_what_it_likes(daemon):
    loader = Mine(RANDOM, 8)
    loader.notes.append(len(loader))
    loader.more = 1
    assert (loader.notes, loader.more) == ([13], 1)


def test_the_data_sets_stand_in_takes_no_transform(daemon):
    """Scripts use `loader.dataset.transform = ...` to switch augmentation off for the last epochs."""
    loader = make()
    with pytest.raises(ValueError, match="transform .* would change nothing: .*Make another loader with transform="):
        loader.dataset.transform = None
    with pytest.raises(ValueError, match="targets"):
        loader.dataset.targets = []
    assert not hasattr(loader.dataset, "transform") and len(loader.dataset) == 100


def test_torchs_other_attributes_are_missing_with_an_explanation(daemon):
    """hasattr is false, so that frameworks do not take the loader apart; an access raises an error that says why."""
    loader = make()
    for name in TORCHS_OWN:
        assert not hasattr(loader, name)
        with pytest.raises(AttributeError, match=f"no {name} .*no torch.utils.data.DataLoader"):
            getattr(loader, name)
    for name in ("shuffle", "xyzzy"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(loader, name)


@needs_torch
def test_a_torch_loader_around_one_is_told_that_it_is_too_much(daemon):
    loader = make()
    with pytest.raises(TypeError, match="takes the place of torch.utils.data.DataLoader, so write nothing around it"):
        next(iter(torch.utils.data.DataLoader(loader)))
    with pytest.raises(TypeError, match="gives batches in its own order, none by an index"):
        loader[0]
    assert len(list(loader)) == 13


# ---- options ----


def test_no_batch_size_is_no_default(daemon):
    """In torch batch_size=None means single samples."""
    with pytest.raises(ValueError, match="batch_size=None: there are no single samples here"):
        make(batch_size=None)
    assert batchd.DataLoader(RANDOM).batch_size == 64
    with pytest.raises(ValueError, match="give batch_size"):
        batchd.DataLoader(RANDOM, batch_sampler=iter([[1]]))
    assert batchd.DataLoader(RANDOM, sampler=[1, 2, 3]).batch_size == 64


@pytest.mark.parametrize(
    "wrong, kind, what",
    [
        ([0, 1, 100], IndexError, r"sampler, at position 2, chose sample 100 of 100: .* 0 to 99"),
        (["a"], TypeError, r"sampler, at position 0, chose 'a'"),
        ([0, 1.5], TypeError, r"sampler, at position 1, chose 1.5, which is no sample number"),
        (["1", "2"], TypeError, "chose '1'"),
        (list(range(9)) + [-1], IndexError, r"sampler, at position 9, chose sample -1"),
        ([None], TypeError, "chose None"),
    ],
)
def test_what_is_no_sample_number_is_named_with_its_place(daemon, wrong, kind, what):
    """In a sampler the error names its position in the epoch; nothing is rounded or converted."""
    with pytest.raises(kind, match=what):
        list(make(sampler=wrong))


def test_what_is_no_sample_number_in_a_batch_is_named_with_its_place(daemon):
    """The error names batch and row; numpy's and torch's integers are accepted."""
    for wrong, kind, what in (
        ([[0], [1, 100]], IndexError, "batch_sampler, in batch 1 at position 1, chose sample 100 of 100"),
        ([numpy.array([0.0, 1.0])], TypeError, "batch_sampler, in batch 0 at position 0, chose 0.0"),
    ):
        with pytest.raises(kind, match=what):
            list(make(batch_sampler=wrong))
    loader = make(
        batch_sampler=[numpy.array([3, 1]), [numpy.uint8(7), 2]]
        + ([torch.tensor([5, 4]), [torch.tensor(6)]] if torch else [])
    )
    assert [loader.last_batch.indices.tolist() for _ in loader] == [[3, 1], [7, 2]] + ([[5, 4], [6]] if torch else [])


def test_a_prefetcher_that_keeps_one_batch_works_with_two_slots(daemon):
    """The prefetcher holds one batch while it fetches the next, as timm's and NVIDIA's do, so all three are alive: the
    content is right, and one warning reports the copies."""
    expected = [numpy.asarray(x).copy() for x, _ in make(arrays="numpy")]

    def ahead(loader):
        kept = None
        for images, _ in loader:
            if kept is not None:
                yield kept
            kept = images
        yield kept

    loader = make(arrays="numpy", n_slots=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            loader.set_epoch(0)
            found = [x.copy() for x in ahead(loader)]
            assert len(found) == 13 and all((x == y).all() for x, y in zip(found, expected))
    assert len(caught) == 1 and "n_slots" in str(caught[0].message)


# ---- problems ----


def test_replaced_samples_are_told_of_once(make_daemon, samples, tmp_path):
    """Reported by number, with names and what to do, at the loop's line; the second epoch prints nothing."""
    make_daemon(config="bad_data: 10%\n")
    shutil.copytree(samples, tmp_path / "data")
    files = sorted((tmp_path / "data").rglob("*.jpg"))
    for broken in files[:2]:
        broken.write_bytes(b"no picture")
    loader = make(f"imagefolder:{tmp_path}/data", arrays="numpy")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        n = sum(loader.last_batch.n_replaced for _ in range(2) for _ in loader)
    assert n == 4 and len(caught) == 1 and caught[0].category is RuntimeWarning and caught[0].filename == __file__
    said = str(caught[0].message)
    assert "of 96 samples cannot be decoded" in said or "a sample cannot be decoded" in said
    assert files[0].name in said and f"batchctl verify imagefolder:{tmp_path}/data" in said and "bad_data" in said


@pytest.mark.parametrize(
    "raised, told",
    [
        ("ImportError('libcudart.so.13: cannot open shared object file')", "libcudart.so.13"),
        ("OSError('libtorch_cuda.so: undefined symbol')", "undefined symbol"),
        (None, None),
    ],
)
def test_a_torch_that_cannot_be_imported_is_told_of(daemon, tmp_path, raised, told):
    """Then arrays are numpy's, and a warning says why; without any torch there is no warning. arrays='torch' raises the
    original error."""
    if raised:
        (tmp_path / "torch.py").write_text(f"raise {raised}\n")
        hide = ""
    else:
        hide = "sys.modules['torch'] = None"  # as if torch were not installed
    done = run_python(
        f"""
        import sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        {hide}
        import batchd
        for _ in range(2):
            print(type(next(iter(batchd.DataLoader({RANDOM!r}, 8)))[0]).__module__)
        try:
            batchd.DataLoader({RANDOM!r}, 8, arrays="torch")
        except (ImportError, OSError) as e:
            print("raised")
    """,
        BATCHD_ARRAYS="",
    )
    assert done.stdout.split() == ["numpy", "numpy", "raised"], done.stderr
    assert done.stderr.count("torch is installed, but cannot be imported") == (1 if told else 0), done.stderr
    assert (told or "") in done.stderr


def test_a_loader_that_outlives_the_modules_says_nothing(daemon):
    """At the interpreter's end this package's modules may be emptied before a script's globals are."""
    done = run_python(f"""
        import batchd
        loader = batchd.DataLoader({RANDOM!r}, 8)
        iterator = iter(loader)
        batch = next(iterator)
        for module in (batchd._lib, batchd.loader, batchd._arrays, batchd):   # what the interpreter does, in its order or another
            for name in list(vars(module)):
                vars(module)[name] = None
        del iterator, loader, batch
        print("gone")
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("gone\n", "", 0)


# ---- torch's tools ----


@needs_torch
def test_a_profiler_sees_waiting_for_batches_by_torchs_name(daemon):
    """TensorBoard's plugin counts ranges that begin and end like this; without a profiler there are none."""
    loader = make(batch_size=25)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        for _ in loader:
            torch.ones(3).sum()
    found = [e for e in p.key_averages() if e.key.startswith("enumerate(DataLoader)#") and e.key.endswith(".__next__")]
    assert len(found) == 1 and found[0].count == 5  # and the end


@needs_torch
def test_a_loop_inside_torch_compile_is_not_traced_into(daemon):
    """The same sum as in eager mode, no graph break inside this package, no batch kept."""
    done = run_python(
        f"""
        import torch, batchd, warnings
        warnings.simplefilter("error", RuntimeWarning)
        loader = batchd.DataLoader({RANDOM!r}, 8, shuffle=True, n_slots=4)

        def epoch(loader):
            total = torch.zeros(())
            for images, labels in loader:
                total = total + images.sin().sum()
            return total

        eager = epoch(loader)
        loader.set_epoch(0)
        compiled = torch.compile(epoch, backend="eager")(loader)
        from torch._dynamo.utils import counters
        print(bool(eager == compiled), dict(counters["graph_break"]), batchd._lib.n_leased(loader._handle))
    """,
        BATCHD_ARRAYS="torch",
    )
    assert done.stdout == "True {} 0\n", done.stdout + done.stderr
