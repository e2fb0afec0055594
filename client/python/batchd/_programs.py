"""Finds the programs that belong to this package, for `python -m batchd`."""

import os
import pathlib
import shutil
import sys

_HERE = pathlib.Path(__file__).resolve().parent


def find(name):
    """The program's path: the wheel's own, else that of a build folder, else one that is installed."""
    folders = [_HERE / "_bin"]
    if os.environ.get("BATCHD_BUILD"):  # for developers of batchd
        folders.append(pathlib.Path(os.environ["BATCHD_BUILD"]))
    folders.append(_HERE.parents[2] / "build")
    for folder in folders:
        if (folder / name).is_file():
            return str(folder / name)
    return shutil.which(name)


def _run(name):
    program = find(name)
    if program is None:
        sys.exit(
            f"{name} is not installed: this package is the Python module alone; the wheel of `make wheel` carries the "
            "programs, and `make install` or the Debian packages install them"
        )
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"cannot run {program}: {e.strerror}")


def batchctl():
    _run("batchctl")
