"""Pytest plugin: writes how long each test took to BUILD/tests/logs/python.durations, and has tests/run/slowest print the
slowest ones, unless tests/run/check does that for all tests together ($BATCHD_TEST_RUN).

A line has seconds of the clock, seconds of processor and the test's name, with tabs between. Processor time is that of
the process that runs the tests and of its children that have ended, so a daemon of the whole run counts nowhere.
"""

import os
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("BATCHD_BUILD", "build"))
FILE = BUILD / "tests" / "logs" / "python.durations"
SLOWEST = pathlib.Path(__file__).resolve().parents[1] / "run/slowest"


def processor_s():
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Durations:
    """In the process that reports: with pytest-xdist not the one that runs the tests."""

    def __init__(self):
        self.seconds, self.processor = {}, {}

    def pytest_runtest_logreport(self, report):
        name = report.nodeid
        self.seconds[name] = self.seconds.get(name, 0) + report.duration
        if report.when == "teardown":
            self.processor[name] = self.processor.get(name, 0) + dict(report.user_properties).get("processor_s", 0)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        if not self.seconds or "BATCHD_TEST_REPEATED" in os.environ:  # --collect-only; a late test's second run
            return
        FILE.parent.mkdir(parents=True, exist_ok=True)
        with open(FILE, "w") as file:
            for name, seconds in sorted(self.seconds.items(), key=lambda item: -item[1]):
                file.write(f"{seconds:.3f}\t{self.processor.get(name, 0):.3f}\t{name}\n")

    def pytest_terminal_summary(self, terminalreporter):
        if self.seconds and "BATCHD_TEST_RUN" not in os.environ:
            done = subprocess.run([SLOWEST, BUILD, FILE], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            terminalreporter.write(done.stdout + done.stderr)


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(), "durations of tests")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    item.processor_s_before = processor_s()
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    if call.when == "teardown":
        item.user_properties.append(("processor_s", processor_s() - item.processor_s_before))
