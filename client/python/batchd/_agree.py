"""Ranks on several machines, each with a daemon of its own, must have the same data and the same batchd: then all
daemons compute the same plan, and each sample comes once.

The comparison goes through the store of torch.distributed's process group, not through a collective: a script in which
only some ranks make a loader must not hang. The first rank that opens a loader writes down what it has; the others
compare theirs with that, without waiting for anyone. It is one message to the store for each loader.
"""

import collections
import hashlib
import json
import os
import sys

from . import errors
from ._ranks import process_group
from ._version import VERSION

_n_opened = collections.Counter()  # loaders of the same specification so far: every rank makes them in the same order


def _store():
    """The process group's store; None: this torch keeps it somewhere else."""
    try:
        return sys.modules["torch"].distributed.distributed_c10d._get_default_store()
    except Exception:
        return None


def check(specification, data, daemon_version, incarnation):
    """Raises MismatchError, which names both ranks and the difference, if an earlier rank has something else.

    specification: what the script asked for, equal on all ranks that share one order. data: (content_id, n_samples)."""
    group, store = process_group(), _store()
    if group is None or group[1] == 1 or store is None:
        return
    rank, world_size = group
    name = hashlib.sha256(repr((specification, world_size, incarnation)).encode()).hexdigest()[:32]
    mine = {
        "rank": rank,
        "node": os.uname().nodename,
        "library": VERSION,
        "daemon": daemon_version,
        "content": f"{data[0]:016x}",
        "samples": data[1],
    }
    key = f"batchd/{name}/{_n_opened[name]}"
    _n_opened[name] += 1
    try:
        first = json.loads(store.compare_set(key, "", json.dumps(mine)))
    except Exception:  # a store that cannot compare, or has gone: training would fail there with a better reason
        return
    text = difference(specification[0], first, mine)
    if text:
        raise errors.make("MISMATCH", text)


def _named(facts):
    return f"rank {facts['rank']} (node {facts['node']})"


def difference(dataset, first, mine):
    """In words, with what to do; None: there is none."""
    if (first["library"], first["daemon"]) != (mine["library"], mine["daemon"]):
        return (
            f"{_named(mine)} runs batchd {mine['library']} with a daemon of version {mine['daemon']}, but {_named(first)} runs {first['library']} "
            f"with {first['daemon']}: install one version on all machines, and restart their daemons"
        )
    if (first["content"], first["samples"]) != (mine["content"], mine["samples"]):
        return (
            f"{_named(mine)} has other data in {dataset} than {_named(first)}: {mine['samples']} samples ({mine['content']}) against "
            f"{first['samples']} ({first['content']}). All machines need the same files under the same names: compare the output of "
            "`find . -type f | sort | sha256sum` in that folder on both"
        )
    return None
