"""client/examples/upstream.py: other projects' training scripts with our loader lines have the losses of the scripts as
they are, to the last bit, where both get the same samples in the same order.

$BATCHD_UPSTREAM names a folder with checkouts of karpathy/nanoGPT, kuangliu/pytorch-cifar, pytorch/examples and
huggingface/transformers. Nothing of them lies here. OpenCLIP's is in the package open_clip_torch."""

import gzip
import importlib.util
import io
import json
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile

import numpy
import pytest

import vision
from daemons import BUILD, REPO

pytestmark = pytest.mark.long("other projects' training scripts")

torch = pytest.importorskip("torch")

SCRIPT = REPO / "client" / "examples" / "upstream.py"
spec = importlib.util.spec_from_file_location("upstream", SCRIPT)
upstream = importlib.util.module_from_spec(spec)
spec.loader.exec_module(upstream)

# Runs before a script: keeps each loss that backward or evaluation asks for, and each order that torch's sampler draws;
# ends a script that trains for hours.
PRELUDE = """
import json, os, runpy, sys
import torch
sys.path.insert(0, os.environ["BATCHD_TESTS"])
try:
    from vision import import_torchvision
    import_torchvision()
except ImportError:
    pass
torch.set_num_threads(1)
torch.manual_seed(7)
found = {"losses": [], "orders": [], "windows": []}
functional = torch.nn.functional

def kept(name):
    loss_of = getattr(functional, name)
    def f(*args, **options):
        loss = loss_of(*args, **options)
        found["losses"].append(loss.item().hex())
        if len(found["losses"]) >= int(os.environ["N_LOSSES"]):
            end()
        return loss
    setattr(functional, name, f)

def end():
    with open(os.environ["FOUND"], "w") as f:
        json.dump(found, f)
    sys.stdout.flush()
    os._exit(0)

kept("cross_entropy")
kept("nll_loss")
draw = torch.utils.data.RandomSampler.__iter__
def order(self):
    indices = list(draw(self))
    found["orders"].append(indices)
    return iter(indices)
torch.utils.data.RandomSampler.__iter__ = order
randint = torch.randint
def windows(*args, **options):
    ix = randint(*args, **options)
    if len(args) == 2 and not options:  # nanoGPT's (high, size)
        found["windows"].append((args[0], ix.tolist()))
    return ix
torch.randint = windows
"""

RUN = """
sys.path[0] = os.path.dirname(sys.argv[1])
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
end()
"""

# torch's loader draws a seed for its workers from the global generator, even where it has no workers. Dropout draws
# from there, too.
DRAWING = """
import batchd
class Drawing(batchd.DataLoader):
    def __iter__(self):
        torch.empty((), dtype=torch.int64).random_()
        return super().__iter__()
batchd.DataLoader = Drawing
"""

# The order that torch drew, an epoch after another, in place of our own.
REPLAYING = """
import batchd
orders = json.load(open(os.environ["ORDERS"]))["orders"]
class Order:
    epoch = 0
    def __len__(self):
        return len(orders[0])
    def __iter__(self):
        return iter(orders[self.epoch])
    def set_epoch(self, epoch):
        self.epoch = epoch
class Replaying(batchd.DataLoader):
    def __init__(self, *args, shuffle=False, **options):
        super().__init__(*args, **({"sampler": Order()} if shuffle else {}), **options)
batchd.DataLoader = Replaying
"""


def checkout(name, script):
    folder = os.environ.get("BATCHD_UPSTREAM")
    path = pathlib.Path(folder or ".") / name / script
    if not folder or not path.exists():
        pytest.skip(f"BATCHD_UPSTREAM names no folder with {name}")
    return path


def need_torchvision():
    try:
        vision.import_torchvision()
    except ImportError as e:
        pytest.skip(f"torchvision: {e}")


def run(path, source, folder, *args, prelude="", n_losses=10**9, python=sys.executable, **env):
    """Runs a script beside its project's other files; returns what PRELUDE found."""
    script = folder / path.name
    for other in path.parent.iterdir():
        if other.name != path.name and not (folder / other.name).exists():
            (folder / other.name).symlink_to(other)
    script.write_text(source)
    (folder / "prelude.py").write_text(PRELUDE + prelude + RUN)
    result = folder / "found.json"
    done = subprocess.run(
        [str(python), "prelude.py", str(script), *map(str, args)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        env={
            **os.environ,
            "BATCHD_TESTS": str(REPO / "tests/support"),
            "FOUND": str(result),
            "N_LOSSES": str(n_losses),
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            **{key: str(value) for key, value in env.items()},
        },
    )
    assert result.exists(), done.stdout + done.stderr
    found = json.loads(result.read_text())
    result.unlink()
    return found


# ---- the example itself, on scripts in the manner of those ----

IN_MANNER = '''\
def main():
    # before
    a = [
        1,
    ]  # the loader
    print(a)
    b = 2
'''  # fmt: skip


def test_only_the_named_statements_are_replaced():
    """Proves places, indents, kept lines, and that a script without one of them, or with two, is not taken."""
    edits = {"a =": "import x\na = x\n", "print(": "c = 1\n" + upstream.KEPT + "d = 2\n"}
    assert upstream.replaced(IN_MANNER, edits) == (
        "def main():\n    # before\n    import x\n    a = x\n    c = 1\n    print(a)\n    d = 2\n    b = 2\n"
    )
    assert upstream.replaced(IN_MANNER, {"b =": "b = 3\n", "e =": ""}) is None
    assert upstream.replaced(IN_MANNER * 2, {"b =": "b = 3\n"}) is None


def test_an_unknown_script_is_refused_and_a_known_one_shown(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(IN_MANNER)
    done = subprocess.run([sys.executable, SCRIPT, "--diff", script], capture_output=True, text=True)
    assert done.returncode == 1 and "train.py: no script whose loader lines are known here" in done.stderr
    script.write_text("data_dir = 'd'\ndef get_batch(split):\n    return 1\nprint(get_batch('train'))\n")
    done = subprocess.run([sys.executable, SCRIPT, "--diff", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    removed = [line for line in done.stdout.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert removed == ["-    return 1"] and "+import batchd" in done.stdout


def test_a_script_runs_with_its_arguments_and_our_lines(daemon, tmp_path):
    """Proves the way that a user goes: a script in nanoGPT's manner, its neighbours importable, windows of the file."""
    numpy.arange(500, dtype="uint16").tofile(tmp_path / "train.bin")
    (tmp_path / "beside.py").write_text("batch_size = 4\n")
    (tmp_path / "train.py").write_text(
        "import sys\nfrom beside import batch_size\nblock_size, device, data_dir = 8, 'cpu', sys.argv[1]\n"
        "def get_batch(split):\n    raise SystemExit('upstream')\n"
        "if __name__ == '__main__':\n    X, Y = get_batch('train')\n    print(X.shape, (Y == X + 1).all().item())\n"
    )
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "train.py", tmp_path], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "torch.Size([4, 8]) True\n", done.stderr


# ---- nanoGPT ----

SAME_WINDOWS = """
import json, batchd
drawn = json.load(open(os.environ["ORDERS"]))["windows"]
loaders = {}
def get_batch(split):
    if split not in loaders:
        path = f"{data_dir}/{split}.bin"
        starts = [ix for high, ix in drawn if high == os.path.getsize(path) // 2 - block_size]
        loaders[split] = iter(
            batchd.DataLoader(f"tokens:{path},stride=1", batch_size, length=block_size, batch_sampler=starts))
    x, y = next(loaders[split])
    return x.to(device), y.to(device)
"""


def test_nanogpt(daemon, tmp_path):
    """Its train.py as it is, and with windows of ours that begin where it drew them: equal losses, in training and in
    evaluation. With random windows of ours, other losses that fall as theirs."""
    path = checkout("nanoGPT", "train.py")
    source = path.read_text()
    data = tmp_path / "tokens"
    data.mkdir()
    for name, n in (("train", 4000), ("val", 1500)):
        numpy.resize(numpy.arange(61) ** 2 % 61, n).astype("uint16").tofile(data / f"{name}.bin")
    options = (
        "--device=cpu --compile=False --dtype=float32 --n_layer=2 --n_head=2 --n_embd=32 --block_size=32 "
        "--batch_size=6 --gradient_accumulation_steps=2 --max_iters=30 --eval_interval=10 --eval_iters=3 "
        "--learning_rate=1e-2 --warmup_iters=2 --always_save_checkpoint=False"
    ).split()
    options.append(f"--dataset={data}")  # os.path.join leaves out what stands before an absolute path
    theirs = run(path, source, tmp_path, *options)
    assert len(theirs["losses"]) == 31 * 2 + 4 * 6 and len(theirs["windows"]) == 1 + 31 * 2 + 4 * 6
    (tmp_path / "orders.json").write_text(json.dumps(theirs))
    same = upstream.replaced(source, {"def get_batch(": SAME_WINDOWS})
    ours = run(path, same, tmp_path, *options, ORDERS=tmp_path / "orders.json")
    assert ours["windows"] == [] and ours["losses"] == theirs["losses"]
    project, text = upstream.with_batchd(source)
    random = run(path, text, tmp_path, *options)
    assert project == "nanoGPT" and random["windows"] == [] and len(random["losses"]) == len(theirs["losses"])
    first, last, their_last = (
        float.fromhex(x) for x in (random["losses"][0], random["losses"][-1], theirs["losses"][-1])
    )
    assert random["losses"] != theirs["losses"] and last < first / 2 and abs(last - their_last) < 0.2 * first


# ---- CIFAR-10 and MNIST ----

OF_CIFAR = """
import types
import torchvision.datasets.cifar
torchvision.datasets.cifar.check_integrity = lambda *args: True  # these files are not the known ones
import models
models.SimpleDLA = models.LeNet  # one of its own that a processor trains in seconds
sys.modules["utils"] = types.SimpleNamespace(progress_bar=lambda *args: None)  # wants a terminal
"""
CLEAN = {
    "transform_train =": "transform_train = torchvision.transforms.Compose(\n"
    "    [transforms.ToTensor(), transforms.Normalize(0.5, 0.2)])\n"
}


def cifar_files(folder, n):
    rng = numpy.random.default_rng(0)
    folder.mkdir(parents=True)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        labels = rng.integers(0, 10, n)
        pixels = rng.integers(0, 80, (n, 3072)) + 15 * labels[:, None]
        (folder / name).write_bytes(pickle.dumps({"data": pixels.astype("uint8"), "labels": labels.tolist()}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))


def test_pytorch_cifar(daemon, tmp_path):
    """Its main.py, two epochs in torch's order with both loaders: equal losses, where no augmentation draws. With its
    own augmentation and our order: other losses that fall."""
    path = checkout("pytorch-cifar", "main.py")
    need_torchvision()
    source = path.read_text()
    cifar_files(tmp_path / "data" / "cifar-10-batches-py", 120)
    n = 2 * (5 + 2)  # batches of 128 and 100 in two epochs
    options = dict(prelude=OF_CIFAR, n_losses=n)
    theirs = run(path, upstream.replaced(source, CLEAN), tmp_path, "--lr", 0.01, **options)
    assert len(theirs["losses"]) == n and len(set(theirs["losses"])) == n
    (tmp_path / "orders.json").write_text(json.dumps(theirs))
    project, text = upstream.with_batchd(source)
    assert project == "pytorch-cifar"
    clean = upstream.replaced(text, CLEAN)
    options["prelude"] += REPLAYING
    ours = run(path, clean, tmp_path, "--lr", 0.01, ORDERS=tmp_path / "orders.json", **options)
    assert ours["orders"] == [] and ours["losses"] == theirs["losses"]
    augmented = run(path, text, tmp_path, "--lr", 0.01, prelude=OF_CIFAR, n_losses=5 * 7)
    first, last = (float.fromhex(augmented["losses"][i]) for i in (0, -1))
    assert augmented["losses"][:n] != theirs["losses"] and last < first


def test_pytorchs_mnist(daemon, tmp_path):
    """Its main.py with the example's own lines: on a processor it does not shuffle, so all losses are equal, dropout
    included."""
    path = checkout("examples", "mnist/main.py")
    need_torchvision()
    source = path.read_text()
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    rng = numpy.random.default_rng(0)
    for part, n in (("train", 500), ("t10k", 130)):
        for name, code, array in (
            ("images-idx3", 3, rng.integers(0, 256, (n, 28, 28), "uint8")),
            ("labels-idx1", 1, rng.integers(0, 10, n, "uint8")),
        ):
            content = struct.pack(f">BBBB{code}I", 0, 0, 8, code, *array.shape) + array.tobytes()
            (raw / f"{part}-{name}-ubyte").write_bytes(content)
            (raw / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(content))
    folder = tmp_path / "mnist"
    folder.mkdir()
    options = "--epochs", 2, "--test-batch-size", 50
    theirs = run(path, source, folder, *options)
    project, text = upstream.with_batchd(source)
    ours = run(path, text, folder, *options, prelude=DRAWING)
    assert project.startswith("MNIST") and len(theirs["losses"]) == 2 * (8 + 3)
    assert ours["losses"] == theirs["losses"]


# ---- transformers ----

OF_TRANSFORMERS = """
import types
sys.path.insert(0, os.environ["FRAMEWORKS"])
import torchvision_ops
import datasets
class Accuracy:
    def compute(self, predictions, references):
        return {"accuracy": float((predictions == references).mean())}
sys.modules["evaluate"] = types.SimpleNamespace(load=lambda *args, **options: Accuracy())  # fetches its code
sys.modules["evaluate"].__spec__ = None
rows = datasets.Dataset.__getitems__
def fetched(self, keys):
    found["windows"].append(list(keys))
    return rows(self, keys)
datasets.Dataset.__getitems__ = fetched
"""
REPLAYING_BATCHES = """
import batchd
order = json.load(open(os.environ["ORDERS"]))["windows"]
class Replaying(batchd.DataLoader):
    def __init__(self, data, batch_size, shuffle=False, **options):
        batches = {"batch_sampler": order[:9]} if shuffle else {}
        super().__init__(data, batch_size, **batches, **options)
batchd.DataLoader = Replaying
"""
FRAMEWORKS = BUILD / "frameworks-venv" / "bin" / "python"


def test_transformers_image_classification(daemon, samples, tmp_path):
    """Its run_image_classification.py on a folder of classes: training and evaluation have equal losses in upstream's
    order, where no augmentation draws."""
    path = checkout("transformers", "examples/pytorch/image-classification/run_image_classification.py")
    if not (BUILD / "frameworks-venv" / ".made-from").exists():
        pytest.skip("the frameworks are not installed: `make frameworks` does it (500 MB)")
    source = path.read_text()
    for part, numbers in (("train", range(0, 18)), ("val", range(18, 24))):
        for label in sorted(p for p in samples.iterdir() if p.is_dir()):
            (tmp_path / part / label.name).mkdir(parents=True)
            for k in numbers:
                picture = sorted(label.iterdir())[k]
                shutil.copy(picture, tmp_path / part / label.name / picture.name)
    make = (
        "import torchvision_ops, transformers as t; c = t.ViTConfig(hidden_size=16, num_hidden_layers=1,"
        "num_attention_heads=2, intermediate_size=32, image_size=32, num_labels=4); t.set_seed(3);"
        f"t.ViTForImageClassification(c).save_pretrained('{tmp_path}/model');"
        f"t.ViTImageProcessor(size={{'height': 32, 'width': 32}}).save_pretrained('{tmp_path}/model')"
    )
    scripts = pathlib.Path(__file__).parents[1] / "frameworks"
    subprocess.run([str(FRAMEWORKS), "-c", make], check=True, cwd=scripts, capture_output=True)
    clean = {
        "_train_transforms = Compose(": "_train_transforms = Compose(\n"
        "    [Resize(size), CenterCrop(size), ToTensor(), normalize])\n"
    }
    options = (
        f"--model_name_or_path {tmp_path}/model --train_dir {tmp_path}/train --validation_dir {tmp_path}/val "
        f"--do_train --do_eval --output_dir {tmp_path}/out --remove_unused_columns False --num_train_epochs 1 "
        "--per_device_train_batch_size 8 --per_device_eval_batch_size 8 --learning_rate 1e-2 --report_to none "
        f"--save_strategy no --dataloader_num_workers 0 --cache_dir {tmp_path}/cache --seed 5"
    ).split()
    common = dict(python=FRAMEWORKS, FRAMEWORKS=scripts, HF_DATASETS_CACHE=tmp_path / "cache")
    folder = tmp_path / "run"
    folder.mkdir()
    theirs = run(path, upstream.replaced(source, clean), folder, *options, prelude=OF_TRANSFORMERS, **common)
    assert len(theirs["losses"]) == 9 + 3 and len(set(theirs["losses"])) == 12
    (tmp_path / "orders.json").write_text(json.dumps(theirs))
    project, text = upstream.with_batchd(source)
    assert project == "image classification of transformers"
    ours = run(
        path,
        upstream.replaced(text, clean),
        folder,
        *options,
        prelude=OF_TRANSFORMERS + REPLAYING_BATCHES,
        ORDERS=tmp_path / "orders.json",
        **common,
    )
    assert ours["windows"] == [] and ours["losses"] == theirs["losses"]
    # Upstream's augmentation, our order: it trains.
    shuffled = run(path, text, folder, *options, prelude=OF_TRANSFORMERS, **common)
    assert shuffled["windows"] == [] and len(shuffled["losses"]) == 12


# ---- OpenCLIP ----

OF_OPEN_CLIP = """
import functools
import open_clip
import open_clip_train.data
# webdataset 1.0 marks the ends of shards, which this package was not made for.
of_tar = open_clip_train.data.tar_file_expander
open_clip_train.data.tar_file_expander = functools.partial(of_tar, eof_value=None)
open_clip.add_model_config(os.environ["FOLDER"] + "/models")
tokenize = open_clip.tokenizer.SimpleTokenizer.__call__
def told(self, texts, context_length=None):
    found["windows"].append([texts] if isinstance(texts, str) else list(texts))
    return tokenize(self, texts, context_length)
open_clip.tokenizer.SimpleTokenizer.__call__ = told
"""
REPLAYING_PAIRS = """
import batchd
order = json.load(open(os.environ["ORDERS"]))["windows"]
class Batches:
    epoch = 0
    def __len__(self):
        return len(order) // 2
    def __iter__(self):
        return iter(order[self.epoch * len(self) : (self.epoch + 1) * len(self)])
    def set_epoch(self, epoch):
        self.epoch = epoch
class Replaying(batchd.DataLoader):
    def __init__(self, data, batch_size, shuffle=False, drop_last=False, **options):
        batches = {"batch_sampler": Batches()} if shuffle else {"drop_last": drop_last}
        super().__init__(data, batch_size, **batches, **options)
batchd.DataLoader = Replaying
"""
N_PAIRS, PAIRS = 24, 6


def pairs(folder):
    image = pytest.importorskip("PIL.Image")
    for k in range(2):
        with tarfile.open(folder / f"pairs-{k}.tar", "w") as shard:
            for i in range(k * N_PAIRS // 2, (k + 1) * N_PAIRS // 2):
                jpeg = io.BytesIO()
                pixels = numpy.random.default_rng(i).integers(0, 256, (9, 9, 3), "uint8")
                image.fromarray(pixels).resize((40 + i, 40 + i)).save(jpeg, "JPEG")
                for name, content in ((f"{i:03}.jpg", jpeg.getvalue()), (f"{i:03}.txt", f"picture {i}".encode())):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    shard.addfile(member, io.BytesIO(content))


def test_open_clips_training(daemon, tmp_path):
    """Its main.py, webdataset's loader against our lines on the same shards: pixels, tokens and losses of each step are
    equal in its order. (The crops are of whole pictures, so that none draws.)"""
    pytest.importorskip("webdataset")
    pytest.importorskip("open_clip_train", reason="open_clip_torch is not installed")
    path = pathlib.Path(importlib.util.find_spec("open_clip_train.main").origin)
    pairs(tmp_path)
    (tmp_path / "models").mkdir()
    tower = {"width": 32, "layers": 1}
    config = {
        "embed_dim": 16,
        "vision_cfg": {**tower, "image_size": 32, "patch_size": 16, "head_width": 16},
        "text_cfg": {**tower, "context_length": 16, "vocab_size": 49408, "heads": 2},
    }
    (tmp_path / "models" / "tiny.json").write_text(json.dumps(config))
    options = (
        f"--model tiny --train-data {tmp_path}/pairs-{{0..1}}.tar --dataset-type webdataset "
        f"--train-num-samples {N_PAIRS} --batch-size {PAIRS} --workers 0 --epochs 2 --precision fp32 --lr 1e-3 "
        f"--warmup 2 --seed 3 --logs {tmp_path}/logs --device cpu --save-frequency 0"
    ).split()
    options += ["--aug-cfg", "scale=(1.0,1.0)", "ratio=(1.0,1.0)"]
    source = path.read_text()
    folder = tmp_path / "run"
    folder.mkdir()
    theirs = run(path, source, folder, *options, "--name", "theirs", prelude=OF_OPEN_CLIP, FOLDER=tmp_path)
    assert len(theirs["losses"]) == 2 * 2 * N_PAIRS // PAIRS and len(theirs["windows"]) == 2 * N_PAIRS
    told = [int(text.removeprefix("picture ")) for (text,) in theirs["windows"]]
    epochs = [told[:N_PAIRS], told[N_PAIRS:]]
    assert all(sorted(epoch) == list(range(N_PAIRS)) for epoch in epochs)
    assert [len(epoch) for epoch in epochs] == [N_PAIRS] * 2
    batches = [told[i : i + PAIRS] for i in range(0, len(told), PAIRS)]
    (tmp_path / "orders.json").write_text(json.dumps({"windows": batches}))
    project, text = upstream.with_batchd(source)
    assert project == "OpenCLIP"
    prelude = OF_OPEN_CLIP + REPLAYING_PAIRS
    orders = dict(FOLDER=tmp_path, ORDERS=tmp_path / "orders.json")
    ours = run(path, text, folder, *options, "--name", "ours", prelude=prelude, **orders)
    assert [len(texts) for texts in ours["windows"]] == [PAIRS] * len(batches)
    assert sum(ours["windows"], []) == sum(theirs["windows"], []) and ours["losses"] == theirs["losses"]


# How OpenCLIP's main.py at 89fb801 calls and iterates, in a package of that name: a keyword more, and dictionaries.
PRESENT = {
    "__init__": "",
    "data": """
import dataclasses
@dataclasses.dataclass
class DataInfo:
    dataloader: object
    sampler: object = None
    shared_epoch: object = None
def get_wds_dataset():
    raise NotImplementedError
def get_data(args, preprocess, tokenizer, naflex_data_config):
    return get_wds_dataset(args, preprocess, True, epoch=0, tokenizer=tokenizer, naflex_data_config=naflex_data_config)
""",
    "train": """
class Task:
    def prepare_batch(self, batch):
        return {key: value + 0 for key, value in batch.items()}
def train_one_epoch(data, task):
    return [task.prepare_batch(batch) for batch in data.dataloader]
""",
    "main": """
import os, sys, types
import numpy, torch
from open_clip_train.data import get_data
from open_clip_train.train import Task, train_one_epoch
args = types.SimpleNamespace(train_data=sys.argv[1], batch_size=6, seed=0)
def tokenizer(texts):
    return torch.tensor([int(text.split()[1]) for text in texts])
pipeline = [["Resize", 8], ["CenterCrop", 8], "ToTensor"]
batches = train_one_epoch(get_data(args, pipeline, tokenizer, None), Task())
assert sorted(i for b in batches for i in b["text"].tolist()) == list(range(24)), batches
assert all(b["image"].shape == (6, 3, 8, 8) for b in batches)
try:
    get_data(args, pipeline, tokenizer, {"patch": 16})
except TypeError as e:
    print(e)
""",
}


def test_open_clips_present_main_gets_dictionaries(daemon, tmp_path):
    """An option of upstream's that the lines cannot follow is refused by name, not ignored."""
    pairs(tmp_path)
    package = tmp_path / "open_clip_train"
    package.mkdir()
    for name, text in PRESENT.items():
        (package / f"{name}.py").write_text(text)
    example = pathlib.Path(upstream.__file__)
    done = subprocess.run(
        [sys.executable, example, package / "main.py", f"{tmp_path}/pairs-{{0..1}}.tar"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "these lines have no naflex_data_config\n"
