"""The example scripts run on small files made here, and learn what there is to learn in them."""

import gzip
import re
import struct

import numpy
import pytest

from daemons import REPO

pytestmark = pytest.mark.long("trains with the examples")

pytest.importorskip("torch")


def run(server, name, *args):
    ((status, output),) = server.run([REPO / "client" / "examples" / name, *args])
    assert status == 0, output
    return output


def losses(output):
    return [float(x) for x in re.findall(r"loss ([\d.]+)", output)]


def accuracy(output):
    return float(re.search(r"accuracy ([\d.]+)", output)[1])


def seen_by(output):
    """The samples of each epoch."""
    return re.findall(r": (\d+) samples", output)


def blobs(n, height, width, channels=()):
    """Pictures whose class is the place of a bright patch."""
    rng = numpy.random.default_rng(0)
    images = rng.integers(0, 60, (n, *channels, height, width), "uint8")
    labels = rng.integers(0, 10, n, "uint8")
    for image, label in zip(images, labels):
        y, x = divmod(int(label), 4)
        image[..., 2 + 8 * y : 9 + 8 * y, 1 + 7 * x : 7 + 7 * x] += 180
    return images, labels


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_mnist(daemon, torch_server, tmp_path, ending):
    images, labels = blobs(1280, 28, 28)
    for part in ("train", "t10k"):
        for name, code, array in (("images-idx3", 3, images), ("labels-idx1", 1, labels)):
            content = struct.pack(f">BBBB{code}I", 0, 0, 8, code, *array.shape) + array.tobytes()
            path = tmp_path / f"{part}-{name}-ubyte{ending}"
            path.write_bytes(gzip.compress(content) if ending else content)
    output = run(torch_server, "mnist.py", tmp_path, "--epochs", 2)
    assert losses(output)[-1] < losses(output)[0] / 2 and accuracy(output) > 0.8
    assert seen_by(output) == ["1280", "1280"]


@pytest.mark.parametrize("policy", ["none", "autoaugment", "autoaugment+cutout", "trivial"])
def test_cifar10(daemon, torch_server, tmp_path, policy):
    images, labels = blobs(500, 32, 32, (3,))
    records = numpy.concatenate([labels[:, None], images.reshape(500, 3072)], 1)
    for i in range(1, 6):
        (tmp_path / f"data_batch_{i}.bin").write_bytes(records[100 * (i - 1) : 100 * i].tobytes())
    (tmp_path / "test_batch.bin").write_bytes(records[:100].tobytes())
    output = run(torch_server, "cifar10.py", tmp_path, "--epochs", 2, "--batch-size", 25, "--policy", policy)
    assert len(losses(output)) == 4 and 0 <= accuracy(output) <= 1
    assert seen_by(output) == ["500", "500"]
    if policy == "none":  # the others hide what there is to learn in 40 steps
        assert losses(output)[-1] < losses(output)[0]


@pytest.mark.parametrize(
    "options, seen",
    [
        ((), 96),
        (("--aa", "rand-m9-mstd0.5-inc1", "--reprob", 0.25), 96),
        (("--aa", "augmix-m5-w4-d2", "--model", "test_resnet"), 96),
        (("--aug-repeats", 3), 96),
    ],
)
def test_timms_training_sees_each_sample(daemon, timm_server, samples, tmp_path, options, seen):
    """timm's defaults and policies: an epoch has all samples (with repeats, as many rows)."""
    (tmp_path / "train").symlink_to(samples)
    (tmp_path / "val").symlink_to(samples)
    output = run(timm_server, "timm_train.py", tmp_path, "--epochs", 1, "--batch-size", 16, *options)
    assert seen_by(output) == [str(seen)]
    assert 0 <= accuracy(output) <= 1 and len(losses(output)) == 1


def test_tokens_and_a_resumed_run(daemon, torch_server, tmp_path):
    """A run that is stopped and resumed has the losses of one that is not."""
    numpy.tile(numpy.arange(97, dtype="uint16"), 200).tofile(tmp_path / "train.bin")
    options = tmp_path / "train.bin", "--vocab", 97, "--length", 32
    whole = losses(run(torch_server, "train_tokens.py", *options, "--steps", 16))
    assert whole[-1] < whole[0] - 0.5
    first = losses(run(torch_server, "train_tokens.py", *options, "--steps", 6, "--out", tmp_path / "c.pt"))
    rest = losses(run(torch_server, "train_tokens.py", *options, "--steps", 16, "--out", tmp_path / "c.pt"))
    assert first + rest == pytest.approx(whole, abs=1e-4)
