"""The documents' picture, which `make pictures` makes by batchctl preview."""

import os
import pathlib
import subprocess
import sys

from PIL import Image

REPO = pathlib.Path(__file__).parents[3]
PICTURE = REPO / "client" / "python" / "pictures" / "preview.jpg"
MOST_BYTES = 120_000


def make(build, out, *data):
    run = [sys.executable, REPO / "tests" / "demo" / "pictures.py", build, out, *data]
    subprocess.run(run, check=True, timeout=300)
    return Image.open(out)


def test_the_documents_picture_is_made_by_the_command(build, tmp_path):
    """As large as the one in the documents, with pixels that are nearly the same: only versions of Pillow and of its
    JPEG encoder, which draw the scenes, lie between."""
    made, shown = make(build, tmp_path / "new" / "preview.jpg"), Image.open(PICTURE)
    assert made.size == shown.size and PICTURE.stat().st_size <= MOST_BYTES
    small = [p.convert("L").resize((37, 24), Image.Resampling.BOX).tobytes() for p in (made, shown)]
    assert sum(abs(a - b) for a, b in zip(*small)) / len(small[0]) < 6


def test_the_picture_of_ones_own_images(build, samples, tmp_path):
    """The same sheets, of another folder."""
    made = make(build, tmp_path / "own.jpg", samples)
    assert made.size == Image.open(PICTURE).size


def test_the_documents_show_it_and_say_how_it_is_made():
    guide = (REPO / "client/python/guide/transforms.md").read_text()
    assert "](../pictures/preview.jpg)" in guide and "pictures DATA=" in guide
    assert "](client/python/pictures/preview.jpg)" in (REPO / "README.md").read_text()


def test_it_asks_for_pillow_and_nothing_more(build, tmp_path):
    """`make pictures` makes no environment with torch; any Python that has numpy and Pillow draws, and a machine
    without one is told how to get it."""
    command = subprocess.run(
        ["make", "-n", "-C", REPO, f"BUILD={build}", "SETUP=0", "pictures"], capture_output=True, text=True, check=True
    ).stdout
    assert "tests/setup/with-pillow" in command and "tests/setup/venv" not in command, command
    (tmp_path / "PIL.py").write_text("raise ImportError")
    run = [REPO / "tests/setup/with-pillow", tmp_path, sys.executable, "-c", "import PIL; print(PIL.__name__)"]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "PIL\n"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    without = subprocess.run(run, capture_output=True, text=True, env=environment)
    assert without.returncode == 1 and "python3-pil" in without.stderr, without
