#!/usr/bin/env python3
"""CPU time per image of modern recipes, in the daemon's pipeline and in torchvision's or timm's own code, in one process
each: recipes.py BUILD PICTURES [ROUNDS [RECIPE...]].

The daemon's side is tests/tools/render (decode and pipeline, no daemon), the other side Pillow's decoder and the recipe's
own objects. Rounds take turns; a figure is the median of the rounds' user and system time, so other load on the machine
matters little. Recipes whose library is missing have no figure of their own code."""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parents[1]), str(pathlib.Path(__file__).parents[2] / "client" / "python")]

NORMALIZE = ["ToTensor", ["Normalize", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]]
CROP = [["RandomResizedCrop", 224], "RandomHorizontalFlip"]
RECIPES = {
    "train224": CROP + NORMALIZE,
    "TrivialAugmentWide": [*CROP, ["TrivialAugmentWide", {"interpolation": "bilinear"}], *NORMALIZE],
    "RandAugment": [*CROP, ["RandAugment", {"interpolation": "bilinear"}], *NORMALIZE],
    "DeiT": [
        ["RandomResizedCrop", {"size": 224, "interpolation": "bicubic"}],
        "RandomHorizontalFlip",
        "rand-m9-mstd0.5-inc1",
        *NORMALIZE,
        ["RandomErasing", {"p": 0.25, "value": "random"}],
    ],
    "AugMix": [*CROP, "AugMix", *NORMALIZE],
}


def crop(size, scale, blur=None, solarize=0.0):
    """A view of DINO and MoCo v3."""
    ops = [["RandomResizedCrop", {"size": size, "scale": scale, "interpolation": "bicubic"}], "RandomHorizontalFlip"]
    ops += [["RandomApply", [["ColorJitter", 0.4, 0.4, 0.2, 0.1]], 0.8], ["RandomGrayscale", 0.2]]
    ops += [["PillowGaussianBlur", [0.1, 2.0], blur]] if blur else []
    ops += [["RandomSolarize", 128, solarize]] if solarize else []
    return ops + NORMALIZE


SIMCLR = [
    *CROP,
    ["RandomApply", [["ColorJitter", 0.8, 0.8, 0.8, 0.2]], 0.8],
    ["RandomGrayscale", 0.2],
    ["PillowGaussianBlur", [0.1, 2.0], 0.5],
    *NORMALIZE,
]
# Several views of each image; a figure is for an image with all of its views.
VIEWS = {
    "SimCLR, 2 views": {"": {"views": [SIMCLR], "n": 2}},
    "MoCo v3, 2 views": {"": {"views": [crop(224, [0.2, 1.0], 1.0), crop(224, [0.2, 1.0], 0.1, 0.2)]}},
    "DINO, 2+8 crops": {
        "global": {"views": [crop(224, [0.4, 1.0], 1.0), crop(224, [0.4, 1.0], 0.1, 0.2)]},
        "local": {"views": [crop(96, [0.05, 0.4], 0.5)], "n": 8},
    },
}


def spent(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def ours(build, name, files):
    from batchd import _transform

    text = json.dumps(VIEWS[name]) if name in VIEWS else _transform.text(RECIPES[name])
    render = [build / "tests" / "tools" / "render", text, "float32", "NCHW", "0", "0", "0"]
    return (spent([*render, *files, *files]) - spent([*render, *files])) / len(files)


THEIRS = """
import json, random, sys, time
sys.path.insert(0, {tests!r})
from vision import import_torchvision
import_torchvision()
import torch
from PIL import Image, ImageFilter
from torchvision.transforms import v2
torch.set_num_threads(1)
tensor = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([.485, .456, .406], [.229, .224, .225])]
crop = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]
bilinear = v2.InterpolationMode.BILINEAR
name = {name!r}
if name == "DeiT":
    from timm.data import create_transform
    t = create_transform(224, True, auto_augment="rand-m9-mstd0.5-inc1", interpolation="bicubic", re_prob=.25, re_mode="pixel")
elif "views" in name or "crops" in name:
    def crop(size, scale, blur, solarize=0.0):
        return v2.Compose([
            v2.RandomResizedCrop(size, scale=scale, interpolation=v2.InterpolationMode.BICUBIC), v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(.4, .4, .2, .1)], .8), v2.RandomGrayscale(.2),
            v2.Lambda(lambda i: i.filter(ImageFilter.GaussianBlur(random.uniform(.1, 2))) if random.random() < blur else i),
            v2.RandomSolarize(128, solarize), *tensor])
    large, small = (.4, 1.0) if "DINO" in name else (.2, 1.0), (.05, .4)
    views = [crop(224, large, 1.0), crop(224, large, .1, .2)] + ([crop(96, small, .5)] * 8 if "DINO" in name else [])
    if "SimCLR" in name:
        views = 2 * [v2.Compose([
            v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.RandomApply([v2.ColorJitter(.8, .8, .8, .2)], .8),
            v2.RandomGrayscale(.2),
            v2.Lambda(lambda i: i.filter(ImageFilter.GaussianBlur(random.uniform(.1, 2))) if random.random() < .5 else i), *tensor])]
    t = lambda image: [view(image) for view in views]
else:
    policy = dict(train224=[], TrivialAugmentWide=[v2.TrivialAugmentWide(interpolation=bilinear)],
                  RandAugment=[v2.RandAugment(interpolation=bilinear)], AugMix=[v2.AugMix()])[name]
    t = v2.Compose(crop + policy + tensor)
files = json.loads(sys.argv[1])
t(Image.open(files[0]).convert("RGB"))
began = time.process_time()
for file in files:
    t(Image.open(file).convert("RGB"))
print((time.process_time() - began) / len(files))
"""


def theirs(name, files):
    code = THEIRS.format(tests=str(pathlib.Path(__file__).parents[1]), name=name)
    done = subprocess.run([sys.executable, "-c", code, json.dumps(files)], capture_output=True, text=True)
    return float(done.stdout) if done.returncode == 0 else None


def main():
    build, pictures = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    files = sorted(str(f) for f in pictures.rglob("*") if f.suffix.lower() in (".jpg", ".jpeg"))[:100]
    found = {name: ([], []) for name in (*RECIPES, *VIEWS) if name in sys.argv[4:] or len(sys.argv) < 5}
    os.environ["OMP_NUM_THREADS"] = "1"
    for _ in range(rounds):
        for name, (a, b) in found.items():
            a.append(ours(build, name, files))
            b.append(theirs(name, files[:40]))
    print("recipe                batchd ms   x train224   own code ms   x batchd")
    base = statistics.median(found["train224"][0])
    for name, (a, b) in found.items():
        mine = statistics.median(a)
        line = f"{name:20} {mine * 1e3:10.2f} {mine / base:12.2f}"
        if None not in b:
            line += f" {statistics.median(b) * 1e3:13.2f} {statistics.median(b) / mine:10.1f}"
        print(line)


if __name__ == "__main__":
    main()
