"""The examples that mix rows: a short training each on photographs, which loses no sample."""

import re

import pytest

from test_examples import losses, run


@pytest.mark.parametrize("name", ["resnet_v2.py", "deit.py", "three_augment.py"])
def test_recipe(daemon, photos, name):
    """Two epochs of 400 photographs at a small size: all samples come, and every loss is sound."""
    output = run(name, photos, "--epochs", 2, "--batch-size", 20, "--size", 64)
    found = losses(output)
    assert len(found) == 4 and all(0 < x < 10 for x in found)
    assert int(re.search(r"samples (\d+)", output)[1]) == 800
