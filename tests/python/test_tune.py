"""batchctl tune: its table, recommendation, picture and configuration, on short measurements."""

import fcntl
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

QUICK = ["--seconds", "200ms", "--rounds", "1", "--batch-size", "8", "--most-workers", "2", "--quiet"]


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
    # The samples fit the decoded cache, which saves most of the work.
    assert found["caches"]["auto"]["images_per_s"] > 1.5 * found["caches"]["off"]["images_per_s"]


def test_pytorchs_loader_is_measured_beside(measured):
    pytest.importorskip("torch")
    result, _ = measured
    torchs = by_setting(result)["PyTorch num_workers"]
    assert list(torchs) == ["0", "1", "2", "4"]
    if "No module named" in torchs["0"]["problem"]:
        pytest.skip("torchvision is not installed")
    assert all(trial["images_per_s"] > 0 for trial in torchs.values()), torchs
    assert any("PyTorch's DataLoader: at best" in reason for reason in result["reasons"])


def test_the_choice_follows_from_the_table(measured):
    """auto, unless a number is more than 5 % better; then the least that is within 5 % of the best."""
    result, _ = measured
    for setting, key in (("workers", "workers"), ("slots", "slots")):
        rates = {value: t["images_per_s"] for value, t in by_setting(result)[setting].items()}
        best = max(rates.values())
        least = next((v for v, rate in rates.items() if v != "auto" and rate * 1.05 >= best), "auto")
        wanted = "auto" if least == "auto" or rates["auto"] * 1.05 >= rates[least] else int(least)
        assert result["choice"][key] == wanted
    assert result["choice"]["caches"] == "auto"
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
    text = tune(batchctl, f"npy:{tmp_path}/x.npy").stdout
    assert re.search(r"^workers +1 +[1-9]\d*", text, re.M) and "PyTorch num_workers" not in text
    subprocess.run(["tar", "-cf", tmp_path / "s.tar", "-C", samples, "."], check=True)
    text = tune(batchctl, "--no-torch", f"tar:{tmp_path}/s.tar").stdout
    assert re.search(r"^workers +2 +[1-9]\d*", text, re.M) and "Recommended" in text


def test_a_data_set_that_is_not_there(batchctl, tmp_path):
    made = batchctl("tune", *QUICK, str(tmp_path / "none"), timeout=300)
    assert made.returncode == 1 and "nothing could be measured" in made.stderr and made.stdout == ""
