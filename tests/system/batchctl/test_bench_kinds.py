"""batchctl bench with each kind of data set that its manual page names: every sample of an epoch is delivered."""

import json
import pathlib
import re

import numpy
import pytest

pytest.importorskip("torch")

import batchd  # noqa: E402 (torch may be missing)
import test_every_option as data  # noqa: E402

REPO = pathlib.Path(__file__).resolve().parents[3]
N = data.N


def blend(folder):
    one = data.as_folder(folder)
    return f"blend:{one};;{one}"


def numbered(folder):
    """Windows that begin anywhere have no end, unless samples= says one."""
    return f"{data.as_windows(folder)},length=4"


# {kind of the manual page: (how it is made, samples of an epoch, further options)}
PICTURES = ("--transform", "val224")
KINDS = {
    "directory": (lambda folder: data.as_folder(folder).partition(":")[2], N, PICTURES),
    "imagefolder": (data.as_folder, N, PICTURES),
    "files": (data.as_table, N, PICTURES),
    "tar": (data.as_tar, N, PICTURES),
    "mds": (data.as_mds, N, PICTURES),
    "zip": (data.as_zip, N, PICTURES),
    "arrow": (data.as_arrow, N, PICTURES),
    "blend": (blend, 2 * N, PICTURES),
    "npy, pictures": (data.as_npy, N, PICTURES),
    "configured name": (lambda folder: "named", N, ()),
    "npy": (data.as_npy, N, ()),
    "npz": (data.as_npz, N, ()),
    "idx": (data.as_idx, N, ()),
    "cifar": (data.as_cifar, N, ()),
    "tokens": (lambda folder: f"{data.as_tokens(folder)},length=4", N, ()),
    "tokens, windows=random": (numbered, N, ()),
    "random": (data.as_random, N, ()),
}


def bench(batchctl, dataset, *options):
    done = batchctl("bench", dataset, "--epochs", "2", "--batch-size", "4", "--json", "--quiet", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_of_a_kind_is_measured(make_daemon, batchctl, tmp_path, kind):
    make, n, options = KINDS[kind]
    make_daemon(config=f"datasets:\n  - name: named\n    source: {data.as_folder(tmp_path / 'named')}\n")
    (tmp_path / "data").mkdir()
    measured = bench(batchctl, make(tmp_path / "data"), *options)
    assert [epoch["images"] for epoch in measured["epochs"]] == [n, n]


def test_what_a_producer_makes_is_measured(daemon, batchctl):
    with batchd.serve(lambda epoch: ({"x": numpy.zeros((4, 2))} for _ in range(3)), name="made", background=True):
        assert [epoch["images"] for epoch in bench(batchctl, "serve:made")["epochs"]] == [12, 12]


def test_no_kind_of_the_manual_page_is_left_out():
    """A kind that is added there is one that bench has to be tried with."""
    page = (REPO / "client" / "man" / "batchctl.1").read_text()
    kinds = set(
        re.findall(r"^\.Li ([a-z]+):", page[page.index("\nA\n.Ar DATASET") : page.index("Results go to")], re.M)
    )
    assert kinds - {"serve"} == {name for name in KINDS if name.isalpha() and name != "directory"}
