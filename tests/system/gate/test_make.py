"""Targets for daily work: one program, one test, what clean keeps, what a benchmark builds, and the compile
commands."""

import json
import os
import shutil
import subprocess

import pytest

from daemons import BUILD, REPO

pytestmark = pytest.mark.long("targets for developers")


def make(*args, folder=REPO, **settings):
    """make's exit status and output. Variables of a make that runs these tests do not reach it."""
    environment = {
        k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "BATCHD_TEST", "TOTAL_IN")
    }
    done = subprocess.run(
        ["make", "-s", "--no-print-directory", "-C", folder, *args, *(f"{k}={v}" for k, v in settings.items())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        timeout=600,
    )
    return done.returncode, done.stdout


def checks(output):
    """Suite -> how many checks ran."""
    return {line.split()[0]: int(line.split()[1]) for line in output.splitlines() if " checks " in line}


def test_one_suite_or_one_test_can_be_run(build):
    """T=account runs test_account.c alone, T=account:zero only its tests that have "zero" in their names."""
    code, output = make("check-c", T="account", BUILD=BUILD)
    everything = checks(output)
    assert code == 0 and list(everything) == ["account"], output
    names = subprocess.run(
        ["grep", "-ho", "^START_TEST(.*", REPO / "tests/unit/base/test_account.c"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    part = names.splitlines()[0].split("(")[1].split("_", 1)[1].rstrip(")")
    code, output = make("check-c", T=f"account:{part}", BUILD=BUILD)
    some = checks(output)
    assert code == 0 and 0 < some[f"account:{part}"] < everything["account"], output


def test_a_choice_without_tests_fails(build):
    """A misspelt name does not count as success."""
    code, output = make("check-c", T="account:misspelt", BUILD=BUILD)
    assert code != 0 and "none has $BATCHD_TEST in its name" in output


def test_clean_keeps_what_takes_minutes_to_make(tmp_path):
    """Python environments survive `make clean` and not `make distclean`; objects survive neither."""
    for name in (
        "Makefile",
        *(f"{side}/build.mk" for side in ("proto", "daemon", "client", "client/python", "tests", "systemd")),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    kept = ["venv", "bench-venv", "frameworks-venv", "format-venv"]
    for name in (*kept, "daemon"):
        (tmp_path / "build" / name).mkdir(parents=True)
    code, output = make("clean", folder=tmp_path)
    assert code == 0 and sorted(path.name for path in (tmp_path / "build").iterdir()) == sorted(kept), output
    code, output = make("distclean", folder=tmp_path)
    assert code == 0 and not (tmp_path / "build").exists(), output


def test_a_benchmark_builds_no_tests(tmp_path):
    """`make bench` builds only its own programs."""
    code, output = make("-n", "bench-tools", "V=1", BUILD=tmp_path / "none")
    assert code == 0 and "tests/bench/handover" in output and "tests/tools/render" in output
    assert "tests/unit/" not in output and "fakecuda" not in output


def test_editors_are_told_how_each_file_is_compiled(build):
    """compile_commands.json has every source of the daemon, and its commands compile."""
    code, output = make("-nB", "V=1", "all", BUILD=BUILD)
    assert code == 0, output
    told = subprocess.run(
        [REPO / "tests/setup/compile-commands"], input=output, capture_output=True, text=True, check=True, cwd=REPO
    ).stdout
    commands = {entry["file"]: entry for entry in json.loads(told)}
    sources = {str(path.relative_to(REPO)) for path in REPO.glob("daemon/**/*.c")} - {
        "daemon/gpu/gpus-none.c",
        "daemon/gpu/gpus.c",
        "daemon/gpu/thread.c",
        "daemon/watch/http-library-linked.c",
    }
    assert sources <= set(commands), sources - set(commands)
    entry = commands["daemon/batch/stream.c"]
    arguments = [word for word in entry["arguments"] if word not in ("-MMD", "-MP")]
    arguments[arguments.index("-o") + 1] = os.devnull
    subprocess.run([*arguments, "-fsyntax-only"], check=True, cwd=entry["directory"])
