"""The example scripts run on small files made here, and learn what there is to learn in them."""

import gzip
import os
import re
import struct
import subprocess
import sys

import numpy
import pytest

from daemons import REPO

pytest.importorskip("torch")


def run(name, *args):
    done = subprocess.run(
        [sys.executable, REPO / "client" / "examples" / name, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # tests run beside each other
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(output):
    return [float(x) for x in re.findall(r"loss ([\d.]+)", output)]


def accuracy(output):
    return float(re.search(r"accuracy ([\d.]+)", output)[1])


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
def test_mnist(daemon, tmp_path, ending):
    images, labels = blobs(1280, 28, 28)
    for part in ("train", "t10k"):
        for name, code, array in (("images-idx3", 3, images), ("labels-idx1", 1, labels)):
            content = struct.pack(f">BBBB{code}I", 0, 0, 8, code, *array.shape) + array.tobytes()
            path = tmp_path / f"{part}-{name}-ubyte{ending}"
            path.write_bytes(gzip.compress(content) if ending else content)
    output = run("mnist.py", tmp_path, "--epochs", 2)
    assert losses(output)[-1] < losses(output)[0] / 2 and accuracy(output) > 0.8


def test_cifar10(daemon, tmp_path):
    images, labels = blobs(500, 32, 32, (3,))
    records = numpy.concatenate([labels[:, None], images.reshape(500, 3072)], 1)
    for i in range(1, 6):
        (tmp_path / f"data_batch_{i}.bin").write_bytes(records[100 * (i - 1) : 100 * i].tobytes())
    (tmp_path / "test_batch.bin").write_bytes(records[:100].tobytes())
    output = run("cifar10.py", tmp_path, "--epochs", 2, "--batch-size", 25)
    assert losses(output)[-1] < losses(output)[0]


def test_tokens_and_a_resumed_run(daemon, tmp_path):
    """A run that is stopped and resumed has the losses of one that is not."""
    numpy.tile(numpy.arange(97, dtype="uint16"), 200).tofile(tmp_path / "train.bin")
    options = tmp_path / "train.bin", "--vocab", 97, "--length", 32
    whole = losses(run("train_tokens.py", *options, "--steps", 16))
    assert whole[-1] < whole[0] - 0.5
    first = losses(run("train_tokens.py", *options, "--steps", 6, "--out", tmp_path / "c.pt"))
    rest = losses(run("train_tokens.py", *options, "--steps", 16, "--out", tmp_path / "c.pt"))
    assert first + rest == pytest.approx(whole, abs=1e-4)
