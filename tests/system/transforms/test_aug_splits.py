"""timm's augmentation splits: the views that its AugMixDataset and its loader's RandomErasing make of an image."""

import numpy as np
import pytest
from vision import import_torchvision

import batchd

torch = pytest.importorskip("torch")
NUMBERS = ["ToTensor"]
BASE = [["RandomResizedCrop", 48], "RandomHorizontalFlip"]


def views_of(samples, transform, epoch=0, **more):
    loader = batchd.DataLoader(f"imagefolder:{samples}", 16, transform=transform, arrays="torch", **more)
    loader.set_epoch(epoch)
    with loader:
        images, _ = next(iter(loader))
        return [v.clone() for v in images] if isinstance(images, list) else images.clone()


def test_all_views_share_the_base_draws(daemon, samples):
    """A base that draws and an augmentation that does not: the second view is the first one inverted, pixel by pixel,
    which two draws of the crop would not give. So it is in another epoch, with another crop."""
    seen = []
    for epoch in (0, 1):
        clean, second, third = views_of(
            samples, batchd.aug_splits((BASE, ["Invert"], NUMBERS), n=3), epoch, dtype="uint8"
        )
        assert torch.equal(255 - clean, second) and torch.equal(second, third)
        seen.append(clean)
    assert not torch.equal(*seen)


def test_the_first_view_is_what_the_base_gives_alone(daemon, samples):
    clean, _ = views_of(samples, batchd.aug_splits((BASE, ["Invert"], NUMBERS), n=2))
    alone = views_of(samples, [[["SharedByViews", BASE], *NUMBERS], [*BASE, *NUMBERS]])
    assert torch.equal(alone[0], clean) and not torch.equal(alone[1], clean)


def test_augmentations_draw_for_each_view(daemon, samples):
    _, second, third = views_of(samples, batchd.aug_splits((BASE, ["augmix-m3-w3"], NUMBERS), n=3))
    assert all(not torch.equal(a, b) for a, b in zip(second, third))


def test_stacked_views_are_timms_batch(daemon, samples):
    """timm's fast_collate has all first views, then all second ones ..."""
    transform = (BASE, ["Invert"], NUMBERS)
    stacked = views_of(samples, batchd.aug_splits(transform, n=3, stack=True))
    assert torch.equal(stacked.flatten(0, 1), torch.cat(views_of(samples, batchd.aug_splits(transform, n=3))))


@pytest.fixture
def timms():
    import_torchvision()
    return pytest.importorskip("timm.data", reason="needs timm")


def separate(timms, **more):
    return timms.create_transform(
        48, is_training=True, use_prefetcher=False, separate=True, hflip=0.5, auto_augment="augmix-m3-w3", **more
    )


def as_timm(timms, pictures, parts, n):
    """timm's own data set over the same pictures."""

    class Pictures(torch.utils.data.Dataset):
        transform = parts

        def __getitem__(self, i):
            return self.transform(pictures[i]), 0

    return timms.AugMixDataset(Pictures(), num_splits=n)


def test_erasing_with_as_many_splits_spares_the_first_view(daemon, samples, timms):
    """Constant 0 in a box of every view but the first, as timm's RandomErasing leaves its batch of three splits."""
    transform = separate(timms, re_prob=1.0, re_mode="const", re_num_splits=3)
    erased = [(v == 0).all(1).flatten(1).sum(1) for v in views_of(samples, batchd.aug_splits(transform, n=3))]
    batch = torch.ones(48, 3, 48, 48)
    timms.random_erasing.RandomErasing(1.0, num_splits=3, device="cpu")(batch)
    want = (batch == 0).all(1).flatten(1).sum(1).split(16)
    for got, theirs in zip(erased, want):
        assert ((got > 20) == (theirs > 20)).all(), (got, theirs)


def test_erasing_without_splits_erases_all_views(daemon, samples, timms):
    transform = separate(timms, re_prob=1.0, re_mode="const")
    for view in views_of(samples, batchd.aug_splits(transform, n=2)):
        assert ((view == 0).all(1).flatten(1).sum(1) > 20).all()


def test_views_share_the_crop_where_timms_do(daemon, samples, timms):
    """The same correlation of clean and augmented pictures as in timm's data set: far above that of two crops."""
    from PIL import Image

    transform = separate(timms)
    clean, second, _ = views_of(samples, batchd.aug_splits(transform, n=3))
    files = sorted(samples.rglob("*.jpg"))[:16]
    theirs = as_timm(timms, [Image.open(f).convert("RGB") for f in files], separate(timms), 3)
    made = [theirs[i][0] for i in range(16)]

    def alike(a, b):
        return np.mean([np.corrcoef(x.ravel(), y.ravel())[0, 1] for x, y in zip(np.asarray(a), np.asarray(b))])

    ours = alike(clean, second)
    assert abs(ours - alike([m[0] for m in made], [m[1] for m in made])) < 0.15 and ours > 0.7


def test_splits_without_views_erase_as_timms_object_does(daemon, samples, timms):
    """Given one image at a time, timm's RandomErasing looks at no num_splits: every image is erased, here and there, and a
    warning says so."""
    transform = timms.create_transform(48, is_training=True, re_prob=1.0, re_mode="const", re_num_splits=2)
    with pytest.warns(RuntimeWarning, match="num_splits=2"):
        images = views_of(samples, transform)
    theirs = [transform.transforms[-1](torch.ones(3, 48, 48)) for _ in range(16)]
    for made in (images, torch.stack(theirs)):
        assert ((made == 0).all(1).flatten(1).sum(1) > 20).all()


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda t: batchd.aug_splits([BASE], n=3), "three pipelines"),
        (lambda t: batchd.aug_splits((BASE, [], NUMBERS), n=1), "from 2 to 64"),
        (lambda t: batchd.aug_splits(separate(t, re_prob=1.0, re_num_splits=2), n=3), "num_splits=2.*--aug-splits 3"),
    ],
)
def test_other_splits_are_refused_by_name(daemon, timms, make, says):
    with pytest.raises((TypeError, ValueError), match=says):
        make(timms)


def test_shared_ops_come_first(daemon, samples):
    with pytest.raises(ValueError, match="'SharedByViews' comes before"):
        views_of(samples, [[["RandomVerticalFlip"], ["SharedByViews", BASE], *NUMBERS], [*BASE, *NUMBERS]])
