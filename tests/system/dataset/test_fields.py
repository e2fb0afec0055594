"""Batches of named fields: what each row has, in which form it comes, and what is not asked for."""

import gc
import io
import json
import tarfile
import warnings

import pytest

import batchd
import field_data
from field_data import N

numpy = pytest.importorskip("numpy")

SPEC = None  # of the data set that truth has made


@pytest.fixture(scope="module", autouse=True)
def truth(tmp_path_factory):
    """{field: a row for each sample}"""
    global SPEC
    SPEC, rows = field_data.several(tmp_path_factory.mktemp("fields") / "several.arrow")
    return rows


def check(batch, indices, truth):
    """A dictionary's rows are those of the samples."""
    for name, got in batch.items():
        assert len(got) == len(indices)
        for i, row in zip(indices, got):
            if name in ("caption", "raw"):
                assert type(row) is (str if name == "caption" else bytes)
                assert row == truth[name][i]
            else:
                assert numpy.array_equal(numpy.asarray(row), truth[name][i]), (name, i)


def load(**options):
    return batchd.DataLoader(SPEC, **{"batch_size": 16, "shuffle": True, "seed": 3, **options})


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
def test_a_data_set_with_further_fields_gives_dictionaries(daemon, truth, arrays):
    """Proves every field of every sample of an epoch, and the types in which they come."""
    if arrays == "torch":
        pytest.importorskip("torch")
    loader = load(arrays=arrays)
    assert list(loader.fields) == ["data", "label", "caption", "id", "raw", "boxes"]
    assert loader.fields["boxes"] == batchd.Field("float32", (4,), True, False, 6 * 16)
    assert loader.fields["caption"].text and not loader.fields["raw"].text
    seen = []
    for batch in loader:
        assert list(batch) == list(loader.fields)
        check(batch, loader.last_batch.indices, truth)
        seen += loader.last_batch.indices.tolist()
    assert sorted(seen) == list(range(N))
    loader.close()


def test_fields_come_in_the_order_and_under_the_names_asked_for(daemon, truth):
    """Proves tuples and dictionaries, one field twice under two keys, and that the order does not change the job."""
    loader = load(fields=("caption", "data"), mode="share", job="order")
    same_job = load(fields={"x": "data", "y": "caption", "again": "data"}, mode="share", job="order")
    for captions, data in loader:
        check({"caption": captions, "data": data}, loader.last_batch.indices, truth)
    for batch in same_job:
        assert list(batch) == ["x", "y", "again"]
        check({"data": batch["x"], "caption": batch["y"]}, same_job.last_batch.indices, truth)
        assert batch["again"] is batch["x"]
    loader.close()
    same_job.close()


def test_images_and_labels_stay_a_tuple(daemon):
    """Proves that a loop over two ordinary fields sees what it saw before there were others, and can ask for one."""
    spec = f"random:length={N},shape=2x3,classes=7"
    loader = batchd.DataLoader(spec, batch_size=16)
    data, labels = next(iter(loader))
    assert tuple(data.shape) == (16, 2, 3)
    loader.close()
    loader = batchd.DataLoader(spec, batch_size=16, fields=("label",))
    (alone,) = next(iter(loader))
    assert alone.tolist() == labels.tolist()
    loader.close()


def test_packed_fields_are_two_arrays(daemon, truth):
    """Proves values and offsets of packed fields, in the slot's own memory where they are large, and the mix with lists."""
    torch = pytest.importorskip("torch")
    loader = load(fields=("caption", "raw", "boxes"), packed=("caption", "boxes"), batch_size=N, shuffle=False)
    captions, raw, boxes = next(iter(loader))
    assert captions.values.dtype == torch.uint8 and captions.offsets.dtype == torch.int64
    for i in range(N):
        a, b = captions.offsets[i], captions.offsets[i + 1]
        assert bytes(captions.values[a:b].tolist()).decode() == truth["caption"][i]
        a, b = boxes.offsets[i], boxes.offsets[i + 1]
        assert numpy.array_equal(boxes.values[a:b].numpy(), truth["boxes"][i])
    check({"raw": raw}, range(N), truth)
    loader.close()
    with pytest.raises(ValueError, match="'id', which is no ragged field: caption, raw, boxes"):
        load(packed=("id",))


@pytest.mark.parametrize("packed", [False, True])
def test_no_slot_is_held_by_lists(daemon, tmp_path, packed):
    """Proves that batches kept as lists and small arrays cost no slot, and that large packed values hold theirs, and are
    copies where all slots are held."""
    spec = field_data.write(tmp_path / "a.arrow", {"text": field_data.texts(4000, 400), "label": range(4000)})
    loader = batchd.DataLoader(spec, batch_size=100, n_slots=4, fields=("text", "label"), packed=packed)
    kept = []
    if packed:
        with pytest.warns(RuntimeWarning, match="held while only 4 slots exist"):
            kept = list(loader)
    else:
        kept = list(loader)
    again = batchd.DataLoader(spec, batch_size=100, fields=("text", "label"))
    for (text, label), (expected, _) in zip(kept, again):
        if packed:
            whole, at = bytes(text.values.tolist()), text.offsets.tolist()
            text = [whole[i:j].decode() for i, j in zip(at, at[1:])]
        assert text == expected
    again.close()
    loader.close()


def test_ranks_and_a_resume_have_the_same_rows(daemon, truth):
    """Proves that 3 ranks together have each sample once with its own fields, and that an epoch resumed on 2 ranks
    continues with the rest of it."""
    ranks = [load(rank=r, world_size=3, job="fields", batch_size=8) for r in range(3)]
    seen, token = [], None
    iterators = [iter(r) for r in ranks]
    for _ in range(4):
        for r, it in zip(ranks, iterators):
            batch = next(it)
            check(batch, r.last_batch.indices, truth)
            seen += r.last_batch.indices.tolist()
            token = r.state_dict()
    for r in ranks:
        r.close()
    assert len(seen) == len(set(seen)) == 96
    for rank in range(2):
        loader = load(rank=rank, world_size=2, job="fields2", batch_size=8)
        loader.load_state_dict(token)
        for batch in loader:
            check(batch, loader.last_batch.indices, truth)
            seen += loader.last_batch.indices.tolist()
        loader.close()
    assert set(seen) == set(range(N)) and len(seen) <= N + 2


def test_slices_of_a_group_have_their_own_rows(daemon, truth):
    """Proves that each slice of a shared batch has its part of ragged fields, also of packed ones, whose offsets begin
    at 0."""
    loader = load(mode="share", job="slices", batch_size=8, group_batch_size=32, packed=("raw",))
    seen = []
    for batch in loader:
        raw = batch.pop("raw")
        check(batch, loader.last_batch.indices, truth)
        whole, at = bytes(raw.values.tolist()), raw.offsets.tolist()
        assert at[0] == 0 and at[-1] == len(whole)
        check({"raw": [whole[i:j] for i, j in zip(at, at[1:])]}, loader.last_batch.indices, truth)
        seen += loader.last_batch.indices.tolist()
    assert sorted(seen) == list(range(N))
    loader.close()


def test_a_sampler_may_name_the_longest_row_again_and_again(daemon, truth):
    """Proves that a batch fits its slot when all its rows are the longest one."""
    longest = max(range(N), key=lambda i: len(truth["caption"][i]))
    loader = batchd.DataLoader(SPEC, batch_size=64, sampler=[longest] * 200)
    for batch in loader:
        check(batch, loader.last_batch.indices, truth)
    loader.close()


def test_without_the_image_nothing_is_decoded(daemon, tmp_path):
    """Proves that labels come although no file of the data set is an image, which fails a loader of images."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(5):
            (tmp_path / name / f"{i}.jpg").write_bytes(b"no image")
    loader = batchd.DataLoader(f"imagefolder:{tmp_path}", batch_size=10, fields=("label",))
    (labels,) = next(iter(loader))
    assert labels.tolist() == [0] * 5 + [1] * 5
    loader.close()
    loader = batchd.DataLoader(f"imagefolder:{tmp_path}", batch_size=10)
    with pytest.raises(batchd.BadDataError):
        next(iter(loader))
    loader.close()


def test_images_by_name(daemon, data):
    """Proves that an image is the same by name as in the usual tuple."""
    spec = f"imagefolder:{data / 'photos' if (data / 'photos').is_dir() else data}"
    options = dict(batch_size=4, transform="val224", dtype="uint8")
    try:
        plain = batchd.DataLoader(spec, **options)
    except batchd.Error as e:
        pytest.skip(f"no pictures here: {e}")
    named = batchd.DataLoader(spec, fields={"labels": "label", "pixel_values": "image"}, **options)
    for (images, labels), batch in zip(plain, named):
        assert list(batch) == ["labels", "pixel_values"]
        assert (batch["pixel_values"] == images).all() and (batch["labels"] == labels).all()
    plain.close()
    named.close()


def test_collate_fn_gets_each_batch_and_keeps_what_it_does_not_touch(daemon, truth):
    """Proves that the function's result is the batch, and that an array which it passes on is the slot's memory still,
    held as long as the array."""
    pytest.importorskip("torch")
    given = []

    def collate(batch):
        given.append(batch["data"].data_ptr())
        return batch["data"], [text.upper() for text in batch["caption"]], batch["label"] * 2

    loader = load(fields={"data": "data", "caption": "caption", "label": "label"}, collate_fn=collate, batch_size=16)
    for data, texts, doubled in loader:
        indices = loader.last_batch.indices
        assert data.data_ptr() == given[-1]
        check({"data": data}, indices, truth)
        assert texts == [truth["caption"][i].upper() for i in indices]
        assert doubled.tolist() == [2 * truth["label"][i] for i in indices]
    del data
    gc.collect()
    loader.close()

    def fail(batch):
        raise ZeroDivisionError

    loader = load(collate_fn=fail)
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))
    loader.close()


def test_names_that_do_not_exist_are_answered_with_those_that_do(daemon):
    """Proves the errors for unknown, repeated, empty and misspelled fields."""
    with pytest.raises(batchd.InvalidError, match="no field 'txt': it has data, label, caption, id, raw, boxes"):
        load(fields=("caption", "txt"))
    with pytest.raises(ValueError, match="a name twice"):
        load(fields=("caption", "caption"))
    with pytest.raises(ValueError, match="fields is empty"):
        load(fields=())
    with pytest.raises(TypeError, match=r"write fields=\('caption',\)"):
        load(fields="caption")
    with pytest.raises(TypeError, match="names of fields, not 3"):
        load(fields=(3,))
    with pytest.raises(batchd.InvalidError, match="name 0 is empty, has more than 63 bytes"):
        load(fields=("x" * 64,))
    with pytest.raises(batchd.InvalidError, match="no field has a name with a space"):
        load(fields=("a b",))


def test_a_job_has_one_set_of_fields(daemon):
    """Proves that a trainer with other fields is told which option differs."""
    loader = load(fields=("data",), job="one")
    with pytest.raises(batchd.MismatchError, match="fields"):
        load(fields=("data", "label"), job="one")
    loader.close()


def test_values_beyond_the_limit_are_bad_data(make_daemon, tmp_path):
    """Proves that a sample whose text is longer than limits.value_bytes is replaced, never cut, and that too many such
    samples fail with the field and the limit by name."""
    make_daemon(config="limits:\n  value_bytes: 1KiB\n")
    lengths = [1025 if i % 300 == 7 else 1024 - i % 9 for i in range(5000)]
    columns = {"label": range(5000), "caption": ["x" * n for n in lengths]}
    spec = field_data.write(tmp_path / "few.arrow", columns)
    long = sum(n > 1024 for n in lengths)
    assert 1 <= long < 50
    every = batchd.DataLoader(spec, batch_size=100, fields=("label",))
    assert sum(len(labels) for (labels,) in every) == 5000
    every.close()
    loader = batchd.DataLoader(spec, batch_size=100, fields=("caption", "label"))
    replaced, seen = 0, []
    with pytest.warns(RuntimeWarning, match="others take (its|their) place"):
        for captions, labels in loader:
            replaced += loader.last_batch.n_replaced
            seen += [len(text) for text in captions]
            assert labels.tolist() == loader.last_batch.indices.tolist()
            assert [lengths[i] for i in labels] == [len(text) for text in captions]
    assert len(seen) == 5000 and max(seen) == 1024 and replaced == long
    loader.close()
    spec = field_data.write(tmp_path / "many.arrow", {**columns, "caption": field_data.texts(5000, 4000)})
    loader = batchd.DataLoader(spec, batch_size=100)
    with pytest.raises(batchd.BadDataError, match=r"its caption has \d+ bytes, and limits.value_bytes .* is 1024"):
        for _ in loader:
            pass
    loader.close()


def test_a_field_that_makes_batches_too_large_is_named(make_daemon, tmp_path):
    """Proves that room for long values is charged like all of a batch, and that both refusals name the field and the
    limit; without the field the same data set opens."""
    spec = field_data.write(tmp_path / "a.arrow", {"label": range(300), "caption": ["x" * 100_000] * 300})
    make_daemon(config="limits:\n  batch_bytes: 20MiB\n")
    with pytest.raises(
        batchd.LimitError, match="limits.batch_bytes(.|\n)*field 'caption': leave it out of fields, or lower"
    ):
        batchd.DataLoader(spec, batch_size=250)
    batchd.DataLoader(spec, batch_size=250, fields=("label",)).close()
    make_daemon("--memory", "90MiB")
    with pytest.raises(batchd.LimitError, match="no memory for this trainer's batches(.|\n)*field 'caption'"):
        batchd.DataLoader(spec, batch_size=300)


# ---- shards of pictures with captions ----


@pytest.fixture(scope="module")
def captioned(tmp_path_factory):
    """(pattern, captions, classes): two shards of 60 pictures, of which some are damaged and one has no caption."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("captioned")
    captions, classes = [], []
    for shard in range(2):
        with tarfile.open(folder / f"s-{shard}.tar", "w") as tar:
            for k in range(30):
                i = 30 * shard + k
                picture = io.BytesIO()
                image.new("RGB", (40, 30), (4 * i, 255 - 4 * i, 7)).save(picture, "PNG")
                data = picture.getvalue()
                captions.append(f"picture {i}: " + "né " * (i % 13))
                classes.append(i % 5)
                parts = [("png", data[:50] if i in (7, 33) else data), ("cls", str(i % 5).encode())]
                for ending, content in [*parts, ("txt", captions[-1].encode())]:
                    info = tarfile.TarInfo(f"{i:04}.{ending}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return str(folder / "s-{0..1}.tar"), captions, classes


def test_pictures_come_with_their_captions(make_daemon, captioned):
    """Proves pixels, captions and classes of shards, each once on 2 ranks, with the damaged pictures replaced by samples
    that bring their own captions."""
    pattern, captions, classes = captioned
    make_daemon(config="bad_data: 10%\n")
    fields = {"image": "jpg;png", "text": "txt", "label": "cls"}
    options = dict(
        batch_size=8, transform=[["CenterCrop", 8]], dtype="uint8", layout="NHWC", shuffle=True, world_size=2
    )
    seen = []
    for rank in range(2):
        loader = batchd.DataLoader(f"tar:{pattern}", fields=fields, rank=rank, job="captions", **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the replaced ones
            for batch in loader:
                assert list(batch) == ["image", "text", "label"]
                for k, i in enumerate(loader.last_batch.indices.tolist()):
                    assert batch["text"][k] == captions[i] and batch["label"][k] == classes[i]
                    assert batch["image"][k, 0, 0].tolist() == [4 * i, 255 - 4 * i, 7]
                    seen.append(i)
        loader.close()
    assert len(seen) == 60 and not {7, 33} & set(seen) and len(set(seen)) >= 56


def test_only_the_captions_of_pictures(daemon, captioned):
    """Proves that text alone is read of damaged pictures as well, and that a list in the data set's own name works with
    names of fields."""
    pattern, captions, classes = captioned
    loader = batchd.DataLoader(f"tar:{pattern}#image=png,text=txt,label=cls", batch_size=60, fields=("text",))
    assert next(iter(loader)) == (captions,)
    loader.close()


def test_batchctl_knows_captions(batchctl, captioned, tmp_path):
    """Proves that verify names the damaged pictures of samples with captions, and that preview gives the fields of each
    picture."""
    pattern, captions, classes = captioned
    spec = f"tar:{pattern}#image=png,text=txt,label=cls"
    done = batchctl("verify", spec, "--json")
    bad = json.loads(done.stdout)
    assert [b["index"] for b in bad["bad"]] == [7, 33] and bad["samples"] == 60
    done = batchctl(
        "preview",
        spec,
        "--out",
        tmp_path / "a.png",
        "--transform",
        '[["CenterCrop", 8]]',
        "--indices",
        "3,40",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fields"] == [{"text": captions[i], "label": classes[i]} for i in (3, 40)]
