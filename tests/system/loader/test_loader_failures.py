"""Loaders that wait and fail: Ctrl-C, time-outs, mistakes, a daemon that goes away."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import warnings

import numpy
import pytest

import batchd
from daemons import WIRE_VERSION
from plain_loops import indices_of, make, run_python, torch


STARVED = """
    import batchd, sys, time
    loader = batchd.DataLoader("random:length=1000,shape=3", 8, mode="share", world_size=2, job="lonely"{})
    began = time.monotonic()
    try:
        print("ready", flush=True)
        for _ in loader:
            pass
    except {} as e:
        print(type(e).__name__, e, "%.1f" % (time.monotonic() - began))
"""


def test_ctrl_c_ends_a_wait_at_once(daemon):
    """A trainer that waits for the others of its share group can be interrupted."""
    code = textwrap.dedent(STARVED.format("", "KeyboardInterrupt"))
    p = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BATCHD_ARRAYS": "numpy"},
    )
    assert p.stdout.readline() == "ready\n"
    time.sleep(0.5)
    assert p.poll() is None
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=300)
    assert out.startswith("KeyboardInterrupt"), out + err


def test_ctrl_c_ends_a_long_opening(tmp_path):
    """A fake daemon that builds an index for ever: the bar shows it, Ctrl-C ends it, the terminal is left clean."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "socket"))
    listener.listen(1)
    p = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import batchd; batchd.DataLoader('random:', socket='{tmp_path}/socket', progress=True)",
        ],
        stderr=subprocess.PIPE,
        env={**os.environ, "BATCHD_ARRAYS": "numpy", "COLUMNS": "60"},
    )
    peer = listener.accept()[0]
    peer.recv(65536)
    peer.send(b"\x0a\x02\x08%c" % WIRE_VERSION)  # Welcome
    peer.recv(65536)
    shown = b""
    while b"]" not in shown:
        peer.send(b"\x12\x0b\x0a\x05index\x10\x03\x18\x06")  # Progress { "index", 3 of 6 }
        time.sleep(0.05)
        os.set_blocking(p.stderr.fileno(), False)
        shown += p.stderr.read() or b""
        assert p.poll() is None, shown
    assert b"batchd: index 3 of 6 [" in shown and b"###" in shown
    os.set_blocking(p.stderr.fileno(), True)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=300)
    assert (
        p.returncode in (1, -signal.SIGINT)
        and err.endswith(b"KeyboardInterrupt\n")
        and b"ignored" not in err
        and b"\x1b[K" in err
    )
    peer.close()
    listener.close()


def test_timeout_is_an_error_that_says_where_to_look(daemon):
    """timeout= works as in torch."""
    done = run_python(STARVED.format(", timeout=0.3", "TimeoutError"))
    assert "TimeoutError no batch within 0.3 s" in done.stdout and "batchctl status" in done.stdout, (
        done.stdout + done.stderr
    )


def test_mistakes_are_named(daemon, tmp_path):
    """One line each that names the wrong thing, as the exception that Python programs expect."""
    cases = [
        (FileNotFoundError, "nowhere", dict(dataset=f"imagefolder:{tmp_path}/nowhere")),
        (FileNotFoundError, "any class folder", dict(dataset=str(tmp_path))),
        (batchd.Error, "nosuchname", dict(dataset="nosuchname")),
        (ValueError, "batch_size", dict(batch_size=0)),
        (ValueError, "dtype", dict(dtype="complex64")),
        (ValueError, "layout", dict(layout="CHW")),
        (ValueError, "mode", dict(mode="split")),
        (ValueError, "rank", dict(rank=2, world_size=2)),
        (ValueError, "leave shuffle", dict(shuffle=True, batch_sampler=[[1]])),
        (TypeError, "seed", dict(seed="x")),
        (ValueError, "seed", dict(seed=-1)),
        (ValueError, "arrays", dict(arrays="tensorflow")),
        (batchd.ConnectError, "/no/such/socket", dict(socket="/no/such/socket")),
        (batchd.InvalidError, "transform", dict(transform="train224")),
        (TypeError, "batch_size", dict(batch_size="8")),
        (ValueError, "seed", dict(seed=2**64)),
        (ValueError, "timeout .*-1", dict(timeout=-1)),
        (TypeError, "timeout .*seconds", dict(timeout="1")),
        (ValueError, "reconnect .*-0.5", dict(reconnect=-0.5)),
        (TypeError, "reconnect .*seconds", dict(reconnect="1")),
        (TypeError, "producer_timeout", dict(producer_timeout="1")),
        (ValueError, "producer_timeout", dict(producer_timeout=float("nan"))),
        (ValueError, "device .*cpu.*gpu", dict(device="gpu")),
        (ValueError, "job .*NUL", dict(job="a\0b")),
        (ValueError, "dataset .*NUL", dict(dataset="imagefolder:/\0")),
        (TypeError, "socket .*text", dict(socket=5)),
        (TypeError, "dataset .*NoneType", dict(dataset=None)),
        (TypeError, r"dataset .*write \(numpy.asarray\(dataset\),\)", dict(dataset=[1, 2])),
        (TypeError, "pin_memory .*leave it out.* prefetch_factor .*n_slots", dict(pin_memory=True, prefetch_factor=2)),
        (TypeError, "collate_fn must be a function", dict(collate_fn=[])),
        (TypeError, "drop_lats .*drop_last", dict(drop_lats=True)),
        (TypeError, "xyzzy .*help", dict(xyzzy=1)),
        (TypeError, "memory_format .*layout=torch.channels_last", dict(memory_format="channels_last")),
        (ValueError, "sampler .*leave shuffle out", dict(sampler=[1], shuffle=True)),
        (ValueError, "sampler .*leave batch_sampler out", dict(sampler=[1], batch_sampler=[[1]])),
    ]
    for kind, word, options in cases:
        with pytest.raises(kind, match=word):
            make(**options)
    with pytest.raises(batchd.Error, match="closed"):
        loader = make()
        loader.close()
        iter(loader)


def test_options_may_have_the_types_that_scripts_have(daemon):
    """Values of numpy and of torch, infinite times, and None where torch accepts it."""
    loader = make(
        batch_size=numpy.int64(8),
        seed=numpy.uint8(3),
        num_workers=numpy.int32(2),
        timeout=numpy.float32(20),
        reconnect=float("inf"),
        device=None,
        shuffle=numpy.bool_(True),
    )
    assert len(indices_of(loader)) == 13
    assert len(indices_of(make(timeout=float("inf"), device="cpu:0"))) == 13 and make(timeout=None).timeout == 0
    if torch is not None:
        assert len(indices_of(make(batch_size=torch.tensor(8), seed=torch.tensor(3), device=torch.device("cpu")))) == 13


def test_what_stands_for_the_data_set_says_what_it_is_not(daemon):
    """Single samples are not available, targets are elsewhere, and a closed loader is named."""
    loader = make()
    with pytest.raises(TypeError, match="only batches"):
        loader.dataset[0]
    with pytest.raises(AttributeError, match="torchvision"):
        loader.dataset.targets
    with pytest.raises(AttributeError, match="has no root"):
        loader.dataset.root
    with pytest.raises(batchd.Error, match="gone"):
        make().dataset.classes


def test_a_job_with_other_options_is_refused_by_the_field(daemon):
    """The second loader of the same job has another specification."""
    first = make(job="one", world_size=2, rank=0)
    with pytest.raises(batchd.MismatchError, match="seed"):
        make(job="one", world_size=2, rank=1, seed=1)
    assert len(first) == 7


def test_a_newer_process_takes_over_its_rank(daemon):
    """A restarted trainer is served; its predecessor gets an error, and does not come back by itself."""
    old, new = make(job="fenced"), None
    it = iter(old)
    next(it)
    new = make(job="fenced")
    assert sum(len(x) for x, _ in new) == 100
    with pytest.raises(batchd.FencedError):
        for _ in it:
            pass


def test_a_daemon_that_comes_back_is_gone_on_with(make_daemon):
    """Killed in mid-epoch and started again: the same batches as without, after one warning."""
    daemon = make_daemon()
    whole = indices_of(make(shuffle=True))
    loader, found = make(shuffle=True), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for images, _ in loader:
            found.append(loader.last_batch.indices.tolist())
            if len(found) in (1, 5):
                daemon.kill()
                daemon.start()
        following = indices_of(loader)
    assert found == whole and following == indices_of_epoch(1)
    assert [w.category for w in caught] == [RuntimeWarning] * 2 and "it is back" in str(caught[0].message)


def indices_of_epoch(epoch):
    loader = make(shuffle=True)
    loader.set_epoch(epoch)
    return indices_of(loader)


def phases_of_opening(monkeypatch, at_daemon=lambda: None, **options):
    """Opens a loader; returns the library's messages meanwhile. at_daemon is called when no daemon answers."""
    from batchd import progress

    phases = []

    def on_progress(self, phase, done, total):
        phases.append(phase)
        if phase == b"daemon":
            at_daemon()

    monkeypatch.setattr(progress.Announcement, "on_progress", on_progress)
    try:
        make(**options).close()
    except batchd.ConnectError as e:
        return phases, e
    return phases, None


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_opening_waits_for_a_daemon_that_is_being_restarted(make_daemon, monkeypatch, end):
    """Whether the daemon removed its socket or left it behind, and also for a socket named by a variable; not where
    reconnect says so."""
    daemon = make_daemon()
    for options in ({"socket": daemon.socket}, {}):
        getattr(daemon, end)()
        phases, error = phases_of_opening(monkeypatch, reconnect=0, **options)
        assert not phases and str(daemon.socket) in str(error)
        phases, error = phases_of_opening(monkeypatch, at_daemon=daemon.start, **options)
        assert phases.count(b"daemon") == 1 and error is None


def test_opening_does_not_wait_for_what_was_never_there(tmp_path, monkeypatch, capsys):
    """A socket in a missing directory fails at once; a socket in an existing one after a moment, with a message."""
    phases, error = phases_of_opening(monkeypatch, socket=tmp_path / "misspelt" / "socket")
    assert not phases and "misspelt" in str(error)
    monkeypatch.undo()
    with pytest.raises(batchd.ConnectError, match="nobody"):
        make(socket=tmp_path / "nobody")
    assert f"no daemon answers at {tmp_path}/nobody yet; waiting for it, for 3 s at most" in capsys.readouterr().err


def test_a_daemon_that_moved_is_found_by_the_rule(make_daemon):
    """Its own socket first, then the places where a new loader would look."""
    first = make_daemon()
    whole = indices_of(make(shuffle=True))
    loader, found = make(shuffle=True, reconnect=3), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in loader:
            found.append(loader.last_batch.indices.tolist())
            if len(found) == 3:
                second = make_daemon()
                first.kill()
    assert found == whole and loader.socket == str(second.socket)


def test_a_daemon_that_stays_away_is_an_error(make_daemon, capsys):
    """After `reconnect` seconds, with the socket's name, and with a message on the terminal for a long wait; at once if
    it is 0."""
    daemon = make_daemon()
    loaders = [make(reconnect=0), make(reconnect=0.2), make(reconnect=2.5)]
    iterators = [iter(loader) for loader in loaders]
    for it in iterators:
        next(it)
    daemon.kill()
    for it in iterators:
        with pytest.raises(ConnectionError, match="batchd"):
            for _ in it:
                pass
    assert (
        f"batchd: batchd at {daemon.socket} went away" in (said := capsys.readouterr().err)
        and "; waiting for it, for 2.5 s at most\n" in said
    )
