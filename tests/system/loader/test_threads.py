"""One DataLoader in several threads: one thread closes it, or calls its other functions, while another waits for a
batch. Each case is a process of its own, which a mistake would end with a signal."""

import os
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import ctypes, gc, os, signal, sys, threading, time
import batchd
RANDOM = "random:length=100,shape=3x4x5,dtype=float32,classes=7"

def waiting(**options):
    '''A loader whose next batch never comes, as the other trainer of its group is not there, and its iterator.'''
    loader = batchd.DataLoader(RANDOM, 8, mode="share", world_size=2, rank=0, arrays="numpy", n_slots=4, **options)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    return loader, iterator

def in_thread(work):
    result = []
    def run():
        try:
            work()
            result.append(None)
        except BaseException as e:
            result.append(e)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, result

def until_inside(loader):
    '''The thread is in batchd_next, which holds the turn.'''
    while loader._turn.acquire(blocking=False):
        loader._turn.release()
        time.sleep(0.001)
"""


def run(daemon, script):
    process = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "BATCHD_SOCKET": str(daemon.socket)},
    )
    assert process.returncode == 0, f"exit {process.returncode}\n{process.stdout}{process.stderr}"
    return process.stdout


@pytest.mark.parametrize("timeout", [0, 60])
def test_close_ends_the_wait_of_another_thread(daemon, timeout):
    """The waiting thread gets an error that says so; the process continues."""
    assert "this loader is closed" in run(
        daemon,
        f"""
        loader, iterator = waiting(timeout={timeout})
        thread, result = in_thread(lambda: next(iterator))
        until_inside(loader)
        loader.close()
        thread.join()
        assert isinstance(result[0], batchd.Error), result
        print(result[0])
    """,
    )


def test_close_in_a_signal_handler_ends_the_wait(daemon):
    """The main thread waits itself, and the signal handler closes."""
    assert "this loader is closed" in run(
        daemon,
        """
        loader, iterator = waiting()
        signal.signal(signal.SIGUSR1, lambda *_: loader.close())
        main = threading.main_thread().ident
        in_thread(lambda: (until_inside(loader), signal.pthread_kill(main, signal.SIGUSR1)))
        try:
            next(iterator)
        except batchd.Error as e:
            print(e)
    """,
    )


def test_close_in_a_signal_handler_is_safe(daemon):
    """Also between the library's delivery of a batch and the loop's use of it: the batch is complete, or there is an
    error."""
    run(
        daemon,
        """
        signal.signal(signal.SIGALRM, lambda *_: loader.close())
        for attempt in range(200):
            loader = batchd.DataLoader(RANDOM, 8, arrays="numpy", n_slots=4)
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + attempt * 0.00002)
            try:
                while True:
                    for x, y in loader:
                        assert float(x.sum()) == float(x.sum())
            except batchd.Error as e:
                assert "closed" in str(e), e
    """,
    )


@pytest.mark.parametrize("options", ["", "sampler=range(8)"])
def test_a_loop_may_be_closed_before_any_instruction(daemon, options):
    """A signal's handler can come before each bytecode instruction of the package: here close() does, at one after the
    other."""
    run(
        daemon,
        f"""
        DATA = "random:length=8,shape=3x4x5,dtype=float32,classes=7"
        PACKAGE = os.path.dirname(batchd.__file__)

        def n_traced(close_at):
            '''Returns how many of the package's instructions one pass took.'''
            loader = batchd.DataLoader(DATA, 8, arrays="numpy", n_slots=4, {options})
            n = 0
            def trace(frame, event, _):
                nonlocal n
                if not frame.f_code.co_filename.startswith(PACKAGE):
                    return None
                frame.f_trace_opcodes = True
                n += event == "opcode"
                if event == "opcode" and n == close_at:
                    sys.settrace(None)
                    loader.close()
                return trace
            sys.settrace(trace)
            try:
                for x, y in loader:
                    assert float(x.sum()) == float(x.sum())
            finally:
                sys.settrace(None)
            return n

        n, n_closed = n_traced(0), 0
        for at in range(1, n + 1):
            try:
                n_traced(at)
            except batchd.Error as e:
                assert "this loader is closed" in str(e), e
                n_closed += 1
        assert n_closed > n / 2 > 100, (n_closed, n)
    """,
    )


def test_a_with_block_may_end_under_a_prefetching_thread(daemon):
    """Batches taken stay readable; every call of the thread raises the error of a closed loader."""
    run(
        daemon,
        """
        taken = []
        def prefetch():
            for epoch in range(1000000):
                for x, y in loader:
                    taken.append(x)
                    del taken[:-2]
        for attempt in range(20):
            taken.clear()
            with batchd.DataLoader(RANDOM, 8, arrays="numpy", n_slots=4) as loader:
                thread, result = in_thread(prefetch)
                while len(taken) < 2:
                    time.sleep(0.001)
            thread.join()
            assert isinstance(result[0], batchd.Error) and "closed" in str(result[0]), result
            assert all(x.shape[1:] == (3, 4, 5) and float(x.sum()) == float(x.sum()) for x in taken)
    """,
    )


def test_every_call_on_a_closed_loader_raises(daemon):
    """No function of the library is called without a loader; facts that need no daemon are still available."""
    run(
        daemon,
        """
        loader = batchd.DataLoader(RANDOM, 8, arrays="numpy")
        iterator = iter(loader)
        next(iterator)
        last = loader.last_batch
        state = loader.state_dict()
        loader.close()
        loader.close()
        calls = (lambda: next(iterator), lambda: iter(loader), loader.state_dict, lambda: loader.load_state_dict(state), lambda: loader.classes,
                 lambda: last.token, lambda: loader.dataset.classes, lambda: loader._wait(iterator))
        for call in calls:
            try:
                call()
            except batchd.Error as e:
                assert "closed" in str(e), e
            else:
                raise AssertionError(call)
        assert len(loader) == 13 and len(loader.dataset) == 100 and "closed" in repr(loader)
    """,
    )


def test_another_iteration_ends_the_wait_of_the_first(daemon):
    """A second iteration in another thread does not wait for the first, which gets an error."""
    assert "this iteration is over" in run(
        daemon,
        """
        loader, iterator = waiting()
        thread, result = in_thread(lambda: next(iterator))
        until_inside(loader)
        loader.set_epoch(3)
        second = iter(loader)
        second_thread, _ = in_thread(lambda: next(second))
        thread.join()
        print(result[0])
        loader.close()
        second_thread.join()
    """,
    )


def test_threads_that_ask_and_take_do_not_disturb_each_other(daemon):
    """Class names, states and batches of one loader by three threads at a time."""
    run(
        daemon,
        """
        stop = threading.Event()
        for attempt in range(10):
            loader = batchd.DataLoader(RANDOM, 8, arrays="numpy", n_slots=4)
            def ask():
                while not stop.is_set():
                    loader._classes = None
                    assert loader.classes == [] or len(loader.classes) == 7
                    loader.state_dict()
                    len(loader)
            stop.clear()
            threads = [in_thread(ask), in_thread(ask)]
            for epoch in range(5):
                loader.set_epoch(epoch)
                assert [loader.last_batch.step for _ in loader] == list(range(13))
            stop.set()
            for thread, result in threads:
                thread.join()
                assert result == [None], result
            loader.close()
    """,
    )
