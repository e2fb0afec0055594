"""Lightning, Accelerate, transformers' Trainer, timm and ignite themselves, in the versions of requirements-frameworks.
Each runs a script of frameworks/ in an environment of its own (make frameworks), which checks its assertions and prints
"held"."""

import os
import pathlib
import subprocess

import pytest

from daemons import BUILD, REPO

SCRIPTS = pathlib.Path(__file__).parent / "frameworks"
PYTHON = BUILD / "frameworks-venv" / "bin" / "python"

pytestmark = pytest.mark.skipif(
    not (BUILD / "frameworks-venv" / ".made-from").exists(),
    reason="the frameworks are not installed: `make frameworks` does it (300 MB)",
)


def holds(script, *arguments, ranks=0):
    """ranks: under torchrun; 0: a process alone."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks else []
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [str(PYTHON), *launch, str(SCRIPTS / script), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        env=env,
    )
    assert "held" in done.stdout.split(), done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def test_lightning_trains_each_epoch_once_and_resumes_from_every_step(daemon, tmp_path):
    """Two ranks: epochs 0, 1, 2; a checkpoint of each step of the three resumes with the batches that would have
    followed."""
    holds("under_lightning.py", tmp_path, ranks=2)


@pytest.mark.parametrize("ranks", [2, 3])
def test_accelerate_counts_no_padding_and_sees_the_end_of_an_epoch(daemon, ranks):
    """Two ranks have the schedule of torch's loader as well; with three, padding lies at the end of two of them."""
    holds("under_accelerate.py", ranks=ranks)


def test_transformers_trainer_evaluates_each_row_once_and_resumes(daemon, tmp_path):
    """Two ranks, 99 rows, a checkpoint in the middle of epoch 1."""
    holds("under_trainer.py", tmp_path, ranks=2)


def test_timm_and_ignite_loops_and_their_transforms(daemon, samples):
    """timm's sampler for repeated augmentation, ignite's engine, and the pixels of torchvision's and timm's pipelines."""
    holds("under_loops.py", samples)


def test_the_example_of_huggingface_trains(daemon, tmp_path):
    """The example script itself, on a data set of its package with images that can be told apart."""
    if subprocess.run([str(PYTHON), "-c", "import datasets"], capture_output=True).returncode:
        pytest.skip("the datasets package is not installed")
    holds("under_hf_example.py", REPO / "client" / "examples" / "image_classification.py", tmp_path)
