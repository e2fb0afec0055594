"""JAX itself, in processes of their own: cases of frameworks/under_jax.py. JAX is in the frameworks' environment; another
Python that has it may be named by $BATCHD_TEST_JAX."""

import os
import pathlib
import re
import subprocess

import pytest

from daemons import BUILD, REPO

SCRIPT = pathlib.Path(__file__).parents[1] / "frameworks" / "under_jax.py"
FRAMEWORKS = BUILD / "frameworks-venv"
PYTHON = os.environ.get("BATCHD_TEST_JAX") or str(FRAMEWORKS / "bin" / "python")

pytestmark = pytest.mark.skipif(
    not os.environ.get("BATCHD_TEST_JAX") and not list(FRAMEWORKS.glob("lib/python*/site-packages/jax/dlpack.py")),
    reason="JAX is not installed: `make frameworks` does it (500 MB)",
)


def holds(case, *arguments, env=None, talk=None):
    """A case prints "held"; talk: a function that gets the process after its first line."""
    p = subprocess.Popen(
        [PYTHON, "-W", "error", SCRIPT, case, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2", **(env or {})},
    )
    if talk is not None:
        assert p.stdout.readline() == "ready\n"
        talk()
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0 and out.endswith("held\n") and "Traceback" not in err, out + err


@pytest.mark.parametrize("case", re.findall(r"^def case_(\w+)\(\)", SCRIPT.read_text(), re.M))
def test_jax(daemon, case):
    holds(case)


def test_types_of_64_bits(daemon):
    holds("wide", env={"JAX_ENABLE_X64": "1"})


def test_pictures(daemon, samples):
    holds("pictures", samples)


def test_an_array_outlives_the_daemon(make_daemon):
    holds("daemon_dies", talk=make_daemon().kill)


def test_a_producers_bfloat16(daemon):
    """float8 as well, which JAX gets as a copy."""
    torch = pytest.importorskip("torch")
    import batchd

    x = torch.arange(4096).view(8, 512)
    sent = [{"half": x.to(torch.bfloat16), "eighth": (x % 8).to(torch.float8_e4m3fn), "rows": [x[0], x[0, :3]]}] * 4
    with batchd.serve(sent, "halves", epochs=1, background=True):
        holds("served")


def test_the_example_learns(daemon, samples):
    """client/examples/train_jax.py on pictures that colours tell apart."""
    argv = [PYTHON, REPO / "client/examples/train_jax.py", samples, "--epochs", "6", "--batch-size", "16"]
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    p = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", p.stdout)]
    assert p.returncode == 0 and len(losses) == 6 and losses[-1] < losses[0], p.stdout + p.stderr
    assert re.findall(r": (\d+) samples", p.stdout) == ["96"] * 6
