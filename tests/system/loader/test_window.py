"""shuffle="window": shards in a random order, samples at random from a window that moves over them."""

import numpy
import pytest

from test_blend import put_tar


@pytest.fixture
def shards(samples, tmp_path):
    files = sorted(samples.rglob("*.jpg"))
    for s in range(4):
        put_tar(tmp_path / f"{s}.tar", [(p.read_bytes(), s * 12 + i) for i, p in enumerate(files[s * 12 :][:12])])
    return f"tar:{tmp_path}/{{0..3}}.tar"


def epoch_of(spec, name, world_size=1, state=None, stop=None, shuffle="window:5"):
    import batchd

    rows, states = {}, None
    for rank in range(world_size):
        loader = batchd.DataLoader(
            spec,
            batch_size=3,
            shuffle=shuffle,
            seed=2,
            transform="train224",
            dtype="uint8",
            rank=rank,
            world_size=world_size,
            job=f"{name}-{world_size}-{bool(state)}-{stop}",
        )
        if state:
            loader.load_state_dict(state)
        loader.set_epoch(1)
        at = 0
        for step, (images, labels) in enumerate(loader):
            last = loader.last_batch
            for k in range(len(last.indices) - last.n_padding):
                rows[at * world_size + rank] = int(labels[k]), numpy.asarray(images[k]).tobytes()
                at += 1
            if step + 1 == stop:
                states = loader.state_dict()
                break
        loader.close()
    return [rows[i] for i in sorted(rows)], states


def test_each_sample_comes_once_near_its_shard(daemon, shards):
    """Proves the order of shards and the window by the labels of an epoch, the same on 1 and 3 ranks, and for an epoch
    that 2 ranks begin and 3 end, with the same pixels; another window is another order, which does not resume it."""
    import batchd

    whole, _ = epoch_of(shards, "w")
    labels = [label for label, _ in whole]
    assert sorted(labels) == list(range(48)) and labels != sorted(labels)
    order = list(dict.fromkeys(labels[i] // 12 for i in (6, 18, 30, 42)))
    assert sorted(order) == [0, 1, 2, 3]
    assert all(order.index(label // 12) * 12 + label % 12 < i + 5 for i, label in enumerate(labels))
    assert epoch_of(shards, "w", world_size=3)[0] == whole
    begun, state = epoch_of(shards, "w", world_size=2, stop=3)
    assert begun + epoch_of(shards, "w", world_size=3, state=state)[0] == whole
    with pytest.raises(batchd.InvalidError, match="saved with shuffle=5, this loader has shuffle=6"):
        epoch_of(shards, "x", state=state, shuffle="window:6")


def test_what_a_window_cannot_be_is_refused(daemon, shards):
    """Proves errors for sizes, other words, and a blend with weights."""
    import batchd

    for word in ("window:1", "window:x", "windows", "window:"):
        with pytest.raises(ValueError, match="shuffle must be"):
            batchd.DataLoader(shards, shuffle=word)
    with pytest.raises(batchd.InvalidError, match="does not go with weights"):
        batchd.DataLoader(batchd.blend({shards: 1}), shuffle="window")
