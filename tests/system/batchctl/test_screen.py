"""batchctl on a terminal of a given size: long lines are folded or cut, never wrapped; and the status of a slow
trainer."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

import batchd

from daemons import until

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def on_terminal(argv, rows, columns, enough):
    """The program's output on a terminal of this size, until enough(output) is true or the program ends."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [str(a) for a in argv],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(follower)
    out = b""
    try:
        while not enough(out):
            out += os.read(leader, 65536)
    except OSError:  # the program has ended
        pass
    process.kill()
    process.wait()
    os.close(leader)
    return out.decode().replace("\r\n", "\n")


def test_watch_fits_the_screen(daemon, build):
    """A screen of 12 lines of 40 columns shows the top: the daemon first, no line too long, no scrolling."""
    loaders = [
        batchd.DataLoader("random:length=100,shape=3", 4, arrays="numpy", job=f"job-with-a-long-name-{i}-{'x' * 40}")
        for i in range(3)
    ]
    iterators = [iter(loader) for loader in loaders]
    for iterator in iterators:
        next(iterator)
    out = on_terminal(
        [build / "batchctl", "status", "--watch", "--interval", "100ms"], 12, 40, lambda out: out.count(b"\x1b[J") >= 3
    )
    looks = [look.split("\x1b[J")[0] for look in out.split("\x1b[H")[1:]][:3]
    assert len(looks) == 3
    for look in looks:
        lines = ESCAPE.sub("", look).split("\n")
        assert len(lines) == 12 and max(map(len, lines)) <= 40, look
        assert lines[0].startswith("verdict ") and lines[-1].startswith("... (more"), look
        assert any(line.startswith("batchd ") for line in lines[1:5]), look
        assert ("\x1b[1m" in look) == ("\x1b[0m" in look)


def test_tables_of_bench_fit_80_columns(daemon, build):
    """Columns that do not fit come in a table below, beside the names of the rows; in a pipe the table stays whole."""
    argv = [build / "batchctl", "bench", "random:length=400,shape=3x64x64", "--epochs", "2", "--trainers", "2"]
    out = ESCAPE.sub("", on_terminal(argv, 50, 80, lambda out: False))
    tables = out[out.index("EPOCH") :]
    assert max(map(len, tables.splitlines())) <= 80, tables
    assert tables.count("EPOCH") == 2 and tables.count("TRAINER ") == 2
    for heading in ("IMAGES/S", "DECODED", "CPU MS/IMAGE", "WAIT P50 MS", "FIRST MS", "FIRST CALL TO FIRST BATCH MS"):
        assert heading in tables, tables
    piped = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=True, timeout=300).stdout
    assert piped.count("EPOCH") == 1 and max(map(len, piped.splitlines())) > 80


def test_a_slow_trainer_is_told_from_one_that_holds_batches(daemon, batchctl):
    """A loop that works on a batch has one; waiting batches are ready, neither held nor delivered; and the status says
    that the loop is the slow part."""
    loader = batchd.DataLoader("random:length=1000,shape=3", 4, arrays="numpy", n_slots=6)
    iterator = iter(loader)
    batch = next(iterator)
    status = until("all slots are full and told of", lambda: (s := batchd.status())["sessions"][0]["ready"] == 5 and s)
    stream, session, counts = status["loaders"][0]["streams"][0], status["sessions"][0], status["loaders"][0]
    assert (stream["held"], session["held"], session["ready"]) == (1, 1, 5), status
    assert (counts["samples_delivered"], counts["batches_delivered"]) == (4, 1), counts
    text = batchctl("status").stdout
    assert (
        "the trainer is the slow part" in text
        and "holds 1, 5 more are ready" in text
        and "4 delivered in 1 batches" in text
    ), text
    del batch
    kept = [next(iterator) for _ in range(4)]
    status = until("it is counted", lambda: (s := batchd.status())["sessions"][0]["held"] >= 4 and s)
    assert status["loaders"][0]["samples_delivered"] == 20 and len(kept) == 4


def test_whole_epochs_are_counted_as_such(daemon):
    """Batches that are ready for the next epoch when a training ends were not delivered. The last batch of each epoch
    is a short one."""
    loader = batchd.DataLoader("random:length=90,shape=3", 8, arrays="numpy", n_slots=16)
    n = sum(len(x) for _ in range(3) for x, y in loader)
    assert n == 270
    until("the next epoch is ready", lambda: batchd.status()["loaders"][0]["streams"][0]["making"] == 0)
    counts = batchd.status()["loaders"][0]
    assert (counts["samples_delivered"], counts["batches_delivered"]) == (270, 36), counts


def test_a_long_transform_is_folded_to_the_names_of_its_ops(daemon, batchctl, samples):
    """The text has the ops with their first number; --json has the transform as it was given. The generated name of the
    job tells the script and the data."""
    ops = [
        ["RandomResizedCrop", 64],
        "RandomHorizontalFlip",
        "ToTensor",
        ["Normalize", [0.5, 0.5, 0.5], [0.2, 0.2, 0.2]],
    ]
    with batchd.DataLoader(f"imagefolder:{samples}", 4, transform=ops, arrays="numpy") as loader:
        text = batchctl("status").stdout
        assert "RandomResizedCrop 64, RandomHorizontalFlip, ToTensor, Normalize, float32" in text, text
        assert "[[" not in text
        assert json.loads(batchd.status()["loaders"][0]["transform"])[0][0] == "RandomResizedCrop"
        assert re.fullmatch(rf"[\w.-]+-{samples.name}-{os.getpid()}-[0-9a-f]{{8}}", loader.job), loader.job


@pytest.mark.parametrize(
    "dataset, title",
    (
        ("imagefolder:/x/my data/", "my-data-run-"),
        ("random:length=8,shape=3", "random-run-"),
    ),
)
def test_a_job_of_several_ranks_has_the_datas_name(daemon, tmp_path, dataset, title):
    """The name is made of what all ranks have, so they agree on it."""
    folder = tmp_path / "my data" / "a"
    folder.mkdir(parents=True)
    for i in range(8):
        (folder / f"{i}.ppm").write_bytes(b"P6 1 1 255 abc")
    dataset = dataset.replace("/x", str(tmp_path))
    options = dict(arrays="numpy", world_size=2)
    if "imagefolder" in dataset:
        options["transform"] = [["CenterCrop", 1], "ToTensor"]
    with batchd.DataLoader(dataset, 4, rank=0, **options) as one, batchd.DataLoader(
        dataset, 4, rank=1, **options
    ) as other:
        assert one.job.startswith(title), one.job
        assert other.job.startswith(title)


def test_a_status_of_something_else_is_refused(batchctl, tmp_path):
    """JSON that is not a daemon's status, and no JSON at all: the error uses the source's usual name."""
    (tmp_path / "empty.json").write_text("{}")
    r = batchctl("status", "--from", tmp_path / "empty.json")
    assert r.returncode == 4 and "empty.json does not hold a daemon's status" in r.stderr and r.stdout == ""
    r = batchctl("status", "--from", "-")
    assert r.returncode == 4 and "standard input is not JSON" in r.stderr


def test_a_mistyped_command_is_recognised(batchctl):
    """The beginning of a name, a typo, and a word unlike all of them."""
    for typed, meant in (
        ("stat", "status"),
        ("statsu", "status"),
        ("benhc", "bench"),
        ("sampledata", "sample-data"),
        ("pre", "preview"),
    ):
        r = batchctl(typed)
        assert r.returncode == 2 and f"there is no command '{typed}'; did you mean '{meant}'?" in r.stderr, r.stderr
    for typed in ("frobnicate", "x", "bench-trainerr"):
        r = batchctl(typed)
        assert r.returncode == 2 and "did you mean" not in r.stderr and "lists them" in r.stderr, r.stderr


def test_bench_of_a_missing_folder_says_that_it_is_missing(batchctl, daemon):
    """The error does not say that its kind is missing."""
    r = batchctl("bench", "/no/such/folder")
    assert r.returncode == 4 and "/no/such/folder: No such file or directory" in r.stderr, r.stderr


def test_a_preview_is_named_what_it_is(batchctl, samples, tmp_path):
    """The output is a PNG file, so a name for another format is refused before anything is read."""
    r = batchctl("preview", samples, "--out", tmp_path / "x.JPG")
    assert r.returncode == 2 and "ends in .png" in r.stderr and not list(tmp_path.iterdir()), r.stderr
    assert batchctl("preview", samples, "--out", tmp_path / "x.png", "--n", "2").returncode == 0


def test_the_status_fits_80_columns(daemon, build):
    """The verdict is wrapped between words, and a text that does not fit beside the others comes below, whole."""
    loader = batchd.DataLoader(
        "random:length=400,shape=3", 4, arrays="numpy", job="a-job-with-a-rather-long-name", n_slots=4
    )
    batch = next(iter(loader))
    until(
        "the batches are ready",
        lambda: "the trainer is the slow part" in batchd.status()["loaders"][0]["streams"][0]["waiting_for"],
    )
    out = ESCAPE.sub("", on_terminal([build / "batchctl", "status"], 50, 80, lambda out: False))
    tables = out[out.index("CACHE") :]
    assert max(map(len, out[: out.index("batchd ")].splitlines())) <= 80, out
    assert "the trainer is the slow part" in tables and "more are ready" in tables, out
    table_lines = [line for line in tables.splitlines() if re.match(r" *(RANK|SESSION|CACHE|\d+ )", line)]
    assert max(map(len, table_lines)) <= 80, out
    del batch
