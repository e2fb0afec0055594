"""Messages about files that cannot be read: once, with the reason, and as early as possible."""

import shutil

import pytest

import batchd

from daemons import REPO, until


def test_a_missing_file_is_named_once(daemon, samples, tmp_path):
    """In the error that the trainer gets, and in the log."""
    (tmp_path / "a").mkdir()
    for i, file in enumerate(sorted(samples.rglob("*.jp*g"))[:4]):
        shutil.copy(file, tmp_path / "a" / f"{i}.jpg")
    loader = batchd.DataLoader(f"imagefolder:{tmp_path}", 4, arrays="numpy")
    (tmp_path / "a" / "2.jpg").unlink()
    with pytest.raises(batchd.BadDataError, match="a/2.jpg: No such file or directory") as e:
        for epoch in range(3):
            list(loader)
    assert str(e.value).count("a/2.jpg") == 1, e.value
    lines = until("it is logged", lambda: [line for line in daemon.output().splitlines() if "bad-sample" in line])
    assert all(line.count("a/2.jpg") == 1 for line in lines), lines


def test_kinds_of_files_that_are_not_decoded_are_told_at_opening(daemon, tmp_path):
    """A list of such files alone is refused with advice; in a mixed one they keep their numbers, and the log reports
    them."""
    image = pytest.importorskip("PIL.Image")
    names = [f"{i}.{kind}" for kind in ("avif", "jxl") for i in range(3)]
    for name in names:
        (tmp_path / name).write_bytes(b"not read")
    (tmp_path / "only").write_text("".join(f"{name}\t0\n" for name in names))
    with pytest.raises(
        batchd.BadDataError,
        match=r"6 of 6 files are .avif, .jxl files, which batchd does not decode: JPEG, PNG, .* are read; .*batchd.serve",
    ):
        batchd.DataLoader(f"files:{tmp_path}/only", 2)
    for i in range(3):
        image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / f"z{i}.png")
    (tmp_path / "some").write_text("".join(f"{name}\t0\n" for name in [*names, "z0.png", "z1.png", "z2.png"]))
    loader = batchd.DataLoader(f"files:{tmp_path}/some", 2)
    assert len(loader.dataset) == 9
    assert "kinds-not-read" in daemon.output() and "6 of 9 files are .avif, .jxl files" in daemon.output()


def test_a_daemon_says_once_that_it_stops(make_daemon):
    """The event's name is not repeated as its text."""
    d = make_daemon()
    until("it serves", lambda: "started" in d.output())
    d.stop()
    assert "stopping: SIGTERM" in d.output() and "stopping: stopping" not in d.output()


def test_manual_pages_are_of_one_program():
    """Footers name the same system and date."""
    pages = [*REPO.glob("daemon/man/*.[1-8]"), *REPO.glob("client/man/*.[1-8]")]
    heads = {
        tuple(line for line in page.read_text().splitlines()[:4] if line.startswith((".Dd", ".Os"))) for page in pages
    }
    assert len(pages) >= 4 and len(heads) == 1 and all(".Os batchd" in head for head in heads), heads
