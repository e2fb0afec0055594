"""The last errors of each user, in the status and on the page: refusals, ends of jobs; whose they are; their bound."""

import json
import os
import subprocess

import pytest

import batchd
from daemons import BUILD, skip_unless_others_reach_the_build

NOBODY = 65534


def errors():
    return batchd.status()["errors"]


def test_a_refusal_is_kept_and_counted(daemon, samples):
    """Three times the same, of a job that never was; another one, of a job that runs; each with the text that the
    client got."""
    for _ in range(3):
        with pytest.raises(batchd.Error) as missing:
            batchd.DataLoader(f"imagefolder:{samples}", 4, transform=[["Rezise", 8]], job="typo")
    loader = batchd.DataLoader(f"imagefolder:{samples}", 4, arrays="numpy", job="runs")
    next(iter(loader))
    with pytest.raises(batchd.Error) as other:
        batchd.DataLoader(f"imagefolder:{samples}", 8, arrays="numpy", job="runs")
    first, second = errors()[:2] if errors()[0]["job"] == "runs" else errors()[1::-1]
    assert (first["job"], first["count"], first["uid"]) == ("runs", 1, os.geteuid())
    assert first["text"] in str(other.value)
    assert (second["job"], second["count"]) == ("typo", 3) and second["text"] in str(missing.value)
    loader.close()
    assert len(errors()) == 2  # a close is no error, and the errors outlive their jobs


def test_a_job_that_ends_by_bad_data_leaves_its_error(daemon, tmp_path):
    folder = tmp_path / "data" / "class"
    folder.mkdir(parents=True)
    for i in range(8):
        (folder / f"{i}.jpg").write_bytes(b"\xff\xd8\xff\xe0 no picture")
    with pytest.raises(batchd.Error):
        for _ in batchd.DataLoader(f"imagefolder:{folder.parent}", 4, arrays="numpy", job="bad"):
            pass
    assert any(e["job"] == "bad" and "samples cannot be decoded" in e["text"] for e in errors()), errors()


def test_a_hostile_client_fills_its_own_list_only(make_daemon, samples):
    """Two hundred different errors of one user: the newest forty stay, and another user's error stays as well."""
    skip_unless_others_reach_the_build()
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user as well")
    d = make_daemon(config='socket_mode: "0666"\n')
    for parent in (d.folder, *d.folder.parents):
        if parent.stat().st_mode & 0o1000:
            break
        os.chmod(parent, parent.stat().st_mode | 0o055)
    (d.folder / "empty").mkdir()
    os.chmod(d.folder / "empty", 0o755)
    argv = [BUILD / "batchctl", "bench", "--socket", d.socket, f"imagefolder:{d.folder}/empty"]
    assert subprocess.run(argv, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True).returncode != 0
    for i in range(200):
        with pytest.raises(batchd.Error):
            batchd.DataLoader(f"imagefolder:{samples}", 4, transform=[[f"Op{i}" + "x" * 500]], job="j" * 60)
    own = [e for e in errors() if e["uid"] == os.geteuid()]
    assert len(own) == 40 and max(len(e["text"]) for e in own) < 320
    assert [e["uid"] for e in errors() if e["uid"] != os.geteuid()] == [NOBODY]
    seen = subprocess.run(
        [BUILD / "batchctl", "status", "--json", "--socket", d.socket],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
    )
    assert {e["uid"] for e in json.loads(seen.stdout)["errors"]} == {NOBODY}, seen
