"""Producers in the background and in the foreground as processes: how they are created, start and end."""

import _thread
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402
import served_data as data  # noqa: E402
from daemons import until  # noqa: E402
from test_end_to_end import Trainer  # noqa: E402
from test_serve import SCRIPT, limit, serve  # noqa: E402, F401


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def other_thread():
    """A data set that holds data.LOCK for the whole test."""
    has_it, end = threading.Event(), threading.Event()

    def hold():
        with data.LOCK:
            has_it.set()
            end.wait()

    thread = threading.Thread(target=hold, name="holder")
    thread.start()
    has_it.wait()
    yield thread
    end.set()
    thread.join()


def test_what_another_thread_has_locked_does_not_stop_a_producer(serve, other_thread):  # noqa: F811
    """With threads in the process the producer is a fresh interpreter; its order is the one that this process's
    generator would have given."""
    torch.manual_seed(11)
    serve(data.locked(), background=True)
    torch.manual_seed(11)
    order = torch.utils.data.DataLoader(range(12), batch_size=4, shuffle=True)
    assert [b.tolist() for b in batchd.DataLoader("serve:speech")] == [b.tolist() for b in order]


def test_data_that_cannot_travel_is_forked_with_a_warning(serve, other_thread):  # noqa: F811
    """If it needs nothing that is locked it is served; background="fresh" says what prevents it."""

    def local(epoch):
        return [torch.tensor([epoch, 1])]

    with pytest.warns(RuntimeWarning, match=r"other threads \(.*\).*cannot be sent there"):
        serve(local, background=True)
    assert next(iter(batchd.DataLoader("serve:speech"))).tolist() == [0, 1]
    with pytest.raises(TypeError, match="cannot be sent to another interpreter"):
        batchd.serve(local, "other", background="fresh")
    with pytest.raises(ValueError, match="'fork' or 'fresh', not 'thread'"):
        batchd.serve(local, "other", background="thread")


@pytest.fixture
def native_thread():
    """Starts a thread that Python does not list, as libraries do, with a name or without."""
    end = threading.Event()

    def start(name=None):
        begun = threading.Event()

        def run():
            if name:
                ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
            begun.set()
            end.wait()

        _thread.start_new_thread(run, ())
        begun.wait()

    yield start
    end.set()


def test_a_librarys_threads_are_other_threads(serve, native_thread, monkeypatch):  # noqa: F811
    """Such as polars' and JAX's, which a forked child would wait for; OpenMP's have no names and are not missed. Threads
    of Python that other tests have left in this process do not count here."""
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])

    def local():
        return [torch.tensor([7])]

    native_thread()
    native_thread("pt_autograd_0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        serve(local, "unnamed", background=True)
    native_thread("polars-0")
    with pytest.warns(RuntimeWarning, match=r"other threads \(polars-0\).*cannot be sent there"):
        serve(local, "named", background=True)
    torch.manual_seed(11)
    producer = serve(data.locked(), "fresh", background=True)
    torch.manual_seed(11)
    order = torch.utils.data.DataLoader(range(12), batch_size=4, shuffle=True)
    assert [b.tolist() for b in batchd.DataLoader("serve:fresh")] == [b.tolist() for b in order]
    assert "from batchd.serve import _in_fresh" in open(f"/proc/{producer.pid}/cmdline").read()


def test_a_producer_that_hangs_is_told_from_one_that_never_came(serve):  # noqa: F811
    """The daemon hears of a producer with its first batch, so the trainer's own process says that there is one."""
    producer = serve(data.hanging, "hangs")
    with pytest.raises(
        batchd.ProducerError, match=f"its process {producer.pid} is alive and has made no batch in .* s"
    ):
        batchd.DataLoader("serve:hangs", producer_timeout=1)
    with pytest.raises(batchd.ProducerError) as error:
        batchd.DataLoader("serve:other", producer_timeout=1)
    assert "is alive" not in str(error.value)


def test_a_cell_that_serves_and_loads_works_again(serve, capfd):  # noqa: F811
    """As a notebook has it: the variables keep the last run's loader until the new one is made. An old producer ends with a
    line, not with a traceback; what comes is the newest's."""
    producer = loader = None
    golden = [data.epoch_of(data.plain(), 0), [data.digest(torch.ones(3))] * 2]
    for run in range(5):
        producer = serve(data.plain() if run % 2 == 0 else [torch.ones(3)] * 2, "nb")
        loader = batchd.DataLoader("serve:nb")
        assert [data.digest(batch) for batch in loader] == golden[run % 2]
        assert producer.is_alive()
    said = capfd.readouterr().err
    assert "'nb' is not served by process" in said and "Traceback" not in said


def test_an_earlier_loader_in_the_middle_of_its_epoch_is_named(serve):  # noqa: F811
    """It is at work, so it keeps its producer."""
    serve(data.plain(), "nb")
    loader = batchd.DataLoader("serve:nb")
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(batchd.ProducerError, match="an earlier loader of this process.*call its close.., or del it"):
        batchd.DataLoader("serve:nb")
    assert len(list(iterator)) == 12


def test_a_stop_in_a_destructor_is_not_shown(serve, capfd):  # noqa: F811
    """SIGTERM's exception cannot leave it; the producer ends all the same."""
    producer = serve(data.stopping_in_a_destructor, "stops")
    until("it has ended", lambda: not producer.is_alive())
    assert producer._process.exitcode == 0
    assert "Exception ignored" not in capfd.readouterr().err


def test_data_that_cannot_be_unpacked_is_an_error_in_the_trainer(serve, tmp_path, monkeypatch):  # noqa: F811
    """A module that this process has and a fresh interpreter cannot import: the traceback arrives."""
    module = type(sys)("only_here")
    exec("class Samples(list): pass\nSamples.__module__ = 'only_here'", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    serve(module.Samples([torch.ones(2)]), background="fresh")
    with pytest.raises(batchd.ProducerError, match="No module named 'only_here'"):
        next(iter(batchd.DataLoader("serve:speech")))


@pytest.mark.parametrize("how", ["fork", "fresh"])
def test_a_producer_outlives_the_thread_that_started_it(serve, how):  # noqa: F811
    """The thread ends when the producer is at work; the process continues, which the next test is about."""
    producers, loaders = [], []

    def begin():
        producers.append(serve(data.plain(), background=how))
        loaders.append(batchd.DataLoader("serve:speech", n_slots=3))
        next(iter(loaders[0]))

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    golden = data.epoch_of(data.plain(), 0)
    loader = loaders[0]
    for _ in range(2):
        assert [data.digest(b) for b in loader] == golden
    assert producers[0].is_alive()


@pytest.mark.parametrize("how", ["fork", "fresh"])
def test_a_producer_ends_with_its_process_whatever_thread_started_it(daemon, how):
    """Killed, so that no exit handler can do it."""
    parent = Trainer(
        SCRIPT
        + f"""
import threading
producers = []
t = threading.Thread(target=lambda: producers.append(batchd.serve(data.plain(), "speech", background={how!r})))
t.start()
t.join()
say(pid=producers[0].pid, n=len(next(iter(batchd.DataLoader("serve:speech")))))
time.sleep(600)
"""
    )
    said = parent.hear()
    assert said["n"] == 2
    parent.kill()
    until("the producer has gone", lambda: is_gone(said["pid"]))


def test_a_producer_that_is_stopped_while_it_forks_ends(daemon):
    """Any exception of a signal handler in a fork hook, for example logging's, is printed and dropped; it has no effect
    here either."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent("""
        import os, signal, time, batchd, numpy

        def batches():
            yield numpy.zeros(2)
            os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGTERM))
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
            while True:
                yield numpy.zeros(2)

        p = batchd.serve(batches, "forks", background=True)
        while not batchd.status()["producers"]:
            time.sleep(0.01)
        loader = batchd.DataLoader("serve:forks", n_slots=3)  # as long as it is there, batches are asked for
        next(iter(loader))
        p.join(300)
        print("ended" if not p.is_alive() else "alive")
    """),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "BATCHD_ARRAYS": "numpy"},
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_ctrl_c_ends_a_producer_in_the_foreground_without_a_traceback(daemon):
    """It prints what it serves when it starts; a script that catches KeyboardInterrupt still does."""
    script = textwrap.dedent("""
        import batchd, numpy
        try:
            batchd.serve([numpy.zeros((2, 3))] * 5, "words")
        except KeyboardInterrupt:
            print("caught", flush=True)
            raise
    """)
    producer = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = producer.stderr.readline()
    assert said == "batchd: serving 'words', 5 batches an epoch, to batchd.DataLoader('serve:words')\n"
    producer.send_signal(signal.SIGINT)
    out, err = producer.communicate(timeout=300)
    assert (out, err, producer.returncode) == ("caught\n", "batchd: 'words' is not served any more\n", 130)
