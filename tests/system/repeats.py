"""Pytest plugin: tests that were late run again, alone.

A test marked `timing` may fail because the machine had other work. If it fails with one of the exceptions in LATE, it
runs again when all others have ended, at most RUNS - 1 times, as long as it is only late. If it passes, it counts as
passed, and the summary names it: `flaky: NAME (passed on run 2)`. Nothing else is repeated: no wrong value, no test
without the mark, no daemon that ended. tests/run/flaky is the list of known ones, which tests/run/check-flaky keeps short.
"""

import os
import subprocess
import sys

import pytest

from daemons import TooLate

RUNS = 3
LATE = (TooLate, subprocess.TimeoutExpired)
PASSED, ONLY_LATE = 74, 75  # exit status of a second or third run: the test passed, or was late again and nothing else
LIMIT_S = 900  # of such a run


class Repeats:
    """In the process that reports: with pytest-xdist not the one that runs the tests."""

    def __init__(self, config):
        self.config = config
        self.late, self.failed, self.flaky = set(), set(), []

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)
            if dict(report.user_properties).get("late") == report.when:
                self.late.add(report.nodeid)

    def run_again(self, name):
        """The run on which it passed, or None."""
        for run in range(2, RUNS + 1):
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", name],
                    cwd=self.config.invocation_params.dir,
                    env={**os.environ, "PYTEST_ADDOPTS": "", "BATCHD_TEST_REPEATED": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=LIMIT_S,
                )
            except subprocess.TimeoutExpired:
                return None
            if done.returncode == PASSED:
                return run
            if done.returncode != ONLY_LATE:
                return None
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED:  # Ctrl-C, for one
            return
        stats = self.config.pluginmanager.get_plugin("terminalreporter").stats
        for name in sorted(self.late):
            reports = [r for kind in ("failed", "error") for r in stats.get(kind, []) if r.nodeid == name]
            if len(reports) != 1 or not (run := self.run_again(name)):
                continue
            for kind in ("failed", "error"):
                stats[kind] = [r for r in stats.get(kind, []) if r.nodeid != name]
            if not any(r.nodeid == name for r in stats.get("passed", [])):
                stats.setdefault("passed", []).append(reports[0])
            self.failed.discard(name)
            session.testsfailed -= 1
            self.flaky.append(f"flaky: {name} (passed on run {run})")
        if self.flaky and not self.failed:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter):
        for line in self.flaky:
            terminalreporter.write_line(line)


class Repeated:
    """In a second or third run: says by its exit status what came of the one test."""

    def __init__(self):
        self.passed, self.late, self.failed = False, False, False

    def pytest_runtest_logreport(self, report):
        self.passed |= report.passed and report.when == "call"
        late = dict(report.user_properties).get("late") == report.when
        self.late |= report.failed and late
        self.failed |= report.failed and not late

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if not self.failed and (self.late or self.passed):
            session.exitstatus = ONLY_LATE if self.late else PASSED


def pytest_configure(config):
    config.addinivalue_line("markers", "timing: may fail by being late on a busy machine; then runs again, alone")
    if not hasattr(config, "workerinput"):
        again = "BATCHD_TEST_REPEATED" in os.environ
        config.pluginmanager.register(Repeated() if again else Repeats(config), "repeats of tests")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed and call.excinfo and call.excinfo.errisinstance(LATE) and item.get_closest_marker("timing"):
        report.user_properties.append(("late", report.when))
