"""The end of a test run's output: totals, and what was skipped and why."""

import os
import pathlib
import shutil
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]


def program(path, *lines, status=0):
    """A program with Check's output."""
    path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines) + f"exit {status}\n")
    path.chmod(0o755)
    return path


def test_c_programs_are_added_up_and_their_reasons_to_skip_counted(tmp_path):
    """Each reason is one line with its number of tests, the most frequent first; the totals are over all programs."""
    all_well = "100%: Checks: 3, Failures: 0, Errors: 0"
    programs = [
        program(tmp_path / "one", "skipped: no lions", "skipped: no bears", all_well),
        program(tmp_path / "two", "skipped: no bears", "50%: Checks: 2, Failures: 1, Errors: 0", status=1),
    ]
    with open(tmp_path / "output", "w+") as output:  # a file, as in a script's log: nothing may truncate it
        code = subprocess.run(
            [REPO / "tests/run-c", tmp_path, *programs], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ).returncode
        output.seek(0)
        lines = output.read().splitlines()
    assert code == 1 and any(line.startswith("one ") and line.endswith("ok") for line in lines), lines
    assert lines[-4].startswith("Failed: two ")
    assert lines[-3:] == ["2 skipped: no bears", "1 skipped: no lions", "80%: Checks: 5, Failures: 1, Errors: 0"]


def test_reasons_to_skip_end_pytests_output(tmp_path):
    """Skips of fixtures, marks and modules are summed up by reason."""
    shutil.copy(REPO / "tests/python/conftest.py", tmp_path)
    (tmp_path / "test_zoo.py").write_text(
        "import pytest\n"
        "@pytest.fixture\ndef lion():\n    pytest.skip('no lions')\n"
        "@pytest.mark.parametrize('n', range(3))\ndef test_lion(lion, n): pass\n"
        "@pytest.mark.skipif(True, reason='no bears')\ndef test_bear(): pass\n"
        "def test_cat(): pass\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_zoo.py"],
        env={**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPATH": str(REPO / "tests/python")},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert run.stdout.splitlines()[-3:-1] == ["3 skipped: no lions", "1 skipped: no bears"], run.stdout + run.stderr
