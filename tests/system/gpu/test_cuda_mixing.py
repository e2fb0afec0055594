"""Mixed batches on a GPU, on the fake driver: the same images and targets, to the bit, as the CPU makes of the same loader."""

import pytest

pytest.importorskip("torch")
from test_cuda_loader import run  # noqa: E402, F401

CHECK = """
    choice = batchd.RandomChoice([batchd.MixUp(0.4, 30), batchd.CutMix(1.0, 30)])
    timms = "targets:classes=30,smoothing=0.1;timm:mixup_alpha=0.8,cutmix_alpha=1,mode="
    kinds = set()
    for mix in (choice, timms + "batch", timms + "pair", timms + "elem"):
        for options in (dict(), dict(layout="NHWC"), dict(dtype="float16")):
            options.update(mix=mix, drop_last=True)
            with open_loader("cpu", job="on the CPU", **options) as loader:
                of_cpu = [(i.clone(), t, loader.last_batch.mix) for i, t in loader]
            with open_loader(**options) as loader:
                if not loader._info.can_finish:
                    continue  # built without the kernel
                for (images, targets), (i, t, table) in zip(loader, of_cpu, strict=True):
                    assert real.equal(images.cpu(), i) and real.equal(targets.cpu(), t), options
                    assert (loader.last_batch.mix == table).all()
                    kinds |= set(table["kind"].tolist())
                    assert _lib.n_leased(loader._handle) == 0
            images = targets = None
    assert kinds in (set(), {1, 2}), kinds
"""


def test_images_and_targets_are_those_of_the_cpu(run):  # noqa: F811
    """torchvision's and timm's mixes, every mode, layouts and dtypes."""
    run(CHECK)


def test_raw_batches_stay_clean(run):  # noqa: F811
    """raw=True: the daemon's pixels and labels as without a mix, and the table beside them."""
    run("""
    with open_loader(raw=True, job="clean") as loader:
        loader.set_epoch(2)
        clean = [(i.cpu().clone(), l.cpu().clone()) for i, l in loader]
    with open_loader(raw=True, mix=batchd.MixUp(1.0, 30), job="mixed") as loader:
        loader.set_epoch(2)
        for (images, labels), (i, l) in zip(loader, clean, strict=True):
            assert images.dtype == real.uint8 and real.equal(images.cpu(), i) and real.equal(labels.cpu(), l)
            table = loader.last_batch.mix
            assert (table["kind"] == 1).all() and len(set(table["weight"].tolist())) == 1
            images = labels = None
    """)


def test_mixing_is_switched_within_an_epoch(run):  # noqa: F811
    """mixup_enabled off and on between batches: the CPU's numbers with the same switches."""
    run("""
    made = []
    for device in ("cpu", "cuda"):
        with open_loader(device, mix=batchd.MixUp(0.8, 30), job=device, drop_last=True) as loader:
            if device == "cuda" and not loader._info.can_finish:
                continue  # built without the kernel
            steps, epoch = [], iter(loader)
            for on in (False, True, False):
                loader.mixup_enabled = on
                images, targets = next(epoch)
                assert (loader.last_batch.mix["kind"] != 0).any() == on
                steps.append((images.cpu().clone(), targets.cpu().clone()))
            images = targets = None
            made.append(steps)
    for (i, t), (j, u) in zip(made[0], made[-1], strict=True):
        assert real.equal(i, j) and real.equal(t, u)
    """)


def test_views_are_mixed_alike(run):  # noqa: F811
    """Each view of a row by the kernel: the CPU's numbers, also in a stack."""
    run("""
    view = [["RandomResizedCrop", 24], "RandomHorizontalFlip", "ToTensor", ["Normalize", [0.5], [0.25]]]
    small = [["RandomResizedCrop", 10], "ToTensor"]
    for transform, mix in (
        ({"a": batchd.views(view, n=2, stack=True), "b": small}, batchd.MixUp(0.4, 30)),
        ([view, view], batchd.CutMix(1.0, 30)),
    ):
        made = []
        for device in ("cpu", None):
            with open_loader(*(["cpu"] if device else []), job=f"on {device}", mix=mix, transform=transform) as loader:
                if not device and not loader._info.can_finish:
                    made = []
                    continue  # built without the kernel
                loader.set_epoch(1)
                made.append([])
                for views, targets in loader:
                    views = list(views.values()) if isinstance(views, dict) else views
                    made[-1].append([t.cpu().clone() for t in (*views, targets)])
                    views = targets = None
        for ours, theirs in zip(*made, strict=True) if made else ():
            for x, y in zip(ours, theirs, strict=True):
                assert x.shape == y.shape and real.equal(x, y)
    """)
