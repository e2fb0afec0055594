"""What is pinned for GPUs, what may be, and why: in the status and in `batchctl doctor`."""

import json

import pytest

import batchd
from daemons import until
from fake_driver import Place, make_rows


def pinning(socket):
    return batchd.status(str(socket))["memory"]["pinning"]


@pytest.mark.parametrize(
    ("config", "asked", "text"),
    [
        ("", "auto", "no trainer has its batches on a GPU"),
        ("pin_memory: off\n", "off", "pin_memory is off in the configuration"),
        ("pin_memory: on\n", "on", "no trainer has its batches on a GPU"),
    ],
)
def test_nothing_is_pinned_without_a_gpu(make_daemon, batchctl, config, asked, text):
    daemon = make_daemon(config=config)
    found = pinning(daemon.socket)
    assert (found["asked"], found["pinned_bytes"]) == (asked, 0) and text in found["text"]
    assert (found["may_pin_bytes"] == 0) == (asked == "off")
    # How much memory is left changes from one status to the next.
    known = found["text"].partition(": ")[2].partition("; up to ")[0]
    assert f"nothing is pinned: {known}" in batchctl("status").stdout
    findings = json.loads(batchctl("doctor", "--json").stdout)
    assert f"pin_memory is {asked}; {found['text'].split(';')[0]}" in json.dumps(findings)


def test_a_trainers_slots_are_pinned(build, tmp_path):
    if not (build / "libfakecuda.so").exists() or not (build / "tests/gpu/trainer").exists():
        pytest.skip("the driver's double is not built")
    with Place(tmp_path / "place") as place:
        trainer = place.start("--dataset", make_rows(tmp_path), "--batch", 8, "--epochs", 100000, "--check", "none")
        try:
            socket = place.folder / "batchd.sock"
            until("its slots are pinned", lambda: pinning(socket)["pinned_bytes"] > 0)
            found = pinning(socket)
        finally:
            trainer.kill()
            trainer.communicate()
    assert " pinned; " in found["text"] and "20 % of the memory that is left" in found["text"]
