"""The documents' picture of what pipelines make: pictures.py BUILD OUT [FOLDER]

Three sheets of `batchctl preview`, one above the other: the views of DINO, the rows of a batch under timm's Mixup with
their targets, and RandAugment over its magnitudes; of the image folder FOLDER, or of drawn scenes. OUT is a JPEG file."""

import json
import pathlib
import subprocess
import sys
import tempfile

import scenes
from PIL import Image

DINO_MAIN, DINO_LOCAL = 289, 142  # so that all sheets are equally wide


def crop(size, scale, blur, solarize):
    return [
        ["RandomResizedCrop", {"size": size, "scale": scale, "interpolation": "bicubic"}],
        "RandomHorizontalFlip",
        ["RandomApply", [["ColorJitter", 0.4, 0.4, 0.2, 0.1]], 0.8],
        ["RandomGrayscale", 0.2],
        ["PillowGaussianBlur", [0.1, 2.0], blur],
        ["RandomSolarize", 128, solarize],
    ]


def sheets(data):
    """(heading, options) of each."""
    large, small = [0.4, 1], [0.05, 0.4]
    dino = {
        "global": {"views": [crop(DINO_MAIN, large, 1, 0), crop(DINO_MAIN, large, 0.1, 0.2)]},
        "local": {"views": [crop(DINO_LOCAL, small, 0.5, 0)], "n": 8},
    }
    first, others = ("9", "0,10,5,2,3,6,4,7") if data is None else (None, None)
    yield (
        "one image, decoded once: the two global and eight local views of DINO",
        ["--transform", dino, "--seed", 2, "--n", 1, "--columns", 1, *(["--indices", first] if first else [])],
    )
    yield (
        "a batch under timm's Mixup and CutMix, each row with its target",
        [
            *("--transform", [["RandomResizedCrop", {"size": 139, "scale": [0.6, 1]}], "RandomHorizontalFlip"]),
            *("--mix", "timm:mixup_alpha=0.8,cutmix_alpha=1,mode=elem", "--n", 8, "--columns", 8),
            *(["--indices", others] if others else []),
        ],
    )
    yield (
        "preview --op RandAugment: an image before it, and at six magnitudes",
        ["--op", "RandAugment", "--seed", 3, "--n", 1, *(["--indices", "3"] if others else [])],
    )


def make(build, out, data=None):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if data is None:
            scenes.make(folder / "scenes")
        made = []
        for i, (heading, options) in enumerate(sheets(data)):
            words = [json.dumps(o) if isinstance(o, (list, dict)) else str(o) for o in options]
            run = [f"{build}/batchctl", "preview", data or folder / "scenes", "--quiet", "--title", heading]
            subprocess.run([*run, *words, "--out", folder / f"{i}.png"], check=True, stdout=subprocess.DEVNULL)
            made.append(Image.open(folder / f"{i}.png").convert("RGB"))
        picture = Image.new("RGB", (max(m.width for m in made), sum(m.height for m in made)), "white")
        top = 0
        for one in made:
            picture.paste(one, (0, top))
            top += one.height
        pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
        picture.save(out, quality=60, optimize=True, progressive=True)


if __name__ == "__main__":
    make(*sys.argv[1:])
