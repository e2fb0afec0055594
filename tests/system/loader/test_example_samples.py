"""Each recipe of client/examples that reads pictures trains shortly on photographs, or on drawn pictures where there are
none, and gets every sample once in each epoch, or as often as upstream repeats it: by the indices of the batches
themselves, against torch's own sampler."""

import numpy as np
import pytest
from PIL import Image

import recorded
from test_examples import accuracy, losses

pytestmark = pytest.mark.long("trains with every example; test_order.py and test_exactly_once.py hold the samples")

torch = pytest.importorskip("torch")
from torch.utils.data import DistributedSampler  # noqa: E402

EPOCHS = 2
REPEATS = {"resnet_v2.py": 4}  # repeated augmentation, as upstream's command has it
# Options that make a recipe small, and whether it leaves incomplete batches out, as upstream does.
RECIPES = {
    "resnet_v2.py": (("--size", 64), True),
    "deit.py": (("--size", 64), True),
    "three_augment.py": (("--size", 64), True),
    "timm_train.py": ((), False),
    "augmix_jsd.py": ((), False),
    "simclr.py": (("--size", 64), True),
    "moco_v3.py": (("--size", 64), True),
    "dino.py": (("--size", 64, "--local-size", 32), True),
    "mae.py": (("--size", 64), True),
}


@pytest.fixture(scope="session")
def many(photos, tmp_path_factory):
    return recorded.some_of(photos, tmp_path_factory.mktemp("many"), 100)


@pytest.fixture(scope="session")
def few(photos, tmp_path_factory):
    """Two ranks cannot share 25 pictures without one that comes twice, or is left out."""
    return recorded.some_of(photos, tmp_path_factory.mktemp("few"), 25)


def place(name, folder, tmp_path):
    """The folder as a recipe wants it."""
    if name != "timm_train.py":
        return folder
    both = tmp_path / folder.name
    both.mkdir()
    for part in ("train", "val"):
        (both / part).symlink_to(folder)
    return both


def orders(n, rank, ranks, batch_size, drop_last, repeats=1):
    """What torch's loader has in each epoch, of this rank; with repeats, what RASampler leaves of an epoch of n rows."""
    sampler = DistributedSampler(range(n), 1, 0, shuffle=True, seed=0)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        repeated = [i for i in sampler for _ in range(repeats)][:n]
        order = [repeated[i] for i in DistributedSampler(repeated, ranks, rank, shuffle=False, drop_last=drop_last)]
        yield order[: len(order) // batch_size * batch_size] if drop_last else order


@pytest.mark.parametrize("name", RECIPES)
def test_every_sample_comes_once_an_epoch(daemon, request, many, few, tmp_path, name):
    """Alone on 100 pictures; and on two ranks with 25, where each has the rows that DistributedSampler deals out to it,
    and one row is padding unless the recipe drops what does not divide. With repeats, an epoch of as many rows has fewer
    samples."""
    options, drop_last = RECIPES[name]
    repeats = REPEATS.get(name, 1)
    many, few = place(name, many, tmp_path), place(name, few, tmp_path)
    server = request.getfixturevalue("timm_server" if name == "timm_train.py" else "torch_server")
    alone, *ranks = recorded.run(
        server,
        tmp_path,
        [
            (0, 1, name, many, "--epochs", EPOCHS, "--batch-size", 10, *options),
            *((rank, 2, name, few, "--epochs", EPOCHS, "--batch-size", 4, *options) for rank in range(2)),
        ],
    )
    got = alone.loader(0)
    assert [rows for rows, _ in got] == list(orders(100, 0, 1, 10, drop_last, repeats))
    assert all(len(set(rows)) * repeats == len(rows) == 100 and padding == 0 for rows, padding in got)
    found = losses(alone.output)
    assert len(found) >= 2 and all(0 < x < 20 for x in found), found
    for rank, run in enumerate(ranks):
        assert [rows for rows, _ in run.loader(0)] == list(orders(25, rank, 2, 4, drop_last, repeats))
    for epoch in range(EPOCHS):
        (first, none), (second, padding) = (run.loader(0)[epoch] for run in ranks)
        assert (none, padding) == (0, 0 if drop_last else 1)
        assert len(first + second) - padding == (24 if drop_last else 25)
        assert len({*first, *second}) * repeats == len(first + second) - padding


@pytest.fixture(scope="session")
def thumbnails(photos):
    """Photographs at 32 x 32, and ten classes of them, as CIFAR-10 has its pictures."""
    paths = sorted(p for p in photos.rglob("*") if p.is_file())[:200]
    folders = sorted({p.parent.name for p in paths})
    small = [np.asarray(Image.open(p).convert("RGB").resize((32, 32), Image.Resampling.BOX)) for p in paths]
    return np.stack(small), np.array([folders.index(p.parent.name) % 10 for p in paths], "u1")


@pytest.mark.parametrize("name", ["cifar10.py", "mnist.py"])
def test_photographs_as_small_pictures_lose_no_sample(daemon, torch_server, thumbnails, tmp_path, name):
    """The same for the recipes whose data sets are files of small pictures; each test picture is looked at once."""
    images, labels = thumbnails
    if name == "cifar10.py":
        records = np.concatenate([labels[:, None], images.transpose(0, 3, 1, 2).reshape(len(images), -1)], 1)
        for i, part in enumerate(np.split(records, 5), 1):
            (tmp_path / f"data_batch_{i}.bin").write_bytes(part.tobytes())
        (tmp_path / "test_batch.bin").write_bytes(records[:100].tobytes())
    else:
        gray = images[:, 2:30, 2:30].mean(-1).astype("u1")
        for part in ("train", "t10k"):
            for kind, head, array in (("images-idx3", (3, 200, 28, 28), gray), ("labels-idx1", (1, 200), labels)):
                head = bytes([0, 0, 8, head[0]]) + np.array(head[1:], ">u4").tobytes()
                (tmp_path / f"{part}-{kind}-ubyte").write_bytes(head + array.tobytes())
    (run,) = recorded.run(torch_server, tmp_path, [(0, 1, name, tmp_path, "--epochs", EPOCHS, "--batch-size", 20)])
    got = run.loader(0)
    assert [rows for rows, _ in got] == list(orders(200, 0, 1, 20, True))
    assert all(sorted(rows) == list(range(200)) and padding == 0 for rows, padding in got)
    ((seen, padding),) = run.loader(1)
    assert seen == list(range(100 if name == "cifar10.py" else 200)) and padding == 0
    assert losses(run.output)[-1] < losses(run.output)[0] and 0 <= accuracy(run.output) <= 1
