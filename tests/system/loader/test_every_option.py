"""Every argument of DataLoader with every kind of data set: each cell has an effect, or is refused, or belongs to arguments
that mean the same for all data. None is ignored in silence.

The arguments are those of the signature, so a new one fails here until it is classified: a line in PROBES.
"""

import inspect
import io
import struct
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

import batchd  # noqa: E402 (torch may be missing)
from test_mds import shard  # noqa: E402

N = 8


def jpg(i):
    """With an orientation, so that apply_exif does something."""
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x112] = 6
    pixels = np.random.default_rng(i).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, "JPEG", exif=exif)
    return out.getvalue()


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def as_folder(folder):
    return f"imagefolder:{put(folder, {f'c{i % 2}/{i}.jpg': jpg(i) for i in range(N)})}"


def as_table(folder):
    put(folder, {f"{i}.jpg": jpg(i) for i in range(N)})
    put(folder, {"l.csv": "".join(["path,label\n", *(f"{i}.jpg,{i}\n" for i in range(N))]).encode()})
    return f"files:{folder}/l.csv"


def as_tar(folder):
    with tarfile.open(folder / "s.tar", "w") as t:
        for i in range(N):
            for name, content in ((f"{i}.cls", str(i).encode()), (f"{i}.jpg", jpg(i))):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                t.addfile(info, io.BytesIO(content))
    return f"tar:{folder}/s.tar"


def as_mds(folder):
    columns = {"image": ("jpeg", None), "label": ("int", 8)}
    shard(folder / "s.mds", columns, [[jpg(i), struct.pack("<q", i)] for i in range(N)])
    return f"mds:{folder}/s.mds"


def as_zip(folder):
    with zipfile.ZipFile(folder / "s.zip", "w") as z:
        for i in range(N):
            z.writestr(f"c{i % 2}/{i}.jpg", jpg(i))
    return f"zip:{folder}/s.zip"


def pictures_of_hf():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = [{"image": {"bytes": jpg(i), "path": None}, "label": i} for i in range(N)]
    return datasets.Dataset.from_list(rows, features=features)


def as_arrow(folder):
    pictures_of_hf().save_to_disk(folder)
    return f"arrow:{folder}#image=image,label=label"


def columns_of_hf():
    return pytest.importorskip("datasets").Dataset.from_dict(
        {"x": [float(i) for i in range(N)], "text": list("abcdefgh")}
    )


def as_npy(folder):
    np.save(folder / "x.npy", PIXELS)
    np.save(folder / "y.npy", LABELS)
    return f"npy:{folder}/x.npy,{folder}/y.npy"


def as_numbers(folder):
    np.save(folder / "f.npy", FLOATS)
    return f"npy:{folder}/f.npy"


def as_npz(folder):
    np.savez(folder / "f.npz", x=FLOATS, label=LABELS)
    return f"npz:{folder}/f.npz"


def as_idx(folder):
    put(folder, {"i": struct.pack(">4i", 0x803, N, 28, 28) + bytes(i % 251 for i in range(N * 28 * 28))})
    put(folder, {"l": struct.pack(">2i", 0x801, N) + bytes(range(N))})
    return f"idx:{folder}/i,{folder}/l"


def as_cifar(folder):
    records = np.random.default_rng(3).integers(0, 256, (N, 3073), dtype=np.uint8)
    records[:, 0] = range(N)
    put(folder, {"data_batch_1.bin": records.tobytes()})
    return f"cifar:{folder}/data_batch_1.bin"


def as_tokens(folder):
    np.arange(N * 4 + 1, dtype="uint16").tofile(folder / "t.bin")
    return f"tokens:{folder}/t.bin"


def as_windows(folder):
    return f"{as_tokens(folder)},windows=random,samples={N}"


def as_random(folder):
    return f"random:length={N},shape=2,dtype=float64"


def as_served(folder):
    """What its producer yields is of many kinds, so that options would show."""

    def batches(epoch):
        for i in range(3):
            yield {"x": torch.full((3, 2), float(i)), "text": ["a", "bb", "c"]}

    return batchd.serve(batches, name="numbers", background=True)


SIZED = [["Resize", [16, 20]], ["RandomHorizontalFlip", 0.5], "ToTensor"]
PICTURES = {"transform": SIZED}
LENGTH = {"length": 4}
PIXELS = np.random.default_rng(9).integers(0, 256, (N, 32, 48, 3), dtype=np.uint8)
FLOATS = np.arange(2.0 * N).reshape(N, 2)
LABELS = np.arange(N)
# What is refused: where pictures are in files, where a transform makes them of arrays, where data comes as it is stored.
NOT_PICTURES = {"packed", "length", "producer_timeout"}
NOT_ROWS = NOT_PICTURES | {"decode", "apply_exif"}
NOT_STORED = NOT_ROWS | {"image_mode", "dtype", "layout", "mix", "mixup_off_epoch"}
NOT_NUMBERS = NOT_STORED | {"transform"}
# {kind: (how it is made in a folder, options that it needs, what is refused)}
KINDS = {
    "imagefolder": (as_folder, PICTURES, NOT_PICTURES),
    "files": (as_table, PICTURES, NOT_PICTURES),
    "tar": (as_tar, PICTURES, NOT_PICTURES),
    "mds": (as_mds, PICTURES, NOT_PICTURES),
    "zip": (as_zip, PICTURES, NOT_PICTURES),
    "arrow": (as_arrow, PICTURES, NOT_PICTURES),
    "datasets.Dataset": (lambda folder: pictures_of_hf(), PICTURES, NOT_PICTURES),
    "list": (lambda folder: [as_folder(folder)] * 2, PICTURES, NOT_PICTURES),
    "blend": (lambda folder: batchd.blend([(as_folder(folder), 2), (as_folder(folder), 1)]), PICTURES, NOT_PICTURES),
    "configured": (lambda folder: "pictures", PICTURES, NOT_PICTURES),
    "npy, pictures": (as_npy, PICTURES, NOT_ROWS),
    "idx, pictures": (as_idx, PICTURES, NOT_ROWS),
    "cifar, pictures": (as_cifar, PICTURES, NOT_ROWS),
    "memory, pictures": (lambda folder: (PIXELS, LABELS), PICTURES, NOT_ROWS),
    "npy": (as_numbers, {}, NOT_NUMBERS),
    "npz": (as_npz, {}, NOT_NUMBERS),
    "idx": (as_idx, {}, NOT_STORED),
    "cifar": (as_cifar, {}, NOT_STORED),
    "memory": (lambda folder: (FLOATS, LABELS), {}, NOT_NUMBERS),
    "datasets.Dataset, columns": (lambda folder: columns_of_hf(), {}, NOT_NUMBERS - {"packed"}),
    "tokens": (as_tokens, LENGTH, NOT_NUMBERS - {"length"}),
    "tokens, random": (as_windows, LENGTH, NOT_NUMBERS - {"length"}),
    "random": (as_random, {}, NOT_NUMBERS),
}
TURNED = ("arrow", "datasets.Dataset")  # without apply_exif


def first_field(loader):
    return {"other": list(loader.fields)[0]}


# {argument: its value, or (its value, what else is given with and without it)}; a function gets a loader without it.
PROBES = {
    "batch_size": 2,
    "shuffle": True,
    "seed": (5, {"shuffle": True}),
    "drop_last": True,
    "repeats": 2,
    "epoch_rows": 4,
    "sampler": [3, 1],
    "batch_sampler": [[3, 1], [2]],
    "transform": [["Resize", [8, 8]], "ToTensor"],
    "image_mode": "L",
    "decode": "draft",
    "dtype": "float16",
    "layout": "NHWC",
    "apply_exif": True,
    "fields": first_field,
    "packed": True,
    "collate_fn": lambda batch: "collated",
    "mix": batchd.MixUp(1.0, 16),
    "mixup_off_epoch": (1, {"mix": batchd.MixUp(1.0, 16)}),
    "length": 2,
    "producer_timeout": 60,
    "arrays": "numpy",
    "rank": (1, {"world_size": 2, "rank": 0}),
    "world_size": (2, {"rank": 0}),
}
# Arguments of the connection and of the job, which mean the same whatever the data are. Batches show no difference.
ANYWHERE = {
    "dataset": "is the data",
    "job": "names who shares the loader",
    "mode": "shard and share are the same for one trainer",
    "num_workers": "how many threads work",
    "device": "needs a GPU: test_cuda_loader.py",
    "raw": "needs a GPU: test_cuda_loader.py, and below",
    "socket": "where the daemon is",
    "n_slots": "how far ahead",
    "writable": "how memory is mapped",
    "timeout": "how long to wait",
    "reconnect": "how long to wait",
    "incarnation": "which of two jobs of one name",
    "autostart": "whether a daemon is started",
    "progress": "a bar on the terminal",
    "policy": "of a group that is too slow",
    "join": "where a trainer of a group begins",
    "group_batch_size": "the same batches, cut of a larger one",
    "on_stall": "of another rank",
}
SERVED = {"collate_fn", "arrays", "producer_timeout"}  # what is a trainer's where a producer makes the batches
RANKS = {"rank", "world_size"}  # of a producer's trainers: batches come when all are there


def tree(value):
    if isinstance(value, dict):
        return {k: tree(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [tree(v) for v in value]
    if isinstance(value, batchd.Ragged):
        return "Ragged", tree(value.values), tree(value.offsets)
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return type(value).__name__, str(value.dtype), tuple(value.shape), value.tolist()
    return value


def observe(dataset, options):
    """What a training loop can see of two epochs."""
    with batchd.DataLoader(dataset, **{"timeout": 60, **options}) as loader:
        seen = []
        for epoch in range(2):
            loader.set_epoch(epoch)
            seen.append([(tree(batch), np.asarray(loader.last_batch.indices).tolist()) for batch in loader])
    return seen


def outcome(dataset, needs, name, expected):
    """What an argument does: "effect", "nothing", or the error's text."""
    value, with_it = PROBES[name] if isinstance(PROBES[name], tuple) else (PROBES[name], {})
    try:
        before = observe(dataset, {**needs, **with_it})
        if value is first_field:
            with batchd.DataLoader(dataset, **needs) as loader:
                value = first_field(loader)
        after = observe(dataset, {**needs, **with_it, name: value})
    except (TypeError, ValueError, batchd.Error) as e:
        assert name in expected, f"{name} is refused: {e}"
        return str(e)
    return "nothing" if before == after else "effect"


def test_every_argument_is_classified():
    """A new argument needs a line in PROBES, or in ANYWHERE with a reason."""
    known = set(inspect.signature(batchd.DataLoader.__init__).parameters) - {"self", "others"}
    assert known == set(PROBES) | set(ANYWHERE) and not set(PROBES) & set(ANYWHERE)


@pytest.mark.parametrize("kind", KINDS)
def test_no_argument_is_ignored(make_daemon, tmp_path, kind):
    """Proves of each argument that it changes what the loop sees, or is refused by name."""
    make_daemon(config=f"datasets:\n  - name: pictures\n    source: {as_folder(tmp_path / 'p')}\n")
    make, needs, refused = KINDS[kind]
    (tmp_path / "data").mkdir()
    dataset, needs = make(tmp_path / "data"), {"batch_size": 3, **needs}
    for name in PROBES:
        is_default = name == "apply_exif" and kind in TURNED
        done = outcome(dataset, needs, name, refused)
        if name in refused:
            assert done not in ("effect", "nothing"), f"{name}={PROBES[name]!r} is taken"
            assert name in done or (name, "mix") == ("mixup_off_epoch", done[:3]), done
        else:
            assert done == ("nothing" if is_default else "effect"), (name, done)


def test_turned_pictures_stay_as_they_are_by_the_option(daemon, tmp_path):
    """What apply_exif=True cannot show for pictures that are turned anyway."""
    for dataset in (pictures_of_hf(), as_arrow(tmp_path)):
        assert observe(dataset, {**PICTURES, "apply_exif": False}) != observe(dataset, PICTURES)


@pytest.mark.parametrize("name", ["serve:numbers", "served"])
def test_a_producer_decides_what_its_batches_are(make_daemon, tmp_path, name):
    """Proves it of every argument, also where the configuration has the data set."""
    make_daemon(config="datasets:\n  - name: served\n    source: serve:numbers\n")
    with as_served(tmp_path):
        for argument in set(PROBES) - RANKS:
            value, more = PROBES[argument] if isinstance(PROBES[argument], tuple) else (PROBES[argument], {})
            value = {"other": "x"} if value is first_field else value
            if argument in SERVED:
                seen = observe(name, {argument: value}) != observe(name, {})
                assert seen == (argument != "producer_timeout"), argument
                continue
            with pytest.raises((TypeError, ValueError, batchd.Error)) as refused:
                observe(name, {argument: value, **more})
            assert "producer" in str(refused.value) or argument in ("length", "decode", "image_mode"), refused.value


def test_raw_has_one_dtype_and_one_layout(daemon):
    """raw=True replaced a given dtype or layout without a word; whether there is a GPU is the second question."""
    for option in ({"dtype": "float16"}, {"dtype": torch.bfloat16}, {"layout": "NCHW"}):
        with pytest.raises(ValueError, match=f"raw=True gives .* and {next(iter(option))} asks for"):
            batchd.DataLoader((PIXELS, LABELS), raw=True, **option)
    with pytest.raises(ValueError, match="give device='cuda'"):
        batchd.DataLoader((PIXELS, LABELS), raw=True, dtype="uint8", layout="NHWC")
