#!/usr/bin/env python3
"""CPU time per image of modern recipes, in the daemon's pipeline and in torchvision's or timm's own code, in one process
each: recipes.py BUILD PICTURES [ROUNDS [RECIPE...]].

The daemon's side is tests/tools/render (decode and pipeline, no daemon), the other side own_recipes.py. A figure is the
median of the rounds' user and system time, over 100 pictures (40 for the other side) spread evenly over the sorted list,
each of them REPEATS times with other draws: less than that is over in 50 ms, and the start of a program no less noisy.
The machine's speed drifts, so in each round train224 is measured before and after each recipe: "x train224" divides by
the mean of both, and it and "x batchd" are medians of the rounds' own ratios. Recipes whose library is missing have no
figure of their own code."""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys

sys.path[:0] = [
    str(pathlib.Path(__file__).parents[1] / "support"),
    str(pathlib.Path(__file__).parents[2] / "client" / "python"),
]

REPEATS = 6

NORMALIZE = ["ToTensor", ["Normalize", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]]
CROP = [["RandomResizedCrop", 224], "RandomHorizontalFlip"]
ERASING = {"p": 0.25, "scale": [0.02, 1 / 3], "ratio": [0.3, 1 / 0.3]}
BICUBIC = [["RandomResizedCrop", {"size": 224, "interpolation": "bicubic"}], "RandomHorizontalFlip"]
WIDE = ["TrivialAugmentWide", {"interpolation": "bilinear"}]
ONE_OF = [["RandomGrayscale", 1.0], ["RandomSolarize", 128, 1.0], ["PillowGaussianBlur", [0.1, 2.0], 1.0]]
RECIPES = {
    "train224": CROP + NORMALIZE,
    "torchvision v2, 176": [
        ["RandomResizedCrop", 176],
        "RandomHorizontalFlip",
        WIDE,
        *NORMALIZE,
        ["RandomErasing", 0.1],
    ],
    "timm default": [
        ["RandomResizedCrop", {"size": 224, "interpolation": "random"}],
        "RandomHorizontalFlip",
        ["ColorJitter", 0.4, 0.4, 0.4],
        *NORMALIZE,
    ],
    "DeiT": [*BICUBIC, "rand-m9-mstd0.5-inc1", *NORMALIZE, ["RandomErasing", {"p": 0.25, "value": "random"}]],
    "3-Augment": [*BICUBIC, ["RandomChoice", ONE_OF], ["ColorJitter", 0.3, 0.3, 0.3], *NORMALIZE],
    "MAE": [
        ["RandomResizedCrop", {"size": 224, "scale": [0.2, 1.0], "interpolation": "bicubic"}],
        "RandomHorizontalFlip",
        *NORMALIZE,
    ],
    "TrivialAugmentWide": [*CROP, WIDE, *NORMALIZE],
    "RandAugment": [*CROP, ["RandAugment", {"interpolation": "bilinear"}], *NORMALIZE],
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
SHARED = ["SharedByViews", CROP]
# Several views of each image; a figure is for an image with all of its views.
VIEWS = {
    "AugMix+JSD, 3 views": {
        "": {"views": [[SHARED, *NORMALIZE], *[[SHARED, "augmix-m3-w3", *NORMALIZE, ["RandomErasing", ERASING]]] * 2]}
    },
    "SimCLR, 2 views": {"": {"views": [SIMCLR], "n": 2}},
    "MoCo v3, 2 views": {"": {"views": [crop(224, [0.2, 1.0], 1.0), crop(224, [0.2, 1.0], 0.1, 0.2)]}},
    "DINO, 2+8 crops": {
        "global": {"views": [crop(224, [0.4, 1.0], 1.0), crop(224, [0.4, 1.0], 0.1, 0.2)]},
        "local": {"views": [crop(96, [0.05, 0.4], 0.5)], "n": 8},
    },
}


def spread(files, n):
    """At most n, evenly from the whole list: the first ones would be all of one class."""
    return [files[i * len(files) // n] for i in range(n)] if len(files) > n else files


def spent(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def ours(build, name, files):
    from batchd import _transform

    text = _transform.text(json.dumps(VIEWS[name]) if name in VIEWS else RECIPES[name])
    render = [build / "tests" / "tools" / "render", text, "float32", "NCHW", "0", "0", "0"]
    return (spent([*render, *files, *files * REPEATS]) - spent([*render, *files])) / (len(files) * REPEATS)


def theirs(name, files):
    command = [sys.executable, str(pathlib.Path(__file__).parent / "own_recipes.py"), name, *files]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 2):
        sys.exit(f"{name}: its own code failed")
    return float(done.stdout) if done.returncode == 0 else None


def main():
    build, pictures = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    files = spread(sorted(str(f) for f in pictures.rglob("*") if f.suffix.lower() in (".jpg", ".jpeg")), 100)
    chosen = [name for name in (*RECIPES, *VIEWS) if name in sys.argv[4:] or len(sys.argv) < 5]
    found = {name: [] for name in chosen}
    os.environ["OMP_NUM_THREADS"] = "1"
    for _ in range(rounds):
        for name, times in found.items():
            before, this = ours(build, "train224", files), ours(build, name, files)
            base = (before + ours(build, "train224", files)) / 2
            times.append((this, base, theirs(name, spread(files, 40))))
    print("recipe                batchd ms   x train224   own code ms   x batchd")
    for name, times in found.items():
        line = f"{name:20} {statistics.median(a for a, _, _ in times) * 1e3:10.2f}"
        line += f" {statistics.median(a / base for a, base, _ in times):12.2f}"
        if all(own is not None for _, _, own in times):
            line += f" {statistics.median(own for _, _, own in times) * 1e3:13.2f}"
            line += f" {statistics.median(own / a for a, _, own in times):10.1f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
