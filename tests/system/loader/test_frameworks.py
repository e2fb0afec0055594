"""Lightning, Accelerate, transformers' Trainer, timm and ignite themselves, in the versions of requirements-frameworks.
Each runs a script of frameworks/ in an environment of its own (make frameworks), which checks its assertions and prints
"held"."""

import importlib.util
import os
import pathlib

import pytest

from daemons import BUILD, REPO
from fork_server import ForkServer
from recorded import some_of

SCRIPTS = pathlib.Path(__file__).parents[1] / "frameworks"
PYTHON = BUILD / "frameworks-venv" / "bin" / "python"

pytestmark = pytest.mark.skipif(
    not (BUILD / "frameworks-venv" / ".made-from").exists(),
    reason="the frameworks are not installed: `make frameworks` does it (500 MB)",
)

needs_datasets = pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None, reason="the datasets package is not installed"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Whose forks have the frameworks imported: that takes as long as what the scripts do with them."""
    folder = tmp_path_factory.mktemp("frameworks")
    modules = "torchvision_ops", "lightning", "accelerate", "transformers.trainer", "timm.data", "ignite.engine"
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    env["PYTHONPATH"] = os.pathsep.join([str(SCRIPTS), os.environ["PYTHONPATH"]])
    server = ForkServer(folder, *modules, "datasets", python=PYTHON, env=env)
    yield server
    server.close()


@pytest.fixture
def holds(server):
    def check(script, *arguments, ranks=0):
        """ranks: as under torchrun; 0: a process alone."""
        done = server.run(*[[SCRIPTS / script, *arguments]] * (ranks or 1), ranks=ranks > 0)
        output = "".join(text for _, text in done)
        assert "held" in output.split(), output
        assert "Traceback" not in output, output

    return check


def test_lightning_trains_each_epoch_once_and_resumes_from_every_step(daemon, holds, tmp_path):
    """Two ranks: epochs 0, 1, 2; a checkpoint of each step of the three resumes with the batches that would have
    followed."""
    holds("under_lightning.py", tmp_path, ranks=2)


def test_lightnings_combined_loader_resumes_from_every_step(daemon, holds, tmp_path):
    """Two epochs of a loader that is iterated twice in each."""
    holds("under_lightning_combined.py", tmp_path)


@pytest.mark.parametrize("ranks", [2, 3])
def test_accelerate_counts_no_padding_and_sees_the_end_of_an_epoch(daemon, holds, ranks):
    """Two ranks have the schedule of torch's loader as well; with three, padding lies at the end of two of them."""
    holds("under_accelerate.py", ranks=ranks)


def test_transformers_trainer_evaluates_each_row_once_and_resumes(daemon, holds, tmp_path):
    """Two ranks, 99 rows, a checkpoint in the middle of epoch 1."""
    holds("under_trainer.py", tmp_path, ranks=2)


@pytest.mark.parametrize("ranks", [0, 2, 3])
def test_transformers_trainer_counts_no_padding_of_a_loader_that_its_method_makes(daemon, holds, tmp_path, ranks):
    """Trainer.__init__, which keeps a bound gather_for_metrics, has run before there is any loader."""
    holds("under_trainer_methods.py", tmp_path, ranks=ranks)


def test_timm_and_ignite_loops_and_their_transforms(daemon, holds, samples):
    """timm's sampler for repeated augmentation, ignite's engine, and the pixels of torchvision's and timm's pipelines."""
    holds("under_loops.py", samples)


@needs_datasets
def test_the_example_of_huggingface_trains(daemon, holds, tmp_path):
    """The example script itself, on a data set of its package with images that can be told apart."""
    holds("under_hf_example.py", REPO / "client" / "examples" / "image_classification.py", tmp_path)


@needs_datasets
@pytest.mark.parametrize("ranks", [0, 2])
def test_the_example_of_huggingface_loses_no_sample(daemon, holds, photos, tmp_path, ranks):
    """Alone and on two ranks, on 49 photographs: by the indices of the batches."""
    some_of(photos, tmp_path / "few", 49)
    example = REPO / "client" / "examples" / "image_classification.py"
    holds("under_hf_samples.py", example, tmp_path / "few", tmp_path, ranks=ranks)
