"""A trainer's own batches: samplers and batch samplers."""

import warnings

import numpy
import pytest

from plain_loops import content_of, flat, indices_of, make, needs_torch, plain, taken, torch


class Sampler:
    """Like PyTorch's batch samplers: lists of any length, another order each epoch."""

    batch_size = 9

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = numpy.random.default_rng(self.epoch).permutation(100)
        start = 0
        for n in [9, 1, 5] * 3 + [9, 9, 9, 9, 9, 9, 1]:
            yield order[start : start + n]
            start += n

    def __len__(self):
        return 16


def test_own_batches_come_as_the_sampler_chose_them(daemon):
    """Sizes and order of every batch, the content of every sample, two epochs, and set_epoch reaches the sampler."""
    content = {i: x for batch, (x, _) in zip(indices_of(make()), content_of(make())) for i, x in zip(batch, x)}
    sampler = Sampler()
    loader = make(batch_size=None, batch_sampler=sampler)
    assert loader.batch_size == 9 and len(loader) == 16
    for epoch in (0, 3):
        loader.set_epoch(epoch)
        expected = [list(b) for b in sampler]
        for (images, _), wanted in zip(loader, expected):
            assert loader.last_batch.indices.tolist() == wanted
            assert all((plain(x) == content[i]).all() for x, i in zip(images, wanted))
        assert loader.last_batch.step == 15 and sampler.epoch == epoch


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_sampler_is_cut_into_batches_as_torch_does(daemon, drop_last):
    """Indices in the sampler's order; it is the loader's sampler, and gets the epochs."""

    class Backwards:
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter(range(49 + self.epoch, -1, -1))

        def __len__(self):
            return 50 + self.epoch

    loader = make(sampler=Backwards(), drop_last=drop_last)
    assert (
        loader.batch_size == 8
        and loader.drop_last == drop_last
        and isinstance(loader.sampler, Backwards)
        and loader.batch_sampler.sampler is loader.sampler
    )
    for epoch in (0, 6):
        loader.set_epoch(epoch)
        n = len(loader.sampler)
        whole = [list(range(n - 1 - at, max(n - 9 - at, -1), -1)) for at in range(0, n, 8)]
        expected = [b for b in whole if len(b) == 8 or not drop_last]
        assert len(loader) == len(expected) and indices_of(loader) == expected
    if torch is not None:
        sampler = torch.utils.data.WeightedRandomSampler([0, 1] * 50, 30)
        found = flat(indices_of(make(sampler=sampler)))
        assert len(found) == 30 and all(i % 2 for i in found)


def test_own_batches_resume_by_skipping_what_was_given_out(daemon):
    """The sampler is iterated again from its start."""
    expected = [list(b) for b in Sampler()]
    loader = make(batch_size=None, batch_sampler=Sampler())
    assert taken(loader, 6) == expected[:6]
    again = make(batch_size=None, batch_sampler=Sampler())
    again.load_state_dict(loader.state_dict())
    assert indices_of(again) == expected[6:]


def test_own_batches_survive_the_daemon(make_daemon):
    """Also when the daemon is killed in between."""
    daemon = make_daemon()
    loader, found = make(batch_size=None, batch_sampler=Sampler()), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in loader:
            found.append(loader.last_batch.indices.tolist())
            if len(found) == 7:
                daemon.kill()
                daemon.start()
    assert found == [list(b) for b in Sampler()]


@needs_torch
def test_torch_batch_samplers_work(daemon):
    """The usual class."""
    sampler = torch.utils.data.BatchSampler(torch.utils.data.SubsetRandomSampler(range(50, 80)), 7, False)
    loader = make(batch_size=None, batch_sampler=sampler)
    batches = indices_of(loader)
    assert [len(b) for b in batches] == [7, 7, 7, 7, 2] and sorted(flat(batches)) == list(range(50, 80))


def test_wrong_own_batches_are_refused_by_name(daemon):
    """Too long, empty, out of range."""
    for batches, kind, word in (
        ([list(range(9))], ValueError, "9 where 1 to 8"),
        ([[]], ValueError, "batch of 0"),
        ([[1, 100]], IndexError, "sample 100 of 100"),
        ([[-1]], IndexError, "-1"),
    ):
        with pytest.raises(kind, match=word):
            list(make(batch_sampler=batches))
    with pytest.raises(ValueError, match="give batch_size"):
        make(batch_size=None, batch_sampler=iter([[1]]))
