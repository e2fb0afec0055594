"""Several machines, played by one: a node is a daemon with a socket of its own and a torchrun that knows only that."""

import collections
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DistributedSampler  # noqa: E402

N, BATCH, SEED = 240, 4, 3

TRAIN = f"""
import json, os, pathlib, sys, time
import batchd, torch
import torch.distributed as dist

here = pathlib.Path(sys.argv[1])
pause = float(sys.argv[2])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
loader = batchd.DataLoader("random:length={N},shape=3", {BATCH}, shuffle=True, seed={SEED}, arrays="torch")
assert (loader.rank, loader.world_size) == (rank, world)
state = here / "state"
if state.exists():
    loader.load_state_dict(json.loads(state.read_text()))
for epoch in range(json.loads(state.read_text())["epoch"] if state.exists() else 0, 2):
    loader.set_epoch(epoch)
    for x, y in loader:
        b = loader.last_batch
        seen = [None] * world
        dist.all_gather_object(seen, [int(i) for i in b.indices])
        if rank == 0:  # one line for each step of the run, and the checkpoint, together
            with open(here / "steps", "a") as f:
                f.write(json.dumps([epoch, world, seen, os.environ["BATCHD_SOCKET"]]) + "\\n")
            new = here / "state.new"
            new.write_text(json.dumps(loader.state_dict()))
            new.rename(state)
        dist.barrier()
        time.sleep(pause)
(here / f"done-{{rank}}-{{world}}").write_text(os.environ["BATCHD_SOCKET"])
dist.destroy_process_group()
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Node:
    """A torchrun whose ranks use one daemon; killed with all its processes, as when the machine loses power."""

    def __init__(self, folder, daemon, port, nodes, pause=0, is_host=False):
        """is_host: it keeps the rendezvous, so the run ends with it."""
        self.folder, self.daemon = folder, daemon
        (folder / "train.py").write_text(TRAIN)
        self.argv = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", "--nproc-per-node=2"]
        self.argv += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test", "--max-restarts=9"]
        # torchrun must know that the other one is dead before it starts its ranks again, else it waits for it in vain.
        alive = "keep_alive_interval=2,keep_alive_max_attempt=3"
        self.argv += ["--monitor-interval=10", f"--rdzv-conf=last_call_timeout=2,is_host={int(is_host)},{alive}"]
        self.argv += [str(folder / "train.py"), str(folder)]
        self.argv += [str(pause)]
        self.start()

    def start(self):
        env = {**os.environ, "BATCHD_SOCKET": str(self.daemon.socket), "OMP_NUM_THREADS": "1"}
        env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = (
            "1"  # else a node that joins later waits for a store it never hears of
        )
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self.argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def members(self):
        """Its processes: torchrun gives each rank a session of its own."""
        found, children = [], collections.defaultdict(list)
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children[int(fields[1])].append(int(stat.parent.name))
        todo = [self.process.pid]
        while todo:
            found.append(todo.pop())
            todo += children[found[-1]]
        return found

    def kill(self):
        for pid in self.members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def log(self):
        return (self.folder / "log").read_text(errors="replace")[-6000:]


@pytest.fixture
def nodes(make_daemon, tmp_path):
    """nodes("2", pause): two nodes of one run, each with a daemon."""
    made = []

    def make(count, pause=0):
        port = free_port()
        for i in range(2):
            made.append(Node(tmp_path, make_daemon(), port, count, pause, is_host=i == 0))
        return made

    yield make
    for node in made:
        if node.process.poll() is None:
            node.kill()


def steps(folder):
    path = folder / "steps"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_steps(folder, n, nodes):
    deadline = time.monotonic() + 300
    while len(steps(folder)) < n:
        assert time.monotonic() < deadline, nodes[0].log()
        time.sleep(0.05)


def finish(nodes):
    for node in nodes:
        assert node.process.wait(300) == 0, node.log()


def order(epoch):
    """The epoch in the order in which all ranks together consume it: torch's own, for one rank."""
    sampler = DistributedSampler(range(N), 1, 0, shuffle=True, seed=SEED)
    sampler.set_epoch(epoch)
    return list(sampler)


def consumed(step):
    """A step's samples in the epoch's order: sample j of it went to rank j % world."""
    return [i for row in zip(*step[2]) for i in row]


def check_epochs(folder):
    """Steps that were done twice, once before a crash and once after the checkpoint, count once, and must be equal."""
    for epoch in (0, 1):
        done = []
        for step in steps(folder):
            samples = consumed(step)
            if step[0] == epoch and not (done and samples == done[-len(samples) :]):
                done += samples
        assert done == order(epoch)


def test_two_nodes_serve_the_order_of_distributed_sampler(nodes, tmp_path):
    """Each sample once, and every rank's in the order of torch's own sampler; each daemon serves its node's two."""
    both = nodes("2")
    finish(both)
    for epoch in (0, 1):
        ranks = [[], [], [], []]
        for step in steps(tmp_path):
            if step[0] == epoch:
                for mine, indices in zip(ranks, step[2]):
                    mine += indices
        for rank, indices in enumerate(ranks):
            sampler = DistributedSampler(range(N), 4, rank, shuffle=True, seed=SEED)
            sampler.set_epoch(epoch)
            assert indices == list(sampler)
    served = collections.Counter((tmp_path / f"done-{rank}-4").read_text() for rank in range(4))
    assert served == {str(node.daemon.socket): 2 for node in both}


@pytest.mark.long("waits for torchrun's own limits")
def test_a_node_that_dies_and_comes_back_goes_on_from_the_checkpoint(nodes, tmp_path):
    """torchrun restarts the run when it has both nodes again; no sample is lost, none comes twice."""
    both = nodes("2", 0.2)
    wait_for_steps(tmp_path, 6, both)
    both[1].kill()
    n = len(steps(tmp_path))
    both[1].start()
    finish(both)
    assert {step[1] for step in steps(tmp_path)} == {4} and len(steps(tmp_path)) > n
    check_epochs(tmp_path)


@pytest.mark.long("waits for torchrun's own limits")
def test_a_run_shrinks_from_two_nodes_to_one(nodes, tmp_path):
    """The node that is left goes on with two ranks from the checkpoint of four."""
    both = nodes("1:2", 0.2)
    wait_for_steps(tmp_path, 6, both)
    if steps(tmp_path)[0][1] != 4:
        pytest.skip("the second node came too late to join at the beginning")
    both[1].kill()
    finish(both[:1])
    assert [step[1] for step in steps(tmp_path)][-1] == 2
    check_epochs(tmp_path)


# ---- what all nodes must have in common ----

PAIR = """
import sys
import batchd, torch.distributed as dist
dist.init_process_group("gloo", f"tcp://127.0.0.1:{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
if sys.argv[3] == "version" and dist.get_rank() == 1:
    import batchd._agree
    batchd._agree.VERSION = "9.8.7"
if sys.argv[3] == "one" and dist.get_rank() == 1:
    sys.exit()
try:
    loader = batchd.DataLoader("train", 4, arrays="numpy")
    print(sum(len(x) for x, y in loader))
except batchd.MismatchError as e:
    print(e)
dist.barrier() if sys.argv[3] != "one" else None
"""


def run_pair(make_daemon, data, how):
    port, folders = str(free_port()), data
    daemons = [make_daemon("--dataset", f"train={folder}") for folder in folders]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PAIR, port, str(rank), how],
            env={**os.environ, "BATCHD_SOCKET": str(daemons[rank].socket)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [p.communicate(timeout=300) for p in processes]
    assert [p.returncode for p in processes] == [0, 0], said
    return [out.strip() for out, _ in said]


def test_nodes_with_the_same_data_agree(make_daemon):
    data = ["random:length=20,shape=3"] * 2
    assert run_pair(make_daemon, data, "") == ["10", "10"]


def test_another_number_of_samples_on_a_node_is_named_by_rank(make_daemon):
    """The second rank to open its loader gets the error, which names both, and the counts."""
    data = ["random:length=20,shape=3", "random:length=21,shape=3"]
    said = run_pair(make_daemon, data, "")
    (text,) = [s for s in said if not s.isdigit()]
    node = os.uname().nodename
    assert f"rank 0 (node {node})" in text and f"rank 1 (node {node})" in text, text
    assert {"20", "21"} <= set(text.split()), text


def test_files_that_differ_in_a_name_are_other_data(make_daemon, samples, tmp_path):
    """As many files, one of them with another name."""
    other = tmp_path / "other"
    subprocess.run(["cp", "-r", str(samples), str(other)], check=True)
    first = next(p for p in sorted(other.rglob("*")) if p.is_file())
    first.rename(first.with_name("another" + first.suffix))
    said = run_pair(make_daemon, [f"imagefolder:{samples}", f"imagefolder:{other}"], "")
    assert sum("has other data in train" in s for s in said) == 1, said


def test_another_version_on_a_node_is_named_by_rank(make_daemon):
    said = run_pair(make_daemon, ["random:length=20,shape=3"] * 2, "version")
    (text,) = [s for s in said if not s.isdigit()]
    assert "batchd 9.8.7" in text or "runs 9.8.7" in text, text
    assert "install one version on all machines" in text, text


def test_a_rank_that_alone_makes_a_loader_waits_for_no_other(make_daemon):
    """A validation loader is often made on rank 0 only."""
    said = run_pair(make_daemon, ["random:length=20,shape=3"] * 2, "one")
    assert said == ["10", ""]
