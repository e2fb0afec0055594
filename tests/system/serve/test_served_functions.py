"""batchd.serve(function): which of a function's parameters is the epoch, and what else it is called with."""

import functools

import numpy
import pytest

import batchd


def named(split="train", epoch=-1):
    yield {"epoch": epoch, "split": split}


def keyword(*, epoch):
    yield {"epoch": epoch}


def required(e, split="train"):
    yield {"epoch": e, "split": split}


def positional(epoch=-1, /, split="train"):
    yield {"epoch": epoch, "split": split}


def plain():
    yield {"split": "train"}


def split(split="train"):
    yield {"split": split}


def sized(batch_size=32):
    yield {"rows": len(numpy.arange(batch_size))}


def files(*files):
    yield {"files": list(files)}


def options(**options):
    yield {"options": sorted(options)}


class Corpus:
    def batches(self, batch_size=4):
        yield {"rows": batch_size}

    def of_epoch(self, which):
        yield {"epoch": which}


@pytest.mark.parametrize(
    "function, wanted",
    [
        (named, [{"epoch": e, "split": "train"} for e in (0, 1)]),
        (keyword, [{"epoch": 0}, {"epoch": 1}]),
        (required, [{"epoch": e, "split": "train"} for e in (0, 1)]),
        (positional, [{"epoch": e, "split": "train"} for e in (0, 1)]),
        (Corpus().of_epoch, [{"epoch": 0}, {"epoch": 1}]),
        (functools.partial(named, split="val"), [{"epoch": e, "split": "val"} for e in (0, 1)]),
        (plain, [{"split": "train"}] * 2),
        (split, [{"split": "train"}] * 2),
        (sized, [{"rows": 32}] * 2),
        (Corpus().batches, [{"rows": 4}] * 2),
        (lambda bs=32: iter([{"rows": bs}]), [{"rows": 32}] * 2),
        (files, [{"files": []}] * 2),
        (options, [{"options": []}] * 2),
    ],
)
def test_the_epoch_goes_to_a_parameter_that_is_meant_for_it(daemon, function, wanted):
    """A default of the function's stays what it is."""
    with batchd.serve(function, "functions", epochs=2, background="fork"):
        loader = batchd.DataLoader("serve:functions")
        assert [batch for _ in range(2) for batch in loader] == wanted
