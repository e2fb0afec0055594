"""The programs that client/python/guide/questions.md prints run as they stand, with /data as another folder."""

import re
import shutil
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402
from daemons import REPO  # noqa: E402

MY_DATA = """
import torch

class MyDataset(torch.utils.data.Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, i):
        return torch.full((3,), float(i)), i
"""


def programs(heading, data):
    """The fenced programs under a heading, with its own folder for /data."""
    page = (REPO / "client/python/guide/questions.md").read_text()
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [text.replace("/data", str(data)) for text in re.findall(r"```python\n(.*?)```", section, re.DOTALL)]


def test_a_dataset_of_ones_own_is_served(daemon, tmp_path):
    (tmp_path / "mydata.py").write_text(MY_DATA)
    serve, train = programs("My Dataset is a Python class. Can I use it?", tmp_path)
    server = subprocess.Popen([sys.executable, "-c", serve], cwd=tmp_path)
    try:
        seen = []
        namespace = {"seen": seen}
        exec(train.replace("...", "seen.extend(y.tolist())"), namespace)
        assert sorted(seen) == list(range(200))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)


def test_labels_of_file_names_and_of_json(daemon, samples, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    pictures = sorted(samples.glob("*/*.jpg"))
    for i, picture in enumerate(pictures):
        shutil.copy(picture, flat / f"{['cat', 'dog'][i % 2]}.{i}.jpg")
    names = [p.name for p in flat.iterdir()]
    (flat / "labels.json").write_text("{%s}" % ", ".join(f'"{n}": "{n[:3]}"' for n in names))
    from_names, from_json, train = programs("How do I take labels from file names, JSON or CSV?", tmp_path)
    exec(from_names, {})
    exec(from_json, {})
    for table in ("names.csv", "json.csv"):
        namespace = {}
        exec(train.replace("names.csv", table), namespace)
        loader = namespace["loader"]
        assert loader.dataset.classes == ["cat", "dog"] and len(loader.sampler) == len(pictures)
        labels = torch.cat([labels.clone() for _, labels in loader])
        assert labels.bincount().tolist() == [len(pictures) / 2] * 2
    assert batchd.__version__
