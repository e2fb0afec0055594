"""The same pictures in other formats: progressive JPEG, PNG and WebP, as web data has them, and enlarged to 12
megapixels, where batchd is also measured with decode="draft". Pillow re-encodes up to
MAX_PICTURES of the folder once for the run. Large ones come in small batches and fewer of them, as PyTorch needs a
tenth of a second for each. A kind's ratios are printed when it is done. Compared is CPU per image in the first epoch,
of batchd, of PyTorch's DataLoader and, with --before, of an earlier build's daemon; for JPEGs also from the second
epoch on, with their indexes kept."""

import concurrent.futures
import os
import pathlib

import report
from scenarios import JPEG_CACHE, NO_CACHE, ratio, result, rounds

MAX_PICTURES = 192
# Kinds that the index cache knows, and the least ratio to PyTorch's CPU per image from the second epoch on.
INDEXED = {"baseline": None, "progressive": 6, "12 megapixels": None}
LARGE = {"12 megapixels": (4000, 3000)}  # one picture in PART_OF_LARGE
PART_OF_LARGE = 6
LARGE_BATCH = 8
LARGE_MEASURE = 12  # batches in a round
# name, suffix, what Pillow's save gets, the least ratio of CPU per image to PyTorch's
KINDS = (
    ("baseline", ".jpg", {"format": "JPEG", "quality": 90}, None),
    ("progressive", ".jpg", {"format": "JPEG", "quality": 90, "progressive": True}, 4),
    ("PNG", ".png", {"format": "PNG"}, 4),
    ("WebP", ".webp", {"format": "WEBP", "quality": 80}, 3),
    ("12 megapixels", ".jpg", {"format": "JPEG", "quality": 90}, 12),
    ("lossless WebP", ".webp", {"format": "WEBP", "lossless": True, "method": 0}, None),
)


def write(path, to, options, size):
    from PIL import Image

    os.makedirs(to.parent, exist_ok=True)
    image = Image.open(path).convert("RGB")
    (image.resize(size) if size else image).save(to, **options)


def copy_of(runner, kind, suffix, options):
    """The folder of the copies."""
    copy = runner.scratch / kind.replace(" ", "-")
    pictures = runner.pictures()
    most = MAX_PICTURES // (PART_OF_LARGE if kind in LARGE else 1)
    pictures = pictures[:: -(-len(pictures) // most)]
    with concurrent.futures.ProcessPoolExecutor(runner.args.workers) as crew:
        for done in [
            crew.submit(
                write,
                path,
                copy / pathlib.Path(path).relative_to(runner.args.data).with_suffix(suffix),
                options,
                LARGE.get(kind),
            )
            for path in pictures
        ]:
            done.result()
    return copy, len(pictures)


def copies(runner):
    daemon, before = runner.daemon("copies", NO_CACHE), runner.daemon_before("copies", NO_CACHE)
    indexed, drafting = runner.daemon("copies-indexed", JPEG_CACHE), runner.daemon("copies-draft", NO_CACHE)
    rows, ratios = {}, []
    for kind, suffix, options, least in KINDS:
        if runner.args.kinds and kind not in runner.args.kinds:
            continue
        copy, n = copy_of(runner, kind, suffix, options)
        batch = LARGE_BATCH if kind in LARGE else runner.args.batch_size
        common = {"data": str(copy), "transform": "train224", "batch_size": batch}
        job = kind.replace(" ", "-")
        ours, old, torch = f"batchd, {kind}", f"batchd before, {kind}", f"PyTorch, {kind}"
        later = f"batchd, {kind}, later epochs"
        loaders = {ours: runner.batchd(daemon, job=job, **common)}
        if kind in INDEXED:
            loaders[later] = runner.batchd(indexed, job=f"{job}-indexed", **common)
        draft = f"batchd, {kind}, draft"
        if kind in LARGE:
            loaders[draft] = runner.batchd(drafting, job=f"{job}-draft", decode="draft", **common)
        if before:
            loaders[old] = runner.batchd(before, job=f"{job}-before", **common)
        loaders[torch] = runner.participant("PyTorch", label=f"PyTorch ({kind})", **common)
        measure = LARGE_MEASURE if kind in LARGE else 40
        rows.update(rounds(runner, loaders, n_batches=-(-n // batch), measure=measure, settle=False))
        n_before = len(ratios)
        ratios.append(ratio(rows, "cpu", torch, ours, f"CPU per image, PyTorch / batchd, {kind}", least, True))
        text = f"CPU per image from the second epoch on, PyTorch / batchd, {kind}"
        ratios.append(ratio(rows, "cpu", torch, later, text, INDEXED.get(kind), True))
        text = f"CPU per image with draft, PyTorch without / batchd, {kind}"
        ratios.append(ratio(rows, "cpu", torch, draft, text, None, True))
        ratios.append(ratio(rows, "cpu", old, ours, f"CPU per image, before / now, {kind}", None, True))
        report.partial(ratios[n_before:])
        for loader in filter(None, loaders.values()):
            loader.stop()
    runner.settle()
    return result("train224, re-encoded copies, first epoch", rows, ratios)
