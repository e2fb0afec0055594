"""RandomErasing behind Normalize, and GaussianNoise behind ToTensor, on a GPU (the fake driver): the numbers that the same
loader makes in host memory, to the bit, mixed or not."""

import pytest

pytest.importorskip("torch")
from test_cuda_loader import run  # noqa: E402, F401

CHECK = """
    erasing = ["RandomErasing", {"p": 0.7, "value": "random"}]
    constant = ["RandomErasing", {"p": 0.7, "value": 0.123}]
    mixes = [None, batchd.MixUp(0.4, 30), "targets:classes=30;timm:mixup_alpha=0.8,cutmix_alpha=1,mode=elem"]

    def batches(device, **options):
        with open_loader(device, job=str(hash(repr((device, options)))), **options) as loader:
            if device == "cuda" and options.get("mix") and not loader._info.can_finish:
                return None  # built without the kernel: torch's own operations, which only torch itself can do
            loader.set_epoch(1)
            made = [(i.cpu().clone(), t.cpu().clone()) for i, t in loader]
            return made, loader.last_batch.mix

    for erase in (erasing, constant):
        for mix in mixes:
            for options in (dict(), dict(layout="NHWC"), dict(dtype="float16")):
                options.update(transform=[*TRANSFORM, erase], drop_last=True, **({} if mix is None else {"mix": mix}))
                (want, table), on_gpu = batches("cpu", **options), batches("cuda", **options)
                if on_gpu is None:
                    continue
                got, other = on_gpu
                assert mix is None or (table == other).all()
                for (i, t), (x, y) in zip(want, got, strict=True):
                    assert x.dtype == i.dtype and x.shape == i.shape
                    assert real.equal(t, y)
                    assert real.equal(x, i), options
    """


def test_numbers_are_those_of_the_cpu(run):  # noqa: F811
    run(CHECK)


def test_bfloat16_is_rounded_once(run):  # noqa: F811
    """From the float32 rows of the CPU."""
    run("""
    transform = [*TRANSFORM, ["RandomErasing", {"p": 0.7, "value": "random"}]]
    for mix in ({}, {"mix": batchd.MixUp(0.4, 30)}):
        with open_loader("cpu", job="cpu", transform=transform, **mix) as loader:
            want = [i.to(real.bfloat16) for i, _ in loader]
        with open_loader(job="gpu", dtype="bfloat16", transform=transform, **mix) as loader:
            if not loader._info.can_finish:
                continue  # built without the kernel
            for (images, targets), i in zip(loader, want, strict=True):
                assert images.dtype == real.bfloat16 and real.equal(images.cpu(), i)
                images = targets = None
    """)


def test_views_one_of_which_erases(run):  # noqa: F811
    """timm's augmentation splits: all views of the loader have numbers, and a stack of them."""
    run("""
    erased = [*TRANSFORM, ["RandomErasing", {"p": 1, "value": "random"}]]
    for stack in (False, True):
        made = []
        for device in ("cpu", "cuda"):
            with open_loader(device, job=device, transform=batchd.views(TRANSFORM, erased, stack=stack)) as loader:
                loader.set_epoch(2)
                made.append([[v.cpu().clone() for v in ([views] if stack else views)] for views, _ in loader])
        for ours, theirs in zip(*made, strict=True):
            assert all(real.equal(x, y) for x, y in zip(ours, theirs, strict=True))
    """)


def test_raw_and_bytes_are_refused_with_the_reason(run):  # noqa: F811
    """A trainer that wants the daemon's bytes cannot have numbers that no pixel has."""
    run("""
    transform = [*TRANSFORM, ["RandomErasing", {"p": 0.7, "value": "random"}]]
    for options in (dict(raw=True), dict(dtype="uint8")):
        try:
            open_loader(transform=transform, **options)
        except ValueError as e:
            assert "RandomErasing" in str(e) and "no pixel has" in str(e), e
        else:
            raise AssertionError(options)
    """)
