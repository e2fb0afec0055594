"""The comparison loader and the model of `make demo`, without torch."""

import json
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long("the demonstration's machinery; the gate runs `make demo` itself")

pytest.importorskip("PIL")
DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo"

# Without torch in sys.modules: in a process of its own.
EPOCHS = """
import json, sys
import baseline, models
sys.modules["torch"] = None
root, rank, n_classes = sys.argv[1], int(sys.argv[2]), 4
loader, model = baseline.PlainLoader(root, 8, rank, 2, 2), models.make(n_classes, rank, 2, None)
for epoch in range(3):
    loader.set_epoch(epoch)
    labels, loss = [], 0.0
    for images, said in loader:
        assert images.shape == (len(said), 3, 224, 224) and images.dtype == "float32"
        labels += said.tolist()
        loss += model.step(images, said)[0]
    print(json.dumps({"labels": labels, "loss": loss / len(labels)}))
loader.close()
"""


def epochs(root, rank):
    run = subprocess.run(
        [sys.executable, "-c", EPOCHS, str(root), str(rank)],
        cwd=DEMO,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_plain_workers_have_every_sample_once_and_the_model_learns(samples):
    """Two ranks together have all 96 labels in each epoch, in another order each time; the loss falls each time."""
    ranks = [epochs(samples, rank) for rank in range(2)]
    for both in zip(*ranks):
        assert sorted(both[0]["labels"] + both[1]["labels"]) == sorted(label for label in range(4) for _ in range(24))
    for said in ranks:
        assert said[0]["labels"] != said[1]["labels"]
        assert said[0]["loss"] > said[1]["loss"] > said[2]["loss"], said
        assert said[2]["loss"] < 0.9 * said[0]["loss"], said
