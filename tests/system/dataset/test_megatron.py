"""tokens: windows of Megatron's pairs of files against megatron-core's own code: its writer, its index of samples and its
GPTDataset."""

import numpy
import pytest

import batchd

torch = pytest.importorskip("torch")
indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset", reason="megatron-core is not installed")
gpt = pytest.importorskip("megatron.core.datasets.gpt_dataset")
helpers = pytest.importorskip("megatron.core.datasets.helpers")

T = 16


def write(prefix, lengths, dtype):
    """A pair of files with documents of these lengths, by Megatron's own writer."""
    builder = indexed.IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    rng = numpy.random.default_rng(sum(lengths))
    for n in lengths:
        builder.add_document(torch.from_numpy(rng.integers(0, 30000, n)), [n])
    builder.finalize(f"{prefix}.idx")
    return indexed.IndexedDataset(str(prefix))


def windows(dataset, sample_index):
    """x of each sample, read as GPTDataset reads: from a document's offset, across documents, with one token more."""
    rows = []
    for (first, at), (last, end) in zip(sample_index[:-1].tolist(), sample_index[1:].tolist()):
        if first == last:
            rows.append(dataset.get(first, offset=at, length=end - at + 1))
            continue
        parts = [dataset.get(first, offset=at), *(dataset.get(k) for k in range(first + 1, last))]
        rows.append(numpy.concatenate([*parts, dataset.get(last, length=end + 1)]))
    return numpy.stack(rows).astype("int64")


@pytest.mark.parametrize("dtype", [numpy.uint16, numpy.int32])
def test_its_sample_index_has_our_windows(daemon, tmp_path, dtype):
    """Proves x and y of every sample of an epoch over documents of all lengths, in the order of its build_sample_idx."""
    lengths = [40, 1, 7, 300, 2, 17, 16, 15, 33]
    dataset = write(tmp_path / "corpus", lengths, dtype)
    order = numpy.arange(len(lengths), dtype=numpy.int32)
    index = helpers.build_sample_idx(numpy.array(lengths, "int32"), order, T, 1, sum(lengths))
    expected = windows(dataset, index)
    with batchd.DataLoader(f"tokens:{tmp_path}/corpus", length=T, batch_size=64, arrays="numpy") as loader:
        ((x, y),) = loader
    assert len(expected) == (sum(lengths) - 1) // T
    assert numpy.array_equal(x, expected[:, :-1]) and numpy.array_equal(y, expected[:, 1:])


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_gpt_dataset_sample_for_sample(daemon, tmp_path, world):
    """Proves tokens and labels of its own GPTDataset, shuffle included, by a sampler with its shuffle index, dealt to
    ranks as its sampler deals them."""

    class Tokenizer:
        eod, pad, vocab_size, unique_identifiers = 30001, 30002, 30003, {"class": "none"}

    dataset = write(tmp_path / "corpus", [1000], numpy.uint16)
    config = gpt.GPTDatasetConfig(
        random_seed=7,
        sequence_length=T,
        split="1",
        tokenizer=Tokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        path_to_cache=str(tmp_path / "cache"),
    )
    theirs = gpt.GPTDataset(dataset, str(tmp_path / "corpus"), numpy.array([0], "int32"), None, gpt.Split.train, config)
    n = len(theirs) // (2 * world) * 2 * world
    for rank in range(world):
        # MegatronPretrainingSampler: of every world * 2 samples a rank has 2, side by side.
        mine = [k for k in range(n) if k // 2 % world == rank]
        order = [theirs.shuffle_index[k] for k in mine]
        batches = [order[i : i + 2] for i in range(0, len(order), 2)]
        loader = batchd.DataLoader(f"tokens:{tmp_path}/corpus", length=T, batch_sampler=batches, batch_size=2)
        rows = [(x, y) for batch in loader for x, y in zip(*batch)]
        assert len(rows) == len(mine)
        for k, (x, y) in zip(mine, rows):
            assert torch.equal(x, theirs[k]["tokens"]) and torch.equal(y, theirs[k]["labels"])
        loader.close()


SIZES, WEIGHTS = (400, 250, 90), (0.5, 0.3, 0.2)


def blended(size):
    """Megatron's order of a blend: which data set each sample is from, and its number there."""
    which, number = numpy.zeros(size, "int16"), numpy.zeros(size, "int64")
    helpers.build_blending_indices(which, number, list(WEIGHTS), len(WEIGHTS), size, False)
    return which, number


def test_a_blend_in_its_order(daemon, tmp_path):
    """Proves tokens and labels of its BlendedDataset's samples, in its order, by a sampler over a list of pairs."""
    parts = [write(tmp_path / f"c{i}", [n], numpy.uint16) for i, n in enumerate(SIZES)]
    rows = [dataset.get(0).astype("int64") for dataset in parts]
    counts = [(n - 1) // T for n in SIZES]
    first = [sum(counts[:i]) for i in range(len(counts))]
    which, number = blended(40)
    assert set(which.tolist()) == {0, 1, 2}
    order = [first[d] + k % counts[d] for d, k in zip(which.tolist(), number.tolist())]
    pairs = [f"tokens:{tmp_path}/c{i}" for i in range(len(SIZES))]
    with batchd.DataLoader(pairs, 5, length=T, sampler=order, arrays="numpy") as loader:
        got = [(x, y) for xs, ys in loader for x, y in zip(xs, ys)]
    assert len(got) == len(order)
    for (x, y), d, k in zip(got, which.tolist(), number.tolist()):
        at = k % counts[d] * T
        assert numpy.array_equal(x, rows[d][at : at + T]) and numpy.array_equal(y, rows[d][at + 1 : at + 1 + T])


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_a_blends_weights_are_its_shares(daemon, tmp_path, world):
    """Proves that batchd.blend takes of each pair as many windows of an epoch as Megatron's blend of that length, or one
    more or less, on any number of ranks together."""
    for i, n in enumerate(SIZES):
        write(tmp_path / f"c{i}", [n], numpy.uint16)
    counts = [(n - 1) // T for n in SIZES]
    blend = batchd.blend({f"tokens:{tmp_path}/c{i}": w for i, w in enumerate(WEIGHTS)}, seed=2)
    indices = []
    for rank in range(world):
        with batchd.DataLoader(blend, 2, length=T, shuffle=True, rank=rank, world_size=world, job="b") as loader:
            for _ in loader:
                held = loader.last_batch
                indices += held.indices[: held.n_rows - held.n_padding].tolist()
    assert len(indices) == sum(counts)
    which, _ = blended(sum(counts))
    edges = numpy.cumsum([0, *counts])
    ours = numpy.histogram(indices, edges)[0]
    assert (abs(ours - numpy.bincount(which)) <= 1).all(), ours
