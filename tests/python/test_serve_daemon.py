"""batchd.serve beside daemons that stop, are killed and come back, and beside more than one of them."""
import os
import signal
import threading

import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402
from batchd import progress  # noqa: E402
import served_data as data  # noqa: E402
from test_serve import limit  # noqa: E402, F401

CONNECTION_RETURN_S = 3  # client/connect.h: how long an address where no daemon was seen is waited for


class Trainer(threading.Thread):
    """Opens serve:speech and takes an epoch, in a thread of this process; `waits` tells how long it has waited for a producer."""

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
            assert self.told.wait_for(lambda: any(p == phase and d >= least for p, d in self.phases[since:]), 30), self.phases[since:]
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
    """The daemon is killed, or stopped as by systemd, twice, after the trainer has waited for longer than a misspelt socket is waited for: the trainer opens again
    and gets what the producer makes, which comes last."""
    daemon = make_daemon()
    trainer, seen = Trainer(monkeypatch), 0
    for least in (CONNECTION_RETURN_S + 1, 0):
        seen = trainer.await_phase(b"producer", least, seen)
        getattr(daemon, end)()
        seen = trainer.await_phase(b"daemon", 0, seen)
        daemon.start()
    trainer.await_phase(b"producer", 0, seen)
    producers.append(batchd.serve(data.plain(), "speech", background=True))
    trainer.join(30)
    assert trainer.error is None and trainer.batches == data.epoch_of(data.plain(), 0)


@pytest.mark.parametrize("reconnect", [0, 0.3])
def test_a_trainer_that_waits_for_a_producer_gives_a_daemon_up_after_reconnect_seconds(make_daemon, monkeypatch, reconnect):
    """The error says what happened first and what the last attempt met; with reconnect=0 there is no further attempt."""
    daemon = make_daemon()
    trainer = Trainer(monkeypatch, reconnect=reconnect)
    trainer.await_phase(b"producer", 0)
    daemon.kill()
    trainer.join(30)
    assert isinstance(trainer.error, ConnectionError) and "went away" in str(trainer.error)
    assert all(words in str(trainer.error) for words in ("did not come back within", "no batchd answers")) == bool(reconnect)
