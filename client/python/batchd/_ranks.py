"""Which rank this process is, of how many, and which of them are on this machine: from torch.distributed, torchrun and
launchers that set its variables (Ray Train, accelerate, DeepSpeed), Slurm, Open MPI, MPICH."""

import os
import re
import sys


def process_group():
    """(rank, world size) of torch.distributed, or None."""
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return None


def _pair(rank, size):
    """Two variables' values as (rank, size); None: they are not set, or make no sense."""
    if rank and size and str(rank).isdigit() and str(size).isdigit() and int(rank) < int(size):
        return int(rank), int(size)
    return None


def _by_launcher():
    """(rank, world size) by the variables of a launcher that starts one process for each rank, or None.

    Slurm sets its variables for a batch script as well, which is no rank of anything; only what srun starts has a step.
    """
    e = os.environ
    steps = e.get("SLURM_STEP_NUM_TASKS") or e.get("SLURM_NTASKS")
    return (
        (_pair(e.get("SLURM_PROCID"), steps) if e.get("SLURM_STEP_ID") else None)
        or _pair(e.get("OMPI_COMM_WORLD_RANK"), e.get("OMPI_COMM_WORLD_SIZE"))
        or _pair(e.get("PMI_RANK"), e.get("PMI_SIZE"))
    )


def ranks(rank, world_size, mode):
    """(rank, world size) of this process: from the arguments, else torch.distributed, else torchrun's variables, else
    the launcher's, else alone. Trials in share mode are no ranks of one run, even if one srun starts them all."""
    if rank is None or world_size is None:
        known = process_group()
        if known is None and "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            known = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if known is None and mode == "shard":
            known = _by_launcher()
        if known is None and world_size is None and rank:
            raise ValueError(f"rank={rank!r} without world_size, and no launcher's variables tell it: give world_size")
        if known is None and rank is None and world_size is not None and world_size > 1 and mode == "shard":
            raise ValueError(
                f"world_size={world_size!r} without rank, and neither torch.distributed nor a launcher's variables (RANK) tell "
                "which of them this process is: give rank"
            )
        known = known or (0, 1)
        if known[1] == 1 and mode == "share":
            known = -1, 1  # trials are launched one by one, each as the only rank of its own run
        if world_size is None:
            world_size = known[1]
        if rank is None:
            rank = known[0]
    return rank, world_size


def _tasks_on_node(text, node):
    """Slurm's "2(x3),1": tasks on each of the nodes. None: the text has another form."""
    counts = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not found:
            return None
        counts += [int(found[1])] * int(found[2] or 1)
    return counts[node] if node < len(counts) else None


def node_ranks(world_size):
    """(rank, number) among the trainers of this job on this machine, from torchrun, Open MPI, MPICH or Slurm; (0, 0):
    unknown, or there is only one."""
    if world_size == 1:
        return 0, 0
    e = os.environ
    tasks, node = e.get("SLURM_STEP_TASKS_PER_NODE"), e.get("SLURM_NODEID") or ""
    for rank, size in (
        (e.get("LOCAL_RANK"), e.get("LOCAL_WORLD_SIZE")),
        (e.get("OMPI_COMM_WORLD_LOCAL_RANK"), e.get("OMPI_COMM_WORLD_LOCAL_SIZE")),
        (e.get("MPI_LOCALRANKID"), e.get("MPI_LOCALNRANKS")),
        (e.get("SLURM_LOCALID"), tasks and node.isdigit() and _tasks_on_node(tasks, int(node))),
    ):
        known = _pair(rank, size)
        if known and known[1] <= world_size:
            return known
    return 0, 0
