"""Fields of batches on a GPU, on the fake driver: arrays of one shape come there, texts and lists stay in host
memory."""

import pytest

pytest.importorskip("torch")
import field_data  # noqa: E402
from test_cuda_loader import run  # noqa: E402, F401

CHECK = """
    spec = SPEC
    warnings.simplefilter("ignore")

    def rows(device, **options):
        loader = batchd.DataLoader(spec, batch_size=10, shuffle=True, device=device, n_slots=4, **options)
        kept = []
        for batch in loader:
            kept.append(({k: (v.cpu().clone() if hasattr(v, "cpu") else v) for k, v in batch.items()}, loader.last_batch.indices))
            where = {k: isinstance(v, real.Tensor) for k, v in batch.items()}
            batch = None
        loader.close()
        return kept, where

    of_cpu, _ = rows("cpu")
    for options in OPTIONS:
        on_gpu, is_torchs = rows("cuda", **options)
        assert len(on_gpu) == len(of_cpu) == 7
        # The fake driver's own tensors are on its GPU; real torch's are in host memory.
        assert not any(is_torchs[k] for k in ("data", "label", "id")), is_torchs
        for (got, n), (expected, m) in zip(on_gpu, of_cpu):
            assert (n == m).all() and list(got) == list(expected)
            assert got["caption"] == expected["caption"] and got["raw"] == expected["raw"]
            assert all(real.equal(a, b) for a, b in zip(got["boxes"], expected["boxes"], strict=True))
            for k in ("data", "label", "id"):
                assert real.equal(got[k], expected[k]), k
"""


@pytest.mark.parametrize("personality", [None, "no-ipc"])
def test_arrays_are_on_the_gpu_and_texts_beside_them(run, tmp_path, personality):  # noqa: F811
    """Proves every field of every batch, the short last one too, with the daemon's memory mapped and copied, as finished
    tensors and raw."""
    spec, _ = field_data.several(tmp_path / "a.arrow", 64)
    run(CHECK.replace("OPTIONS", "(dict(), dict(raw=True))").replace("SPEC", repr(spec)), personality)


def test_images_and_their_labels_by_name(run):  # noqa: F811
    """Proves that images are finished as without names, and that labels alone decode and finish nothing."""
    run("""
    with open_loader(fields={"pixel_values": "image", "labels": "label"}, job="by name") as loader:
        if loader._info.can_finish:
            loader.set_epoch(2)
            for batch, (i, l, n) in zip(loader, wanted, strict=True):
                assert list(batch) == ["pixel_values", "labels"]
                assert real.equal(batch["pixel_values"].cpu(), i) and real.equal(batch["labels"].cpu(), l)
                assert _lib.n_leased(loader._handle) == 0
            batch = None
    with open_loader(fields=("label",), job="labels") as loader:
        loader.set_epoch(2)
        for (labels,), (_, l, n) in zip(loader, wanted, strict=True):
            assert real.equal(labels.cpu(), l) and (loader.last_batch.indices == n).all()
        labels = None
    """)


def test_views_are_finished_one_by_one(run):  # noqa: F811
    """Proves, where there is a finishing kernel, that every view on the GPU has the numbers of the same view in host memory: other sizes, channels and
    Normalize, a list and a stack, the short last batch, raw bytes too."""
    run("""
    tensor = ["ToTensor", ["Normalize", [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]]]
    large = [["RandomResizedCrop", 40], *tensor]
    small = [["RandomResizedCrop", [24, 16]], "RandomHorizontalFlip", "ToTensor", ["Normalize", [0.1, 0.2, 0.3], [1.0, 0.5, 0.2]]]
    gray = [["CenterCrop", 20], "Grayscale", "ToTensor"]
    views = {"g": batchd.views(large, small), "l": batchd.views(small, n=3, stack=True), "gray": gray}

    def batches(device, **options):
        with batchd.DataLoader(sys.argv[1], 10, transform=views, device=device, job=repr((device, options)), n_slots=4, **options) as loader:
            if device == "cuda" and not options.get("raw") and not loader._info.can_finish:
                return None
            made = []
            for images, labels in loader:
                flat = [*images["g"], images["l"], images["gray"], labels]
                assert len(images["g"]) == 2 and images["l"].shape[0] == 3
                assert device == "cpu" or not any(isinstance(x, real.Tensor) for x in flat)
                made.append([x.cpu().clone() for x in flat])
                images = labels = flat = None
            return made

    for options in ({}, {"dtype": "float16"}, {"layout": "NHWC"}):
        made = batches("cuda", **options)
        print("finished" if made else "no kernel", options)
        for got, expected in zip(made or [], batches("cpu", **options) if made else [], strict=True):
            for a, b in zip(got, expected, strict=True):
                assert a.dtype == b.dtype and real.equal(a, b), options
    for got, expected in zip(batches("cuda", raw=True), batches("cpu", dtype="uint8", layout="NHWC"), strict=True):
        for a, b in zip(got, expected, strict=True):
            assert real.equal(a, b)
    """)


@pytest.mark.parametrize("personality", [None, "no-ipc"])
def test_next_into_by_name(run, tmp_path, personality):  # noqa: F811
    """Proves that dense fields are written into tensors on the GPU and ragged ones into host memory, the short last batch
    too, that no slot is held, and that a ragged field's target on the GPU is refused."""
    spec, _ = field_data.several(tmp_path / "a.arrow", 64)
    run(
        f"    spec = {spec!r}"
        """
    warnings.simplefilter("ignore")
    of_cpu = batchd.DataLoader(spec, batch_size=10, shuffle=True, job="cpu")
    loader = batchd.DataLoader(spec, batch_size=10, shuffle=True, device="cuda", n_slots=4)
    f = loader.fields["boxes"]
    boxes = batchd.Ragged(real.empty(f.most_values, 4), real.empty(11, dtype=real.int64))
    data = gpu_torch.empty((10, 2, 3), dtype=real.float32)
    ids = gpu_torch.empty((10,), dtype=real.int64)
    labels = gpu_torch.empty((10,), dtype=real.int64)
    texts = []
    batch = {"id": ids, "data": data, "label": labels, "caption": texts, "boxes": boxes}
    for expected in of_cpu:
        n = loader.next_into(batch)
        assert n == len(expected["caption"]) and texts == expected["caption"]
        for name in ("id", "data", "label"):
            assert real.equal(batch[name].cpu()[:n], expected[name]), name
        for i, rows in enumerate(expected["boxes"]):
            assert real.equal(boxes.values[boxes.offsets[i] : boxes.offsets[i + 1]], rows)
    assert loader.next_into(batch) is None
    try:
        loader.next_into({"boxes": boxes._replace(values=gpu_torch.empty((f.most_values, 4), dtype=real.float32))})
        raise SystemExit("not refused")
    except ValueError as e:
        assert "ragged fields come in host memory" in str(e), e
    loader.close()
    data = ids = labels = batch = None
    """,
        personality,
    )
