"""batchctl tune: its table, recommendation, picture and configuration, on short measurements."""

import fcntl
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import batchd
from daemons import BUILD, REPO, until

pytestmark = pytest.mark.long("measures many settings")

QUICK = ["--seconds", "100ms", "--rounds", "1", "--batch-size", "8", "--most-workers", "2", "--quiet"]


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()


def tune(batchctl, *arguments):
    made = batchctl("tune", *QUICK, *arguments, timeout=300)
    assert made.returncode == 0, made.stderr
    return made


def measure(build, samples, folder):
    (folder / "own.yaml").write_text("# mine\nworkers: 7   # by hand\nlinger: 1s\ncache:\n  workers: 3\n")
    made = subprocess.run(
        [build / "batchctl", "tune", *QUICK, "--json", "--svg", folder / "t.svg", "--write", folder / "own.yaml"]
        + ["--python", sys.executable, samples],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=500,
    )
    assert made.returncode == 0, made.stderr
    (folder / "result.json").write_text(made.stdout)


@pytest.fixture(scope="module")
def measured(build, samples, tmp_path_factory):
    """One run with everything, which takes a while: one for all of pytest's processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tune"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "result.json").exists():
            measure(build, samples, folder)
    return json.loads((folder / "result.json").read_text()), folder


def by_setting(result):
    found = {}
    for trial in result["trials"]:
        found.setdefault(trial["setting"], {})[trial["value"]] = trial
    return found


def test_every_setting_is_measured(measured):
    result, _ = measured
    found = by_setting(result)
    assert list(found["workers"]) == ["1", "2", "auto"]
    assert list(found["slots"]) == ["3", "6", "12", "auto"]
    assert list(found["caches"]) == ["off", "auto"]
    assert list(found["dtype"]) == ["float32", "float16", "uint8"]
    for setting in ("workers", "slots", "caches", "dtype"):
        for value, trial in found[setting].items():
            assert trial["images_per_s"] > 0 and trial["cpu_ms_per_image"] > 0, (setting, value, trial)


def test_pytorchs_loader_is_measured_beside(measured):
    if not importlib.util.find_spec("torch"):  # importing it takes longer than this test
        pytest.skip("torch is not installed")
    result, _ = measured
    torchs = by_setting(result)["PyTorch num_workers"]
    assert list(torchs) == ["0", "1", "2"]
    if "No module named" in torchs["0"]["problem"]:
        pytest.skip("torchvision is not installed")
    assert all(trial["images_per_s"] > 0 for trial in torchs.values()), torchs
    assert any("PyTorch's DataLoader: at best" in reason for reason in result["reasons"])


def is_clearly_faster(a, b):
    """In every round, and by 2.5 % in the median one."""
    ratios = [x / y for x, y in zip(a["rounds"], b["rounds"])]
    return min(ratios) > 1 and statistics.median(ratios) > 1.025


def test_the_choice_follows_from_the_table(measured):
    """auto, unless a number is clearly faster; then the least that is within 2.5 % of the best."""
    result, _ = measured
    for setting, key in (("workers", "workers"), ("slots", "slots")):
        trials = by_setting(result)[setting]
        best = max(trials.values(), key=lambda t: t["images_per_s"])
        near = lambda t: statistics.median(x / y for x, y in zip(best["rounds"], t["rounds"])) <= 1.025  # noqa: E731
        least = next((v for v, t in trials.items() if v != "auto" and near(t)), best["value"])
        faster = least != "auto" and is_clearly_faster(trials[least], trials["auto"])
        assert result["choice"][key] == (int(least) if faster else "auto"), trials
    caches = by_setting(result)["caches"]  # on a busy machine filling them may take longer than it saves
    assert result["choice"]["caches"] == ("off" if is_clearly_faster(caches["off"], caches["auto"]) else "auto")
    assert len(result["reasons"]) >= 4


def test_the_picture_has_a_bar_for_each_measured_setting(measured):
    result, folder = measured
    root = xml.etree.ElementTree.parse(folder / "t.svg").getroot()
    bars = root.findall("{http://www.w3.org/2000/svg}rect")[1:]
    rates = [t["images_per_s"] for t in result["trials"] if t["images_per_s"] > 0]
    widths = [float(bar.get("width")) for bar in bars]
    assert len(bars) == len(rates)
    for width, rate in zip(widths, rates):
        assert width / max(widths) == pytest.approx(rate / max(rates), abs=0.01)


def test_the_configuration_keeps_its_other_lines(measured, build):
    result, folder = measured
    text = (folder / "own.yaml").read_text()
    choice = result["choice"]
    assert text == (
        f"# mine\nworkers: {choice['workers']}\nlinger: 1s\ncache:\n  workers: 3\nslots: {choice['slots']}\n"
    )


def test_shards_and_arrays(batchctl, samples, tmp_path):
    np = pytest.importorskip("numpy")
    np.save(tmp_path / "x.npy", np.zeros((256, 64), np.float32))
    text = tune(batchctl, "--most-workers", "1", f"npy:{tmp_path}/x.npy").stdout
    assert re.search(r"^workers +1 +[1-9]\d*", text, re.M) and "PyTorch num_workers" not in text
    for dtype in ("float16", "uint8"):
        assert re.search(rf"^dtype +{dtype}[ -]+rows are float32, as they are stored$", text, re.M), text
    assert "dtype: " not in text
    subprocess.run(["tar", "-cf", tmp_path / "s.tar", "-C", samples, "."], check=True)
    text = tune(batchctl, "--no-torch", "--most-workers", "1", f"tar:{tmp_path}/s.tar#image=jpg").stdout
    assert re.search(r"^workers +1 +[1-9]\d*", text, re.M) and "Recommended" in text


def test_a_data_set_that_is_not_there(batchctl, tmp_path):
    made = batchctl("tune", *QUICK, str(tmp_path / "none"), timeout=300)
    assert made.returncode == 1 and "nothing could be measured" in made.stderr and made.stdout == ""


def job_of(trainer_argv, tmp_path):
    """A trainer process of batchctl bench, and the name of its job."""
    process = subprocess.Popen(
        [BUILD / "batchctl", "bench", "--seconds", "600s", *trainer_argv], stdout=subprocess.DEVNULL
    )

    def name():
        loaders = batchd.status()["loaders"]
        return loaders and loaders[0].get("samples_delivered", 0) > 0 and loaders[0]["job"]

    return process, until("the job delivers", name)


def test_a_running_job(daemon, batchctl, samples, tmp_path):
    """Its data set, transform, batch size, layout and type are measured; its own speed and verdict stand beside."""
    options = ["--transform", "val224", "--batch-size", "4", "--layout", "NHWC", "--dtype", "float16", samples]
    process, job = job_of(options, tmp_path)
    try:
        until("there is a verdict", lambda: batchd.status()["sessions"][0].get("verdict_since_start", {}).get("known"))
        least = ["--seconds", "200ms", "--rounds", "1", "--most-workers", "1", "--quiet", "--no-torch"]
        made = batchctl("tune", "--job", job, "--json", *least, "--write", tmp_path / "own.yaml", timeout=300)
        assert made.returncode == 0, made.stderr
        result = json.loads(made.stdout)
        assert result["dataset"] == f"imagefolder:{samples}"
        assert result["job"]["name"] == job and result["job"]["images_per_s"] > 0
        assert result["job"]["images_per_s_beside"] > 0 and "input-bound" in result["job"]["verdict"]
        assert all(t["images_per_s"] > 0 for t in result["trials"]), result["trials"]
        assert re.fullmatch(r"workers: \S+\nslots: \S+\n", (tmp_path / "own.yaml").read_text())
        loader = batchd.status()["loaders"][0]
        assert (loader["job"], loader["dtype"], loader["layout"]) == (job, "float16", "NHWC")
        assert len(batchd.status()["loaders"]) == 1  # the daemon of the job measures nothing
    finally:
        process.terminate()
        process.wait()


def test_jobs_that_cannot_be_measured(daemon, batchctl):
    np = pytest.importorskip("numpy")
    loader = batchd.DataLoader((np.zeros((64, 4), np.float32),), 4, arrays="numpy", job="in-memory")
    next(iter(loader))
    made = batchctl("tune", "--job", "in-memory")
    assert made.returncode == 1 and "memory of its trainers" in made.stderr, made.stderr
    made = batchctl("tune", "--job", "none")
    assert made.returncode == 4 and "you have no job named 'none'" in made.stderr
    assert batchctl("tune").returncode == batchctl("tune", "--job", "x", "/tmp").returncode == 2
    assert batchctl("tune", "--job", "x", "--transform", "val224").returncode == 2
    loader.close()


def test_pinned_memory_is_measured_with_a_gpu(build, samples, tmp_path):
    """On the fake driver, whose reports say which daemons have locked memory."""
    if not (build / "libfakecuda.so").exists():
        pytest.skip("the build has no fake driver")
    fake = {"BATCHD_LIBCUDA": str(build / "libfakecuda.so"), "FAKECUDA_DIR": str(tmp_path), "FAKECUDA_QUIET": "1"}
    argv = [
        build / "batchctl",
        "tune",
        "--seconds",
        "200ms",
        "--rounds",
        "1",
        "--batch-size",
        "8",
        "--most-workers",
        "1",
    ]
    made = subprocess.run(
        [*argv, "--quiet", "--no-torch", "--json", "--write", tmp_path / "own.yaml", samples],
        env={**os.environ, **fake, "FAKECUDA_REPORT": str(tmp_path / "report")},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    result = json.loads(made.stdout)
    pinned = by_setting(result)["pin_memory"]
    assert list(pinned) == ["off", "on"] and all(t["images_per_s"] > 0 for t in pinned.values()), pinned
    assert result["choice"]["pin_memory"] in ("auto", "on", "off")
    assert re.search(rf"^pin_memory: {result['choice']['pin_memory']}$", (tmp_path / "own.yaml").read_text(), re.M)
    reports = [path.read_text() for path in tmp_path.glob("report.*")]
    copied = [text for text in reports if re.search(r"^call cuMemcpyHtoDAsync [1-9]", text, re.M)]
    locked = [text for text in copied if re.search(r"^call cuMemHostRegister [1-9]", text, re.M)]
    # More than two where a trial had no batch in its time, and was repeated.
    assert len(copied) >= 2 and 0 < len(locked) < len(copied), [text[-400:] for text in reports]


def test_the_configuration_of_a_new_user_gets_its_folder(batchctl, samples, tmp_path):
    """~/.config is not there yet: the folders are made. Where there is no PyTorch, one row says so."""
    config, svg = tmp_path / ".config" / "batchd" / "batchd.yaml", tmp_path / "pictures" / "tune.svg"
    made = tune(batchctl, "--write", config, "--svg", svg, "--python", "/nonexistent", samples)
    assert "workers: " in config.read_text() and svg.read_text().startswith("<svg")
    assert "IMAGES/S" in made.stdout and str(config) in made.stdout
    assert len(re.findall(r"^PyTorch num_workers", made.stdout, re.M)) == 1, made.stdout


@pytest.mark.parametrize("option", ("--write", "--svg"))
def test_a_file_that_cannot_be_written_is_refused_before_the_measurements(batchctl, samples, tmp_path, option):
    """A file stands where its folder would have to be: said at once, without a table, and nothing is left behind."""
    (tmp_path / "taken").write_text("a file")
    made = batchctl("tune", *QUICK, option, tmp_path / "taken" / "batchd.yaml", samples)
    assert made.returncode == 1 and not made.stdout
    assert "cannot write" in made.stderr and "Not a directory" in made.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_the_table_comes_also_where_a_file_cannot_be_written_in_the_end(batchctl, samples, tmp_path):
    """A folder is put in the file's place while tune measures: the table is not lost."""
    target = tmp_path / "batchd.yaml"
    with subprocess.Popen(
        [BUILD / "batchctl", "tune", *QUICK, "--no-torch", "--write", target, samples],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as process:
        until("it measures", lambda: children(process.pid))
        target.mkdir()
        out, err = process.communicate(timeout=300)
    assert process.returncode == 1 and "cannot write" in err
    assert "IMAGES/S" in out


def test_the_documents_picture_is_one_of_tune(measured):
    """It has a bar for each setting that tune measures, is small, and the documents name the command that makes it."""
    result, _ = measured
    picture = REPO / "client/python/pictures/tune.svg"
    labels = [t.text for t in xml.etree.ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    for setting in {trial["setting"] for trial in result["trials"] if trial["images_per_s"] > 0}:
        assert any(label.startswith(setting + " ") for label in labels), (setting, labels)
    assert picture.stat().st_size < 60_000
    guide = (REPO / "client/python/guide/speed.md").read_text()
    assert "](../pictures/tune.svg)" in guide and "make tune-picture" in guide
    assert "tune-picture: all venv" in (REPO / "tests/build.mk").read_text()
