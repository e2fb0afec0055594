"""Every block of code in the documents for users runs as it stands, with /data as another folder, or is listed here with
the reason why it cannot. A block is fenced or indented text of a page, or a display of a manual page.

Python is executed: the blocks of a page share a namespace, which NAMES makes. Commands are executed by a shell, in an
empty folder that is also their home. YAML is read by the daemon's parser, C is compiled and run.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import types

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

import batchd  # noqa: E402
from daemons import BUILD, REPO, Daemon  # noqa: E402
from vision import import_torchvision  # noqa: E402

GUIDE = sorted((REPO / "client/python/guide").glob("*.md"))
PAGES = [
    REPO / "README.md",
    REPO / ".github/CONTRIBUTING.md",
    REPO / "client/python/README.md",
    *GUIDE,
    *sorted((REPO / "systemd").glob("**/*.md")),
]
MANUALS = [*sorted(REPO.glob("daemon/man/*.[1-8]")), *sorted(REPO.glob("client/man/*.[1-8]"))]


@dataclasses.dataclass(frozen=True)
class Block:
    page: pathlib.Path
    line: int
    language: str  # of a fence; "" of an indented block
    text: str

    @property
    def place(self):
        return f"{self.page.relative_to(REPO)}:{self.line}"

    @property
    def first(self):
        return self.text.splitlines()[0].strip()

    @property
    def kind(self):
        kinds = {"python": "python", "yaml": "yaml", "sh": "shell", "c": "c", "diff": "diff"}
        return kinds.get(self.language) or ("python" if self.first.startswith("batchd.") else "shell")


def blocks_of_page(page):
    lines, at = page.read_text().splitlines(), 0
    while at < len(lines):
        begin = at
        if fence := re.match(r"```(\w*)$", lines[at]):
            at = lines.index("```", at + 1) + 1
            yield Block(page, begin + 1, fence[1] or "text", "\n".join(lines[begin + 1 : at - 1]) + "\n")
        elif lines[at].startswith("    ") and not lines[at - 1].strip():
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            yield Block(page, begin + 1, "", "\n".join(line[4:] for line in lines[begin:at]).strip() + "\n")
        else:
            at += 1


def blocks_of_manual(page):
    text = page.read_text()
    for found in re.finditer(r"^\.Bd -literal.*\n((?s:.*?))^\.Ed$|^\.Dl (.*)$", text, re.MULTILINE):
        code = found[1] or found[2] + "\n"
        language = "yaml" if ".yaml." in page.name and found[1] else "c" if "struct " in code else ""
        yield Block(page, text.count("\n", 0, found.start()) + 1, language, code.replace("\\e", "\\"))


BLOCKS = [
    *(block for page in PAGES for block in blocks_of_page(page)),
    *(block for page in MANUALS for block in blocks_of_manual(page)),
]

# Blocks that are no programs, or run elsewhere: how each begins, and the reason.
NOT_RUN = {
    "one daemon per machine": "a drawing",
    "samples missing: 0   samples duplicated: 0": "what `make demo` prints: tests/system/gate/test_demo.py",
    "input-bound 37 % of rank 3's time": "a line that loader.verdict() returns: tests/system/daemon/test_bottlenecks.py",
    "part: what changes, in the imperative": "the shape of a commit message",
    "batchd[level]: event: text KEY=value": "the shape of a line in the log",
    "batchd.yaml:12: unknown key 'wokers'": "a message: tests/system/batchctl/test_daemon_cli.py",
    "# serve.py": "tests/system/documents/test_guide.py runs it",
    "# train.py": "tests/system/documents/test_guide.py runs it",
    "COPY ": "lines of a Dockerfile: tests/run/images builds such an image",
}

# Programs that are not run here, and the reason. make's targets are checked by test_documents.py.
NOT_RUN_PROGRAMS = {
    "make": "each target is checked to exist",
    "python3": "makes a virtual environment for a wheel: tests/run/roots does",
    "pip": "installs a wheel: tests/run/roots does",
    "systemd-sysusers": "makes users of the machine: tests/run/debs does",
    "systemd-tmpfiles": "makes folders of the machine: tests/run/debs does",
    "usermod": "changes the machine's users: tests/run/debs does",
    "systemctl": "needs systemd as the machine's init",
    "journalctl": "needs systemd's journal",
    "mkdir /etc": "changes the machine's configuration",
    "cp /etc": "changes the machine's configuration",
    "docker": "needs Docker's engine",
    "srun": "needs Slurm: tests/run/slurm",
    "kubectl": "needs a cluster",
    "ssh": "needs another machine",
    "gdb": "is interactive",
    "python": "runs the reader's own script",
    "build/tests/test_simulation": "replays the history of a failure",
    "jq": "is another program",
}

# What makes a command end here, and soon.
ALSO = {
    "batchctl top": "--n 1",
    "batchctl tune": "--seconds 100ms --rounds 1 --batch-size 8 --most-workers 1 --no-torch --quiet",
    "batchd --dataset": "--check-config",
}


def reason_of(block):
    return next((why for begins, why in NOT_RUN.items() if block.first.startswith(begins)), None)


def commands(block):
    """The lines of a shell's block without what explains them: a comment, or words in a second column."""
    return [re.split(r"\s{2,}|\s#", line)[0] for line in block.text.splitlines() if line.strip()]


def words_of(program):
    words = program.split()
    while words[0] == "sudo" or re.match(r"\w+=", words[0]):
        words.pop(0)
    return words


def programs(command):
    """The programs of a line, each with the words that it is given."""
    return [words_of(program) for program in re.split(r"&&|\|", command)]


def parts_that_run(command):
    """What is between the line's &&, each pipe up to the first program that is listed."""
    for part in command.split("&&"):
        stages = list(itertools.takewhile(lambda stage: not program_reason(words_of(stage)), part.split("|")))
        if stages:
            yield "|".join(stages).strip()


def program_reason(words):
    name = words[0].rpartition("/")[2] if "/bin/" in words[0] else words[0]
    if any(w.startswith("/etc") for w in words[1:]) and f"{name} /etc" in NOT_RUN_PROGRAMS:
        return NOT_RUN_PROGRAMS[f"{name} /etc"]
    return NOT_RUN_PROGRAMS.get(name)


# ---- what the blocks find: a daemon, /data, a home ----


@pytest.fixture(scope="module")
def place(build, tmp_path_factory):
    """A folder that stands for /data, and a home where commands run; one daemon for all blocks."""
    folder = tmp_path_factory.mktemp("documents")
    data, home = folder / "data", folder / "home"
    home.mkdir(), data.mkdir()
    made = [build / "batchctl", "sample-data", "--classes", "4", "--per-class", "66", "--size", "120x90"]
    subprocess.run([*made, data / "train"], stdout=subprocess.DEVNULL, check=True)
    for name in ("imagenet", "photos"):
        shutil.copytree(data / "train", data / name / "train" if name == "imagenet" else data / name)
    pictures = sorted((data / "train").glob("*/*.jpg"))
    for name, picture in zip(("photo.jpg", "a.jpg"), pictures):
        shutil.copy(picture, home / name)
    Image.open(pictures[0]).save(home / "b.png")
    (data / "flat").mkdir()
    names = [f"{['cat', 'dog'][i % 2]}.{i}.jpg" for i in range(len(pictures))]
    for name, picture in zip(names, pictures):
        shutil.copy(picture, data / "flat" / name)
    (data / "flat" / "labels.json").write_text(json.dumps({name: name[:3] for name in names}))
    rng = np.random.default_rng(0)
    for i in range(64):
        (data / "xray" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        grey = rng.integers(0, 65536, (80, 70), dtype=np.uint16)
        Image.fromarray(grey).save(data / "xray" / "ab"[i % 2] / f"{i}.png")
    Image.fromarray(rng.standard_normal((80, 70)).astype(np.float32)).save(folder / "0.tif")
    (folder / "0.cls").write_text("3")
    for i in range(100):
        with tarfile.open(data / f"depth-{i:03}.tar", "w") as shard:
            shard.add(folder / "0.tif", f"{i}.tif")
            shard.add(folder / "0.cls", f"{i}.cls")
    np.arange(65536, dtype=np.uint16).tofile(data / "train.bin")
    daemon = Daemon(tmp_path_factory.mktemp("d"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHD_SOCKET", str(daemon.socket))
        patch.setenv("HOME", str(home))
        patch.chdir(home)
        yield types.SimpleNamespace(data=data, home=home, daemon=daemon)
    daemon.stop()


@pytest.fixture
def moved(place):
    """Replaces what a machine does not have."""

    def replaced(text):
        text = text.replace("/data/", f"{place.data}/")
        text = text.replace("/tmp/shapes", f"{place.home}/shapes").replace(
            "/tmp/batchd-debug", str(place.daemon.socket)
        )
        return text.replace('device="cuda:0"', "device=None")  # no GPU

    return replaced


def augmentation():
    v2 = import_torchvision().transforms.v2
    return v2.Compose([v2.RandomResizedCrop(32), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


class Recorder:
    """Stands for a logger: keeps what it is given."""

    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        return lambda *values: self.seen.append((name, values))


def of_huggingface(data):
    datasets = pytest.importorskip("datasets")
    pictures = sorted(map(str, (data / "train").glob("*/*.jpg")))
    rows = {"image": pictures, "labels": [i % 3 for i in range(len(pictures))]}
    types_of = {"image": datasets.Image(), "labels": datasets.ClassLabel(names=["a", "b", "c"])}
    beans = datasets.Dataset.from_dict(rows, features=datasets.Features(types_of))
    return {"datasets": types.SimpleNamespace(load_dataset=lambda name, split: beans)}  # "beans" is not on this machine


def of_ranks(data):
    loader = batchd.DataLoader(f"imagefolder:{data}/train", batch_size=64)
    return {
        "loader": loader,
        "step": 1,
        "wandb": Recorder(),
        "writer": Recorder(),
        "lightning": types.SimpleNamespace(Callback=object),
    }


def of_transforms(data):
    import_torchvision()
    import torchvision

    names = "augment", "augment1", "augment2", "global1", "global2", "local", "g1", "g2", "l"
    return {"torch": torch, "v2": torchvision.transforms.v2, **{name: augmentation() for name in names}}


# The names that a page's blocks use.
NAMES = {
    "README.md": lambda data: {},
    "arrays.md": lambda data: {"x": np.zeros((300, 2), np.float32), "y": np.arange(300)},
    "batches.md": lambda data: {"n": 264},
    "data.md": lambda data: {},
    "huggingface.md": of_huggingface,
    "jax.md": lambda data: {"state": 0, "step": lambda state, images, labels: state + len(images) + 0 * labels.sum()},
    "one-image.md": lambda data: {"request": types.SimpleNamespace(body=open("photo.jpg", "rb").read())},
    "producers.md": lambda data: {
        "torch_loader": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(12)), 4)
    },
    "questions.md": lambda data: {},
    "ranks.md": of_ranks,
    "resuming.md": lambda data: {
        "os": os,
        "torch": torch,
        "model": torch.nn.Linear(1, 1),
        "rank": 0,
        "world_size": 1,
        "epochs": 2,
    },
    "transforms.md": of_transforms,
}


# ---- what is particular about a block ----


def one_at_a_time(text, names):
    """Alternatives for transform=, a line each: a loader takes each one, and its batches have the shape that the line's
    comment says."""
    shapes = [[2], [2], [10], {"global": 2, "local": 8}]
    for line, shape in zip(text.splitlines(), shapes, strict=True):
        exec(line, names)
        images, _ = next(iter(batchd.DataLoader(names["train"], 16, transform=names["transform"])))
        if isinstance(shape, dict):
            assert {name: len(views) for name, views in images.items()} == shape
            assert images["local"].shape[:2] == (8, 16)
        else:
            assert len(images) == shape[0], line


def as_an_argument(text, names):
    images, _ = next(iter(batchd.DataLoader(names["train"], 16, transform=eval(text))))
    assert images.shape == (16, 3, 192, 192)


def twice(text, names):
    """The second run finds the checkpoint of the first, and has nothing left of the last epoch."""
    text = text.replace("% 1000 == 0", "% 1 == 0").replace("        ...\n", "        seen.append(epoch)\n")
    names["seen"] = []
    exec(text, names)
    assert names["seen"] == [0, 0, 1, 1] and names["first"] == 0
    exec(text, names)
    assert names["seen"] == [0, 0, 1, 1] and names["first"] == 1


def in_the_background(text, names):
    """As the comment offers it, because the first line would not return."""
    text = text.replace("batchd.serve(torch_loader,", "producer = batchd.serve(torch_loader, background=True,")
    exec(text, names)
    names["producer"].stop()


def as_numpys(text, names):
    """JAX's threads would keep the other tests from forking: test_jax.py has JAX itself."""
    exec(text.replace('arrays="jax"', 'arrays="numpy"'), names)
    assert names["state"] == len(names["loader"].dataset)


def with_callback(text, names):
    exec(text, names)
    assert names["wandb"].seen[0][1][0].keys() == {f"input/{name}" for name in names["loader"].timing()}
    assert names["writer"].seen[0][1][0] == "input"
    module, trainer = Recorder(), types.SimpleNamespace(train_dataloader=names["loader"])
    names["InputTiming"]().on_train_batch_end(trainer, module, None, None, 0)
    assert module.seen[0][0] == "log_dict"


PARTICULAR = {
    'loader = batchd.DataLoader("imagefolder:/data/train", 64, shuffle=True, transform="train224", layout': as_numpys,
    '[["RandomResizedCrop", 192]': as_an_argument,
    "transform=[augment1, augment2]": one_at_a_time,
    'loader = batchd.DataLoader("imagefolder:/data/train", batch_size=256 // world_size': twice,
    "batchd.serve(torch_loader": in_the_background,
    "wandb.log": with_callback,
}

# What must hold afterwards, by a word of the block.
AFTERWARDS = {
    "(x, y), batch_size=256": lambda n: n["x"].shape == (256, 2) and n["y"].dtype == torch.int64,
    "windows=random": lambda n: n["x"].shape == (12, 1024) and (n["x"][:, 1:] == n["y"][:, :-1]).all(),
    "repeats=3": lambda n: sum(len(labels) for _, labels in n["loader"]) == 256,
    "batchd.CutMix": lambda n: n["targets"].dtype == torch.float32 and n["targets"].shape == (128, 1000),
    "load_dataset": lambda n: n["images"].shape[1:] == (3, 224, 224),
    "batchd.load(": lambda n: n["pixels"].dtype == torch.float16 and n["batch"].shape == (2, 224, 224, 3),
}


# ---- the tests ----


def runs_as(kind):
    chosen = [block for block in BLOCKS if block.kind == kind and not reason_of(block)]
    return pytest.mark.parametrize("block", chosen, ids=lambda block: block.place)


@pytest.fixture(scope="module")
def namespaces(place):
    return {}


@runs_as("python")
def test_python_runs(block, place, moved, namespaces):
    """A block that ends with the head of a loop gets a body that takes one batch."""
    if block.page not in namespaces:
        namespaces[block.page] = {"batchd": batchd, "train": f"imagefolder:{place.data}/train"}
        namespaces[block.page].update(NAMES[block.page.name](place.data))
    names, text = namespaces[block.page], moved(block.text)
    if re.search(r":\s*(#.*)?$", text.rstrip().splitlines()[-1]):
        text += "    break\n"
    special = [run for begins, run in PARTICULAR.items() if block.first.startswith(begins)]
    if special:
        special[0](text, names)
    else:
        exec(compile(text, block.place, "exec"), names)
    for word, holds in AFTERWARDS.items():
        assert word not in block.text or holds(names), word


@runs_as("diff")
def test_both_sides_of_a_diff_run_alike(block, place, moved):
    """The lines that are taken out, and those that are put in, give the same labels in the same order."""
    torchvision = import_torchvision()
    import torchvision.datasets  # noqa: F811

    def one_rank(dataset, **options):
        return torch.utils.data.DistributedSampler(dataset, num_replicas=1, rank=0, **options)

    seen = {}
    for side, other in ("-+", "+-"):
        lines = [line[1:] for line in block.text.splitlines() if not line.startswith(other)]
        text = moved("\n".join(lines)).replace("num_workers=8, pin_memory=True", "num_workers=0")
        names = {
            "torchvision": torchvision,
            "DistributedSampler": one_rank,  # this process is no rank of torch.distributed
            "DataLoader": torch.utils.data.DataLoader,
            "train_transform": augmentation(),
            "epochs": 2,
            "seen": seen.setdefault(side, []),
        }
        exec(text.replace("...", "seen.extend(labels.tolist())"), names)
    assert seen["+"] == seen["-"] and len(seen["+"]) == 2 * 264


@runs_as("yaml")
def test_yaml_is_a_valid_configuration(block, tmp_path):
    """The users and groups of an example are replaced by root."""
    text = re.sub(r"(users|groups): \[.*?\]", r"\1: [root]", block.text)
    (tmp_path / "batchd.yaml").write_text(text)
    checked = subprocess.run(
        [BUILD / "batchd", "--config", tmp_path / "batchd.yaml", "--check-config"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@runs_as("c")
def test_c_compiles_and_runs(block, place, moved, tmp_path):
    """As the body of a program."""
    (tmp_path / "example.c").write_text(
        "#include <batchd.h>\n#include <err.h>\nstatic unsigned long seen;\n"
        "static void train(const void *data, const void *labels, unsigned n) { seen += data && labels ? n : 0; }\n"
        "int main(void)\n{\n" + moved(block.text) + "return seen == 264 ? 0 : 2;\n}\n"
    )
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{REPO}/client", f"-L{BUILD}", "-lbatchd"]
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-o", tmp_path / "example", tmp_path / "example.c", *flags], check=True)
    subprocess.run([tmp_path / "example"], check=True, timeout=300)


@runs_as("shell")
def test_commands_run(block, place, moved):
    """Line by line, those parts whose programs are here."""
    for command in (part for line in commands(block) for part in parts_that_run(line)):
        also = next((more for begins, more in ALSO.items() if command.startswith(begins)), "")
        done = subprocess.run(
            ["bash", "-e", "-c", f"{moved(command)} {also}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            cwd=place.home,
        )
        fine = (0, 1) if command.startswith("batchctl doctor") else (0,)  # which looks at the machine
        assert done.returncode in fine, f"{block.place}: {command}\n{done.stdout}{done.stderr}"
    with contextlib.suppress(FileNotFoundError):
        text = (place.home / ".config/batchd/batchd.yaml").read_text()
        assert subprocess.run([BUILD / "batchd", "--check-config"], stdout=subprocess.DEVNULL).returncode == 0, text


def test_every_block_runs_or_has_its_reason():
    """A block of a language that no test takes, a reason that no block needs, and a program that is neither run nor
    listed, fail here."""
    kinds = {"python", "yaml", "shell", "c", "diff"}
    assert len(BLOCKS) > 40 and not [b.place for b in BLOCKS if b.language == "text" and not reason_of(b)]
    assert {block.kind for block in BLOCKS if not reason_of(block)} <= kinds
    assert {b.page.name for b in BLOCKS if b.kind == "python" and not reason_of(b)} <= NAMES.keys()
    unused = [begins for begins in NOT_RUN if not any(b.first.startswith(begins) for b in BLOCKS)]
    here = {"batchctl", "batchd", "mkdir", "echo"}
    reasons = set()
    for block in BLOCKS:
        if block.kind == "shell" and not reason_of(block):
            for words in (w for command in commands(block) for w in programs(command)):
                assert words[0] in here or program_reason(words), f"{block.place}: {words}"
                reasons.add(program_reason(words))
    unused += [name for name, why in NOT_RUN_PROGRAMS.items() if why not in reasons]
    assert not unused
