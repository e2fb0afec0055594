"""batchd.serve with daemons that stop, are killed and come back, and with more than one daemon."""

import os
import signal
import threading

import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402
from batchd import progress  # noqa: E402
import served_data as data  # noqa: E402
from test_serve import limit  # noqa: E402, F401

CONNECTION_RETURN_S = 3  # client/link/connect.h: how long a client waits for an address without a daemon


class Trainer(threading.Thread):
    """Opens serve:speech and takes an epoch, in a thread of this process; `waits` records how long it has waited for a
    producer."""

    def __init__(self, monkeypatch, **options):
        super().__init__(daemon=True)
        self.options, self.batches, self.error = options, None, None
        self.phases, self.told = [], threading.Condition()
        monkeypatch.setattr(progress.Announcement, "on_progress", lambda _, phase, done, total: self._note(phase, done))
        self.start()

    def _note(self, phase, done):
        with self.told:
            self.phases.append((phase, done))
            self.told.notify_all()

    def await_phase(self, phase, least, since=0):
        with self.told:
            assert self.told.wait_for(
                lambda: any(p == phase and d >= least for p, d in self.phases[since:]), 30
            ), self.phases[since:]
            return len(self.phases)

    def run(self):
        try:
            self.batches = [data.digest(b) for b in batchd.DataLoader("serve:speech", **self.options)]
        except BaseException as e:
            self.error = e


@pytest.fixture
def producers():
    made = []
    yield made
    for p in made:
        if p.is_alive():
            os.kill(p.pid, signal.SIGKILL)
        p.join()


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_trainer_that_waits_for_a_producer_outlives_the_daemon(make_daemon, producers, monkeypatch, end):
    """The daemon is killed, or stopped as by systemd, twice, after the trainer has waited for longer than for a
    misspelt socket. The trainer opens again and gets the batches of the producer, which comes last."""
    daemon = make_daemon()
    trainer, seen = Trainer(monkeypatch), 0
    for least in (CONNECTION_RETURN_S + 1, 0):
        seen = trainer.await_phase(b"producer", least, seen)
        getattr(daemon, end)()
        seen = trainer.await_phase(b"daemon", 0, seen)
        daemon.start()
    trainer.await_phase(b"producer", 0, seen)
    producers.append(batchd.serve(data.plain(), "speech", background=True))
    trainer.join(300)
    assert trainer.error is None and trainer.batches == data.epoch_of(data.plain(), 0)


@pytest.mark.parametrize("reconnect", [0, 0.3])
def test_a_trainer_that_waits_for_a_producer_gives_a_daemon_up_after_reconnect_seconds(
    make_daemon, monkeypatch, reconnect
):
    """The error names the first failure and the last attempt's; with reconnect=0 there is no further attempt."""
    daemon = make_daemon()
    trainer = Trainer(monkeypatch, reconnect=reconnect)
    trainer.await_phase(b"producer", 0)
    daemon.kill()
    trainer.join(300)
    assert isinstance(trainer.error, ConnectionError) and "went away" in str(trainer.error)
    assert all(words in str(trainer.error) for words in ("did not come back within", "no batchd answers")) == bool(
        reconnect
    )


# ---- several machines ----

LAUNCHERS = {
    "torchrun": lambda local, node: {"LOCAL_RANK": local, "LOCAL_WORLD_SIZE": 2},
    "Open MPI": lambda local, node: {"OMPI_COMM_WORLD_LOCAL_RANK": local, "OMPI_COMM_WORLD_LOCAL_SIZE": 2},
    "MPICH": lambda local, node: {"MPI_LOCALRANKID": local, "MPI_LOCALNRANKS": 2},
    "Slurm": lambda local, node: {"SLURM_LOCALID": local, "SLURM_NODEID": node, "SLURM_STEP_TASKS_PER_NODE": "2(x2),1"},
}


def launch(monkeypatch, launcher, rank, world=4):
    """Starts it like a process of a job of two machines with two ranks each."""
    for name in [name for kind in LAUNCHERS.values() for name in kind(0, 0)]:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": rank, "WORLD_SIZE": world, **LAUNCHERS[launcher](rank % 2, rank // 2)}.items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_served_set_is_grouped_by_machine(make_daemon, producers, monkeypatch, launcher):
    """Two machines with a daemon and a producer each, and two ranks each: every producer deals its batches to the two
    ranks on its machine, and no producer waits for a rank elsewhere. Also by its bare name. A given rank and world_size
    are used unchanged."""
    machines = [make_daemon() for _ in range(2)]
    for k, daemon in enumerate(machines):
        producers.append(
            batchd.serve(
                [torch.tensor([100 * k + i]) for i in range(6)], "speech", socket=str(daemon.socket), background=True
            )
        )
    for dataset in ("serve:speech", "speech"):
        loaders = []
        for rank in range(4):
            launch(monkeypatch, launcher, rank)
            loaders.append(
                batchd.DataLoader(dataset, socket=str(machines[rank // 2].socket), arrays="torch", job=dataset)
            )
        assert [(loader.rank, loader.world_size) for loader in loaders] == [(0, 2), (1, 2)] * 2
        got = list(zip(*[[int(batch) for batch in step] for step in zip(*loaders)]))
        assert got == [(0, 2, 4), (1, 3, 5), (100, 102, 104), (101, 103, 105)]
        for loader in loaders:
            loader.close()
    alone = batchd.DataLoader(
        "serve:speech", rank=0, world_size=1, socket=str(machines[1].socket), arrays="torch", job="alone"
    )
    assert [int(batch) for batch in alone] == [100, 101, 102, 103, 104, 105]


def test_what_is_not_served_is_divided_over_all_machines(make_daemon, monkeypatch):
    """The ranks of other data sets are those of the whole job, on any machine."""
    make_daemon()
    launch(monkeypatch, "torchrun", 3)
    loader = batchd.DataLoader("random:length=100,shape=2", batch_size=5, job="all")
    next(iter(loader))
    assert (loader.rank, loader.world_size) == (3, 4) and loader.last_batch.indices.tolist() == [3, 7, 11, 15, 19]
