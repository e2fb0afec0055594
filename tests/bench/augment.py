"""Processor time of each augmentation beside Pillow's, on one image of 224 x 224 (a photograph, or noise):

    augment.py BUILD [IMAGE] [SECONDS]

Ours is `BUILD/tests/bench/augment`, which runs the pixel functions alone; theirs is Pillow's function alone, in one
thread. Both count processor time of the thread, so other load matters little. torchvision's blur is compared with
torchvision where it is installed. Prints microseconds an image, and the ratio."""

import subprocess
import sys
import time
from pathlib import Path

from PIL import Image, ImageEnhance, ImageFilter, ImageOps

SIZE = (224, 224)
SHEAR = (1, 0.3, -30, 0, 1, 0)
TURN = (0.866025, 0.5, -41, -0.5, 0.866025, 71)
LENS = (1.1, 0.1, -9, 0.05, 1.2, -8, 0.0004, 0.0003)


def transform(kind, matrix, f):
    return lambda i: i.transform(SIZE, kind, matrix, f, fillcolor=(124, 116, 104))


AFFINE, PERSPECTIVE = Image.Transform.AFFINE, Image.Transform.PERSPECTIVE
THEIRS = {
    "invert": ImageOps.invert,
    "posterize": lambda i: ImageOps.posterize(i, 4),
    "solarize": lambda i: ImageOps.solarize(i, 128),
    "autocontrast": ImageOps.autocontrast,
    "equalize": ImageOps.equalize,
    "brightness": lambda i: ImageEnhance.Brightness(i).enhance(1.4),
    "contrast": lambda i: ImageEnhance.Contrast(i).enhance(1.4),
    "color": lambda i: ImageEnhance.Color(i).enhance(1.4),
    "sharpness": lambda i: ImageEnhance.Sharpness(i).enhance(1.4),
    "pillow blur 0.5": lambda i: i.filter(ImageFilter.GaussianBlur(0.5)),
    "pillow blur 2": lambda i: i.filter(ImageFilter.GaussianBlur(2)),
    "shift bilinear": transform(AFFINE, (1, 0, -30, 0, 1, 7), Image.Resampling.BILINEAR),
    "shear nearest": transform(AFFINE, SHEAR, Image.Resampling.NEAREST),
    "shear bilinear": transform(AFFINE, SHEAR, Image.Resampling.BILINEAR),
    "shear bicubic": transform(AFFINE, SHEAR, Image.Resampling.BICUBIC),
    "shear y bicubic": transform(AFFINE, (1, 0, 0, 0.3, 1, -30), Image.Resampling.BICUBIC),
    "move x bicubic": transform(AFFINE, (1, 0, -30.4, 0, 1, 0), Image.Resampling.BICUBIC),
    "move y bicubic": transform(AFFINE, (1, 0, 0, 0, 1, 30.4), Image.Resampling.BICUBIC),
    "turn nearest": transform(AFFINE, TURN, Image.Resampling.NEAREST),
    "turn bilinear": transform(AFFINE, TURN, Image.Resampling.BILINEAR),
    "turn bicubic": transform(AFFINE, TURN, Image.Resampling.BICUBIC),
    "perspective bilinear": transform(PERSPECTIVE, LENS, Image.Resampling.BILINEAR),
}


def torchvisions(theirs):
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    try:
        import torch
        from vision import import_torchvision

        blur = import_torchvision().transforms.v2.functional.gaussian_blur
    except ImportError:
        return
    torch.set_num_threads(1)
    theirs["torchvision blur 9"] = lambda i: blur(i, [9, 9], [1.0, 1.0])
    theirs["torchvision blur 23"] = lambda i: blur(i, [23, 23], [1.0, 1.0])


def microseconds(f, image, seconds):
    """The least processor time of a call."""
    f(image)
    best, end = float("inf"), time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.thread_time_ns()
        f(image)
        best = min(best, time.thread_time_ns() - start)
    return best / 1000


def main():
    build, seconds = Path(sys.argv[1]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.3
    if len(sys.argv) > 2 and sys.argv[2] != "-":
        image = Image.open(sys.argv[2]).convert("RGB").resize(SIZE, Image.Resampling.BILINEAR)
    else:
        image = Image.effect_noise(SIZE, 80).convert("RGB")
    torchvisions(THEIRS)
    done = subprocess.run(
        [build / "tests" / "bench" / "augment", str(seconds)], input=image.tobytes(), capture_output=True, check=True
    )
    print(f"{'':24}{'plain us':>10}{'avx2 us':>10}{'avx512 us':>11}{'Pillow us':>11}{'ratio':>8}")
    for line in done.stdout.decode().splitlines():
        name, plain, avx2, avx512 = line.split("\t")
        theirs = microseconds(THEIRS[name], image, seconds)
        print(
            f"{name:24}{float(plain):10.1f}{float(avx2):10.1f}{float(avx512):11.1f}{theirs:11.1f}{theirs / float(avx512):8.1f}"
        )


main()
