"""Every kind of source: each sample once per epoch on 1, 2, 3 and 8 ranks, an epoch that some ranks begin and others
end, and the same rows as one rank gets that reads in order."""

import collections

import numpy
import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402 (torch may be missing)
from test_configured_sources import KINDS, files, source  # noqa: E402, F401 (a fixture)
from test_configured_sources import tar  # noqa: E402

PLAIN = [["CenterCrop", 24], "ToTensor"]
OPTIONS = dict(shuffle=True, seed=11)


def of_memory(_):
    return torch.arange(39).reshape(13, 3), torch.arange(13)


def of_dictionary(_):
    return {"x": numpy.arange(39).reshape(13, 3).astype("int16"), "y": numpy.arange(13.0)}


def of_tensor_dataset(_):
    return torch.utils.data.TensorDataset(torch.arange(39).reshape(13, 3).half(), torch.arange(13))


def of_huggingface(folder):
    datasets = pytest.importorskip("datasets", reason="the datasets package is not installed")
    data = datasets.Dataset.from_dict({"x": [[i, i + 1] for i in range(20)], "text": [f"né {i}" for i in range(20)]})
    data.save_to_disk(str(folder / "saved"), num_shards=3)
    return datasets.load_from_disk(str(folder / "saved")).shuffle(seed=4).select(range(1, 17))


def of_a_table(folder):
    return of_huggingface(folder).with_format(None).map(lambda row: {"n": len(row["text"])}, keep_in_memory=True)


def of_a_list(folder):
    return [source("tar", folder), f"tar:{folder}/t-1.tar", source("imagefolder", folder)]


def of_weights(folder):
    return batchd.blend({f"tar:{folder}/t-0.tar": 0.3, f"tar:{folder}/t-1.tar": 0.7}, seed=5)


def of_weighted_tokens(folder):
    return batchd.blend({f"tokens:{folder}/t_0.bin": 1, f"tokens:{folder}/t_1.bin": 3}, seed=5)


OBJECTS = {
    "memory": of_memory,
    "dictionary": of_dictionary,
    "TensorDataset": of_tensor_dataset,
    "datasets.Dataset": of_huggingface,
    "a table": of_a_table,
    "list": of_a_list,
    "weights": of_weights,
    "weighted tokens": of_weighted_tokens,
}
PICTURES = {"imagefolder", "files", "tar", "two tars", "mds", "zip", "blend", "list", "weights"}


def plain(value):
    """A row's part as something that can be counted."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), value.tolist()) if value.ndim == 0 else (str(value.dtype), value.numpy().tobytes())
    return value.tobytes() if isinstance(value, numpy.ndarray) else value


def epoch(data, kind, world, state=None, stop=None, **options):
    """[(index, row)] in global order, padding left out, and the state; stop: after so many batches of each rank."""
    if kind in PICTURES:
        options["transform"] = PLAIN
    if kind == "weighted tokens":
        options["length"] = 8
    options = {**OPTIONS, **options}
    by_step, after = collections.defaultdict(list), None
    for rank in range(world):
        job = f"{kind}-{world}-{stop}-{state is not None}".replace(" ", "-")
        with batchd.DataLoader(data, 2, rank=rank, world_size=world, job=job, **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for step, batch in enumerate(loader):
                parts = list(batch.values()) if isinstance(batch, dict) else list(batch)
                held = loader.last_batch
                for k in range(held.n_rows - held.n_padding):
                    row = tuple(plain(part[k]) for part in parts)
                    by_step[step, k, rank].append((int(held.indices[k]), row))
                if step + 1 == stop:
                    after = loader.state_dict()
                    break
    return [row for key in sorted(by_step) for row in by_step[key]], after


def check(data, kind, **options):
    """Order, rows and resumes; returns the rows of an epoch."""
    whole, _ = epoch(data, kind, 1, **options)
    for world in (2, 3, 8):
        assert epoch(data, kind, world, **options)[0] == whole, world
    for first, second in ((3, 8), (8, 2), (2, 1), (1, 3)):
        if 2 * first < len(whole):
            begun, state = epoch(data, kind, first, stop=1, **options)
            assert len(begun) == 2 * first
            assert begun + epoch(data, kind, second, state=state, **options)[0] == whole, (first, second)
    return whole


@pytest.mark.parametrize("kind", [*KINDS, *OBJECTS])
def test_each_sample_comes_once_on_any_number_of_ranks(daemon, files, kind):  # noqa: F811
    """Proves indices and rows, all fields of them: the ranks' rows of a step side by side are those that one rank gets,
    which are those of a loader that does not shuffle, each as often as its kind says."""
    data = OBJECTS[kind](files) if kind in OBJECTS else source(kind, files)
    whole = check(data, kind)
    came = collections.Counter(index for index, _ in whole)
    if kind in ("weights", "weighted tokens", "blend"):
        assert max(came.values()) >= 2 and len(whole) == sum(came.values())
    else:
        assert set(came.values()) == {1} and sorted(came) == list(range(len(whole)))
        in_order, _ = epoch(data, kind, 1, shuffle=False)
        assert [index for index, _ in in_order] == list(range(len(whole)))
        assert sorted(whole, key=lambda pair: pair[0]) == in_order


@pytest.mark.parametrize("shuffle", ["window:3", "resampled:3"])
def test_orders_for_packed_data_too(daemon, tmp_path, shuffle):
    """Proves the same of orders by shard: window has each sample once, resampled as many rows."""
    for k in range(5):
        tar(tmp_path / f"t-{k}.tar", 4 * k)
    whole = check(f"tar:{tmp_path}/t-{{0..4}}.tar", "tar", shuffle=shuffle)
    assert len(whole) == 20
    assert (len({index for index, _ in whole}) == 20) == shuffle.startswith("window")
