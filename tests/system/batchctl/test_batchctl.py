"""batchctl as people and scripts use it: exit codes, what is printed where, and whether the output is true."""

import colorsys
import hashlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from PIL import Image

REPO = pathlib.Path(__file__).resolve().parents[3]
COMMANDS = ["status", "top", "bench", "tune", "trace", "verify", "index", "preview", "load", "sample-data", "doctor"]


@pytest.fixture
def no_daemon_listens(monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHD_SOCKET", str(tmp_path / "nobody"))


def digest(folder):
    """A digest of all names and contents below a folder."""
    h = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        h.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return h.hexdigest()


def options_in_help(batchctl, command):
    text = batchctl(command, "--help").stdout
    return set(re.findall(r"^  --([a-z-]+)", text, re.M)) - {"help"}


def words_for(batchctl, *typed):
    """What completion puts in place of the last word."""
    return {line.split("\t")[0] for line in batchctl("complete", *typed).stdout.splitlines()}


# ---- the command line ----


@pytest.mark.parametrize(
    "args, says",
    [
        ([], "a command is missing"),
        (["stauts"], "no command 'stauts'"),
        (["help", "stauts"], "no command 'stauts'"),
        (["status", "--jsn"], "unknown option '--jsn'"),
        (["status", "--js"], "unknown option '--js'"),
        (["status", "-j"], "unknown option '-j'"),
        (["status", "extra"], "takes no argument"),
        (["status", "--socket"], "--socket wants PATH after it"),
        (["status", "--socket="], "--socket wants PATH, not an empty text"),
        (["status", "--interval", "1parsec"], "not '1parsec'"),
        (["status", "--from", "x", "--watch"], "goes with neither"),
        (["bench"], "DATASET is missing"),
        (["bench", "a", "b"], "'b' is one argument too many"),
        (["bench", "a", "--batch-size", "0"], "a whole number from 1 to 65536, not '0'"),
        (["bench", "a", "--batch-size", "65537"], "not '65537'"),
        (["bench", "a", "--batch-size", " 5"], "not ' 5'"),
        (["bench", "a", "--batch-size", "-5"], "not '-5'"),
        (["bench", "a", "--batch-size", "5x"], "not '5x'"),
        (["bench", "a", "--batch-size", "99999999999999999999"], "not '99999999999999999999'"),
        (["bench", "a", "--dtype", "float64"], "one of uint8, float16, float32, not 'float64'"),
        (
            ["bench", "imagefoldr:/data", "--socket", "/nonexistent"],
            "batchd reads no 'imagefoldr:'; it reads imagefolder:",
        ),
        (["bench", "a", "--touch=yes"], "--touch takes no value"),
        (["bench", "a", "--private", "--socket", "s"], "give one of them"),
        (["verify", "random:length=3,shape=2"], "has no files"),
        (["preview", "a"], "--out FILE.png is missing"),
        (
            ["preview", "random:length=3,shape=8x8x3,dtype=uint8", "--out", "x.png", "--transform", "train225"],
            "train225",
        ),
        (["sample-data", "a", "--size", "500"], "WIDTHxHEIGHT"),
        (["sample-data", "a", "--size", "500x99999"], "WIDTHxHEIGHT"),
        (["sample-data", "a", "--classes", "33"], "from 1 to 32"),
    ],
)
def test_a_wrong_command_line_is_refused_by_name(batchctl, args, says):
    """Exit code 2, nothing on stdout, one line on stderr that names the wrong argument."""
    r = batchctl(*args)
    assert r.returncode == 2
    assert r.stdout == ""
    assert says in r.stderr and r.stderr.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_documents_know_every_option(batchctl, command):
    """--help, the manual page and completion agree."""
    options = options_in_help(batchctl, command)
    assert len(options) >= 3
    page = (REPO / "client/man/batchctl.1").read_text()
    section = re.search(rf"^\.Ss batchctl {command}\n(.*?)^\.S[sh] ", page, re.M | re.S).group(1)
    assert options == set(re.findall(r"Fl -([a-z-]+)", "\n".join(re.findall(r"^\.It (.*)$", section, re.M))))
    assert {"--" + o for o in options | {"help"}} == words_for(batchctl, "batchctl", command, "--")


def test_documents_know_every_option_of_the_daemon(batchctl, build):
    """--help, the manual page and completion agree."""
    text = subprocess.run([build / "batchd", "--help"], capture_output=True, text=True).stdout
    options = set(re.findall(r"^  (?:-\w, |    )--([a-z-]+)", text, re.M))
    assert len(options) >= 17
    page = "\n".join(re.findall(r"^\.It (.*)$", (REPO / "daemon/man/batchd.8").read_text(), re.M))
    assert options == set(re.findall(r"(?:Fl|,) -([a-z-]+)", page))
    assert {"--" + o for o in options} == words_for(batchctl, "batchd", "")


def test_help_and_version(batchctl):
    """Both answer on stdout with 0; `help X` is `X --help`."""
    assert re.fullmatch(r"batchctl \d+\.\d+\.\d+\n", batchctl("--version").stdout)
    top = batchctl("--help")
    assert top.returncode == 0 and all(c in top.stdout for c in COMMANDS)
    assert "bench-trainer" not in top.stdout
    assert batchctl("help", "bench").stdout == batchctl("bench", "--help").stdout


def test_commands_options_and_values_are_completed(batchctl):
    assert words_for(batchctl, "batchctl", "sa") == {"sample-data"}
    assert words_for(batchctl, "batchctl", "help", "to") == {"top"}
    assert words_for(batchctl, "batchctl", "bench", "x", "--dt") == {"--dtype"}
    assert words_for(batchctl, "batchctl", "bench", "x", "--mode", "sha") == {"shard", "share"}
    assert words_for(batchctl, "batchctl", "bench", "--mode", "=", "shar") == {"shard", "share"}
    assert words_for(batchctl, "batchctl", "bench", "--mode=shar") == {"--mode=shard", "--mode=share"}
    assert words_for(batchctl, "batchd", "--pin-memory=o") == {"--pin-memory=on", "--pin-memory=off"}
    assert words_for(batchctl, "batchctl", "bench", "--batch-size", "") == set()
    assert words_for(batchctl, "batchctl", "bench", "--socket", "") == {":files"}
    assert words_for(batchctl, "batchctl", "verify", "--cl") == set()
    assert words_for(batchctl, "batchctl", "verify", "") == {":directories"}
    assert words_for(batchctl, "batchctl", "frobnicate", "") == set()
    assert words_for(batchctl, "batchd", "-w", "") == {"auto"}
    assert words_for(batchctl, "batchd", "--log-level", "in") == {"info"}
    assert words_for(batchctl, "batchd", "--config", "") == {":files"}


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completes(build, tmp_path):
    """The completion function, called as by readline."""
    (tmp_path / "pets").mkdir()
    (tmp_path / "peas").write_text("")

    def complete(*words):
        script = (
            f'source {REPO}/client/completion/batchctl.bash; compopt() {{ :; }}; COMP_WORDS=("$@"); '
            'COMP_CWORD=$(($# - 1)); _batchctl; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        return subprocess.run(
            ["bash", "-c", script, "bash", *words],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{build.resolve()}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()

    assert complete("batchctl", "sa") == ["sample-data"]
    assert complete("batchctl", "bench", "x", "--mode", "sha") == ["shard", "share"]
    assert complete("batchctl", "verify", "pe") == ["pets"]
    assert sorted(complete("batchctl", "load", "pe")) == ["peas", "pets"]
    assert complete("batchd", "--pin-memory", "o") == ["on", "off"]


def test_a_full_disk_is_a_failure(build, samples):
    """A result that could not be written is not reported as success."""
    with open("/dev/full", "w") as full:
        r = subprocess.run(
            [str(build / "batchctl"), "verify", str(samples), "--quiet"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert r.returncode == 1
    assert "standard output" in r.stderr


# ---- sample-data ----


def test_sample_data_is_the_same_for_the_same_seed(batchctl, tmp_path):
    """Threads and runs do not matter; another seed does."""
    for name, args in {"a": ["--jobs", "1"], "b": ["--jobs", "4"], "c": ["--seed", "1"]}.items():
        r = batchctl("sample-data", tmp_path / name, "--classes", "3", "--per-class", "5", "--quiet", *args)
        assert r.returncode == 0 and r.stderr == "" and r.stdout.count("\n") == 1
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")


def test_sample_data_looks_like_photographs_to_a_loader(batchctl, tmp_path):
    """Pillow opens them; sides vary around the requested size, some pictures are upright, file sizes are those of
    photographs."""
    r = batchctl("sample-data", tmp_path / "d", "--classes", "10", "--per-class", "8", "--json", "--quiet")
    said = json.loads(r.stdout)
    files = sorted((tmp_path / "d").glob("*/*.jpg"))
    assert said["files"] == len(files) == 80 and said["classes"] == len(list((tmp_path / "d").iterdir())) == 10
    assert said["bytes"] == sum(f.stat().st_size for f in files)
    shapes = []
    for f in files:
        with Image.open(f) as image:
            image.load()
            assert image.format == "JPEG" and image.mode == "RGB"
            shapes.append(image.size)
    assert len(set(shapes)) > 30
    assert any(h > w for w, h in shapes) and any(w > h for w, h in shapes)
    assert 400 <= np.median([max(s) for s in shapes]) <= 600
    assert 40_000 <= np.median([f.stat().st_size for f in files]) <= 120_000


def test_sample_data_can_be_learned(samples):
    """A nearest-centroid rule on hue alone does much better than chance on pictures that it has not seen."""
    features, labels = [], []
    for label, folder in enumerate(sorted(samples.iterdir())):
        for f in sorted(folder.iterdir()):
            small = np.asarray(Image.open(f).convert("RGB").resize((24, 24))).reshape(-1, 3) / 255
            hsv = np.array([colorsys.rgb_to_hsv(*p) for p in small])
            features.append(np.histogram(hsv[:, 0], bins=12, range=(0, 1), weights=hsv[:, 1] ** 4)[0])
            labels.append(label)
    features, labels = np.array(features), np.array(labels)
    features /= features.sum(1, keepdims=True)
    seen = np.arange(len(labels)) % 2 == 0
    centroids = np.stack([features[seen & (labels == c)].mean(0) for c in range(4)])
    guess = ((features[~seen][:, None] - centroids) ** 2).sum(2).argmin(1)
    assert (guess == labels[~seen]).mean() > 0.5


def test_sample_data_leaves_other_peoples_files_alone(batchctl, tmp_path):
    """A non-empty directory is refused, and with --force no file in it is lost."""
    (tmp_path / "precious").write_text("mine")
    r = batchctl("sample-data", tmp_path)
    assert r.returncode == 1 and "not empty" in r.stderr and "--force" in r.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["precious"]
    assert batchctl("sample-data", tmp_path, "--force", "--per-class", "1").returncode == 0
    assert (tmp_path / "precious").read_text() == "mine"
    assert not list(tmp_path.rglob("*.partial"))


def test_a_bar_on_a_terminal_is_gone_at_the_end(build, tmp_path):
    """On a terminal progress is one line that is removed at the end, so that only the result remains."""
    leader, follower = pty.openpty()
    p = subprocess.Popen(
        [
            str(build / "batchctl"),
            "sample-data",
            str(tmp_path / "d"),
            "--per-class",
            "12",
            "--size",
            "1200x900",
            "--jobs",
            "1",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=follower,
    )
    os.close(follower)
    drawn = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        drawn += part
    result = p.communicate()[0].decode()
    os.close(leader)
    assert p.returncode == 0 and "48 images in 4 classes" in result
    assert b"of 48 images" in drawn and b"\n" not in drawn and drawn.endswith(b"\r\x1b[K")


# ---- verify ----


def test_verify_finds_nothing_in_good_data(batchctl, samples):
    """Exit code 0, one line."""
    r = batchctl("verify", samples)
    assert r.returncode == 0 and r.stderr == ""
    assert r.stdout.count("\n") == 1 and "all 96 files are good" in r.stdout


def test_verify_names_what_is_damaged(batchctl, samples, tmp_path):
    """Exit code 1, each bad file once, in order, for any number of threads; the good ones are not mentioned."""
    shutil.copytree(samples, tmp_path / "d")
    files = sorted((tmp_path / "d").glob("*/*.jpg"))
    files[7].write_bytes(files[7].read_bytes()[:-20000])
    files[3].write_bytes(b"")
    files[50].write_bytes(b"plain text, not an image at all")
    want = [str(files[i].relative_to(tmp_path / "d")) for i in (3, 7, 50)]
    for jobs in (1, 4):
        r = batchctl("verify", tmp_path / "d", "--jobs", jobs)
        assert r.returncode == 1
        assert [line.split(": ")[0] for line in r.stdout.splitlines()[:-1]] == want
        assert "3 of 96 files are bad" in r.stdout.splitlines()[-1]
    r = batchctl("verify", f"imagefolder:{tmp_path / 'd'}", "--json")
    said = json.loads(r.stdout)
    assert r.returncode == 1 and said["n_bad"] == 3 and said["samples"] == 96 and said["formats"]["jpeg"] == 93
    assert [(b["index"], b["name"]) for b in said["bad"]] == list(zip((3, 7, 50), want))
    assert all(b["error"] for b in said["bad"])


def test_verify_agrees_with_pillow_about_odd_files(batchctl, odd, tmp_path):
    """A file is bad exactly if Pillow cannot load it."""
    (tmp_path / "d").mkdir()
    shutil.copytree(odd, tmp_path / "d" / "a")
    bad = set()
    for f in sorted((tmp_path / "d" / "a").iterdir()):
        try:
            with Image.open(f) as image:
                image.convert("RGB")
        except Exception:
            bad.add(f"a/{f.name}")
    said = json.loads(batchctl("verify", tmp_path / "d", "--json").stdout)
    assert (
        {b["name"] for b in said["bad"]} == bad - {"a/png_decompression_dos.png"} != set()
    )  # a PNG's text is not read


def test_verify_reads_arrays(batchctl, tmp_path):
    """Good arrays are good; a file that is shorter than its header says is named."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((1000, 37), "f4"))
    np.save(tmp_path / "y.npy", np.arange(1000))
    spec = f"npy:{tmp_path / 'x.npy'},{tmp_path / 'y.npy'}"
    r = batchctl("verify", spec)
    assert r.returncode == 0 and "all 1000 rows are good" in r.stdout
    os.truncate(tmp_path / "x.npy", 10_000)
    r = batchctl("verify", spec)
    assert r.returncode == 1 and "x.npy" in r.stderr


def test_verify_of_what_is_not_there(batchctl, tmp_path):
    """Exit code 4 for a path that does not exist or a file without a kind, and the error says how to write it."""
    r = batchctl("verify", tmp_path / "nowhere")
    assert r.returncode == 4 and "nowhere" in r.stderr and "imagefolder:" in r.stderr
    (tmp_path / "list.txt").write_text("a.jpg 0\n")
    r = batchctl("verify", tmp_path / "list.txt")
    assert r.returncode == 4 and "files:" in r.stderr


def test_names_cannot_drive_the_terminal(batchctl, tmp_path):
    """Escape sequences in a file's name are made harmless, in output and error message alike."""
    (tmp_path / "d" / "a").mkdir(parents=True)
    (tmp_path / "d" / "a" / "x\x1b[2J\x9b31m.jpg").write_bytes(b"nonsense")
    for args in ([], ["--json"]):
        r = batchctl("verify", tmp_path / "d", *args)
        assert r.returncode == 1 and "\x1b" not in r.stdout + r.stderr and "\x9b" not in r.stdout


# ---- preview ----

GAP, TITLE, CAPTION = 8, 22, 32  # as in client/ctl/sheet.c


def cell(sheet, i, columns, width=224, height=224):
    x, y = GAP + i % columns * (width + GAP), TITLE + i // columns * (height + CAPTION + GAP)
    return sheet.crop((x, y, x + width, y + height))


def test_preview_shows_the_pixels_that_trainers_get(batchctl, samples, tmp_path):
    """A val224 cell equals Pillow's result for the file, byte for byte."""
    r = batchctl(
        "preview",
        samples,
        "--out",
        tmp_path / "s.png",
        "--transform",
        "val224",
        "--indices",
        "5,90,33",
        "--columns",
        "2",
    )
    assert r.returncode == 0 and r.stderr == "" and "3 images of 224x224" in r.stdout
    sheet = Image.open(tmp_path / "s.png")
    assert sheet.size == (2 * (224 + GAP) + GAP, 2 * (224 + CAPTION + GAP) + TITLE)
    files = sorted(samples.glob("*/*.jpg"))
    for i, index in enumerate((5, 90, 33)):
        image = Image.open(files[index]).convert("RGB")
        w, h = image.size
        size = (256, int(256 * h / w)) if w < h else (int(256 * w / h), 256)
        if w < h:
            size = (256, int(256 * h / w))
        image = image.resize(size, Image.BILINEAR)
        left, top = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
        want = image.crop((left, top, left + 224, top + 224))
        assert cell(sheet, i, 2).tobytes() == want.tobytes()


def test_preview_shows_views_side_by_side(batchctl, samples, tmp_path):
    """Each view of a sample equals Pillow's result, and equal random views show different parts."""
    views = {"a": [["CenterCrop", 100]], "b": [["CenterCrop", [60, 80]]], "": {"views": [["RandomCrop", 50]], "n": 1}}
    views[""]["views"] = [[["RandomCrop", 50]]] * 2
    out = tmp_path / "s.png"
    r = batchctl("preview", samples, "--out", out, "--transform", json.dumps(views), "--indices", "7,8")
    between, width = 4, 100 + 80 + 50 + 50 + 3 * 4
    assert r.returncode == 0 and f"2 images of {width}x100" in r.stdout, r.stderr
    files = sorted(samples.glob("*/*.jpg"))
    for i, index in enumerate((7, 8)):
        got, image = cell(Image.open(out), i, 1, width, 100), Image.open(files[index]).convert("RGB")
        w, h = image.size
        for left, (cw, ch) in ((0, (100, 100)), (100 + between, (80, 60))):
            x, y = round((w - cw) / 2), round((h - ch) / 2)
            assert got.crop((left, 0, left + cw, ch)).tobytes() == image.crop((x, y, x + cw, y + ch)).tobytes()
        one, two = (got.crop((x, 0, x + 50, 50)).tobytes() for x in (188, 242))
        assert one != two and len(set(one)) > 1 and len(set(two)) > 1


def test_preview_stacks_small_views(batchctl, samples, tmp_path):
    """Equal views stand below each other where the tallest one leaves room: DINO's eight local crops in four columns."""
    crops = [[["CenterCrop", 100]], *[[["RandomCrop", 48]]] * 3]
    out = tmp_path / "s.png"
    r = batchctl(
        "preview", samples, "--out", out, "--transform", json.dumps({"": {"views": crops, "n": 1}}), "--n", "1"
    )
    assert r.returncode == 0 and "1 images of 204x100" in r.stdout, r.stderr
    got = np.asarray(cell(Image.open(out), 0, 1, 204, 100))
    places = [got[y : y + 48, x : x + 48] for x, y in ((104, 0), (104, 52), (156, 0))]
    assert all(p.std() > 0 and not np.array_equal(p, q) for p, q in zip(places, places[1:]))
    between = np.ones((100, 204), bool)
    between[:, :100] = between[:48, 104:152] = between[52:, 104:152] = between[:48, 156:] = False
    assert (got[between] == 255).all()


def test_preview_has_the_title_that_is_given(batchctl, samples, tmp_path):
    """Nothing else of the sheet changes."""
    sheets = []
    for i, title in enumerate(([], ["--title", "ours"], ["--title", " "])):
        out = tmp_path / f"{i}.png"
        assert batchctl("preview", samples, "--out", out, "--n", "1", *title).returncode == 0
        sheets.append(np.asarray(Image.open(out)))
    heads = [s[:TITLE] for s in sheets]
    assert (heads[2] == 255).all() and (heads[1] != 255).sum() < (heads[0] != 255).sum() != 0 != (heads[1] != 255).sum()
    assert all(np.array_equal(sheets[0][TITLE:], s[TITLE:]) for s in sheets[1:])


def test_preview_follows_the_epochs_order(batchctl, samples, tmp_path):
    """Without --indices it shows the first samples of torch's order for that seed and epoch, augmented differently in
    each epoch."""
    torch = pytest.importorskip("torch")
    sheets = {}
    for seed, epoch in ((0, 0), (0, 1), (7, 0)):
        out = tmp_path / f"{seed}-{epoch}.png"
        said = json.loads(
            batchctl("preview", samples, "--out", out, "--n", "7", "--seed", seed, "--epoch", epoch, "--json").stdout
        )
        g = torch.Generator()
        g.manual_seed(seed + epoch)
        assert said["indices"] == torch.randperm(96, generator=g)[:7].tolist()
        assert said["bad"] == [] and said["width"] == 224 and "RandomResizedCrop" in said["pipeline"]
        sheets[seed, epoch] = out.read_bytes()
    assert len(set(sheets.values())) == 3
    batchctl("preview", samples, "--out", tmp_path / "again.png", "--n", "7", "--seed", "7", "--epoch", "0")
    assert (tmp_path / "again.png").read_bytes() == sheets[7, 0]


def test_preview_shows_containers_policies_and_erased_boxes(batchctl, samples, tmp_path):
    """Numbers behind Normalize are turned back: pixels stay what they are, and a box has its colour."""
    crop = [["Resize", [224, 224]], ["RandomApply", [["RandomChoice", ["RandAugment", "Identity"]]], 0.0]]
    numbers = ["ToTensor", ["Normalize", [0.5, 0.4, 0.3], [0.2, 0.1, 0.3]]]
    value = [(x / 255 - m) / s for x, m, s in zip((10, 200, 30), (0.5, 0.4, 0.3), (0.2, 0.1, 0.3))]
    erasing = ["RandomErasing", {"p": 1, "scale": [0.2, 0.3], "value": value}]
    sheets = []
    for name, ops in (("plain", crop), ("numbers", crop + numbers), ("erased", [*crop, *numbers, erasing])):
        out = tmp_path / f"{name}.png"
        r = batchctl("preview", samples, "--out", out, "--transform", json.dumps(ops), "--indices", "5,90")
        assert r.returncode == 0 and r.stderr == "", r.stderr
        sheets.append(Image.open(out))
    plain, same, erased = ([cell(s, i, 2) for i in range(2)] for s in sheets)
    for i in range(2):
        assert plain[i].tobytes() == same[i].tobytes()
        box = erased[i].tobytes().count(bytes((10, 200, 30)))
        assert 0.15 < box / 224**2 < 0.35
    grey = [["CenterCrop", 224], "Grayscale", "ToTensor"]
    r = batchctl("preview", samples, "--out", tmp_path / "g.png", "--transform", json.dumps(grey), "--indices", "5")
    red, green, blue = cell(Image.open(tmp_path / "g.png"), 0, 1).split()
    assert r.returncode == 0 and red.tobytes() == green.tobytes() == blue.tobytes()


def test_preview_turns_a_late_normalize_back(batchctl, samples, tmp_path):
    """Normalize may follow an op that changes numbers, and twice: pixels stay what they are, and a box is black
    where it was erased before Normalize."""
    crop = [["Resize", [64, 64]], "ToTensor"]
    first, second = ["Normalize", [0.5, 0.4, 0.3], [0.2, 0.1, 0.3]], ["Normalize", [0.1, -0.2, 0.3], [2, 0.5, 1.5]]
    erased = ["RandomErasing", {"p": 1, "scale": [0.2, 0.3], "value": 0}]
    noise = ["GaussianNoise", {"sigma": 0, "clip": False}]
    spared = ["RandomErasing", {"p": 0}]

    def cells(*ops):
        out = tmp_path / "sheet.png"
        r = batchctl("preview", samples, "--out", out, "--transform", json.dumps([*crop, *ops]), "--indices", "5,90")
        assert r.returncode == 0 and r.stderr == "", r.stderr
        sheet = Image.open(out).convert("RGB")
        return [cell(sheet, i, 2, 64, 64).tobytes() for i in range(2)]

    plain = cells()
    assert cells(noise, first) == plain
    assert cells(spared, first) == plain
    assert cells(first, noise, second) == plain
    assert cells(erased, first, noise, second) == cells(erased) != plain


def test_preview_puts_the_reason_where_a_picture_is_missing(batchctl, samples, tmp_path):
    """A bad file does not stop the sheet; its cell is a grey field with text, and stderr names the file."""
    folder = tmp_path / "d" / "Wörter, die länger sind als jedes Bild breit sein kann \u4e2d\u6587"
    folder.mkdir(parents=True)
    shutil.copy(next(samples.glob("*/*.jpg")), folder / "good.jpg")
    (folder / "bad.jpg").write_bytes(b"\xff\xd8nothing")
    r = batchctl("preview", tmp_path / "d", "--out", tmp_path / "s.png", "--indices", "0,1")
    assert r.returncode == 0 and "bad.jpg" in r.stderr
    sheet = Image.open(tmp_path / "s.png").convert("RGB")
    bad = np.asarray(cell(sheet, 0, 2))
    colours = {tuple(c) for c in bad.reshape(-1, 3)}
    assert colours == {(0xE8, 0xE8, 0xE8), (0xB0, 0x20, 0x20)}
    caption = np.asarray(sheet.crop((GAP, TITLE + 224, GAP + 224, TITLE + 224 + CAPTION)))
    assert (caption < 128).any()
    between = np.asarray(sheet.crop((GAP + 224, TITLE, GAP + 224 + GAP, TITLE + 224 + CAPTION)))
    assert (between == 255).all(), "a long caption must not run into its neighbour"


def test_preview_enlarges_small_pictures(batchctl, samples, tmp_path):
    """A 32-pixel picture is shown four times as large, pixel by pixel."""
    r = batchctl(
        "preview", samples, "--out", tmp_path / "s.png", "--transform", '[["Resize", [32, 32]], "ToTensor"]', "--n", "1"
    )
    assert r.returncode == 0 and "1 images of 32x32" in r.stdout
    picture = np.asarray(cell(Image.open(tmp_path / "s.png").convert("RGB"), 0, 1, 128, 128))
    assert (picture.reshape(32, 4, 32, 4, 3) == picture.reshape(32, 4, 32, 4, 3)[:, :1, :, :1]).all()


@pytest.mark.parametrize(
    "args, code, says",
    [
        (["--indices", "96"], 2, "from 0 to 95, not '96'"),
        (["--indices", "1,,2"], 2, "not ''"),
        (["--n", "10000", "--transform", '[["Resize", [2000, 2000]], "ToTensor"]'], 0, ""),
    ],
)
def test_preview_checks_its_numbers(batchctl, samples, tmp_path, args, code, says):
    """Sample numbers outside the data set are refused; more pictures than samples are not."""
    r = batchctl(
        "preview", samples, "--out", tmp_path / "s.png", "--transform", '[["Resize", [40, 40]], "ToTensor"]', *args[:2]
    )
    assert r.returncode == code and says in r.stderr


def test_preview_refuses_a_sheet_that_would_not_fit(batchctl, samples, tmp_path):
    """96 pictures of 4 million pixels are too many for one PNG; nothing is written."""
    r = batchctl(
        "preview",
        samples,
        "--out",
        tmp_path / "s.png",
        "--n",
        "96",
        "--transform",
        '[["Resize", [2000, 2000]], "ToTensor"]',
    )
    assert r.returncode == 1 and "--n" in r.stderr and not list(tmp_path.iterdir())


def test_preview_into_a_directory_that_is_not_there(batchctl, samples, tmp_path):
    """The error names the file."""
    r = batchctl("preview", samples, "--out", tmp_path / "no" / "s.png", "--n", "1")
    assert r.returncode == 1 and str(tmp_path / "no" / "s.png") in r.stderr


# ---- status ----


def test_status_without_a_daemon(batchctl, no_daemon_listens):
    """Exit code 3, as for "not running" in systemctl."""
    for args in (["status"], ["status", "--json"], ["status", "--watch"]):
        r = batchctl(*args)
        assert r.returncode == 3 and r.stdout == "" and "nobody" in r.stderr


def test_status_of_an_idle_daemon(batchctl, daemon):
    """Text and JSON name the process that answers."""
    said = json.loads(batchctl("status", "--json").stdout)
    assert said["daemon"]["pid"] == daemon.pid and said["sessions"] == []
    r = batchctl("status")
    assert r.returncode == 0 and r.stderr == ""
    assert f"pid {daemon.pid}" in r.stdout and "no trainer is connected" in r.stdout
    assert "\x1b" not in r.stdout
    assert batchctl("status", "--socket", daemon.socket).returncode == 0


def test_status_shows_trainers_and_their_loader(batchctl, daemon, build, samples):
    """While two trainers run, both are listed with their ranks, beside the loader that they share; a watch prints one
    JSON line at a time."""
    p = subprocess.Popen(
        [str(build / "batchctl"), "bench", str(samples), "--trainers", "2", "--seconds", "600", "--batch-size", "8"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 300
        while True:
            said = json.loads(batchctl("status", "--json").stdout)
            if sorted(s["rank"] for s in said["sessions"]) == [0, 1] and said["loaders"][0].get("samples_delivered"):
                break
            assert time.monotonic() < deadline, said
            time.sleep(0.05)
        assert len(said["loaders"]) == 1
        loader = said["loaders"][0]
        assert loader["batch_size"] == 8 and loader["world_size"] == 2 and loader["n_samples"] == 96
        text = batchctl("status").stdout
        assert "shard over 2 ranks" in text and text.count("batchctl bench") == 2
        watch = subprocess.Popen(
            [str(build / "batchctl"), "status", "--watch", "--json", "--interval", "100ms"], stdout=subprocess.PIPE
        )
        lines = [json.loads(watch.stdout.readline()) for _ in range(3)]
        watch.kill()
        watch.wait()
        assert [line["daemon"]["pid"] for line in lines] == [daemon.pid] * 3
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait(300)


SAVED = {
    "daemon": {"version": "9.9", "pid": 7, "uptime_s": 93784.0, "cpu_s": 3.25},
    "workers": {"target": 4, "max": 8, "busy": 3, "mode": "auto", "why": "a trainer waits"},
    "cache": [
        {"tier": "jpeg", "bytes": 3 << 20, "budget_bytes": 1 << 30, "entries": 30, "hits": 75, "misses": 25, "stale": 1}
    ],
    "loaders": [
        {
            "id": "ab",
            "job": "j",
            "dataset": "imagefolder:/d",
            "mode": "share",
            "n_bad": 12,
            "bad": [{"index": 3, "name": "a/\x1b[31mx.jpg", "error": "cut short"}] * 11,
            "streams": [
                {
                    "rank": 0,
                    "epoch": 2,
                    "step": 17,
                    "ready": 0,
                    "making": 0,
                    "held": 4,
                    "window": 4,
                    "slots_why": "4 of 38 MB: as n_slots asks",
                    "waits_for_ranks": [2],
                }
            ],
        }
    ],
    "sessions": [
        {"id": 1, "job": "j", "rank": 0, "pid": 11, "held": 0, "waiting": True, "state": "attached"},
        {"id": 2, "job": "j", "rank": 2, "pid": 12, "held": 4, "waiting": False, "state": "attached"},
    ],
}


def test_status_says_which_trainer_waits_for_which(batchctl, tmp_path):
    """Rank 0 waits for rank 2, which holds the batches that the others have finished with; hit rates and bad files are
    shown."""
    (tmp_path / "s.json").write_text(json.dumps(SAVED))
    r = batchctl("status", "--from", tmp_path / "s.json")
    assert r.returncode == 0
    one, two = r.stdout.splitlines()[-2:]
    assert one.endswith("waits for rank 2 to release batches")
    assert two.endswith("holds 4 batches; others wait for it")
    assert (
        "1 d 02 h" in r.stdout
        and "75.0 %" in r.stdout
        and "and 2 more" in r.stdout
        and r.stdout.count("bad: a/?[31mx.jpg: cut short") == 10
        and r.stdout.count("slots, from rank 0 on: 4 of 38 MB: as n_slots asks") == 1
    )
    assert "\x1b" not in r.stdout


def prune(value, path=()):
    """Every way to leave out one key."""
    if isinstance(value, dict):
        for key in value:
            yield path + (key,)
            yield from prune(value[key], path + (key,))
    elif isinstance(value, list) and value:
        yield from prune(value[0], path + (0,))


def test_status_of_another_version_may_lack_anything(batchctl, tmp_path):
    """Each key in turn missing, and of two other types: still an answer, never a crash."""
    others = (None, "text", -1, 1e300, [], {}, [None], True)
    for i, path in enumerate(prune(SAVED)):
        for replacement in ("missing", others[i % 8], others[(i + 3) % 8]):
            copy = json.loads(json.dumps(SAVED))
            inner = copy
            for key in path[:-1]:
                inner = inner[key]
            if replacement == "missing":
                del inner[path[-1]]
            else:
                inner[path[-1]] = replacement
            (tmp_path / "s.json").write_text(json.dumps(copy))
            r = batchctl("status", "--from", tmp_path / "s.json")
            assert r.returncode == 0, (path, replacement, r.stderr)


@pytest.mark.parametrize("text", ["", "{", "[]", "17", '{"daemon": 1} x', "\0"])
def test_status_from_something_else(batchctl, tmp_path, text):
    """Exit code 4 and an error that names the file."""
    (tmp_path / "s.json").write_text(text)
    r = batchctl("status", "--from", tmp_path / "s.json")
    assert r.returncode == 4 and "s.json" in r.stderr and r.stdout == ""


# ---- bench ----


def test_bench_takes_orders_that_are_not_its_own(daemon, batchctl, tmp_path):
    """A producer has the order of its batches, and random windows have no end: bench shuffles neither."""
    import batchd

    np.arange(10000, dtype="uint16").tofile(tmp_path / "tokens.bin")
    options = ["--batch-size", "8", "--seconds", "200ms", "--json", "--quiet"]
    r = batchctl("bench", f"tokens:{tmp_path / 'tokens.bin'},length=64,windows=random", *options)
    assert r.returncode == 0 and json.loads(r.stdout)["total"]["images"] > 0, r.stderr
    batches = [(np.zeros((4, 3), "float32"), np.arange(4)) for _ in range(5)]
    for mode in ("shard", "share"):
        producer = batchd.serve(batches, f"bench-{mode}", background=True)
        r = batchctl("bench", f"serve:bench-{mode}", "--mode", mode, "--epochs", "2", "--json", "--quiet")
        producer.stop()
        assert r.returncode == 0 and json.loads(r.stdout)["total"]["batches"] == 10, r.stderr


def test_bench_counts_every_sample_once(batchctl, build, samples, tmp_path, monkeypatch):
    """shard: two trainers together get each epoch once; JSON has a row for each epoch and trainer; nothing is left
    behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    r = batchctl(
        "bench",
        samples,
        "--private",
        "--trainers",
        "2",
        "--slots",
        "4",
        "--epochs",
        "2",
        "--batch-size",
        "16",
        "--json",
        "--quiet",
    )
    assert r.returncode == 0 and r.stderr == "", r.stderr
    said = json.loads(r.stdout)
    assert [e["images"] for e in said["epochs"]] == [96, 96] and [t["images"] for t in said["trainers"]] == [96, 96]
    total = said["total"]
    assert total["images"] == 192 and total["batches"] == 12 and not total["partial"]
    assert total["bytes"] == 192 * 3 * 224 * 224 * 4
    # The count covers the time between the first trainer's start and the last one's end: up to a window of batches each
    # may be made before or after it.
    ahead = 2 * 4 * 16
    assert 192 - ahead <= total["decoded"] <= 192 + ahead
    assert total["cpu_ms_per_image"] == pytest.approx(
        total["daemon_cpu_ms_per_image"] + total["trainer_cpu_ms_per_image"]
    )
    assert total["images_per_s"] == pytest.approx(192 / total["seconds"])
    assert 0 <= total["wait_p50_ms"] <= total["wait_p99_ms"] and total["first_batch_ms"] > 0
    assert said["bench"]["transform"] == "train224" and said["daemon"]["private"] is True
    assert list(tmp_path.iterdir()) == []


def test_bench_share_decodes_once_for_all(batchctl, samples):
    """share: three trainers get every sample each, which is decoded once (and the batches made ahead for the next
    epoch)."""
    r = batchctl(
        "bench",
        samples,
        "--private",
        "--trainers",
        "3",
        "--mode",
        "share",
        "--slots",
        "4",
        "--epochs",
        "1",
        "--batch-size",
        "16",
        "--json",
        "--touch",
        "--dtype",
        "uint8",
        "--layout",
        "NHWC",
        "--transform",
        "val224",
    )
    assert r.returncode == 0, r.stderr
    total = json.loads(r.stdout)["total"]
    assert total["images"] == 3 * 96 and total["bytes"] == 3 * 96 * 224 * 224 * 3
    ahead = 4 * 16  # made before the count began, or for the next epoch
    assert 96 - ahead <= total["decoded"] <= 96 + ahead


def test_bench_stops_in_time(batchctl, samples):
    """--seconds ends it in the middle of an epoch, and the output says so."""
    began = time.monotonic()
    r = batchctl("bench", "random:length=100000000,shape=16", "--private", "--seconds", "1", "--json")
    assert r.returncode == 0 and time.monotonic() - began >= 1, r.stderr
    said = json.loads(r.stdout)
    assert said["total"]["partial"] and len(said["epochs"]) == 1 and 0 < said["total"]["seconds"] < 300
    assert all(
        set(json.loads(line)) == {"progress", "done", "total", "unit", "per_s"} for line in r.stderr.splitlines()
    )


def test_bench_prints_a_table(batchctl, samples):
    """Without --json: the set-up, a row for each epoch and one for all, a row for each trainer."""
    r = batchctl("bench", samples, "--private", "--epochs", "2", "--workers", "1")
    assert r.returncode == 0 and r.stderr == ""
    assert "train224, float32 NCHW, batch 64" in r.stdout and "with 1 workers" in r.stdout
    assert [line.split()[:2] for line in r.stdout.splitlines()[4:7]] == [["0", "96"], ["1", "96"], ["all", "192"]]


def test_bench_says_when_an_epoch_is_made_ahead(batchctl, samples):
    """The rate of two batches that waited already is no rate; with fewer ahead than an epoch has nothing is said."""
    short = batchctl("bench", samples, "--private", "--epochs", "2", "--workers", "1")
    assert "An epoch has 2 batches and a trainer up to " in short.stdout and "--batch-size" in short.stdout
    long = batchctl(
        "bench", samples, "--private", "--epochs", "1", "--workers", "1", "--batch-size", "4", "--slots", "3"
    )
    assert long.returncode == 0 and "An epoch has" not in long.stdout


def test_bench_without_a_daemon(batchctl, no_daemon_listens, samples):
    """Exit code 3, and the error suggests --private."""
    r = batchctl("bench", samples)
    assert r.returncode == 3 and "--private" in r.stderr and r.stdout == ""


@pytest.mark.parametrize(
    "args, code, says",
    [
        (["no-such-name"], 4, "no-such-name"),
        (["imagefolder:/nonexistent"], 4, "/nonexistent"),
        (["random:length=10,shape=2", "--transform", "val224"], 1, "transform"),
    ],
)
def test_bench_passes_on_what_the_daemon_refuses(batchctl, daemon, args, code, says):
    """The daemon's own message, once, and an exit code that distinguishes a missing data set from a failure."""
    r = batchctl("bench", *args)
    assert r.returncode == code and says in r.stderr and r.stdout == ""


def test_bench_interrupted_takes_everything_with_it(build, samples, tmp_path):
    """SIGTERM in the middle: trainers, private daemon and their directory are gone when bench has ended."""
    env = dict(os.environ, TMPDIR=str(tmp_path))
    p = subprocess.Popen(
        [
            str(build / "batchctl"),
            "bench",
            str(samples),
            "--private",
            "--trainers",
            "2",
            "--epochs",
            "100000",
            "--quiet",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        text=True,
    )
    children = pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children")
    deadline = time.monotonic() + 300
    while len(children.read_text().split()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    pids = children.read_text().split()
    time.sleep(0.3)
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 1 and out == "" and "interrupted" in err
    assert not [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]
    assert list(tmp_path.iterdir()) == []


def test_bench_killed_leaves_no_processes(build, samples, tmp_path):
    """SIGKILL cannot be caught: the kernel signals trainers and private daemon to end, and the daemon removes its
    directory."""
    env = dict(os.environ, TMPDIR=str(tmp_path))
    p = subprocess.Popen(
        [str(build / "batchctl"), "bench", str(samples), "--private", "--epochs", "100000", "--quiet"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=env,
    )
    children = pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children")
    deadline = time.monotonic() + 300
    while len(children.read_text().split()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    pids = children.read_text().split()
    p.kill()
    p.wait()
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline + 20
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
