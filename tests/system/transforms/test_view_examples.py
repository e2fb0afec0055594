"""The recipes with views run on small pictures, see every one of them in each epoch, and learn."""

import re

import pytest

pytestmark = pytest.mark.long("trains with the examples of views; test_views.py holds the views")

pytest.importorskip("torch")
from test_examples import losses, run  # noqa: E402

SMALL = ("--epochs", 3, "--batch-size", 12, "--size", 64)


@pytest.mark.parametrize(
    "name, more", [("simclr.py", ()), ("moco_v3.py", ()), ("dino.py", ("--local-size", 32)), ("mae.py", ())]
)
def test_a_short_training_loses_no_sample(daemon, torch_server, samples, name, more):
    """Proves that each example sees all 96 pictures in every epoch, and that its loss falls; DINO's, which has a target
    that moves, only has to stay within reach."""
    output = run(torch_server, name, samples, *SMALL, *more)
    assert re.findall(r"epoch (\d) samples (\d+)", output) == [(str(e), "96") for e in range(3)]
    found = losses(output)
    assert len(found) >= 3 and found[-1] < (found[0] if name != "dino.py" else 2 * found[0]), found
    assert len(set(found)) == len(found), found
