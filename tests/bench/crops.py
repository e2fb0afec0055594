"""The rectangles of each picture that train224 and val224 need, for libjpeg-turbo alone; and the copy of the data that
FFCV makes for itself."""

import os
import pathlib
import subprocess


def size_of(path):
    """Width and height from a JPEG's frame header."""
    with open(path, "rb") as f:
        data = f.read()
    at = 2
    while at + 9 < len(data):
        if data[at] != 0xFF:
            at += 1
            continue
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += (
            1
            if marker == 0xFF
            else 2
            if marker == 0 or 0xD0 <= marker <= 0xD8
            else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        )
    raise ValueError(f"'{path}' has no frame header")


def full(runner):
    return [f"0 0 0 0 {path}" for path in runner.pictures()]


def train224(runner):
    """The crops that batchd draws for these pictures in epoch 0 of seed 0."""
    lines = []
    for index, path in enumerate(runner.pictures()):
        width, height = size_of(path)
        drawn = subprocess.run(
            [
                runner.args.build / "tests/tools/render",
                "--choices",
                "train224",
                "0",
                "0",
                str(index),
                "1",
                str(width),
                str(height),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout.split()
        lines.append(f"{' '.join(drawn[:4])} {path}")
    return lines


def val224(runner):
    """The crop of size 224 after Resize(256) of the shorter side, in the picture's own pixels."""
    lines = []
    for path in runner.pictures():
        width, height = size_of(path)
        scale = min(width, height) / 256
        side = round(224 * scale)
        lines.append(f"{round((width - side) / 2)} {round((height - side) / 2)} {side} {side} {path}")
    return lines


def quality_90_copy(runner):
    """The pictures as FFCV stores them: the same encoder at quality 90, as a folder."""
    import cv2
    import numpy
    from PIL import Image

    copy = runner.scratch / "quality-90"
    for path in runner.pictures():
        to = copy / pathlib.Path(path).relative_to(runner.args.data).with_suffix(".jpg")
        os.makedirs(to.parent, exist_ok=True)
        pixels = numpy.asarray(Image.open(path).convert("RGB"))
        _, encoded = cv2.imencode(".jpg", pixels[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])
        to.write_bytes(encoded.tobytes())
    return copy
