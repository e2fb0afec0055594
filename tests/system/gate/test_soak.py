"""The endurance runs of tests/soak, in short. `make soak` runs them in full."""

import json
import subprocess
import sys

import pytest

from conftest import BUILD, REPO

pytestmark = pytest.mark.long("the endurance runs' own machinery")

SCRIPTS = sorted(path.name for path in (REPO / "tests/soak").glob("soak_*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_short_endurance_run(build, script):
    pytest.importorskip("torch")
    ran = subprocess.run(
        [sys.executable, REPO / "tests/soak" / script, "--build", BUILD, "--quick", "--seed", "1", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.stdout, ran.stderr
    result = json.loads(ran.stdout)
    assert result["ok"], f"{result['why']}\n{result['log']}"
