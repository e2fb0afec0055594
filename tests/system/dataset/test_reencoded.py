"""Photographs re-encoded in the formats and modes of web data: every region has Pillow's pixels."""

import io
import random

import numpy as np
import pytest
from PIL import Image

from test_decode import TOOL, Decoder

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")

N_PHOTOS, N_REGIONS = 6, 6


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    d = Decoder(tmp_path_factory.mktemp("reencoded"))
    yield d
    d.close()


@pytest.fixture(scope="module")
def pictures(photos):
    paths = sorted(p for p in photos.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    step = max(1, len(paths) // N_PHOTOS)
    return [Image.open(p).convert("RGB") for p in paths[::step][:N_PHOTOS]]


def progressive(subsampling, **options):
    return lambda image: (image, {"format": "JPEG", "progressive": True, "subsampling": subsampling, **options})


def png(mode, **options):
    return lambda image: (image.convert(mode), {"format": "PNG", **options})


def deep(image):
    """16 bits of grey."""
    return Image.fromarray(np.asarray(image.convert("L"), np.uint16) * 3), {"format": "PNG"}


def webp(**options):
    return lambda image: (image, {"format": "WEBP", **options})


KINDS = {
    "progressive 4:2:0": progressive("4:2:0", quality=90),
    "progressive 4:2:2": progressive("4:2:2", quality=60),
    "progressive 4:4:4": progressive("4:4:4", quality=95),
    "progressive, restarts": progressive("4:2:0", quality=80, restart_marker_rows=2),
    "progressive, grey": lambda image: (image.convert("L"), {"format": "JPEG", "progressive": True, "quality": 85}),
    "PNG": png("RGB"),
    "PNG, stored": png("RGB", compress_level=0),
    "PNG, fast": png("RGB", compress_level=1),
    "PNG, transparent": png("RGBA"),
    "PNG, grey": png("L"),
    "PNG, grey, transparent": png("LA"),
    "PNG, 256 colours": png("P"),
    "PNG, 2 bits": lambda image: (image.quantize(4), {"format": "PNG", "bits": 2}),
    "PNG, 1 bit": png("1"),
    "PNG, 16 bits": deep,
    "WebP": webp(quality=80),
    "WebP, lossless": webp(lossless=True, method=0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_reencoded_photographs_have_pillows_pixels(kind, pictures, decoder):
    rng = random.Random(kind)
    for image in pictures:
        image, options = KINDS[kind](image)
        out = io.BytesIO()
        image.save(out, **options)
        whole = np.asarray(Image.open(io.BytesIO(out.getvalue())).convert("RGB"))
        height, width = whole.shape[:2]
        assert (decoder.bytes(out.getvalue()) == whole).all()
        for _ in range(N_REGIONS):
            x, y = rng.randrange(width), rng.randrange(height)
            w, h = rng.randint(1, width - x), rng.randint(1, height - y)
            assert (decoder.bytes(out.getvalue(), region=(x, y, w, h)) == whole[y : y + h, x : x + w]).all()
