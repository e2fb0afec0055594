"""Pairs of .npy files that batchd reads as a data set, written without numpy, which not every Python has."""

import array
import os

NUMBERED = 4096


def header(descr, shape):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def pair(folder, name, descr, shape, rows):
    """NAME-x.npy with `rows`, an iterable of bytes, and NAME-y.npy with their numbers, unless both are there. Returns
    the data set's name for batchd."""
    x, y = folder / f"{name}-x.npy", folder / f"{name}-y.npy"
    if not y.exists():
        with open(x, "wb") as f:
            f.write(header(descr, shape))
            for row in rows:
                f.write(row)
        unfinished = folder / f"{name}-y.tmp"
        with open(unfinished, "wb") as f:
            f.write(header("<i8", (shape[0],)))
            array.array("q", range(shape[0])).tofile(f)
        os.rename(unfinished, y)  # last: it marks that both files are complete
    return f"npy:{x},{y}"


def numbered(folder):
    """Rows that identify themselves, as the C trainer's --check rows expects them: word j of row i is
    i * 2654435761 + j."""
    rows = (array.array("I", ((i * 2654435761 + j) & 0xFFFFFFFF for j in range(64))).tobytes() for i in range(NUMBERED))
    return pair(folder, "numbered", "<i4", (NUMBERED, 64), rows)
