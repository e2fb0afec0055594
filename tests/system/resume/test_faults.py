"""System calls that are interrupted, transfer less than requested, or return EAGAIN (tests/fake/faults/faultinject.c): programs
that pass without these faults pass with them.

`make check-faults` runs the whole Python suite that way; here are the C programs about sockets and files, and trainers
with a daemon.
"""

import os
import pathlib
import subprocess

import pytest

from conftest import BUILD
from test_end_to_end import Trainer, epoch_script, rows_of

pytestmark = pytest.mark.long("other tests again, with interrupted system calls")

SHIM = BUILD / "tests" / "faultinject.so"
PROGRAMS = ["test_daemon", "test_batches", "test_cache", "test_manifest", "test_hostile"]


def broken(settings, counts):
    return {"LD_PRELOAD": str(SHIM), "FAULTS": settings, "FAULTS_COUNTS": str(counts)}


@pytest.fixture(autouse=True)
def shim(build):
    if not SHIM.exists() or "asan" in build.name or "tsan" in build.name:
        pytest.skip("the shim is not built, or a sanitizer wants to be first")


def total(counts):
    return (
        sum(int(n) for line in pathlib.Path(counts).read_text().splitlines() for n in line.split())
        if counts.exists()
        else 0
    )


@pytest.mark.parametrize("settings", ["eintr=9,short=7,again=8"])
def test_programs_about_sockets_and_files(tmp_path, settings):
    # One after the other; the shim's faults are counted, because without faults this would prove nothing.
    for name in PROGRAMS:
        if not (BUILD / "tests" / name).exists():
            pytest.skip("the C tests are not built")
        result = subprocess.run(
            [BUILD / "tests" / name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, **broken(settings, tmp_path / "counts")},
        )
        assert result.returncode == 0, result.stdout[-3000:]
    assert total(tmp_path / "counts") > 20


@pytest.mark.parametrize("settings", ["eintr=3,again=3", "short=2"])
def test_trainers_get_what_they_would_have_got(make_daemon, samples, tmp_path, monkeypatch, settings):
    # Two ranks and their daemon, all of them under the shim; the index is written and read again, and so are caches on
    # disk.
    cache = tmp_path / "cache"
    cache.mkdir()
    config = f"linger: 0s\ncache: {{decoded: off, jpeg: auto, directory: {cache}}}\n"
    script = epoch_script(f"imagefolder:{samples}", batch_size=4, transform="train224", job="broken")
    d = make_daemon(config=config)
    golden = [Trainer(script, r, 2).finish() for r in range(2)]
    d.stop()
    for name, value in broken(settings, tmp_path / "counts").items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        d = make_daemon(config=config)
        trainers = [Trainer(script, r, 2) for r in range(2)]
        said = [t.finish() for t in trainers]
        assert said == golden and all(rows_of(s) for s in said)
        d.stop()
        assert "bad-sample" not in d.output()
    assert total(tmp_path / "counts") > 20
