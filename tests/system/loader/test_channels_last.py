"""layout="channels_last": torch's memory format by its name, which is NHWC in memory and costs no conversion."""

import numpy
import pytest

import batchd

torch = pytest.importorskip("torch")

CROP = [["CenterCrop", 40], "ToTensor", ["Normalize", {"mean": [0.5] * 3, "std": [0.25] * 3}]]
NUMBERS = [["CenterCrop", 40], "ToTensor", ["RandomErasing", {"p": 1.0}]]


def make(samples, **options):
    options = {"batch_size": 10, "transform": CROP, "shuffle": True, "seed": 5, **options}
    return batchd.DataLoader(f"imagefolder:{samples}", **options)


def is_so(images):
    return images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": torch.float16},
        {"dtype": "uint8"},
        {"transform": NUMBERS},
        {"mix": batchd.CutMix(1.0, 4)},
        {"mode": "share", "batch_size": 5, "group_batch_size": 20, "job": "slices"},
        {"fields": ("image", "label")},
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["channels_last", torch.channels_last])
def test_images_are_in_the_format_and_have_the_same_pixels(daemon, samples, options, layout):
    """Views of the slot as ever; one convolution takes and gives the format."""
    with make(samples, layout=layout, **options) as loader, make(
        samples, **{**options, **({"job": "plain"} if "job" in options else {})}
    ) as plain:
        assert loader.fields["image"].shape == (3, 40, 40)
        for (images, labels), (wanted, same) in zip(loader, plain, strict=True):
            assert is_so(images) and images.dtype == wanted.dtype and images.shape == wanted.shape
            assert torch.equal(images, wanted) and torch.equal(labels, same)
    out = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)(images.float())
    assert is_so(out)


def test_a_batch_is_the_slots_own_memory(daemon, samples):
    with make(samples, layout="channels_last", n_slots=4) as loader:
        for images, _ in loader:
            assert images.data_ptr() == loader.last_batch._data
    with make(samples, layout="channels_last", n_slots=3) as loader, pytest.warns(RuntimeWarning, match="copied"):
        kept = [images for images, _ in loader]
    assert all(map(is_so, kept))


def test_arrays_of_numpy_and_single_images(daemon, samples):
    with make(samples, layout="channels_last", arrays="numpy") as loader, make(samples, arrays="numpy") as plain:
        for (images, _), (wanted, _) in zip(loader, plain, strict=True):
            assert images.transpose(0, 2, 3, 1).flags.c_contiguous and numpy.array_equal(images, wanted)
    path = next(samples.glob("*/*.jpg"))
    for source in (path, [path] * 3):
        image, wanted = (batchd.load(source, CROP, layout=layout) for layout in ("channels_last", "NCHW"))
        assert torch.equal(image, wanted) and image.movedim(-3, -1).is_contiguous()


def test_views_alone_and_stacked(daemon, samples):
    """Stacked ones are in the format once they are one batch."""
    base = {"global": batchd.views(CROP, n=2), "local": batchd.views(CROP, n=3, stack=True)}
    with make(samples, transform=base, layout="channels_last") as loader, make(samples, transform=base) as plain:
        for (images, _), (wanted, _) in zip(loader, plain, strict=True):
            assert all(map(is_so, images["global"])) and all(map(torch.equal, images["global"], wanted["global"]))
            assert torch.equal(images["local"], wanted["local"]) and all(map(is_so, images["local"]))


def test_next_into_fills_tensors_of_the_format(daemon, samples):
    """By position and by name; a tensor in another format or shape is refused with what to write."""
    images = torch.empty(10, 3, 40, 40, memory_format=torch.channels_last)
    for targets in ((images, torch.empty(10, dtype=torch.int64)), ({"image": images},)):
        with make(samples, layout="channels_last") as loader, make(samples) as plain:
            for wanted, _ in plain:
                assert loader.next_into(*targets) == len(wanted) and torch.equal(images[: len(wanted)], wanted)
    with make(samples, layout="channels_last") as loader:
        with pytest.raises(ValueError, match="memory_format=torch.channels_last"):
            loader.next_into(torch.empty(10, 3, 40, 40))
        with pytest.raises(ValueError, match=r"shape \(10, 40, 40, 3\), and a batch needs \(10, 3, 40, 40\)"):
            loader.next_into(torch.empty(10, 40, 40, 3))
        with pytest.raises(ValueError, match="more rows"):
            loader.next_into(images[:4])
        with pytest.raises(TypeError, match="list"):
            loader.next_into([1])
    both = torch.empty(20, 3, 40, 40, memory_format=torch.channels_last).view(2, 10, 3, 40, 40)
    two = batchd.views(CROP, n=2, stack=True)
    with make(samples, transform=two, layout="channels_last") as loader, make(samples, transform=two) as plain:
        for wanted, _ in plain:
            assert loader.next_into(both) == wanted.shape[1] and torch.equal(both[:, : wanted.shape[1]], wanted)


def test_what_has_no_such_format_is_refused(daemon, samples):
    with pytest.raises(ValueError, match="arrays='dlpack' has not: give layout='NHWC'"):
        make(samples, layout="channels_last", arrays="dlpack")
    with pytest.raises(TypeError, match="layout='channels_last' does nothing for arrays in memory"):
        batchd.DataLoader((numpy.zeros((8, 4, 4, 3), "f4"),), 4, layout="channels_last")
