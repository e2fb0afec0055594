"""Which rank a process takes itself for, by the variables of its launcher."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from batchd import _ranks

VARIABLES = """RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE SLURM_STEP_ID SLURM_PROCID SLURM_NTASKS SLURM_STEP_NUM_TASKS
SLURM_LOCALID SLURM_NODEID SLURM_STEP_TASKS_PER_NODE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS""".split()

# What `srun --nodes=2 --ntasks=3 python train.py` sets for its last task, on the second node (srun(1), "OUTPUT ENVIRONMENT VARIABLES").
SRUN = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_LOCALID": "0",
}
SRUN.update(SLURM_NODEID="1", SLURM_STEP_TASKS_PER_NODE="2,1")
MPIRUN = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
MPIRUN.update(OMPI_COMM_WORLD_LOCAL_SIZE="2")
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    "variables, rank, local",
    [
        ({}, (0, 1), (0, 0)),
        (TORCHRUN, (5, 8), (1, 4)),
        (SRUN, (2, 3), (0, 1)),
        (MPIRUN, (3, 4), (1, 2)),
        (HYDRA, (1, 2), (1, 2)),
        ({**SRUN, **TORCHRUN}, (5, 8), (1, 4)),  # srun starts one torchrun for each node
        (
            {k: v for k, v in SRUN.items() if "STEP" not in k},
            (0, 1),
            (0, 0),
        ),  # a batch script: SLURM_PROCID is 0 or another's
        ({**SRUN, "SLURM_PROCID": "3"}, (0, 1), (0, 0)),  # a shell inside a step, with the variables of another
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, (0, 1), (0, 0)),  # srun --ntasks=1 in a job of 3
    ],
    ids="alone torchrun srun mpirun hydra torchrun-in-srun batch nonsense one-task".split(),
)
def test_launchers(monkeypatch, variables, rank, local):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _ranks.ranks(None, None, "shard") == rank
    assert _ranks.node_ranks(rank[1]) == local
    assert _ranks.ranks(1, 7, "shard") == (1, 7)  # arguments come first


def test_trials_of_one_srun_are_no_ranks(monkeypatch):
    """share: each trial is alone in a group that any number may join, even where one srun starts them."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in SRUN.items():
        monkeypatch.setenv(name, value)
    assert _ranks.ranks(None, None, "share") == (-1, 1)


ASK = """
import json
from batchd import _ranks
print(json.dumps([_ranks.ranks(None, None, "shard"), _ranks.node_ranks(2)]))
"""


@pytest.mark.parametrize("launcher", ["mpirun.openmpi", "mpiexec.hydra"])
def test_what_a_launcher_itself_sets(launcher):
    """Two processes under the real program: the names of its variables are not only in our lists."""
    if not shutil.which(launcher):
        pytest.skip(f"{launcher} is not installed (openmpi-bin, mpich)")
    env = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    env.update(PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [launcher, "-n", "2", sys.executable, "-c", ASK], env=env, capture_output=True, text=True, timeout=300
    )
    said = sorted(json.loads(line) for line in done.stdout.splitlines() if line.startswith("[["))
    assert said == [[[0, 2], [0, 2]], [[1, 2], [1, 2]]], done
