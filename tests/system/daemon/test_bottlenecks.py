"""Bottlenecks that a test makes: the verdict names each. tests/soak/soak_verdicts.py makes each of them 20 times."""

import itertools
import json
import os
import re
import shutil
import threading
import time

import pytest

import batchd
import bottlenecks
from bottlenecks import ROWS
from daemons import Daemon, in_time, until
from test_far_files import FarDaemon
from test_reliability import NO_LINGER, needs_root, public  # noqa: F401 (public is a fixture)

pytestmark = pytest.mark.long("waits for measured verdicts; test_verdict.c holds the rule")


@pytest.fixture(scope="module")
def pictures(build, tmp_path_factory):
    return tmp_path_factory.mktemp("bottlenecks")


@pytest.fixture
def place(pictures, tmp_path, monkeypatch):
    """A place whose daemon ends with the next one's start and with the test."""
    daemons, numbers = [], itertools.count()

    def start(*args, config=None, env=None):
        folder = tmp_path / f"daemon{next(numbers)}"
        folder.mkdir()
        for d in daemons:
            d.stop()
        daemons.clear()
        daemons.append(Daemon(folder, args, config, env))
        monkeypatch.setenv("BATCHD_SOCKET", str(daemons[0].socket))

    yield bottlenecks.Place(pictures, start)
    for d in daemons:
        d.stop()


# What the line and its predictions say as well.
WORDS = {
    "slow disk": "reading the files",
    "one processor": "of 1 workers busy",
    "slow trainer": "not input-bound since it connected: p99 wait ",
    "stalled rank": "other trainers of the job (rank 1 is the slowest: it works for",
    "small budget": "memory (too small a budget",
}


@pytest.mark.timing
@pytest.mark.parametrize("name", bottlenecks.ALL)
def test_the_verdict_names(name, place):
    """What is measured depends on what else the machine does: a verdict that names the machine's own load counts as late,
    and the test runs again when the machine has nothing else to do."""
    try:
        verdict = bottlenecks.ALL[name][0](place)
    except bottlenecks.Missing as e:
        pytest.skip(str(e))
    in_time(bottlenecks.wrong(name, verdict) is None, verdict, verdict.shares)
    assert WORDS.get(name, "") in verdict
    assert ("estimate" in verdict) == verdict.input_bound
    if name == "one processor":
        assert verdict.twice_the_cpu == pytest.approx(1, abs=0.3)
        processors = len(os.sched_getaffinity(0))
        assert ("as many workers as processors (" in verdict) == (processors > 1 and verdict.all_processors > 0)
        assert verdict.decoded_cache > 0.5  # nothing but a crop is left


def test_a_cache_is_predicted_as_large_as_what_it_keeps(place):
    """Up to the first op that draws, the decoded cache keeps the result of the ops: much less than whole pictures."""
    data = place.pictures("large", 48, "PNG", (800, 800), levels=8)
    place.start("--workers", "1", config=bottlenecks.NO_CACHE)
    said = {}
    for name, ops in (("whole", bottlenecks.CROP), ("cropped", [["Resize", 100], ["CenterCrop", 64]])):
        with batchd.DataLoader(data, transform=ops, batch_size=4, dtype="uint8", job=name) as loader:
            while not loader.verdict("since_start").known:
                for _ in loader:
                    pass
            (session,) = [s for s in batchd.status()["sessions"] if s["job"] == name]
            said[name] = session["verdict_since_start"]
    assert said["whole"]["decoded_cache_bytes"] == pytest.approx(48 * 800 * 800 * 3 * 9 / 8, rel=0.01)
    assert said["cropped"]["decoded_cache_bytes"] == pytest.approx(48 * 64 * 64 * 3 * 9 / 8, rel=0.01)
    assert not said["whole"]["decoded_cache_at_least"] and said["cropped"]["decoded_cache_at_least"]
    assert said["cropped"]["decoded_cache"] > 0


@needs_root
def test_the_last_5_seconds_know_the_bottleneck_of_now(build, public, samples, monkeypatch):  # noqa: F811
    """A trainer that is the slow part; then its files' server hangs, and answers again. What is slow changes the verdict
    of the last 5 seconds, while the last minute remembers. And as only files are slow, a decoded cache, which reads none,
    is worth at least as much as fast files."""
    shutil.copytree(samples, public / "near")
    config = NO_LINGER + bottlenecks.NO_CACHE + f"datasets:\n  - name: far\n    source: imagefolder:{public}/hung\n"
    d = FarDaemon(public, public / "near", config)
    monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
    over = threading.Event()
    try:
        loader = batchd.DataLoader("far", 8, transform=bottlenecks.CROP, dtype="uint8", n_slots=2, arrays="numpy")

        def train():
            while not over.is_set():
                for _ in loader:
                    over.wait(0.05)

        def verdict(condition):
            said = loader.verdict("last_5s")
            return said.known and condition(said) and said

        trainer = threading.Thread(target=train)
        trainer.start()
        until("the trainer is the slow part", lambda: verdict(lambda v: not v.input_bound))
        d.hang()
        limit = threading.Timer(300, d.go_on)  # only turns a hang into a failure
        limit.start()
        said = until("the files are the slow part", lambda: verdict(lambda v: v.share > 0.9))
        assert said.cause == "read" and said.shares["read"] > 0.8, said.shares
        assert "in the last 5 s: reading the files; without waiting for files: " in said
        assert said.decoded_cache >= said.without_cause > 1
        d.go_on()
        limit.cancel()
        until("the trainer is the slow part again", lambda: verdict(lambda v: not v.input_bound))
        minute = loader.verdict()
        assert minute.input_bound and minute.cause == "read" and "in the last minute" in minute
        over.set()
        trainer.join()
        loader.close()
    finally:
        over.set()
        d.end()


# ---- where the verdict is said ----


def test_status_begins_with_the_verdict(daemon, batchctl):
    with batchd.DataLoader(**ROWS) as loader:

        def verdict_after_a_while():  # one stall of this machine is five percent of a second
            for _ in loader:
                time.sleep(0.05)
                if "not input-bound" in (text := batchctl("status").stdout.splitlines()[0]):
                    return text
            return None

        text = until("the trainer is the slow part", verdict_after_a_while)
        parts = json.loads(batchctl("status", "--json").stdout)["verdict"]
    assert text.startswith("verdict") and "not input-bound in the last minute: p99 wait" in text
    assert parts["job"] == loader.job and parts["rank"] == 0 and parts["input_bound"] is False


def test_a_closed_loader_says_its_verdict_when_asked(daemon, capfd, monkeypatch):
    options = ROWS | {"dataset": "random:length=320,shape=3x32x32,dtype=uint8"}
    for wish, lines in (("1", 1), ("0", 0), ("", 0)):  # short runs say nothing by themselves
        monkeypatch.setenv("BATCHD_VERDICT", wish)
        with batchd.DataLoader(**options) as loader:
            for _ in loader:
                pass
            with pytest.raises(ValueError, match="last_5s, last_minute, since_start, not 'ever'"):
                loader.verdict("ever")
        said = re.findall(
            r"^batchd: (no verdict yet|not input-bound|input-bound|held up)", capfd.readouterr().err, re.M
        )
        assert len(said) == lines
    with pytest.raises(batchd.Error, match="closed"):
        loader.verdict()
