"""timm's texts for policies as ops: what they take from the ops around them, what is refused, and who reads them. Needs no
timm; test_timm_policies.py compares them with timm's objects."""

import json
import subprocess
import sys

import numpy as np
import pytest

import batchd
from batchd import _transform, _views
from test_daemon_cli import batchd as run_daemon


def ops(*entries):
    return json.loads(_transform.text([["CenterCrop", 64], *entries]))


def arguments(*entries):
    """Of the op that stands for the last entry."""
    return ops(*entries)[-1][1]


def test_numbers_are_read_as_timm_reads_them():
    """Of sections that come twice the last one counts, of mstd and mmax the first; what is not given is timm's."""
    assert ops("rand") == ops("rand-m10-n2-p0.5-inc0")
    assert ops("rand-m3-m9-mstd0.5-mstd7-mmax20-mmax3") == ops("rand-mstd0.5-mmax20-m9")
    assert arguments("rand-p0.7-m9")["ops"][0] == ["AutoContrast", 0.7, 9.0]
    assert arguments("rand-mstd101")["magnitude_std"] == "uniform" == arguments("augmix")["magnitude_std"]
    assert arguments("rand-mstd100")["magnitude_std"] == 100 and arguments("v0-mstd0.5")["magnitude_std"] == 0.5
    assert ops("rand-tnothing-inc1") == ops("rand-inc1") != ops("rand")
    assert sum(arguments("rand-tweights")["choice_weights"]) == pytest.approx(10.1)
    assert arguments("rand-t3a")["choice_weights"] is None
    assert "PosterizeOriginal" in str(ops("original")) and "PosterizeOriginal" not in str(ops("originalr"))


def test_the_ops_around_give_size_mean_and_filter():
    """By name and by position, before and behind the text, among the ops that views share and inside a Compose."""

    def around(*entries):
        found = next(op[1] for op in json.loads(_transform.text(list(entries))) if op[0].startswith("Timm"))
        return found["fill"], found["interpolation"], found["translate_const"]

    normalize = ["Normalize", [0, 0.5, 1], [1, 1, 1]]
    crop = ["RandomResizedCrop", [90, 60], [0.1, 1], [0.7, 1.3], "bicubic"]
    assert around(crop, "v0", "ToTensor", normalize) == ([0, 128, 255], "bicubic", 27)
    imagenet = [124, 116, 104]
    resize = ["Resize", {"size": 80, "interpolation": "bicubic"}]
    assert around(resize, ["CenterCrop", {"size": np.int64(70)}], "rand") == (imagenet, "bicubic", 31)
    for outer in ("SharedByViews", "Compose"):
        inner = [["RandomResizedCrop", {"size": 40, "interpolation": "random"}]]
        assert around([outer, inner], "augmix") == (imagenet, "random", 18)
    assert around("train224", "3a", ["Normalize", 0.25, 1]) == (64, "bilinear", 100)


def test_texts_stand_inside_containers_and_alone_in_a_list():
    inner = ops(["RandomApply", ["rand-m9"], 0.5], ["RandomChoice", {"transforms": ["3a", "Identity"]}])
    assert inner[1][1][0][0] == "TimmRandAugment" and inner[2][1]["transforms"][0][0] == "TimmAutoAugment"
    assert ops(["original"]) == ops("original")
    assert ops("Invert", ["Posterize", 3]) == [["CenterCrop", 64], "Invert", ["Posterize", 3]]


def test_texts_stand_in_json_and_in_views():
    pipeline = [["CenterCrop", 8], "rand-m9-inc1", "ToTensor"]
    plain = json.loads(_transform.text(pipeline))
    assert json.loads(_transform.text(json.dumps(pipeline))) == plain
    views = {"a": {"views": [pipeline], "n": 2}, "b": pipeline}
    assert json.loads(_transform.text(json.dumps(views))) == {"a": {"views": [plain], "n": 2}, "b": plain}
    assert json.loads(_views.read({"a": batchd.views(pipeline, n=2), "b": pipeline})[0]) == json.loads(
        _transform.text(json.dumps(views))
    )
    for unread in ("train224", '[["Invert"', '{"3a": 1', "my-pipeline"):
        assert _transform.text(unread) == unread


def test_splits_take_what_is_around_from_the_whole_pipeline():
    """The crop is among the ops that views share, and Normalize among the numbers."""
    parts = [["RandomResizedCrop", 40]], ["augmix-m3-w3"], ["ToTensor", ["Normalize", [1, 1, 1], [1, 1, 1]]]
    made = json.loads(_views.read(batchd.aug_splits(parts, n=2))[0])[""]["views"][1]
    mixed = next(op[1] for op in made if op[0] == "TimmAugMix")
    assert mixed["fill"] == [255, 255, 255] and mixed["translate_const"] == 18


@pytest.mark.parametrize(
    "text, words",
    [
        (
            "rand-m9-foo",
            "op 2: timm's text 'rand-m9-foo': 'foo' is not known; 'rand' takes m, n, p, mstd, mmax, inc and t",
        ),
        ("rand-m9.5", "'m9.5' wants a whole number"),
        ("rand-m9-mstd", "'mstd' wants a number"),
        ("rand-mstd0.5.5", "'mstd0.5.5' wants a number"),
        ("rand-m9-", "'' is not known"),
        ("rand-w4", "'w4' is not known"),
        ("augmix-n2", "'n2' is not known; 'augmix' takes m, w, d, a, b and mstd"),
        ("original-m9", "'m9' is not known; 'original' takes mstd"),
        ("v0-mstd0.5-mmax9", "'mmax9' is not known"),
        ("rand-m1234567890123456", "wants a whole number"),
    ],
)
def test_what_timm_does_not_know_is_refused_by_name(text, words):
    with pytest.raises(ValueError) as e:
        ops(text)
    assert words in str(e.value)
    with pytest.raises(ValueError, match="op 2.1"):
        ops(["RandomApply", [text]])


def test_a_text_alone_is_no_pipeline():
    with pytest.raises(ValueError, match="'rand-m9-inc1' is one op of a pipeline: put it into a list"):
        _transform.text("rand-m9-inc1")


def test_the_configuration_takes_the_printed_ops(make_daemon, samples, tmp_path):
    """The daemon refuses a text and says what prints its ops; with these a named pipeline gives the bytes of the text."""
    words = [["CenterCrop", 32], "rand-m9-mstd0.5-inc1", "ToTensor"]
    file = tmp_path / "batchd.yaml"
    file.write_text(f"pipelines: [{{ name: strong, transform: '{json.dumps(words)}' }}]\n")
    told = run_daemon("--config", file, "--check-config")
    assert told.returncode == 78 and f"{file}:1" in told.stderr
    assert "op 2 'rand-m9-mstd0.5-inc1' is a text of timm's" in told.stderr and "python3 -m batchd.ops" in told.stderr
    run = [sys.executable, "-m", "batchd.ops", json.dumps(words)]
    printed = subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()
    make_daemon(config=f"pipelines: [{{ name: strong, transform: '{printed}' }}]\n")
    rows = []
    for transform in ("strong", words):
        with batchd.DataLoader(f"imagefolder:{samples}", 8, transform=transform, arrays="numpy") as loader:
            rows.append(next(iter(loader))[0].copy())
    assert np.array_equal(*rows)


def test_ops_that_cannot_be_printed_are_an_error():
    for arguments, says in (
        (["rand-m9"], "put it into a list"),
        ([], "python3 -m batchd.ops"),
        (['["rand-x"]'], "'x' is not"),
    ):
        done = subprocess.run([sys.executable, "-m", "batchd.ops", *arguments], capture_output=True, text=True)
        assert done.returncode == 1 and says in done.stderr and not done.stdout
