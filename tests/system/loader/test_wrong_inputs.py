"""What a newcomer types by mistake: each text names the thing that is wrong and what to write."""

import pathlib
import re

import numpy
import pytest

import batchd

PIXELS, LABELS = numpy.zeros((4, 8, 8, 3), "uint8"), numpy.arange(4)


def refusal(dataset, *arguments, **options):
    with pytest.raises((TypeError, ValueError, batchd.Error)) as refused:
        batchd.DataLoader(dataset, *arguments, **options)
    return refused.value


@pytest.mark.parametrize("kind", ["", "imagefolder:", "files:", "tar:", "mds:", "npy:"])
@pytest.mark.parametrize(
    "address", ["s3://bucket/a", "http://x.org/a", "https://x.org/a-{0..9}", "gs://b/a", "hf://datasets/a"]
)
def test_an_address_of_a_network_is_no_path(kind, address):
    """Before a daemon is asked; a file's own address is one."""
    text = str(refusal(kind + address, 4))
    assert address in text and "copy it to this machine, or mount it, and name its path" in text
    assert "a path is written without file://: /data/a" in str(refusal(f"{kind}file:///data/a", 4))


def test_a_path_that_is_not_there_names_what_is(tmp_path, monkeypatch):
    """The nearest name of the folder, with as many letters if there are several; or the deepest folder that exists."""
    for name in ("train", "tra", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    wrong = tmp_path / "trian"
    for dataset in (f"imagefolder:{wrong}", str(wrong), wrong):
        error = refusal(dataset, 4)
        assert isinstance(error, batchd.NotFoundError) and f"{wrong}: No such file" in str(error)
        assert f"did you mean {tmp_path}/train?" in str(error)
    for dataset in ("imagefolder:trian", "imagefolder:./trian", pathlib.Path("trian")):
        assert f"(looked for it in {tmp_path}); did you mean train?" in str(refusal(dataset, 4))
    assert f"{tmp_path} has no such entry" in str(refusal(f"npy:{tmp_path}/x.npy", 4))
    assert f"of this path only {tmp_path} exists here" in str(refusal(f"imagefolder:{tmp_path}/trian/a/b", 4))


@pytest.mark.parametrize("kind", ["files", "npy", "npz", "idx", "cifar", "tokens"])
def test_a_folder_is_no_file(tmp_path, kind):
    text = str(refusal(f"{kind}:{tmp_path}", 4, **({"length": 4} if kind == "tokens" else {})))
    assert f"{tmp_path}: a folder, and a file is read here" in text and f"imagefolder:{tmp_path}" in text


def test_a_file_is_no_folder(daemon, samples, tmp_path):
    picture = next(pathlib.Path(samples).rglob("*.jpg"))
    assert "imagefolder: reads a folder with a folder for each class" in str(refusal(f"imagefolder:{picture}", 4))
    assert "Couldn't find any class folder" in str(refusal(f"imagefolder:{tmp_path}", 4))


def test_formats_of_others_say_what_reads_them(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    for dataset in (f"{tmp_path}/a.parquet", f"parquet:{tmp_path}/a.parquet"):
        assert f"{tmp_path}/a.parquet" in str(refusal(dataset, 4))
        assert "datasets.Dataset.from_parquet(...)" in str(refusal(dataset, 4))
    assert "did you mean 'imagefolder:'?" in str(refusal(f"imagefoldr:{tmp_path}", 4))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"batch_size": 0}, "batch_size must be a whole number from 1 on, not 0"),
        ({"batch_size": True}, "batch_size must be a whole number, not True"),
        ({"batch_size": 10**6}, "batch_size is 1000000; expected 1 to 65536 (limits.batch_size"),
        ({"num_workers": -1}, "num_workers must be a whole number from 0 on, not -1"),
        ({"rank": 2, "world_size": 2}, "rank 2 of a world_size of 2 (ranks count from 0)"),
        ({"rank": 1}, "rank=1 without world_size"),
        ({"world_size": 2}, "world_size=2 without rank"),
        ({"job": ""}, "job is empty"),
    ],
)
def test_numbers_that_cannot_be_are_named_with_what_can(daemon, monkeypatch, options, words):
    """world_size alone made every process rank 0."""
    for name in ("RANK", "WORLD_SIZE", "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert words in str(refusal((PIXELS, LABELS), **{"batch_size": 2, **options}))


def test_a_launcher_tells_the_rank_that_is_not_given(daemon, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with batchd.DataLoader((PIXELS, LABELS), 2, world_size=2) as loader:
        assert (loader.rank, loader.world_size) == (1, 2)


def test_pictures_behind_labels_are_told_to_come_first(daemon):
    """The order of a dictionary's keys decides which array a transform works on; following the text works."""
    transform = [["Resize", [8, 8]], "ToTensor"]
    text = str(refusal({"label": LABELS, "image": PIXELS}, 2, transform=transform))
    assert re.search("rows of 'label' are .*put that of the images first", text)
    with batchd.DataLoader({"image": PIXELS, "label": LABELS}, 2, transform=transform) as loader:
        assert len(next(iter(loader))["image"]) == 2


@pytest.mark.skipif(not hasattr(Exception, "add_note"), reason="needs exceptions with notes: Python 3.11")
def test_a_function_for_samples_is_told_that_it_gets_a_batch(daemon):
    """torch's collate_fn gets a list of samples: what such a function raises here says why."""
    torch = pytest.importorskip("torch")
    with batchd.DataLoader(
        (PIXELS, LABELS), 2, collate_fn=lambda samples: torch.stack([s[0] for s in samples])
    ) as loader:
        with pytest.raises(RuntimeError) as raised:
            next(iter(loader))
    assert raised.value.__notes__ == [
        "collate_fn gets a whole batch here, in the form of one without it, and no list of samples"
    ]


def test_an_op_that_is_moved_before_normalize_keeps_its_fill_in_mind(daemon):
    """Of those that fill: 0 of normalised numbers is the mean, and 0 of pixels is black."""
    behind = ["ToTensor", ["Normalize", [0.5], [0.25]]]
    for op in (["Pad", 2], ["CenterCrop", 12], ["RandomRotation", 10]):
        text = str(refusal((PIXELS, LABELS), 2, transform=[*behind, op]))
        assert "move it before ToTensor, and give its fill in pixels: after Normalize 0 is the mean" in text
    assert str(refusal((PIXELS, LABELS), 2, transform=[*behind, "RandomInvert"])).endswith("move it before ToTensor")
