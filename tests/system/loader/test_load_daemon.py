"""batchd.load by a daemon's workers: the bytes of inline=True, which test_load.py compares with Pillow and torchvision."""

import os
import shutil
import threading

import numpy as np
import pytest

import batchd
from batchd import _load_daemon
from test_load import files, torchvisions


@pytest.fixture(autouse=True)
def fresh():
    """Connections of an earlier test's daemon."""
    _load_daemon._forget()
    yield
    _load_daemon._forget()


def images(d):
    """What the daemon's status says of its clients of single images."""
    return batchd.status(str(d.socket))["image_clients"]


def both(d, sources, **options):
    here = batchd.load(sources, arrays="numpy", inline=True, **options)
    there = batchd.load(sources, arrays="numpy", inline=False, socket=str(d.socket), **options)
    assert here.dtype == there.dtype and here.shape == there.shape
    return here, there


def test_pixels_are_pillows(daemon, photos):
    for path in files(photos, 2):
        pixels, _ = torchvisions(path)
        made = batchd.load(path, dtype="uint8", layout="NHWC", arrays="numpy", inline=False, socket=str(daemon.socket))
        assert np.array_equal(made, pixels), path


@pytest.mark.parametrize("transform", ["val224", "train224", [["Resize", [40, 60]], "ToTensor"]])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_rows_are_those_of_the_calling_thread(daemon, photos, transform, dtype):
    """More images than there are slots, as paths and as bytes, with draws of their own."""
    paths = files(photos, 4)
    sources = [p if i % 2 else p.read_bytes() for i, p in enumerate(paths * 6)]
    here, there = both(daemon, sources, transform=transform, dtype=dtype, seed=3, epoch=2, index=7)
    assert np.array_equal(here, there)


def test_large_and_empty_sources(daemon, tmp_path):
    """Images beyond the part of the memory that stays mapped, several at once and again after their memory was given
    back; no image; an empty list."""
    Image = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(0).integers(0, 256, (900, 800, 3), "uint8")
    Image.fromarray(noise).save(tmp_path / "large.png")
    data = (tmp_path / "large.png").read_bytes()
    assert len(data) > 1 << 20
    for _ in range(2):
        here, there = both(daemon, [data, tmp_path / "large.png"] * 3, dtype="uint8")
        assert np.array_equal(here, there)
    for empty in (b"", np.empty(0, "uint8")):
        with pytest.raises(batchd.BadDataError):
            batchd.load(empty, inline=False, socket=str(daemon.socket))
    assert batchd.load([], inline=False, socket=str(daemon.socket), arrays="numpy").shape == (0, 3, 224, 224)


def test_errors_name_the_image(daemon, photos, tmp_path):
    good = files(photos)[0]
    (tmp_path / "cut.jpg").write_bytes(good.read_bytes()[:300])
    for sources in ([good, tmp_path / "cut.jpg", good], [good, (tmp_path / "cut.jpg").read_bytes()]):
        texts = []
        for inline in (True, False):
            with pytest.raises(batchd.BadDataError) as e:
                batchd.load(sources, inline=inline, socket=str(daemon.socket))
            texts.append(str(e.value))
        assert texts[0] == texts[1]
        assert f"number 2 of {len(sources)}" in texts[1]
    with pytest.raises(FileNotFoundError, match="absent.jpg"):
        batchd.load([good, tmp_path / "absent.jpg"], inline=False, socket=str(daemon.socket))
    with pytest.raises(batchd.InvalidError, match="Nonsense"):
        batchd.load(good, transform=[["Nonsense"]], inline=False, socket=str(daemon.socket))
    assert batchd.load(good, inline=False, socket=str(daemon.socket)).shape == (3, 224, 224)
    assert sum(i["bad"] for i in images(daemon)) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's file needs root, who can read it")
def test_a_file_that_the_client_may_not_read(daemon, photos, tmp_path):
    """The daemon opens no file: a process that has given up its rights gets nothing by asking the daemon for it."""
    secret = shutil.copy(files(photos)[0], tmp_path / "secret.jpg")
    os.chmod(secret, 0o600)
    pid = os.fork()
    if pid == 0:
        os.seteuid(65534)
        try:
            batchd.load(secret, inline=False, socket=str(daemon.socket))
            os._exit(1)
        except (PermissionError, batchd.ConnectError):
            os._exit(0)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_pipe_is_read_here(daemon, photos, tmp_path):
    """The library reads regular files only; the bytes of others are handed over."""
    data = files(photos)[0].read_bytes()
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(data,))
    writer.start()
    made = batchd.load([tmp_path / "pipe", data], arrays="numpy", inline=False, socket=str(daemon.socket))
    writer.join()
    assert np.array_equal(made[0], made[1])


def test_what_decides_where_an_image_is_made(daemon, photos, monkeypatch):
    """One image here, a list there; a list here, too, where there is no daemon, and none is started for it."""
    paths = files(photos, 2)
    batchd.load(paths[0], socket=str(daemon.socket))
    assert not images(daemon)
    batchd.load(paths, socket=str(daemon.socket))
    assert [i["made"] for i in images(daemon)] == [2]
    batchd.load(paths, socket=str(daemon.socket), inline=True)
    assert [i["made"] for i in images(daemon)] == [2]
    nowhere = f"{daemon.socket}.absent"
    batchd.load(paths, socket=nowhere)
    assert not os.path.exists(nowhere)
    with pytest.raises(TypeError, match="inline"):
        batchd.load(paths, inline="yes")


def test_threads_have_connections_of_their_own(daemon, photos):
    """And leave them for the next: no connection is made for each call."""
    paths = files(photos, 4)
    wanted = batchd.load(paths, arrays="numpy", inline=True)
    wrong = []

    def run():
        for _ in range(5):
            if not np.array_equal(batchd.load(paths, arrays="numpy", inline=False, socket=str(daemon.socket)), wanted):
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(images(daemon)) <= 4
    assert sum(i["made"] for i in images(daemon)) == 4 * 5 * len(paths)


def test_a_daemon_that_was_restarted(make_daemon, photos):
    paths = files(photos, 2)
    d = make_daemon()
    wanted = batchd.load(paths, arrays="numpy", inline=False, socket=str(d.socket))
    d.stop()
    assert np.array_equal(batchd.load(paths, arrays="numpy", socket=str(d.socket)), wanted)  # here
    _load_daemon._look_again.clear()
    d.start()
    assert np.array_equal(batchd.load(paths, arrays="numpy", inline=False, socket=str(d.socket)), wanted)
    assert [i["made"] for i in images(d)] == [2]


def test_a_child_of_a_fork(daemon, photos):
    paths = files(photos, 2)
    wanted = batchd.load(paths, arrays="numpy", inline=False, socket=str(daemon.socket))
    pid = os.fork()
    if pid == 0:
        made = batchd.load(paths, arrays="numpy", inline=False, socket=str(daemon.socket))
        os._exit(0 if np.array_equal(made, wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert np.array_equal(batchd.load(paths, arrays="numpy", inline=False, socket=str(daemon.socket)), wanted)


def test_batchctl_load(daemon, batchctl, photos, tmp_path):
    """The same numbers as in its own process; a code where no daemon is, and where the image is none."""
    path = files(photos)[0]
    for out, more in (("here.npy", ()), ("there.npy", ("--socket", daemon.socket))):
        made = batchctl("load", path, "--out", tmp_path / out, "--repeat", 3, *more)
        assert made.returncode == 0, made.stderr
    assert np.array_equal(np.load(tmp_path / "here.npy"), np.load(tmp_path / "there.npy"))
    assert sum(i["made"] for i in images(daemon)) in (0, 3)  # its connection may have ended already
    bad = batchctl("load", "/etc/passwd", "--socket", daemon.socket)
    assert bad.returncode == 1 and "/etc/passwd" in bad.stderr
    assert batchctl("load", path, "--transform", "Nothing", "--socket", daemon.socket).returncode == 2
    assert batchctl("load", path, "--socket", tmp_path / "absent").returncode == 3
