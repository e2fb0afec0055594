"""Pytest plugin: tests that were late run again, alone.

A test marked `timing` may fail because the machine had other work. Where it fails by being late, which is by an
exception of LATE, it runs again when all others have ended, at most RUNS - 1 times. If it passes, it counts as passed, and
the summary names it: `flaky: NAME (passed on run 2)`. Nothing else is repeated: no wrong value, no test without the
mark, no daemon that ended. tests/flaky is the list of known ones, which tests/check-flaky keeps short.
"""

import os
import subprocess
import sys

import pytest

from daemons import TooLate

RUNS = 3
LATE = (TooLate, TimeoutError, subprocess.TimeoutExpired)


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
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", name],
                cwd=self.config.invocation_params.dir,
                env={**os.environ, "PYTEST_ADDOPTS": "", "BATCHD_TEST_REPEATED": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            if done.returncode == 0:
                return run
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
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
        if self.flaky and not self.failed and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter):
        for line in self.flaky:
            terminalreporter.write_line(line)


def pytest_configure(config):
    config.addinivalue_line("markers", "timing: may fail by being late on a busy machine; then runs again, alone")
    if not hasattr(config, "workerinput") and "BATCHD_TEST_REPEATED" not in os.environ:
        config.pluginmanager.register(Repeats(config), "repeats of tests")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed and call.excinfo and call.excinfo.errisinstance(LATE) and item.get_closest_marker("timing"):
        report.user_properties.append(("late", report.when))
