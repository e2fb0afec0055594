"""DataLoader.next_into for batches of named fields: the batches of a loop, in memory of the caller's."""

import numpy
import pytest

import batchd
import field_data
from field_data import N

torch = pytest.importorskip("torch")

ROWS = 16
SPEC = None  # of the data set that several has made


@pytest.fixture(scope="module", autouse=True)
def several(tmp_path_factory):
    global SPEC
    SPEC, _ = field_data.several(tmp_path_factory.mktemp("fields") / "several.arrow")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """An image folder of 11 pictures in 2 classes."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(11):
        (folder / "ab"[i % 2]).mkdir(exist_ok=True)
        pixels = numpy.random.default_rng(i).integers(0, 256, (40, 40, 3), "uint8")
        image.fromarray(pixels).save(folder / "ab"[i % 2] / f"{i}.png")
    return folder


def load(spec=None, **options):
    return batchd.DataLoader(spec or SPEC, **{"batch_size": ROWS, "shuffle": True, "seed": 3, **options})


def room(loader, name, kind=torch.empty):
    """A target for a ragged field, with exactly the room that is asked for."""
    field = loader.fields[name]
    values = torch.full((field.most_values, *field.shape), 7, dtype=getattr(torch, field.dtype))
    offsets = torch.full((loader.batch_size + 1,), -1, dtype=torch.int64)
    return batchd.Ragged(values, offsets) if kind is torch.empty else batchd.Ragged(values.numpy(), offsets.numpy())


def dense(loader, name):
    field = loader.fields[name]
    return torch.full((loader.batch_size, *field.shape), 7, dtype=getattr(torch, field.dtype))


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_every_field_of_an_epoch(daemon, kind):
    """Proves dense, ragged and text fields, into arrays and lists, the short last batch too: equal to a loop's, with no
    slot held, and rows behind the last as they were."""
    of_loop, loader = load(job="loop"), load(job="into")
    batch = {"data": dense(loader, "data"), "id": dense(loader, "id"), "label": dense(loader, "label")}
    if kind == "numpy":
        batch = {name: target.numpy() for name, target in batch.items()}
    batch |= {
        "caption": ["stale"] * 99,
        "raw": [],
        "boxes": room(loader, "boxes", None if kind == "numpy" else torch.empty),
    }
    n_batches = 0
    for expected in of_loop:
        n = loader.next_into(batch)
        assert n == len(expected["caption"])
        assert (loader.last_batch.indices == of_loop.last_batch.indices).all()
        assert batch["caption"] == expected["caption"] and batch["raw"] == expected["raw"]
        for name in ("data", "id", "label"):
            assert numpy.array_equal(numpy.asarray(batch[name][:n]), expected[name].numpy())
        values, offsets = batch["boxes"]
        assert offsets[0] == 0
        for i, rows in enumerate(expected["boxes"]):
            assert numpy.array_equal(numpy.asarray(values[int(offsets[i]) : int(offsets[i + 1])]), rows.numpy())
        n_batches += 1
        del expected, rows
        assert batchd._lib.n_leased(loader._handle) == 0
    assert n == N % ROWS and loader.next_into(batch) is None and n_batches == -(-N // ROWS)
    assert len(batch["id"]) == ROWS and (numpy.asarray(batch["id"])[n:] != 7).any()  # of the batch before


def test_names_of_the_callers_and_tuples(daemon):
    """Proves the keys of fields={...}, the order of fields=(...), two targets for one field, and parts left out."""
    wanted = load(fields=("data", "caption"), job="loop")
    by_key = load(fields={"x": "data", "again": "data", "y": "caption"}, job="keys")
    by_order = load(fields=("data", "caption", "label"), job="order")
    x, again, data, texts = (dense(wanted, "data") for _ in range(3)), None, dense(wanted, "data"), []
    x, again, _ = x
    for images, captions in wanted:
        n = by_key.next_into({"x": x, "again": again})
        assert n == len(captions) and torch.equal(x[:n], images) and torch.equal(again[:n], images)
        assert by_order.next_into((data, texts, None)) == n
        assert torch.equal(data[:n], images) and texts == captions
    pair = load(fields=("label", "id"), job="pair")
    labels, ids = dense(pair, "label"), dense(pair, "id")
    expected = next(iter(load(fields=("label", "id"), job="pair's loop")))
    assert pair.next_into(labels, ids) == ROWS and torch.equal(labels, expected[0]) and torch.equal(ids, expected[1])
    plain = load(f"random:length={N},shape=2x3,classes=7", job="plain")
    data = dense(plain, "data")
    assert plain.next_into({"data": data, "label": labels}) == ROWS
    expected = next(iter(load(f"random:length={N},shape=2x3,classes=7", job="plain's loop")))
    assert torch.equal(data, expected[0]) and torch.equal(labels, expected[1])


def test_slices_of_a_group_and_a_resume(daemon):
    """Proves that a slice's offsets begin at 0, that a slice has its own rows, and that a resumed loader continues."""
    wanted = [(b["caption"], b["boxes"]) for b in load(batch_size=8, job="loop")]
    loader = load(mode="share", job="slices", batch_size=8, group_batch_size=32)
    texts, boxes = [], room(loader, "boxes")
    for captions, rows in wanted[:5]:
        assert loader.next_into({"caption": texts, "boxes": boxes}) == 8
        assert texts == captions and boxes.offsets[0] == 0
        for i, row in enumerate(rows):
            assert torch.equal(boxes.values[boxes.offsets[i] : boxes.offsets[i + 1]], row)
    token = loader.state_dict()
    loader.close()
    loader = load(batch_size=8, job="resumed")
    loader.load_state_dict(token)
    for captions, _ in wanted[5:]:
        assert loader.next_into({"caption": texts}) == len(captions) and texts == captions
    assert loader.next_into({"caption": texts}) is None


def test_what_does_not_suit_is_named_and_nothing_is_lost(daemon):
    """Proves an error with the field and what is wanted for each kind of unsuitable target, before a batch is taken."""
    loader = load()
    boxes = room(loader, "boxes")
    most = loader.fields["boxes"].most_values
    data = dense(loader, "data")
    for batch, error, text in [
        ({"data": data[:5]}, ValueError, r"'data'.*has shape \(5, 2, 3\), and a batch needs \(16, 2, 3\)"),
        ({"data": data.double()}, TypeError, "'data'.*is float64, and this loader's batches are float32"),
        ({"datum": data}, ValueError, "no 'datum'; give a dictionary of targets with keys among 'data', 'label'"),
        ({"boxes": data}, TypeError, f"'boxes'.*ragged: give a list, or batchd.Ragged.*{most} values and 17 offsets"),
        ({"boxes": boxes._replace(values=boxes.values[:-1])}, ValueError, rf"values has shape \({most - 1}, 4\)"),
        ({"boxes": boxes._replace(offsets=boxes.offsets[:-1])}, ValueError, r"offsets has shape \(16,\)"),
        ({"boxes": boxes._replace(offsets=boxes.offsets.int())}, TypeError, "offsets is int32"),
        ({"data": data.transpose(1, 2).contiguous().transpose(1, 2)}, ValueError, "'data'.*is not contiguous"),
        ({"data": "x"}, TypeError, "'data'.*is a str; next_into writes into torch tensors"),
        ({"data": None}, TypeError, "no target: name at least one of data, label"),
        ({}, TypeError, "no target"),
        (data, TypeError, "a Tensor names no fields; give a dictionary"),
        ((data,), TypeError, "a tuple names no fields"),
    ]:
        with pytest.raises(error, match=text):
            loader.next_into(batch)
    with pytest.raises(TypeError, match="one argument here"):
        loader.next_into(data, dense(loader, "label"))
    pair = load(fields=("data", "label"), job="pair")
    with pytest.raises(ValueError, match="3 targets; give a tuple of targets for 'data', 'label'"):
        pair.next_into((data, None, None))
    assert loader.next_into({"data": data}) == ROWS and loader.last_batch.step == 0


def test_views_of_images(daemon, pictures):
    """Proves lists, stacks and dictionaries of views, with and without labels, and the errors that name a view."""
    spec = f"imagefolder:{pictures}"
    large = [["CenterCrop", 24], "ToTensor"]
    small = [["RandomResizedCrop", 16], "ToTensor"]
    options = dict(batch_size=4, transform={"g": batchd.views(large, small), "l": batchd.views(small, n=3, stack=True)})
    wanted = batchd.DataLoader(spec, job="loop", **options)
    loader = batchd.DataLoader(spec, job="into", **options)
    g, l = [torch.empty(4, 3, 24, 24), torch.empty(4, 3, 16, 16)], torch.empty(3, 4, 3, 16, 16)
    labels = torch.empty(4, dtype=torch.int64)
    for images, expected in wanted:
        n = loader.next_into({"g": g, "l": l}, labels)
        assert n == len(expected) and torch.equal(labels[:n], expected)
        assert all(torch.equal(a[:n], b) for a, b in zip(g, images["g"])) and torch.equal(l[:, :n], images["l"])
    with pytest.raises(ValueError, match=r"images\['g'\]\[1\] has shape"):
        loader.next_into({"g": [g[0], g[0]]})
    with pytest.raises(ValueError, match=r"\['l'\] has shape .* needs \(3, 4, 3, 16, 16\)"):
        loader.next_into({"l": l[:2]})
    with pytest.raises(TypeError, match="list of 2 targets"):
        loader.next_into({"g": g[:1]})
    listed = batchd.DataLoader(
        spec, batch_size=4, job="listed", transform=batchd.views(large, large), fields={"v": "image", "y": "label"}
    )
    again = batchd.DataLoader(spec, batch_size=4, job="listed loop", transform=batchd.views(large, large))
    one, two = torch.empty(4, 3, 24, 24), torch.empty(4, 3, 24, 24)
    images, _ = next(iter(again))
    assert listed.next_into({"v": [one, two]}) == 4 and torch.equal(one, images[0]) and torch.equal(two, images[1])


def test_mixed_images_by_name(daemon, pictures):
    """Proves that a mix's images and soft targets are written under their names."""
    options = dict(
        batch_size=4,
        transform=[["CenterCrop", 24], "ToTensor"],
        mix=batchd.MixUp(1.0, 8),
        fields={"x": "image", "y": "label"},
    )
    wanted = batchd.DataLoader(f"imagefolder:{pictures}", job="loop", **options)
    loader = batchd.DataLoader(f"imagefolder:{pictures}", job="into", **options)
    x, y = torch.empty(4, 3, 24, 24), torch.empty(4, 8)
    for batch in wanted:
        n = loader.next_into({"x": x, "y": y})
        assert torch.equal(x[:n], batch["x"]) and torch.equal(y[:n], batch["y"])
    with pytest.raises(ValueError, match=r"\['y'\] has shape \(4, 3\), and a batch needs \(4, 8\)"):
        loader.next_into({"y": torch.empty(4, 3)})


def test_a_producers_batches(daemon):
    """Proves that targets in the structure of a producer's batches are filled, that parts may be left out, and that a
    batch which does not fit its targets is named and is the next batch again."""
    batches = [
        {
            "x": torch.full((4, 2), float(i)),
            "y": (torch.arange(4) + i, numpy.full(3, i, "int16")),
            "t": ["a", str(i)],
            "n": i,
        }
        for i in range(3)
    ]
    with batchd.serve(batches, name="into", background=True):
        loader = batchd.DataLoader("serve:into", fields=None)
        x, y, z, texts = torch.empty(5, 2), torch.zeros(4, dtype=torch.int64), numpy.zeros(3, "int16"), []
        targets = {"x": x, "y": (y, z), "t": texts}
        for bad, error, text in [
            ({"x": torch.empty(3, 2)}, ValueError, r"batch\['x'\] has shape \(3, 2\), and a batch needs \(4, 2\)"),
            ({"y": (y.int(), None)}, TypeError, r"batch\['y'\]\[0\] is int32"),
            ({"y": (y,)}, TypeError, r"batch\['y'\] is a tuple of 2"),
            ({"q": x}, ValueError, r"batch\['q'\] has a target, and this batch has no such key: it has 'x', 'y'"),
            ({"n": x}, TypeError, r"batch\['n'\] is a int in this batch, which next_into cannot write"),
            ({"x": {"x": x}}, TypeError, r"batch\['x'\] is a _Leaf"),
        ]:
            with pytest.raises(error, match=text.replace("_Leaf", "array")):
                loader.next_into({"x": x} | bad)
        assert torch.equal(y, torch.zeros(4, dtype=torch.int64))
        for i, batch in enumerate(batches):
            assert loader.next_into(targets) == 4 and loader.last_batch.step == i
            assert torch.equal(x[:4], batch["x"]) and torch.equal(y, batch["y"][0]) and (z == i).all()
            assert texts == ["a", str(i)]
            assert batchd._lib.n_leased(loader._handle) == 0
        assert loader.next_into(targets) is None
        loader.close()
    with batchd.serve([(torch.ones(2), torch.zeros(2))], name="pair", background=True):
        with batchd.DataLoader("serve:pair") as loader:
            assert loader.next_into(x[:, 0].contiguous(), one := torch.ones(2)) == 2 and not one.any()
