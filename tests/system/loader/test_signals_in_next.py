"""An exception that a signal's handler raises anywhere in next(): the batch comes with the next call, and a state taken
meanwhile says that the loop has not had it."""

import itertools
import sys

import numpy
import pytest

import batchd
from batchd import _warn

torch = pytest.importorskip("torch")

PACKAGE = _warn.__file__.rpartition("/")[0]
N, BATCH = 40, 4
ORDER = [(7 * i) % N for i in range(N)]
ROWS = torch.arange(2.0 * N).view(N, 2)
LISTS = {"x": ROWS, "label": torch.arange(N)}


class Stop(Exception):
    """What a handler raises; such as TimeoutError, it may be an ordinary exception."""


def raising_at_line(k, kind, call):
    """call() with an exception before the k-th line of the package that it runs. Returns (result, None), or (None, the
    exception)."""
    n = 0

    def trace(frame, event, argument):
        nonlocal n
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            n += 1
            if n == k:
                sys.settrace(None)
                raise kind
        return trace

    sys.settrace(trace)
    try:
        return call(), None
    except BaseException as e:
        return None, e
    finally:
        sys.settrace(None)


def plain(**options):
    return batchd.DataLoader((ROWS, torch.arange(N)), BATCH, **options)


def by_dict(**options):
    return batchd.DataLoader(LISTS, BATCH, **options)


def collated(**options):
    return plain(collate_fn=lambda batch: batch, **options)


def copied(**options):
    """Both slots are held, so batches are copies."""
    return plain(n_slots=2, **options)


def numbers(loader):
    return loader.last_batch.indices.tolist()


@pytest.mark.parametrize(
    "make, kind",
    [
        *itertools.product([plain, by_dict, copied], [KeyboardInterrupt, Stop]),
        (collated, KeyboardInterrupt),  # an ordinary exception would be its own
    ],
)
def test_no_batch_is_lost_at_any_line(daemon, make, kind):
    """The k-th line of each call, k = 1 ... 150, in epochs one after the other."""
    loader = make()
    wanted, interrupted, iterator, step = list(range(N)), 0, iter(loader), 0
    for k in range(1, 151):
        if step == N // BATCH:
            assert next(iterator, None) is None
            iterator, step = iter(loader), 0
        given = loader.state_dict()
        batch, error = raising_at_line(k, kind, lambda: next(iterator))
        if error is not None:
            assert type(error) is kind, error
            assert loader.state_dict() == given
            interrupted += 1
            batch = next(iterator)
        assert numbers(loader) == wanted[step * BATCH : step * BATCH + BATCH], k
        first = batch["x"] if make is by_dict else batch[0]
        assert numpy.array_equal(first, ROWS[numbers(loader)])
        step += 1
        assert loader.state_dict()["global_batch"] == given["global_batch"] + 1
    assert interrupted > 20
    assert len(list(loader)) == N // BATCH  # and no slot is


@pytest.mark.parametrize("mix", [False, True])
def test_next_into_loses_none_either(daemon, samples, mix):
    """Also where mixing makes the numbers in this process."""
    more = {"mix": batchd.MixUp(alpha=0.5, num_classes=4)} if mix else {}
    loader = batchd.DataLoader(
        f"imagefolder:{samples}", BATCH, transform=[["Resize", 8], ["CenterCrop", 8], "ToTensor"], **more
    )
    seen, n_samples = [], len(loader) * BATCH
    for k in range(1, 101):
        images = torch.empty(BATCH, 3, 8, 8)
        n, error = raising_at_line(k, KeyboardInterrupt, lambda: loader.next_into(images))
        if error is not None:
            assert type(error) is KeyboardInterrupt, error
            n = loader.next_into(images)
        if n is None:
            assert loader.next_into(images) == BATCH
        seen += numbers(loader)
    assert seen == [i % n_samples for i in range(len(seen))]


def test_the_end_of_an_epoch_comes_once(daemon):
    """Interrupted at each line of its last call, an iteration ends with the next one, and the epoch after it follows."""
    for k in range(1, 60):
        loader = plain(job=str(k))
        iterator = iter(loader)
        for _ in range(N // BATCH):
            next(iterator)
        _, error = raising_at_line(k, KeyboardInterrupt, lambda: next(iterator))
        if isinstance(error, KeyboardInterrupt):
            with pytest.raises(StopIteration):
                next(iterator)
        assert loader.state_dict()["finished"] and len(list(loader)) == N // BATCH
        assert loader.last_batch.epoch == 1
        loader.close()


def test_an_error_of_collate_fn_is_of_its_batch_alone(daemon):
    """As with torch's loader: the loop may go on behind it."""

    def second(batch):
        if batch[1][0] == BATCH:
            raise ValueError("no")
        return batch[1].tolist()

    loader, found = plain(collate_fn=second), []
    iterator = iter(loader)
    while True:
        try:
            found.append(next(iterator))
        except ValueError:
            found.append(None)
        except StopIteration:
            break
    torchs = [[i, i + 1, i + 2, i + 3] for i in range(0, N, BATCH)]
    torchs[1] = None
    assert found == torchs


def test_an_own_order_loses_no_batch_in_silence(daemon):
    """Where the sampler itself was interrupted, the iteration says so, and a new one goes on from the loader's state."""
    loader = plain(sampler=ORDER)
    iterator, seen = iter(loader), []
    for k in range(1, 151):
        batch, error = raising_at_line(k, KeyboardInterrupt, lambda: next(iterator, None))
        if error is not None:
            assert type(error) is KeyboardInterrupt, error
            try:
                batch = next(iterator, None)
            except batchd.Error as e:
                assert "an exception has interrupted sampler in this iteration" in str(e)
                loader.load_state_dict(loader.state_dict())
                iterator = iter(loader)
                batch = next(iterator, None)
        if batch is None:
            iterator = iter(loader)
            next(iterator)
        seen += numbers(loader)
    assert seen == [ORDER[i % N] for i in range(len(seen))]
