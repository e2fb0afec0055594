"""Clients that request more memory than there is: each is refused by name or waits, and the daemon stays within
`memory` + 64 MiB, its peak included."""

import json
import os
import pathlib
import re
import struct
import subprocess

import batchd
import pytest

from daemons import until

MIB = 1 << 20
BUDGET = 64 * MIB
SANITIZED = any(name in os.environ.get("BATCHD_BUILD", "") for name in ("asan", "tsan"))

pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer's own memory is not the daemon's")


def in_kib(daemon, field):
    return next(
        int(line.split()[1])
        for line in pathlib.Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
        if line.startswith(field + ":")
    )


def peak(daemon):
    """The peak of the daemon's memory, in bytes."""
    return in_kib(daemon, "VmHWM") * 1024


@pytest.fixture
def small(make_daemon):
    """A daemon with little memory, which drops an unused loader at once and must never exceed its budget by more than
    64 MiB."""
    daemon = make_daemon("--workers", "4", "--memory", f"{BUDGET}", config="linger: 0s\n")
    yield daemon
    assert peak(daemon) <= BUDGET + 64 * MIB


def own(status):
    return next(u for u in status["users"] if u["uid"] == os.getuid())


def load(source, **options):
    return batchd.DataLoader(source, **{"batch_size": 4, "arrays": "numpy", **options})


def refused(source, **options):
    with pytest.raises(batchd.LimitError) as e:
        with load(source, **options) as loader:
            next(iter(loader))
    return str(e.value)


def test_an_order_that_does_not_fit_is_refused_with_its_size(small):
    # 4 bytes a sample: 763 MiB of a budget of 64. It needs no file at all; without shuffle no array is kept.
    text = refused("random:length=200000000,shape=1", shuffle=True)
    assert (
        "the order of an epoch of 200000000 samples needs 762.9 MiB" in text
        and "51.2 MiB" in text
        and "memory" in text
        and "without shuffle" in text
    )
    with load("random:length=4611686018427387904,shape=1") as loader:
        next(iter(loader))


def test_orders_are_charged_to_their_user_and_given_back(small):
    # Two epochs' orders of 4 million samples are 32 MiB; those of a second loader do not fit until the first one
    # closes.
    with load("random:length=4000000,shape=1", shuffle=True, job="first") as loader:
        next(iter(loader))
        until("the next epoch's order is made, too", lambda: own(batchd.status())["data_bytes"] >= 32 * 1000 * 1000)
        assert batchd.status()["memory"]["data_bytes"] == own(batchd.status())["data_bytes"] <= 33 * 1000 * 1000
        assert "needs 22.9 MiB of memory" in refused("random:length=6000000,shape=1", shuffle=True, job="second")
    until("nothing is charged any more", lambda: batchd.status()["memory"]["data_bytes"] == 0)
    with load("random:length=6000000,shape=1", shuffle=True, job="third") as loader:
        next(iter(loader))
    until("nothing is charged any more", lambda: batchd.status()["memory"]["data_bytes"] == 0)


def test_an_order_for_which_there_is_memory_once_serves_every_epoch(small):
    # 38 MiB of the 51 that one user may have: the next epoch's order is made when the last one's is freed.
    with load("random:length=10000000,shape=1", shuffle=True, batch_size=60000) as loader:
        for epoch in range(3):
            assert sum(len(x) for x, _ in loader) == 10000000
        assert own(batchd.status())["data_bytes"] <= 41 * 1000 * 1000


def test_a_list_that_does_not_fit_is_refused_while_it_is_read(small, tmp_path):
    # A million and a half names take about 90 MiB; a sparse list takes no disk, and is refused at its first line.
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "long").write_text("".join(f"some/folder/a-picture-with-a-name-{i}.jpg\t{i}\n" for i in range(1500000)))
    with open(folder / "sparse", "wb") as f:
        f.truncate(3 << 30)
    text = refused(f"files:{folder}/long")
    assert (
        "more names and labels than there is room for" in text
        and "limits.memory_per_user" in text
        and "51.2 MiB" in text
    )
    with pytest.raises(batchd.InvalidError, match="a line of more than 64 KiB"):
        load(f"files:{folder}/sparse")
    until("nothing is charged any more", lambda: batchd.status()["memory"]["data_bytes"] == 0)


def test_features_of_arrow_are_charged_as_much_as_they_may_take(small, tmp_path):
    # An empty object takes 80 bytes for each byte of its text.
    pyarrow = pytest.importorskip("pyarrow")
    for n_mib, fits in ((0.5, True), (0.9, False)):
        features = '{"info": [' + "{}," * int(n_mib * MIB / 3) + "{}]}"
        schema = pyarrow.schema([("x", pyarrow.int64())], metadata={"huggingface": features})
        with pyarrow.OSFile(str(tmp_path / "x.arrow"), "wb") as f, pyarrow.ipc.new_stream(f, schema) as out:
            out.write_table(pyarrow.table({"x": [1, 2]}, schema=schema))
        if fits:
            with load(f"arrow:{tmp_path}/x.arrow", batch_size=2) as loader:
                assert next(iter(loader))["x"].tolist() == [1, 2]
        else:
            assert "more names and labels" in refused(f"arrow:{tmp_path}/x.arrow")


def test_names_are_charged_as_long_as_their_loader_is_there(small, tmp_path, batchctl):
    # 100,000 of them: a few MiB. Those of a lingering loader make room for another's.
    (tmp_path / "list").write_text("".join(f"a-picture-with-a-name-{i}.jpg\t{i}\n" for i in range(100000)))
    with pytest.raises(batchd.Error):  # there are no such files
        with load(f"files:{tmp_path}/list") as loader:
            assert 3 * MIB < own(json.loads(batchctl("status", "--json").stdout))["data_bytes"] < 8 * MIB
            next(iter(loader))
    until("nothing is charged any more", lambda: batchd.status()["memory"]["data_bytes"] == 0)


def test_a_loader_that_lingers_makes_room(make_daemon, tmp_path):
    # Names that take 19 MiB, and 40 while they are read: each opening ends the unused loader, and none is refused.
    make_daemon("--memory", f"{BUDGET}", config="linger: 10min\n")
    (tmp_path / "list").write_text("".join(f"a-picture-with-a-name-{i}.jpg\t{i}\n" for i in range(400000)))
    (tmp_path / "a-picture-with-a-name-0.jpg").touch()  # the first one is looked for
    for job in ("first", "second", "third"):
        with load(f"files:{tmp_path}/list", job=job):
            assert 15 * MIB < own(batchd.status())["data_bytes"] < 25 * MIB


# ---- pictures and pipelines ----


@pytest.fixture(scope="module")
def picture(build, tmp_path_factory):
    """The bytes of a small photograph."""
    folder = tmp_path_factory.mktemp("picture") / "data"
    subprocess.run(
        [str(build / "batchctl"), "sample-data", str(folder), "--classes", "1", "--per-class", "1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return next(folder.glob("*/*")).read_bytes()


def make_list(folder, files):
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "list").write_text("".join(f"{name}\t0\n" for name in files))
    return f"files:{folder}/list"


def settles(daemon):
    """Memory for samples is freed when they are made: workers keep a little, and nothing large is left."""
    until("memory is given back", lambda: batchd.status()["memory"]["work_bytes"] <= 8 * MIB)
    until("resident memory is, too", lambda: in_kib(daemon, "VmRSS") * 1024 <= BUDGET)


def test_large_images_between_ops_are_bad_data_and_leave_nothing(small, picture, tmp_path):
    # Each op needs 201 MB, twice, for each worker.
    source = make_list(tmp_path, {f"{i}.jpg": picture for i in range(8)})
    with pytest.raises(batchd.BadDataError) as e:
        next(
            iter(
                load(
                    source,
                    transform=[["Resize", [8192, 8192]], ["Resize", [8191, 8191]], ["Resize", [64, 64]]],
                    dtype="uint8",
                )
            )
        )
    assert (
        "of 8 samples cannot be decoded" in str(e.value)
        and "needs at least 1" in str(e.value)
        and "MiB for one image" in str(e.value)
    )
    assert "more than bad_data in the daemon's configuration allows (1%)" in str(e.value)
    assert "batchctl verify" not in str(e.value)  # it finds nothing wrong with these files
    settles(small)


def test_images_that_fit_one_at_a_time_take_turns(small, picture, tmp_path):
    # 23 MB between two ops of each of four workers, while the working memory has room for one.
    source = make_list(tmp_path, {f"{i}.jpg": picture for i in range(16)})
    with load(
        source, transform=[["Resize", [1900, 1900]], ["Resize", [1899, 1899]], ["Resize", [64, 64]]], dtype="uint8"
    ) as loader:
        assert sum(len(x) for x, _ in loader) == 16 and loader.last_batch.n_replaced == 0
        settles(small)


def hollow_jpeg(edge):
    """Arithmetic, progressive, four layers, and scans without data: 200 bytes for any number of pixels."""
    frame = struct.pack(">BBHBHHB", 0xFF, 0xCA, 20, 8, edge, edge, 4) + b"".join(
        bytes([c, 0x11, 0]) for c in (1, 2, 3, 4)
    )
    scans = b"".join(bytes([0xFF, 0xDA, 0, 8, 1, c, 0, 0, 0, 0]) for c in (1, 2, 3, 4))
    return b"\xff\xd8\xff\xdb\x00\x43\x00" + b"\x01" * 64 + frame + scans + b"\xff\xd9"


def test_hollow_pictures_cost_nothing(small, tmp_path):
    # 2 GB of coefficients for 200 bytes; and a picture below the size from which pixels need bytes, with 134 MB of
    # coefficients.
    source = make_list(tmp_path, {f"{i}.jpg": hollow_jpeg(13370 if i % 2 else 4000) for i in range(8)})
    with pytest.raises(batchd.BadDataError, match="pixels in only .* bytes|MiB for one image"):
        next(iter(load(source)))
    settles(small)


def test_a_picture_that_takes_too_long_ends_its_row(make_daemon, tmp_path):
    # A hundred scans over 16 Mpx, without data, take seconds. A row gives up at the second such picture, not at the
    # seventeenth.
    daemon = make_daemon("--workers", "1", config="bad_data: 100%\nlimits: {image_time: 100ms, image_scans: 200}\n")
    scans = b"".join(
        bytes([0xFF, 0xDA, 0, 8, 1, c, 0, 0, 0, a << 4 | max(a - 1, 0)])
        for a in range(13, -1, -1)
        for c in (1, 2, 3, 4)
    )
    endless = hollow_jpeg(4000)[:-2] + scans + scans + b"\xff\xd9"
    source = make_list(tmp_path, {f"{i}.jpg": endless for i in range(100)})
    with pytest.raises(batchd.BadDataError) as e:
        next(iter(load(source, batch_size=1, n_slots=2)))
    assert re.match(r"dataset: ([2-6]) of 100 samples cannot be decoded: ", str(e.value)), e.value
    assert "takes more than 0.1 s of processor time to decode (limits.image_time" in str(e.value)
    assert daemon.process.poll() is None


def test_large_files_read_ahead_do_not_pile_up(small, picture, tmp_path):
    # 64 files of 10 MiB, with holes after their picture: as many tickets would keep 640 MiB, also after the job has
    # ended.
    for i in range(64):
        (tmp_path / f"{i}.jpg").write_bytes(picture)
        os.truncate(tmp_path / f"{i}.jpg", 10 * MIB)
    (tmp_path / "list").write_text("".join(f"{i}.jpg\t{i}\n" for i in range(64)))
    with load(f"files:{tmp_path}/list", batch_size=32, transform="val224") as loader:
        assert sum(len(x) for x, _ in loader) == 64 and loader.last_batch.n_replaced == 0
    settles(small)
