"""Bottlenecks that a test makes: the verdict names each. tests/soak/soak_verdicts.py makes each of them 20 times."""

import json
import time

import pytest

import batchd
import bottlenecks
from bottlenecks import ROWS
from daemons import Daemon


@pytest.fixture(scope="module")
def pictures(build, tmp_path_factory):
    return tmp_path_factory.mktemp("bottlenecks")


@pytest.fixture
def place(pictures, tmp_path, monkeypatch):
    """A place whose daemon ends with the test."""
    daemons = []

    def start(*args, config=None, env=None):
        folder = tmp_path / "daemon"
        folder.mkdir()
        daemons.append(Daemon(folder, args, config, env))
        monkeypatch.setenv("BATCHD_SOCKET", str(daemons[0].socket))

    yield bottlenecks.Place(pictures, start)
    for d in daemons:
        d.stop()


# What the line and its predictions say as well.
WORDS = {
    "slow disk": "reading the files",
    "one processor": "of 1 workers busy",
    "slow trainer": "not input-bound: p99 wait ",
    "stalled rank": "other trainers of the job",
    "small budget": "memory (too small a budget",
}


@pytest.mark.parametrize("name", bottlenecks.ALL)
def test_the_verdict_names(name, place):
    try:
        verdict = bottlenecks.ALL[name][0](place)
    except bottlenecks.Missing as e:
        pytest.skip(str(e))
    assert bottlenecks.wrong(name, verdict) is None, f"{verdict} {verdict.shares}"
    assert WORDS.get(name, "") in verdict
    assert ("estimate" in verdict) == verdict.input_bound
    if name == "one processor":
        assert verdict.twice_the_cpu == pytest.approx(1, abs=0.3)
        assert verdict.decoded_cache > 0.5  # nothing but a crop is left


# ---- where the verdict is said ----


def test_status_begins_with_the_verdict(daemon, batchctl):
    with batchd.DataLoader(**ROWS) as loader:
        batches = iter(loader)
        deadline = time.monotonic() + 1.2
        while time.monotonic() < deadline:
            next(batches, None)
            time.sleep(0.05)
        text = batchctl("status").stdout.splitlines()[0]
        parts = json.loads(batchctl("status", "--json").stdout)["verdict"]
    assert text.startswith("verdict") and "not input-bound: p99 wait" in text
    assert parts["job"] == loader.job and parts["rank"] == 0 and parts["input_bound"] is False


def test_a_closed_loader_says_its_verdict_when_asked(daemon, capfd, monkeypatch):
    options = ROWS | {"dataset": "random:length=320,shape=3x32x32,dtype=uint8"}
    for wish, lines in (("1", 1), ("0", 0), ("", 0)):  # short runs say nothing by themselves
        monkeypatch.setenv("BATCHD_VERDICT", wish)
        with batchd.DataLoader(**options) as loader:
            for _ in loader:
                pass
            with pytest.raises(ValueError, match="last_minute, since_start, not 'ever'"):
                loader.verdict("ever")
        assert capfd.readouterr().err.count("verdict") == lines
    with pytest.raises(batchd.Error, match="closed"):
        loader.verdict()
