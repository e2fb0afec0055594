"""The end of a test run's output: totals, what was skipped and why, what was late and passed when it ran again."""

import datetime
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from daemons import runs, until

pytestmark = pytest.mark.long("the machinery of the test run")

REPO = pathlib.Path(__file__).resolve().parents[3]


def suite(folder, name, *lines, status=0, late=None, again=1, then=None):
    """A suite's program with Check's output. late: the message of its failed test in Check's log; again, then: its exit
    status when that test is run alone, and the message of that run."""
    path = folder / "tests" / f"test_{name}"
    path.parent.mkdir(exist_ok=True)

    def log(message):
        test = f'<test result="failure">\n<id>test_speed</id>\n<duration>0.5</duration>\n<message>{message}</message>'
        return f"cat >\"$CK_XML_LOG_FILE_NAME\" <<'END'\n{test}\n</test>\nEND\n" if message else ""

    path.write_text(
        "#!/bin/sh\n"
        f'if [ -n "$BATCHD_ONE_TEST" ]; then\necho "$BATCHD_ONE_TEST" >>{folder}/again\n{log(then or late)}exit {again}\nfi\n'
        + "".join(f"echo '{line}'\n" for line in lines)
        + log(late)
        + f"exit {status}\n"
    )
    path.chmod(0o755)


def run_c(folder, *suites):
    env = {k: v for k, v in os.environ.items() if k not in ("TOTAL_IN", "BATCHD_TEST", "BATCHD_TEST_WHOLE")}
    with open(folder / "output", "w+") as output:  # a file, as in a script's log: nothing may truncate it
        code = subprocess.run(
            [REPO / "tests/run/c", folder, *suites], env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ).returncode
        output.seek(0)
        return code, output.read().splitlines()


def test_c_suites_are_added_up_and_their_reasons_to_skip_counted(tmp_path):
    """Each reason is one line with its number of tests, the most frequent first; the totals are over all programs."""
    suite(tmp_path, "one", "skipped: no lions", "skipped: no bears", "100%: Checks: 3, Failures: 0, Errors: 0")
    suite(tmp_path, "two", "skipped: no bears", "50%: Checks: 2, Failures: 1, Errors: 0", status=1)
    code, lines = run_c(tmp_path, "one", "two")
    assert code == 1 and any(line.startswith("one ") and line.endswith("ok") for line in lines), lines
    assert not any("awk" in line for line in lines), lines  # a program that failed without Check's log
    assert lines[-4].startswith("Failed: two ")
    assert lines[-3:] == ["2 skipped: no bears", "1 skipped: no lions", "80%: Checks: 5, Failures: 1, Errors: 0"]


def test_a_late_c_test_runs_again_alone(tmp_path):
    """It counts as passed when it passes then, and is named; it is late by ck_assert_in_time or by Check's limit."""
    for late in "late: 3 us of 2 us", "(after this point) Test timeout expired":
        suite(tmp_path, "two", "50%: Checks: 2, Failures: 1, Errors: 0", status=1, late=late, again=0)
        code, lines = run_c(tmp_path, "two")
        assert code == 0 and lines[-2:] == [
            "flaky: test_two.c: test_speed (passed on run 2)",
            "100%: Checks: 2, Failures: 0, Errors: 0",
        ], lines


def test_a_late_c_test_fails_when_it_is_late_three_times(tmp_path):
    suite(tmp_path, "two", "50%: Checks: 2, Failures: 1, Errors: 0", status=1, late="late: 3 us", again=1)
    code, lines = run_c(tmp_path, "two")
    assert code == 1 and lines[-1] == "50%: Checks: 2, Failures: 1, Errors: 0", lines
    assert (tmp_path / "again").read_text().split() == ["test_speed"] * 2


def test_a_late_c_test_that_is_then_wrong_has_failed(tmp_path):
    """There is no third run."""
    suite(tmp_path, "two", "50%: Checks: 2, Failures: 1, Errors: 0", status=1, late="late: 3 us", then="3 is not 2")
    code, lines = run_c(tmp_path, "two")
    assert code == 1 and (tmp_path / "again").read_text().split() == ["test_speed"], lines


def test_a_sanitizers_report_is_never_repeated(tmp_path):
    suite(tmp_path, "two", "50%: Checks: 2, Failures: 1, Errors: 0", status=99, late="late: 3 us", again=0)
    code, lines = run_c(tmp_path, "two")
    assert code == 1 and not (tmp_path / "again").exists(), lines


def test_a_wrong_value_in_c_is_never_repeated(tmp_path):
    suite(tmp_path, "two", "50%: Checks: 2, Failures: 1, Errors: 0", status=1, late="3 is not 2", again=0)
    code, lines = run_c(tmp_path, "two")
    assert code == 1 and not (tmp_path / "again").exists(), lines


def test_seconds_of_c_tests_are_kept(tmp_path):
    suite(tmp_path, "two", "100%: Checks: 1, Failures: 0, Errors: 0", late="Passed")
    run_c(tmp_path, "two")
    assert (tmp_path / "tests/logs/two.durations").read_text() == "0.500\t\ttest_two.c: test_speed\n"
    assert (tmp_path / "tests/durations").read_text() == "0.500\t\ttest_two.c: test_speed\n"


def pytest_in(folder, text, *arguments):
    shutil.copy(REPO / "tests/system/conftest.py", folder)
    (folder / "test_zoo.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_zoo.py", *arguments],
        env={
            **os.environ,
            "PYTEST_ADDOPTS": "",
            "PYTHONPATH": str(REPO / "tests/system"),
            "BATCHD_BUILD": str(folder / "build"),
            "BATCHD_TEST_RUN": "",
        },
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_reasons_to_skip_end_pytests_output(tmp_path):
    """Skips of fixtures, marks and modules are summed up by reason."""
    run = pytest_in(
        tmp_path,
        "import pytest\n"
        "@pytest.fixture\ndef lion():\n    pytest.skip('no lions')\n"
        "@pytest.mark.parametrize('n', range(3))\ndef test_lion(lion, n): pass\n"
        "@pytest.mark.skipif(True, reason='no bears')\ndef test_bear(): pass\n"
        "def test_cat(): pass\n",
        "-p",
        "no:xdist",
    )
    assert run.stdout.splitlines()[-3:-1] == ["3 skipped: no lions", "1 skipped: no bears"], run.stdout + run.stderr


ZOO = """
import pathlib, pytest
from daemons import TooLate
def times(name):
    file = pathlib.Path(name)
    file.write_text(file.read_text() + "x" if file.exists() else "x")
    return len(file.read_text())
{mark}
def test_lion():
    if times("lion") < {good}:
        raise {error}
def test_cat():
    times("cat")
"""
TIMING = "@pytest.mark.timing"


def zoo(folder, *arguments, mark=TIMING, good=2, error="TooLate('slow')"):
    run = pytest_in(folder, ZOO.format(mark=mark, good=good, error=error), *arguments)
    assert (folder / "cat").read_text() == "x"
    return run, len((folder / "lion").read_text()), run.stdout.splitlines()


def test_a_late_test_runs_again_alone(tmp_path):
    """It then counts as passed, is named, and leaves no traceback; side by side and in one process."""
    for good, *how in (2, "-p", "no:xdist"), (3, "-n", "2"):
        folder = tmp_path / str(good)
        folder.mkdir()
        run, n, lines = zoo(folder, *how, good=good)
        assert run.returncode == 0 and n == good, run.stdout + run.stderr
        assert lines[-2] == f"flaky: test_zoo.py::test_lion (passed on run {good})"
        assert lines[-1].startswith("2 passed") and "Traceback" not in run.stdout and "FAILED" not in run.stdout


def test_a_late_test_fails_when_it_is_late_three_times(tmp_path):
    run, n, lines = zoo(tmp_path, good=9)
    assert run.returncode == 1 and n == 3 and lines[-1].startswith("1 failed, 1 passed"), run.stdout + run.stderr


def test_a_late_test_that_is_then_wrong_or_skipped_has_failed(tmp_path):
    """There is no third run."""
    for i, then in enumerate(("assert n != 2, 'wrong'", "pytest.skip('gone') if n == 2 else None")):
        folder = tmp_path / str(i)
        folder.mkdir()
        text = ZOO.format(mark=TIMING, good=0, error="None").replace(
            '    if times("lion") < 0:\n        raise None\n',
            f"    n = times(\"lion\")\n    if n == 1:\n        raise TooLate('slow')\n    {then}\n",
        )
        run = pytest_in(folder, text)
        assert run.returncode == 1 and len((folder / "lion").read_text()) == 2, run.stdout + run.stderr
        assert run.stdout.splitlines()[-1].startswith("1 failed, 1 passed"), run.stdout


def test_nothing_else_is_repeated(tmp_path):
    """No wrong value, and no test without the mark."""
    for case in {"error": "AssertionError('wrong')"}, {"mark": ""}:
        folder = tmp_path / next(iter(case))
        folder.mkdir()
        run, n, lines = zoo(folder, **case)
        assert run.returncode == 1 and n == 1 and lines[-1].startswith("1 failed, 1 passed"), run.stdout + run.stderr


def test_seconds_of_python_tests_are_kept(tmp_path):
    """The clock's, and the processor's of the test and its children."""
    run = pytest_in(
        tmp_path,
        "import subprocess, sys\n"
        "def test_busy(): subprocess.run([sys.executable, '-c', 'x = 0\\nwhile x < 3e6: x += 1'])\n"
        "def test_idle(): pass\n",
    )
    rows = [line.split("\t") for line in (tmp_path / "build/tests/logs/python.durations").read_text().splitlines()]
    assert [row[2] for row in rows] == ["test_zoo.py::test_busy", "test_zoo.py::test_idle"], run.stdout
    assert float(rows[0][1]) > 0 and float(rows[0][1]) > float(rows[1][1]) and float(rows[0][0]) > float(rows[1][0])


def run_check(folder, venv="exit 0", python="echo '3 passed in 1.00s'", flaky="", **env):
    """tests/run/check of a tree whose other scripts are these."""
    tests = folder / "tests"
    for room in ("setup", "run", "unit/one"):
        (tests / room).mkdir(parents=True)
    (folder / "build" / "tests").mkdir(parents=True)
    shutil.copy(REPO / "tests/run/check", tests / "run")
    (tests / "unit/one/test_one.c").touch()
    (tests / "run/flaky").write_text(flaky)
    scripts = {
        "layers": "echo layers",
        "run/house": "echo house",
        "run/check-flaky": "exit 0",
        "run/slowest": "echo slowest",
        "run/c": "echo 'one 2 checks'; echo '100%: Checks: 2, Failures: 0, Errors: 0' >$TOTAL_IN",
        "run/python": python,
        "setup/venv": venv,
    }
    for name, text in scripts.items():
        (tests / name).write_text(f"#!/bin/sh\n{text}\n")
        (tests / name).chmod(0o755)
    env = {k: v for k, v in os.environ.items() if k not in ("CI", "BATCHD_TEST_RUN")} | {"BATCHD_TEST_DATA": "x"} | env
    return subprocess.run(
        [tests / "run/check", "build", sys.executable],
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_c_tests_run_first_and_the_totals_come_last(tmp_path):
    run = run_check(tmp_path)
    lines = run.stdout.splitlines()
    assert run.returncode == 0 and lines.index("one 2 checks") < lines.index("Python tests"), lines
    assert lines[-2:] == ["3 passed in 1.00s", "100%: Checks: 2, Failures: 0, Errors: 0"]


def test_without_a_package_index_the_c_tests_run(tmp_path):
    """The Python tests are skipped with the reason; in continuous integration that is a failure."""
    no_index = "echo 'No matching distribution found for numpy' >&2; exit 1"
    run = run_check(tmp_path / "here", no_index)
    lines = run.stdout.splitlines()
    assert run.returncode == 0 and "No matching distribution found for numpy" in lines, lines
    assert lines[-2].startswith("skipped: all Python tests") and lines[-1].startswith("100%: Checks: 2"), lines
    assert run_check(tmp_path / "there", no_index, CI="true").returncode == 1


def test_what_tests_leave_running_fails_the_run(tmp_path):
    """It is named and ended, also where it has left the process group and holds the run's output open."""
    run = run_check(tmp_path, python="setsid sleep 4321 & echo '3 passed in 1.00s'")
    assert run.returncode == 1 and "Still running when all tests had ended:\n" in run.stdout, run.stdout
    (line,) = [line for line in run.stdout.splitlines() if "sleep 4321" in line]
    until("it has ended", lambda: not runs(int(line.split()[0])))


def test_a_late_test_comes_with_its_line_for_the_list(tmp_path):
    """It does not fail the run, nor, once listed, come again."""
    late = "echo 'flaky: test_x.py::test_speed (passed on run 2)'; echo '3 passed in 1.00s'"
    for i, listed in enumerate(("", "2026-01-01\ttest_x.py::test_speed\tslow\n")):
        run = run_check(tmp_path / str(i), python=late, flaky=listed)
        assert run.returncode == 0, run.stdout
        assert ("\ttest_x.py::test_speed\tREASON\n" in run.stdout) == (not listed), run.stdout


def test_the_list_of_flaky_tests_stays_short(tmp_path):
    """At most ten, each for two weeks at most."""
    today = datetime.datetime.now(datetime.timezone.utc).date()
    flaky = tmp_path / "flaky"

    def check(*lines):
        flaky.write_text("# a comment\n\n" + "".join(line + "\n" for line in lines))
        return subprocess.run([REPO / "tests/run/check-flaky", flaky], capture_output=True, text=True)

    def line(i, days=0):
        return f"{today - datetime.timedelta(days=days)}\ttest_{i}\tslow"

    assert (
        check().returncode == 0 and check(*map(line, range(10))).returncode == 0 and check(line(1, 13)).returncode == 0
    )
    for lines, text in (
        (map(line, range(11)), "11 tests"),
        ([line(1, 15)], "for more than 14 days: test_1"),
        ([line(1), line(1)], "twice: test_1"),
        (["test_1"], "not a date until today, a test and a reason"),
    ):
        done = check(*lines)
        assert done.returncode == 1 and text in done.stderr, done
