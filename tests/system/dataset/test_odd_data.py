"""No reader makes anything up, or leaves anything out, without a word: each cell of odd_data.py's table."""

import pytest

import odd_data

pytest.importorskip("numpy")
CONFIG = "bad_data: 50%\nlinger: 1min\ncache: {decoded: auto, filling: always}\n"


@pytest.fixture(scope="module")
def busy_daemon(build, tmp_path_factory):
    """One for all cells, as people have it: what it keeps of one data set must not come in another."""
    from daemons import Daemon

    d = Daemon(tmp_path_factory.mktemp("odd"), [], CONFIG)
    yield d
    d.stop()


@pytest.mark.parametrize("reader, oddity", odd_data.CASES)
def test_what_is_odd_is_right_or_said(busy_daemon, tmp_path, monkeypatch, reader, oddity):
    """Right, absent by name, an error, or a warning; never other samples, pictures or labels in silence."""
    monkeypatch.setenv("BATCHD_SOCKET", str(busy_daemon.socket))
    if reader in ("huggingface", "arrow"):
        pytest.importorskip("datasets").disable_progress_bars()
    said = odd_data.outcome(odd_data.CASES[reader, oddity](tmp_path))
    assert not said.startswith("WRONG"), said
