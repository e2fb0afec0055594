"""shuffle="resampled": shards drawn with replacement, as webdataset's ResampledShards draws them."""

import collections
import math

import pytest

from test_blend import put_tar
from test_window import epoch_of

SIZES = (3, 12, 6, 27)  # samples of each shard


@pytest.fixture
def shards(samples, tmp_path):
    picture = sorted(samples.rglob("*.jpg"))[0].read_bytes()
    first = 0
    for s, n in enumerate(SIZES):
        put_tar(tmp_path / f"{s}.tar", [(picture, first + i) for i in range(n)])
        first += n
    return tmp_path


def shard_of(label):
    first = 0
    for s, n in enumerate(SIZES):
        first += n
        if label < first:
            return s
    raise AssertionError(label)


def labels_of(spec, seed=0, epochs=1, shuffle="resampled:1", **options):
    """The labels of each epoch, from one rank."""
    import batchd

    found = []
    with batchd.DataLoader(spec, 8, shuffle=shuffle, seed=seed, fields=("label",), **options) as loader:
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            found.append(
                [int(label) for batch in loader for label in (batch[0] if isinstance(batch, tuple) else batch)]
            )
    return found


def draws(labels):
    """The shards as they were drawn: each comes whole, from its first sample on; the last may be cut."""
    found, at = [], 0
    while at < len(labels):
        s = shard_of(labels[at])
        first = sum(SIZES[:s])
        taken = labels[at : at + SIZES[s]]
        assert taken == list(range(first, first + len(taken)))
        found.append(s)
        at += SIZES[s]
    return found


def chi_squared(counts, chances):
    n = sum(counts.values())
    return sum((counts[s] - n * p) ** 2 / (n * p) for s, p in enumerate(chances))


def test_shards_are_drawn_as_webdataset_draws_them(daemon, shards):
    """Every shard is as likely as any other, whatever its size, with a new draw each: so is webdataset's ResampledShards, whose
    own draws pass the same test. 16.3 is what chi squared exceeds once in 1000 times with 3 degrees of freedom."""
    epochs = labels_of(f"tar:{shards}/{{0..3}}.tar#label=cls", epochs=300)
    assert all(len(labels) == sum(SIZES) for labels in epochs)
    ours = collections.Counter(s for labels in epochs for s in draws(labels)[:1])  # later draws see how much is left
    assert chi_squared(ours, [0.25] * 4) < 16.3, ours
    pairs = collections.Counter(tuple(draws(labels)[:2]) for labels in epochs if len(draws(labels)) > 1)
    assert any(a == b for a, b in pairs), "with replacement, a shard may come twice in a row"
    assert len({tuple(labels) for labels in epochs}) > 100
    webdataset = pytest.importorskip("webdataset")
    theirs = webdataset.ResampledShards([f"{s}" for s in range(4)], nshards=300, seed=1, deterministic=True)
    assert chi_squared(collections.Counter(int(d["url"]) for d in theirs), [0.25] * 4) < 16.3


def test_weights_are_shares_of_the_rows(daemon, shards):
    """A blend of 0.7 of the small shards and 0.3 of the large one has so many of the rows in the long run."""
    spec = f"blend:0.7*tar:{shards}/{{0..2}}.tar#label=cls;;0.3*tar:{shards}/3.tar#label=cls"
    firsts = collections.Counter(shard_of(labels[0]) for labels in labels_of(spec, epochs=600, seed=5))
    small = firsts[0] + firsts[1] + firsts[2]
    # 0.7 / 7 samples in a shard of the first, 0.3 / 27 in one of the second
    expected = (0.7 / 7) / (0.7 / 7 + 0.3 / 27)
    assert abs(small / 600 - expected) < 4 * math.sqrt(expected * (1 - expected) / 600)
    assert chi_squared({s: firsts[s] for s in range(3)}, [1 / 3] * 3) < 13.8
    # The long run, from these chances: rows of a draw x its chance.
    rows = [expected / 3 * n for n in SIZES[:3]] + [(1 - expected) * SIZES[3]]
    assert math.isclose(sum(rows[:3]) / sum(rows), 0.7)


def test_ranks_and_resumed_epochs_divide_the_same_draws(daemon, shards):
    """The rows of 1 and 3 ranks are the same sequence; 2 ranks begin an epoch and 3 end it; pixels are the same, and a
    sample that comes twice is augmented twice."""
    spec = f"tar:{shards}/{{0..3}}.tar"
    whole, _ = epoch_of(spec, "r", shuffle="resampled:5")
    assert len(whole) == sum(SIZES) and len(set(whole)) == len(whole)
    labels = [label for label, _ in whole]
    assert len(set(labels)) < len(labels)
    assert epoch_of(spec, "r", world_size=3, shuffle="resampled:5")[0] == whole
    begun, state = epoch_of(spec, "r", world_size=2, stop=3, shuffle="resampled:5")
    ended, _ = epoch_of(spec, "r", world_size=3, state=state, shuffle="resampled:5")
    assert begun + ended == whole
    assert epoch_of(spec, "x", shuffle="window:5")[0] != whole


def test_wrong_values_are_refused(daemon, shards):
    import batchd

    for value in ("resampled:0", "resampled:x", "resampled:9999999999", "resample", "window:1", "window:1073741824"):
        with pytest.raises(ValueError, match="shuffle must be True, False, 'window'"):
            batchd.DataLoader(f"tar:{shards}/0.tar", 4, shuffle=value)
