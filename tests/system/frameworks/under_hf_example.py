"""The example of HuggingFace's Trainer on pictures whose class is their brightness: it learns them. argv: the script, a
folder."""

import torchvision_ops  # noqa: F401
import contextlib
import io
import re
import runpy
import sys

import numpy
import PIL.Image

import datasets

script, folder = sys.argv[1:3]
rng = numpy.random.default_rng(0)


def picture(label):
    noise = rng.integers(0, 40, (64, 80, 3)) + 200 * label
    return PIL.Image.fromarray(noise.astype("uint8"))


features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["dark", "light"])})
labels = [i % 2 for i in range(120)]
data = datasets.Dataset.from_dict({"image": [picture(n) for n in labels], "label": labels}, features=features)
data.save_to_disk(f"{folder}/saved", num_shards=2)
sys.argv = [script, f"{folder}/saved", "--epochs", "4", "--out", f"{folder}/out"]
with contextlib.redirect_stdout(io.StringIO()) as output:
    runpy.run_path(script, run_name="__main__")
accuracy = float(re.search(r"accuracy ([\d.]+)", output.getvalue())[1])
assert accuracy > 0.9, output.getvalue()
print("held")
