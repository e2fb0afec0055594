"""CPU per image of 16-bit and float images, beside Pillow and torchvision doing the same: depth.py --build BUILD

Images of noise with a gradient, as sensors give it, are written once as 16-bit PNG, TIFF with LZW and Deflate, and plain
float TIFF. Both sides make a float32 tensor of 224 x 224: RandomResizedCrop, RandomHorizontalFlip, ToDtype, Normalize. One
thread each, in this process; CPU time counts, the least of the rounds."""

import argparse
import io
import os
import pathlib
import resource
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPO / "client" / "python"), str(REPO / "tests/support")]
KINDS = (
    ("PNG, 16 bits", "I;16", {"format": "PNG"}),
    ("TIFF, 16 bits, LZW", "I;16", {"format": "TIFF", "compression": "tiff_lzw"}),
    ("TIFF, 16 bits, Deflate", "I;16", {"format": "TIFF", "compression": "tiff_adobe_deflate"}),
    ("TIFF, floats", "F", {"format": "TIFF"}),
)


def cpu():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def images(mode, options, args):
    import numpy as np
    from PIL import Image

    found = []
    for i in range(args.images):
        rng = np.random.default_rng(i)
        y, x = np.mgrid[: args.height, : args.width]
        values = 20000 + 15000 * np.sin(x / 90 + i) * np.cos(y / 70) + rng.normal(0, 40, (args.height, args.width))
        out = io.BytesIO()
        Image.fromarray(values.astype(np.uint16 if mode == "I;16" else np.float32)).save(out, **options)
        found.append(out.getvalue())
    return found


def least(rounds, work):
    times = []
    for _ in range(rounds):
        began = cpu()
        work()
        times.append(cpu() - began)
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--height", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.environ["BATCHD_BUILD"] = str(args.build.resolve())

    import torch
    from PIL import Image

    import batchd
    from vision import import_torchvision

    torch.set_num_threads(1)
    v2 = import_torchvision().transforms.v2
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(224),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5], [0.25]),
        ]
    )
    for name, mode, options in KINDS:
        files = images(mode, options, args)
        batchd.load(files[:2], transform, image_mode=mode)
        ours = least(args.rounds, lambda: batchd.load(files, transform, image_mode=mode))
        theirs = least(args.rounds, lambda: torch.stack([transform(Image.open(io.BytesIO(f))) for f in files]))
        print(
            f"{name:24} batchd {ours / len(files) * 1e3:7.2f} ms, Pillow and torchvision "
            f"{theirs / len(files) * 1e3:7.2f} ms of CPU an image: {theirs / ours:.1f} x"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
