"""The parts of `make check-gpu`, `make bench-gpu` and `make gpu-carry` (tests/gpu), without a GPU: how answers are read and
judged, how time is divided, how results of several runs become one, and all three as a whole with the fake driver in
place of the GPU."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import types

import pytest

from conftest import BUILD, REPO
from daemons import until

GPU = REPO / "tests" / "gpu"
sys.path.append(str(GPU))

import bench  # noqa: E402
import facts  # noqa: E402
import npy_file  # noqa: E402
import outcomes  # noqa: E402
import results  # noqa: E402
import verdict  # noqa: E402

CONFORMANCE = BUILD / "tests" / "gpu" / "conformance"
DOUBLE = BUILD / "libfakecuda.so"
needs_programs = pytest.mark.skipif(
    not (CONFORMANCE.exists() and DOUBLE.exists()),
    reason="needs `make tests`: the conformance program and the fake driver",
)
needs_kernel = pytest.mark.skipif(
    (BUILD / ".cuda").exists() and (BUILD / ".cuda").read_text().strip() != "1",
    reason="this build has no finishing kernel: nvcc (of the CUDA toolkit) was not found",
)


def outcome_file(path, text):
    path.write_text(text)
    return outcomes.read(path)


# ---- lines ----


def test_lines_are_read_by_case_and_name(tmp_path):
    """A name that comes twice in a case keeps both values; other lines are ignored."""
    read = outcome_file(
        tmp_path / "lines",
        "# one\nexact a = works\nexact a = fails\nopen  b: code = X = Y\ntime  c = 3.5 ms\nnoise\nother d = 1\n# two\nclass a = works\n",
    )
    assert read == {
        ("one", "exact", "a"): "works",
        ("one", "exact", "a (2)"): "fails",
        ("one", "open", "b: code"): "X = Y",
        ("one", "time", "c"): "3.5 ms",
        ("two", "class", "a"): "works",
    }
    lines = outcomes.Outcomes(read)
    assert (
        lines.number("one", "c") == 3.5
        and lines.number("one", "a") is None
        and lines.number("one", "z") is None
        and lines.text("two", "a") == "works"
    )


def test_only_what_is_documented_has_to_be_the_same(tmp_path):
    """Answers to open questions and times may differ; a line that one of the two lacks is a difference."""
    one = outcome_file(
        tmp_path / "one",
        "# c\nexact a = works\nclass b = fails\nopen  o = yes\ntime  t = 1 ms\nexact missing = works\n",
    )
    two = outcome_file(tmp_path / "two", "# c\nexact a = works\nclass b = works\nopen  o = no\ntime  t = 9 ms\n")
    same, wrong = outcomes.compared(one, two)
    assert same == 1 and wrong == [("c", "class", "b"), ("c", "exact", "missing")]
    said = subprocess.run(
        [str(GPU / "compare"), str(tmp_path / "one"), str(tmp_path / "two"), str(tmp_path / "md")],
        capture_output=True,
        text=True,
    )
    assert (
        said.returncode == 1
        and "DIFFERS c: b: fake: fails; driver: works" in said.stdout
        and "| c | o | yes | no |" in (tmp_path / "md").read_text()
    )
    assert (
        subprocess.run(
            [str(GPU / "compare"), str(tmp_path / "one"), str(tmp_path / "one")], capture_output=True
        ).returncode
        == 0
    )


# ---- the verdict ----

# Lines with which every assumption that the conformance program answers holds.
GOOD = {
    ("strangers", "legacy handle, root to another user"): "INVALID_HANDLE",
    ("strangers", "legacy handle, a user to another user"): "INVALID_VALUE",
    ("strangers", "legacy handle, another PID namespace"): "INVALID_HANDLE",
    ("strangers", "legacy handle, another IPC namespace"): "works",
    ("strangers", "legacy handle, another network namespace"): "works",
    ("strangers", "descriptor, root to another user"): "works",
    ("strangers", "descriptor, a user to another user"): "works",
    ("strangers", "descriptor, a user to root"): "works",
    ("strangers", "descriptor, another PID namespace"): "works",
    ("strangers", "descriptor, another IPC namespace"): "works",
    ("strangers", "descriptor, another network namespace"): "works",
    ("ipc killed", "read two seconds later"): "the bytes are still there",
    ("ipc killed", "the reader can go on"): "works",
    ("vmm", "its bytes after the owner was killed"): "yes",
    ("work of the dead", "its kernel writes after that"): "no",
    ("host memory", "register the daemon's mapping of a sealed memfd"): "works",
    ("host memory", "register a read-only mapping as such"): "works",
    ("overlap", "arithmetic is slower by"): "1.1 %",
    ("overlap", "copying on the GPU is slower by"): "3 %",
    ("attach", "open a handle of 512 MiB"): "4 ms",
    ("context size", "a process's context takes"): "520 MiB",
    ("registration", "register memfd pages, prefaulted"): "120 ms/GiB",
    ("pin stall", "cuMemGetInfo while another process pins in pieces of 64 MiB, worst"): "9 ms",
    ("pin stall", "cuMemAlloc and cuMemFree while another process pins in pieces of 64 MiB, worst"): "9 ms",
    ("pin stall", "a small kernel while another process pins in pieces of 64 MiB, worst"): "9 ms",
    ("vmm reading", "kernel that writes what is mapped for reading"): "ILLEGAL_ADDRESS",
}
BAD = {"works": "NOT_SUPPORTED", "yes": "no", "no": "yes", "the bytes are still there": "ILLEGAL_ADDRESS"}
GOOD_ROWS = {
    "slowest finishing kernel, of the device-to-device rate": 91,
    "memfd pages, of the rate of cuMemHostAlloc": 99,
    "copies from the GPU's own node": 55,
    "copies from another node": 31,
}


def judged(lines, rows=None):
    """{assumption: (answer, what was seen)}"""
    real = {(case, "open", name): value for (case, name), value in lines.items()} | {("c", "exact", "a"): "works"}
    run = verdict.Run(
        real, real, [{"what": what, "value": value} for what, value in (GOOD_ROWS if rows is None else rows).items()]
    )
    return {a.what: a.judge(run) for a in verdict.ASSUMPTIONS}


def test_every_assumption_can_hold():
    """With the expected lines, each is answered with yes; without lines, none is answered."""
    assert {answer for answer, _ in judged(GOOD).values()} == {"yes"}, judged(GOOD)
    nothing = verdict.Run()
    assert {a.judge(nothing)[0] for a in verdict.ASSUMPTIONS} == {None}


def worse(value):
    """The opposite of the expected value."""
    if value in BAD:
        return BAD[value]
    number, _, unit = value.partition(" ")
    return f"{float(number) * 1000:.3g} {unit}" if unit else "works"  # of those that have to be refused


@pytest.mark.parametrize("line", GOOD, ids=[" ".join(line) for line in GOOD])
def test_each_line_can_refute_an_assumption(line):
    """The opposite makes one of them "no", and says so; where the line is missing, that assumption is not answered."""
    before, refuted, untried = (
        judged(GOOD),
        judged(GOOD | {line: worse(GOOD[line])}),
        judged({k: v for k, v in GOOD.items() if k != line}),
    )
    (what,) = [w for w in before if refuted[w][0] != before[w][0]]
    assert refuted[what][0] == "no" and worse(GOOD[line]) in refuted[what][1], refuted[what]
    assert untried[what][0] is None, untried[what]


@pytest.mark.parametrize(
    "row",
    [
        "slowest finishing kernel, of the device-to-device rate",
        "memfd pages, of the rate of cuMemHostAlloc",
        "copies from the GPU's own node",
    ],
)
def test_each_figure_can_refute_an_assumption(row):
    """A rate that is too low is a "no", a missing measurement no answer."""
    before, refuted = judged(GOOD), judged(GOOD, GOOD_ROWS | {row: 1})
    (what,) = [w for w in before if refuted[w][0] != before[w][0]]
    assert refuted[what][0] == "no" and judged(GOOD, {k: v for k, v in GOOD_ROWS.items() if k != row})[what][0] is None


def test_the_table_has_every_assumption_and_every_claim():
    """Assumptions that hold, that do not, and that no line answers can be told apart."""
    run = verdict.Run(
        rows=[{"what": "memfd pages, of the rate of cuMemHostAlloc", "value": 50}],
        claims=[{"what": "fast", "wanted": "2", "measured": "3", "met": "yes"}],
    )
    text = "\n".join(verdict.table(run))
    assert all(a.what in text for a in verdict.ASSUMPTIONS) and "| fast | 2 | 3 | yes |" in text
    assert "| **no** | 50 % (at least 95) |" in text and "| not answered | did not run |" in text


def test_results_name_every_assumption():
    """RESULTS.md before a run has the list of assumptions, word for word; after a run, an answer to each."""
    text = (GPU / "RESULTS.md").read_text()
    if "Not yet run on a GPU" in text:
        assert "\n".join(verdict.before()) in text, "run tests/gpu/verdict.py and put its table into RESULTS.md"
    assert all(f"| {a.what} | {a.where} |" in text for a in verdict.ASSUMPTIONS)


# ---- the machine ----


def fake_smi(folder, script):
    """A fake nvidia-smi."""
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/bash\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_a_field_that_nvidia_smi_does_not_know_costs_only_itself(tmp_path, monkeypatch):
    """An older nvidia-smi fails as a whole when asked for one unknown field."""
    monkeypatch.setenv(
        "PATH",
        fake_smi(
            tmp_path / "bin",
            'case $1 in *mig*) exit 2;; *=name) echo "NVIDIA H200";; *gen.max) echo 5;; *width.max) echo 16;; *) echo "[N/A]";; esac',
        ),
    )
    found = facts.query()
    assert found["card"] == "NVIDIA H200" and found["MIG"] == "not known to nvidia-smi" and found["ECC"] == "[N/A]"
    assert facts.pcie_raw(found) == pytest.approx(63, abs=0.1)


def test_one_call_of_nvidia_smi_is_enough(tmp_path, monkeypatch):
    """All fields at once, in the order of our names; none of them where there is no GPU."""
    monkeypatch.setenv(
        "PATH", fake_smi(tmp_path / "bin", f"echo called >>{tmp_path}/calls; seq -s ', ' {len(facts.QUERY)}")
    )
    assert facts.query() == {name: str(i + 1) for i, name in enumerate(facts.QUERY.values())}
    assert (tmp_path / "calls").read_text() == "called\n"
    monkeypatch.setenv("PATH", fake_smi(tmp_path / "none", "exit 9"))
    assert (
        facts.query() == {}
        and facts.pcie_raw({}) is None
        and facts.pcie_raw({"PCIe generation at most": "[N/A]", "PCIe lanes at most": "16"}) is None
    )


def test_a_setting_that_the_kernel_marks(tmp_path):
    """Of several words the one in brackets; otherwise all of them."""
    assert facts.chosen("always within_size [advise] never") == "advise" and facts.chosen("12") == "12"


@needs_programs
def test_the_machine_is_described_in_lines(tmp_path):
    """The beginning of RESULTS.md: the driver's attributes, the kernel, huge pages and where tools are."""
    env = os.environ | {"BATCHD_LIBCUDA": str(DOUBLE), "FAKECUDA_QUIET": "1", "FAKECUDA_DIR": str(tmp_path)}
    text = subprocess.run(
        [sys.executable, str(GPU / "facts.py"), str(BUILD)],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    for number in (99, 102, 103, 113, 125, 133, 134):
        assert re.search(rf"^- attribute {number}, .+: -?\d+$", text, re.M), text
    for name in ("card", "MPS", "PCI bus ID", "system", "transparent huge pages, shmem_enabled", "tools"):
        assert f"- {name}: " in text, text


# ---- time, and what is left behind ----


def a_bench(folder, seconds):
    """bench.py without anything run yet."""
    return bench.Bench(
        types.SimpleNamespace(
            build=str(BUILD), gpu="none", fake=True, out=str(folder / "out"), work=str(folder), seconds=seconds
        )
    )


def test_parts_that_time_does_not_reach_for_are_named(tmp_path):
    """A part without time is not started and is named; a part that fails becomes a note and does not stop the
    others."""
    b, ran = a_bench(tmp_path, bench.END_S + 30), []
    b.part("quick", lambda: ran.append("quick"), 10)
    b.part("broken", lambda: 1 / 0, 10)
    b.part("long", lambda: ran.append("long"), 31)
    b.write()
    text = (tmp_path / "out" / "RESULTS.md").read_text()
    assert (
        ran == ["quick"]
        and b.skipped == ["long"]
        and "**Not measured, as there was no time left: long.**" in text
        and "- broken: ZeroDivisionError" in text
    )
    assert json.loads((tmp_path / "out" / "results.json").read_text())["skipped"] == ["long"]


def test_nothing_is_given_more_time_than_there_is(tmp_path):
    """A part's limit ends with the total time; a program beyond it is killed, and its output until then counts."""
    b = a_bench(tmp_path, bench.END_S + 2)
    assert 0 < b.left(100) <= 2
    with pytest.raises(bench.OutOfTime):
        a_bench(tmp_path, bench.END_S - 5).left(100)
    found = b.run(["bash", "-c", "printf 'rate\\t5\\tGB/s\\nnoise\\n'; exec sleep 100"], 100)
    assert found == {"rate": (5.0, "GB/s")} and "took more than" in b.notes[0][1] and b.n_faults == 1


def test_lines_become_rows_as_they_come(tmp_path):
    """A row is in the files before the program ends. One that is killed at its limit takes with it a process that has its
    output, and keeps its rows; lines that begin with "! " are notes."""
    b = a_bench(tmp_path, bench.END_S + 100)
    script = "printf 'rate\\t5\\tGB/s\\n! no such thing\\nnoise\\n'; sleep 1000 & exec sleep 1000"
    b.patience, began = 1, time.monotonic()
    seen = []
    b.put = lambda group, what, value, unit: seen.append((group, what, value, unit))
    assert b.stream("speed", ["bash", "-c", script], 0.5) == {"rate": (5.0, "GB/s")}
    assert seen == [("speed", "rate", 5.0, "GB/s")] and time.monotonic() - began < 60
    texts = [text for _, text in b.notes]
    assert texts[0] == "no such thing" and "took more than" in texts[1] and b.n_faults == 1, texts
    assert b.stream("speed", ["bash", "-c", "echo why >&2; exit 3"], 100) == {}
    assert "ended with status 3: why" in b.notes[2][1] and b.n_faults == 2


def test_a_part_that_is_cut_off_is_named(tmp_path):
    """Its figures until then stay, and RESULTS.md says that some are missing."""
    b = a_bench(tmp_path, bench.END_S + 0.3)

    def measured():
        b.put("speed", "rate", 5, "GB/s")
        time.sleep(0.4)
        b.left(100)

    b.part("long", measured, 0.1)
    text = (tmp_path / "out" / "RESULTS.md").read_text()
    assert "| rate | 5 GB/s |" in text and "**Cut off, so that some of its figures are missing: long.**" in text
    assert b.unfinished == ["long"] and "long" not in b.took


def test_a_setting_is_put_back_whatever_happens(tmp_path):
    """Restored also when the measurement fails; a setting that may not be changed is a note, and the run continues
    without."""
    b, path = a_bench(tmp_path, 100), tmp_path / "setting"
    path.write_text("always [never] advise\n")
    with pytest.raises(ZeroDivisionError), b.setting(path, "advise"):
        assert path.read_text() == "advise"
        1 / 0
    assert path.read_text() == "never"
    with b.setting(tmp_path / "not there" / "x", "1"):
        pass
    assert "stays as it is" in b.notes[0][1]


def test_rows_are_written_as_numpy_reads_them(tmp_path):
    """The file that measurements stream from, made without numpy."""
    numpy = pytest.importorskip("numpy")
    rows = [os.urandom(bench.PICTURE) for _ in range(5)]
    dataset = npy_file.pair(tmp_path, "rows", "|u1", (5, 3, 224, 224), rows)
    assert dataset == f"npy:{tmp_path}/rows-x.npy,{tmp_path}/rows-y.npy"
    x, y = numpy.load(tmp_path / "rows-x.npy"), numpy.load(tmp_path / "rows-y.npy")
    assert (
        x.shape == (5, 3, 224, 224)
        and x.dtype == numpy.uint8
        and x.tobytes() == b"".join(rows)
        and y.tolist() == [0, 1, 2, 3, 4]
    )


def test_rows_that_identify_themselves(tmp_path):
    """As the C trainer checks them: word j of row i is i * 2654435761 + j."""
    numpy = pytest.importorskip("numpy")
    npy_file.numbered(tmp_path)
    x = numpy.load(tmp_path / "numbered-x.npy").view(numpy.uint32)
    wanted = numpy.arange(npy_file.NUMBERED, dtype=numpy.uint64)[:, None] * 2654435761 + numpy.arange(
        64, dtype=numpy.uint64
    )
    assert (x == wanted.astype(numpy.uint32)).all()


def test_the_daemons_clock_is_read_of_the_session_with_a_gpu():
    """Of several sessions the one whose batches are on a GPU; where the daemon counts nothing, nothing is claimed."""
    counted = {"batches": 9, "p50_us": 12.5, "p99_us": 80}
    assert (
        bench.handover_of({"sessions": [{"state": "attached"}, {"state": "attached", "gpu_handover": counted}]})
        == counted
    )
    assert bench.handover_of({"sessions": [{"state": "attached"}]}) == {} and bench.handover_of({}) == {}


@needs_programs
def test_a_holder_has_a_context_until_its_input_ends(tmp_path):
    """A GPU is not shut down between two processes while one holds it."""
    env = os.environ | {
        "BATCHD_LIBCUDA": str(DOUBLE),
        "FAKECUDA_QUIET": "1",
        "FAKECUDA_DIR": str(tmp_path),
        "FAKECUDA_REPORT": str(tmp_path / "report"),
    }
    p = subprocess.Popen(
        [str(CONFORMANCE), "--hold"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert p.stdout.readline() == "holding\n" and p.poll() is None
    p.stdin.close()
    assert p.wait(300) == 0
    (report,) = tmp_path.glob("report.*")
    assert "end 0 violations, 0 leaks" in report.read_text(), report.read_text()
    p.stdout.close()


@needs_programs
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users: needs root")
def test_strangers_are_tried_in_every_relation(tmp_path):
    """On the fake driver each relation is tried, also with an exporter that is not root, and gives the fake driver's answer: no
    legacy handle for another user or PID namespace."""
    env = os.environ | {"BATCHD_LIBCUDA": str(DOUBLE), "FAKECUDA_QUIET": "1", "FAKECUDA_DIR": str(tmp_path)}
    out = subprocess.run(
        [str(CONFORMANCE), "strangers"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    ).stdout
    (tmp_path / "lines").write_text(out)
    lines = outcomes.Outcomes(outcomes.read(tmp_path / "lines"))
    for relation, legacy in (
        ("same user", "works"),
        ("root to another user", "INVALID_HANDLE"),
        ("a user to another user", "INVALID_HANDLE"),
        ("a user to root", "INVALID_HANDLE"),
        ("another PID namespace", "INVALID_HANDLE"),
        ("another IPC namespace", "works"),
        ("another network namespace", "works"),
    ):
        assert (
            lines.text("strangers", f"legacy handle, {relation}"),
            lines.text("strangers", f"descriptor, {relation}"),
        ) == (legacy, "works"), (relation, out)


# ---- results of several runs ----


def some_results(commit, **parts):
    """Results in which each part has one row and one claim of the given value."""
    found = results.Results("GPU", False)
    found.commits = [commit]
    for part, value in parts.items():
        found.rows.append((part, f"group of {part}", f"rate of {part}", value, "GB/s"))
        found.claims.append((part, f"{part} is fast", "5", f"{value}", "yes"))
        found.took[part] = 1.0
    return found


def test_what_is_measured_again_replaces_the_earlier(tmp_path):
    """A part of a later run replaces all that the earlier run said of it; other parts stay; a part that the later run
    did not reach keeps its figures."""
    one, two = some_results("aaa", copies=1, kernels=2), some_results("bbb", kernels=3, slower=4)
    one.notes += [("copies", "kept"), ("kernels", "outdated")]
    two.skipped = ["copies", "rate"]
    one.write(tmp_path / "one")
    two.write(tmp_path / "two")
    subprocess.run(
        [sys.executable, str(GPU / "results.py"), "--out", str(tmp_path / "both")]
        + [str(tmp_path / name / "results.json") for name in ("one", "two")],
        check=True,
        timeout=60,
    )
    both = results.Results.read(tmp_path / "both" / "results.json")
    assert {row[0]: row[3] for row in both.rows} == {"copies": 1, "kernels": 3, "slower": 4} and len(both.rows) == 3
    assert both.notes == [("copies", "kept")] and both.skipped == ["rate"] and both.commits == ["aaa", "bbb"]
    text = (tmp_path / "both" / "RESULTS.md").read_text()
    assert "at commit aaa and bbb" in text and "rate of kernels | 3 GB/s" in text and "outdated" not in text
    assert "| kernels is fast | 5 | 3 | yes |" in text.partition("## Verdict")[2]


def test_a_case_that_is_asked_again_replaces_the_earlier():
    """Cases of the conformance program that only the earlier run had keep their lines."""
    one, two = some_results("aaa", copies=1), some_results("bbb")
    one.answers = {"fake": "# a\nexact x = works\n", "real": "# a\nexact x = fails\n# b\ntime  y = 1 ms\n"}
    two.answers = {"fake": "", "real": "# a\nexact x = works\n"}
    one.add(two)
    assert one.answers == {"fake": one.answers["fake"], "real": "# a\nexact x = works\n# b\ntime  y = 1 ms\n"}
    assert one.answers["fake"] == "# a\nexact x = works\n"


def test_a_part_that_was_cut_off_replaces_the_earlier_and_says_so(tmp_path):
    """Its figures are of one run: those of an earlier, complete run do not fill its gaps."""
    one, two = some_results("aaa", copies=1), some_results("aaa")
    two.rows, two.unfinished = [("copies", "group of copies", "another rate", 9, "GB/s")], ["copies"]
    one.add(two)
    assert [row[2] for row in one.rows] == ["another rate"] and one.unfinished == ["copies"] and not one.took
    one.add(some_results("aaa", copies=7))
    assert [row[3] for row in one.rows] == [7] and not one.unfinished


def test_results_that_cannot_be_read_cost_only_themselves(tmp_path):
    """A file that was cut off is named and left out; answers of the driver come along."""
    some_results("aaa", copies=1).write(tmp_path / "one")
    (tmp_path / "broken.json").write_text('{"gpu": "GP')
    for name in ("fake", "real"):
        (tmp_path / name).write_text("# vmm\nexact its bytes after the owner was killed = yes\n")
    p = subprocess.run(
        [sys.executable, str(GPU / "results.py"), "--answers", str(tmp_path), "--out", str(tmp_path / "out")]
        + [str(tmp_path / "broken.json"), str(tmp_path / "one" / "results.json")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert p.returncode == 0 and "broken.json is left out" in p.stderr, p.stderr
    text = (tmp_path / "out" / "RESULTS.md").read_text()
    assert "1 expectations hold" in text and "| yes | its bytes after the owner was killed: yes |" in text


# ---- steps ----


def words_of(file, pattern):
    return re.findall(pattern, (GPU / file).read_text(), re.M)


def test_every_step_and_every_part_can_be_run():
    """Each step of run's lists has a limit and a function, and each part of bench.py is in a step."""
    limits = set(words_of("run", r"\[(\w+)\]=\"\d+ \d+\""))
    listed = {name for names in words_of("run", r"^\t\[\w+\]=\"([a-z_ ]+)\"$") for name in names.split()}
    functions = set(words_of("steps", r"^(\w+)\(\) \{"))
    assert len(listed) > 30 and listed | {"alive", "hang"} == limits and limits <= functions
    measured = {
        part for line in words_of("steps", r"\{ measure(?:_with_torch)? (.*); \}") for part in shlex.split(line)
    }
    assert measured - {"$@"} == set(bench.PARTS)
    assert set(words_of("steps", r'"([a-z ]+)"(?=.*\)$)')) >= {"context size", "work of the dead"}


@needs_programs
def test_a_step_that_does_not_end_is_killed_and_named(tmp_path):
    """It is killed with what has left its process group; its line says so; the GPU is looked at, and the other steps are run.
    What was found is in $OUT."""
    status, said = run_steps(tmp_path, "hang", "facts")
    lines = (tmp_path / "out" / "verdict.md").read_text().splitlines()
    verdicts = [line for line in lines if line.startswith("- ")]
    assert status == 1 and len(verdicts) == 3, said
    assert re.match(r"- \*\*FAILED\*\* hang \([\d.]+ s\): killed at its limit of 3 s; hanging$", verdicts[0]), said
    assert re.match(r"- \*\*ok\*\* alive \([\d.]+ s\): the GPU still answers$", verdicts[1]), said
    assert re.match(r"- \*\*ok\*\* facts \([\d.]+ s\): ", verdicts[2]), said
    assert "run chosen: 3 steps run, 1 failed, 0 not run" in lines[-1]
    with tarfile.open(tmp_path / "out" / "logs.tar.gz") as logs:
        assert any(name.endswith("-hang.log") for name in logs.getnames())


@needs_programs
def test_a_run_that_is_ended_leaves_what_it_has_found(tmp_path):
    """A signal ends the step and the run; a line says so, and the step before it has its own."""
    work = tmp_path / "w"
    with started(tmp_path, "facts", "hang", BATCHD_GPU_LIMITS="hang=900", BATCHD_GPU_WORK=str(work)) as p:
        until("the second step has begun", lambda: p.poll() is not None or list(work.glob("logs/*-hang.log")))
        p.terminate()
        assert p.wait(60) == 143
    text = (tmp_path / "out" / "verdict.md").read_text()
    assert "- **ok** facts" in text and "- **CUT OFF** run chosen" in text and "a signal ended it" in text


@needs_programs
def test_what_a_step_has_found_is_copied_before_it_ends(tmp_path):
    """The machine may be taken away in the middle of a long step."""
    kept = tmp_path / "out" / "logs.tar.gz"
    with started(tmp_path, "hang", BATCHD_GPU_LIMITS="hang=900") as p:
        until("its log is copied", lambda: p.poll() is not None or kept.exists())
        assert p.poll() is None and kept.exists()
        p.terminate()
        assert p.wait(60) == 143


@needs_programs
def test_steps_without_time_are_named(tmp_path):
    """A run ends with its time, names each step that it did not reach, and reports no success."""
    status, said = run_steps(tmp_path, "check", BATCHD_GPU_SECONDS="9")
    assert status == 1 and "- **NOT RUN** doctor (0 s): no time left" in said and "**NOT RUN** kills" in said, said


def test_a_run_names_a_step_that_it_does_not_know(tmp_path):
    p = subprocess.run([str(GPU / "run"), "facts", "fakts"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 2 and "there is no step fakts" in p.stderr


# ---- all of it ----


@contextlib.contextmanager
def started(folder, *args, script=GPU / "run", **env):
    """The script as a process, on the fake driver, with the programs of this build and its results in `folder`/out. No
    process of it may be left."""
    with tempfile.TemporaryDirectory(prefix="gpu-", dir="/tmp") as short:  # sockets lie in it, whose paths have a limit
        os.chmod(short, 0o755)  # a daemon of another user has its socket there
        env = (
            os.environ
            | {
                "FAKE": "1",
                "BATCHD_GPU_SECONDS": "1700",  # other tests run beside these, and a limit is for a GPU that is lent
                "BATCHD_GPU_WORK": f"{short}/w",
                "BATCHD_BUILD": str(BUILD),
                "OUT": str(folder / "out"),
                "PYTHONPATH": "",
                "TMPDIR": short,
            }
            | env
        )
        p = subprocess.Popen(
            [str(script), *args],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with p:
            try:
                yield p
            finally:
                p.kill()
        left = left_running(short)
    assert not left, left


def run_steps(folder, *args, **env):
    """Its exit status and output."""
    with started(folder, *args, **env) as p:
        said, _ = p.communicate(timeout=1800)
    return p.returncode, said


def left_running(folder):
    """Command lines of processes that were started with something in this folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if folder in line:
                found.append(line)
    return found


def test_a_carried_folder_that_cannot_be_unpacked_says_so(tmp_path):
    """The results have a line about it, as whoever brings them home may see nothing else."""
    shutil.copy(GPU / "first-run", tmp_path)
    env = os.environ | {"OUT": str(tmp_path / "out"), "BATCHD_GPU_WORK": "/proc/not-here"}
    p = subprocess.run(
        [str(tmp_path / "first-run")],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert p.returncode == 1 and "/proc/not-here cannot be used" in p.stderr
    assert "**FAILED** first-run" in (tmp_path / "out" / "verdict.md").read_text()


def test_a_build_without_kernels_is_not_carried(tmp_path):
    """It would fall back to the CPU on the other machine, and measure that."""
    (tmp_path / ".cuda").write_text("copy\n")
    p = subprocess.run(
        [str(GPU / "carry"), str(tmp_path), str(tmp_path / "to")], capture_output=True, text=True, timeout=60
    )
    assert p.returncode == 1 and "has no finishing kernels" in p.stderr and not (tmp_path / "to").exists()


# Limits are for a machine that does nothing else.
PATIENT = {"BATCHD_GPU_PATIENCE": "5"}


def assert_all_ran(said, *steps):
    """Every step succeeded, or says why it was skipped."""
    verdicts = re.findall(r"^- \*\*([\w ]+)\*\* (\w+) ", said, re.M)
    found = {step: word for word, step in verdicts}
    assert set(found.values()) <= {"ok", "skipped"} and {found.get(step) for step in steps} == {"ok"}, said


@pytest.mark.long("the machinery of GPU runs, as a whole")
@needs_programs
@needs_kernel
def test_check_gpu_runs_through_on_the_fake_driver(tmp_path):
    """Every step succeeds or says why it is skipped, and the verdict answers what the fake driver can answer."""
    status, said = run_steps(tmp_path, "check", **PATIENT)
    assert status == 0, said
    assert_all_ran(said, "facts", "answers", "timed", "questions", "ipc", "copy", "two", "doctor", "kills", "memcheck")
    out = tmp_path / "out"
    assert "- attribute 113, " in (out / "facts.md").read_text()
    table = (out / "conformance.md").read_text().partition("| what is assumed |")[2]
    assert all(a.what in table for a in verdict.ASSUMPTIONS)
    assert re.search(r"^\| memory by descriptor lives on .* \| yes \| ", table, re.M), table
    assert {"run.txt", "verdict.md", "facts.md", "conformance.md", "logs.tar.gz"} <= set(os.listdir(out))


@pytest.mark.long("the machinery of GPU runs, as a whole")
@needs_programs
@needs_kernel
def test_bench_gpu_runs_through_on_the_fake_driver(tmp_path):
    """All parts but those that need torch find their numbers, which mean nothing here; the machine comes first and the
    verdict last."""
    steps = "probe", "cold", "answers", "copies", "kernels", "timed", "slower", "longer", "mps", "costs"
    status, said = run_steps(tmp_path, *steps, **PATIENT)
    results_md = (tmp_path / "out" / "RESULTS.md").read_text()
    assert status == 0, said
    assert_all_ran(said, *steps)
    assert results_md.index("- attribute 113, ") < results_md.index("## ")
    assert results_md.index("## Verdict") > results_md.index("## The fake driver against this driver")
    for what in (
        "host to device, daemon's GPU thread",
        "no other process uses the GPU: cuInit",
        "another process holds a context: pin 512 MiB",
        "memfd: 16 in flight",
        "memory of node 0: 4 in flight",
        "4 trainers get each batch from one copy",
        "the same, 99th percentile: with the copy to the GPU",
        "device to device, bytes read and written",
        "pageable copies | 0 | 0 copies | yes",
        "memory used on the GPU for batches",
        "## A step beside the daemon: arithmetic",
        "## A step beside the daemon: reading and writing memory, copied by the trainer",
        "## Streaming, --gpu-memory off: copied by the trainer",
        "from step to step, worst, while another attaches",
        "## Two processes under MPS",
        "kernel of a step, above 1.2 x the middle, batches streaming",
        "memfd: 4 in flight, while all threads decode",
        "threads batchd-gpu, for each batch",
        "memory of the GPU that 8 trainers leave behind",
    ):
        assert what in results_md, f"{what}\n{results_md}"
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {"gpu", "facts", "claims", "rows", "seconds"} <= set(found) and found["skipped"] == found["unfinished"] == []
    allowed = ("needs torch", "only root")  # and pages that this machine does not give
    strange = [
        n for n in found["notes"] if n["part"] != "page kinds" and not any(word in n["text"] for word in allowed)
    ]
    assert not strange, strange


@pytest.mark.long("builds everything a second time, static")
@needs_kernel
def test_what_is_carried_runs_from_there(tmp_path):
    """`make gpu-carry` makes a folder that is small and needs nothing else: all steps run out of a copy of it, a second call
    adds to the first one's results, and at most eight files come back."""
    subprocess.run(["make", "gpu-carry"], cwd=REPO, stdin=subprocess.DEVNULL, check=True, timeout=3600)
    carried = tmp_path / "carried"
    shutil.copytree(REPO / ".gpu", carried)
    assert sum(path.stat().st_size for path in carried.rglob("*")) < 64 << 20
    out = tmp_path / "out"
    with tempfile.TemporaryDirectory(prefix="gpu-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        for mode, steps in (
            ("first", ("facts", "answers", "ipc", "two", "kills", "questions", "copies", "kernels", "slower")),
            ("bench", ("longer", "mps")),
            ("second", ("answers", "mps", "costs", "memcheck", "racecheck", "initcheck")),
        ):
            status, said = run_steps(
                tmp_path,
                mode,
                script=carried / "first-run",
                BATCHD_GPU_WORK=place,
                BATCHD_BUILD="",
                PYTHON=sys.executable,
                **PATIENT,
            )
            assert status == 0, said
            assert_all_ran(said, *steps)
    assert len(os.listdir(out)) <= 8 and not any(path.is_dir() for path in out.iterdir()), os.listdir(out)
    text = (out / "RESULTS.md").read_text()
    assert "memfd: 16 in flight" in text and "## Two processes under MPS" in text, "one file has both calls' results"


def test_a_case_of_real_torch_that_fails_fails_the_run(tmp_path):
    """The failing part is named, with its output, and the exit status is an error."""
    p = subprocess.run(
        [sys.executable, str(GPU / "torch_real.py"), str(tmp_path), "no_such_case"],
        env=os.environ | {"TRAIN_DEVICE": "cpu"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert p.returncode == 1 and re.search(r"^FAILED +no such case", p.stdout) and "1 failed" in p.stdout, (
        p.stdout + p.stderr
    )
