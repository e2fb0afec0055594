"""Tuples, dictionaries and TensorDatasets of arrays in memory: the rows that torch's TensorDataset gives."""

import os
import subprocess
import sys

import numpy
import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402 (torch may be missing)

N = 103


def some(dtype="float32"):
    rng = numpy.random.default_rng(1)
    return torch.from_numpy((rng.random((N, 3, 5)) * 100).astype(dtype)), torch.from_numpy(rng.integers(0, 9, N))


def theirs(data, rank, world, epoch, batch_size=8):
    sampler = torch.utils.data.DistributedSampler(data, world, rank, shuffle=True, seed=4)
    sampler.set_epoch(epoch)
    return torch.utils.data.DataLoader(data, batch_size, sampler=sampler)


class OnlyNamed(torch.utils.data.TensorDataset):
    """A subclass that changes no sample."""

    def __init__(self, *tensors):
        super().__init__(*tensors)
        self.name = "mine"


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int32", "bool", "complex64", "float64"])
@pytest.mark.parametrize("how", ["tuple", "TensorDataset", "subclass", "numpy"])
def test_rows_are_those_of_tensor_dataset(daemon, dtype, how):
    """Both ranks, two epochs, both arrays, in their own dtypes."""
    x, y = some(dtype)
    y = y.to(torch.int32)
    data = torch.utils.data.TensorDataset(x, y)
    same = OnlyNamed(x, y)
    given = {"tuple": (x, y), "TensorDataset": data, "subclass": same, "numpy": (x.numpy(), y.numpy())}[how]
    for rank in range(2):
        with batchd.DataLoader(given, batch_size=8, shuffle=True, seed=4, rank=rank, world_size=2, job="m") as loader:
            for epoch in range(2):
                loader.set_epoch(epoch)
                for (a, b), (c, d) in zip(loader, theirs(data, rank, 2, epoch), strict=True):
                    assert a.dtype == c.dtype and b.dtype == d.dtype
                    assert torch.equal(a, c) and torch.equal(b, d)


def test_batches_have_the_form_of_the_data(daemon):
    """One tensor, three, and dictionaries, one of them with the names of the default fields."""
    x, y = some()
    z = torch.arange(N * 2).view(N, 2)
    for data in ((x,), (x, y, z), {"pixel_values": x, "labels": y}, {"data": x, "label": y}):
        with batchd.DataLoader(data, batch_size=N) as loader:
            (batch,) = loader
        assert type(batch) is type(data) and len(batch) == len(data)
        for got, wanted in zip(*(b.values() if isinstance(b, dict) else b for b in (batch, data))):
            assert got.dtype == wanted.dtype and torch.equal(got, wanted)
        assert not isinstance(data, dict) or batch.keys() == data.keys()
    with batchd.DataLoader((x, y, z), batch_size=N, fields=("label", "field2")) as loader:
        ((a, b),) = loader
    assert torch.equal(a, y) and torch.equal(b, z)


def test_strides_and_byte_order_are_made_plain(daemon):
    """A transposed, a reversed and a big-endian array, and what happens to the original does not matter."""
    x = numpy.arange(N * 6, dtype="float32").reshape(6, N).T
    y = numpy.arange(N, dtype=">i4")[::-1]
    expected = x.copy(), y.astype("int32")
    with batchd.DataLoader((x, y), batch_size=N, arrays="numpy") as loader:
        x[:] = 0
        ((a, b),) = loader
        assert (a == expected[0]).all() and (b == expected[1]).all() and b.dtype == numpy.dtype("int32")


def test_ranks_share_one_copy(daemon, batchctl):
    """Four loaders of equal data in one job: one data set's memory is charged; other data is another data set."""
    import json

    x, y = some()
    loaders = [
        batchd.DataLoader((x.clone(), y.clone()), rank=r, world_size=4, job="shared", batch_size=4) for r in range(4)
    ]
    rows = torch.cat([b.clone() for loader in loaders for _, b in loader])
    assert len(rows) == 104
    status = json.loads(batchctl("status", "--json").stdout)
    assert len(status["loaders"]) == 1
    with pytest.raises(batchd.MismatchError, match="dataset"):
        batchd.DataLoader((x + 1, y), rank=3, world_size=4, job="shared", batch_size=4)
    for loader in loaders:
        loader.close()


def test_the_memory_is_given_back(daemon):
    """No descriptor is left when the loader is gone."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        loader = batchd.DataLoader(some(), batch_size=8)
        next(iter(loader))
        loader.close()
        del loader
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_daemon_that_comes_back_gets_the_memory_again(make_daemon):
    """The loader goes on where it was after the daemon was killed and started again."""
    d = make_daemon()
    x, y = some()
    with batchd.DataLoader((x, y), batch_size=1, reconnect=60, n_slots=4) as loader:
        it = iter(loader)
        got = [next(it)[1].clone() for _ in range(2)]
        d.kill()
        d.start()
        with pytest.warns(RuntimeWarning):
            got += [b.clone() for _, b in it]
    assert torch.equal(torch.cat(got), y)


@pytest.mark.parametrize(
    "data, error, words",
    [
        ((torch.zeros(3, 2, dtype=torch.bfloat16),), TypeError, "torch.uint16"),
        ((torch.zeros(3), torch.zeros(4)), ValueError, "equally many rows"),
        ((numpy.array(["a", "b"]),), TypeError, "dtype"),
        ((torch.tensor(1.0),), ValueError, "no first dimension"),
        ((torch.zeros(0, 3),), ValueError, "no rows"),
        ({"a,b": torch.zeros(3)}, ValueError, "cannot name a field"),
        ((torch.zeros(3), "y"), TypeError, r"dataset\[1\] is a str, and fields .* are numpy arrays or tensors"),
        (((1, 2), (3, 4)), TypeError, r"dataset\[0\] is a tuple.*numpy.asarray\(dataset\[0\]\)"),
        (("imagefolder:a", "tar:b"), TypeError, r"several data sets are a list, \['imagefolder:a', 'tar:b'\]"),
        ({"imagefolder:a": 0.5, "tar:b": 1}, TypeError, "batchd.blend"),
        ({"id": torch.zeros(3)}, ValueError, "'id' cannot name a field.* call it sample_id"),
        ({1: torch.zeros(3), "1": torch.ones(3)}, ValueError, "the same name"),
        ({"x": torch.masked.masked_tensor(torch.zeros(3), torch.ones(3) > 0)}, TypeError, "mask would be lost"),
    ],
)
def test_what_cannot_be_handed_over_is_named(daemon, data, error, words):
    with pytest.raises(error, match=words):
        batchd.DataLoader(data)


def changed(method):
    """A TensorDataset whose subclass has its own version of one method."""

    def method_of_its_own(self, *args):
        return 3 if method == "__len__" else self.tensors[0][args[0]] * 100

    kind = type("Changed", (torch.utils.data.TensorDataset,), {method: method_of_its_own})
    return kind(torch.arange(4.0))


@pytest.mark.parametrize("method", ["__getitem__", "__getitems__", "__len__"])
def test_what_a_subclass_of_tensor_dataset_does_is_not_left_out(daemon, method):
    """torch's loader calls the subclass's method; so its rows are not those of the tensors, and it is refused by name."""
    data = changed(method)
    theirs = next(iter(torch.utils.data.DataLoader(data, 4, collate_fn=lambda batch: batch)))
    assert len(theirs) == 3 if method == "__len__" else not torch.equal(torch.as_tensor(theirs), torch.arange(4.0))
    with pytest.raises(TypeError, match=f"Changed object, .*TensorDataset with a {method} of its own.*batchd.serve"):
        batchd.DataLoader(data, 4)


def test_a_method_of_the_object_itself_is_not_left_out(daemon):
    """torch's loader asks the object, not its class, for __getitems__."""
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    data.__getitems__ = lambda indices: [(torch.zeros(1),) for _ in indices]
    (theirs,) = next(iter(torch.utils.data.DataLoader(data, 4)))
    assert not theirs.any()
    with pytest.raises(TypeError, match="__getitems__ of its own"):
        batchd.DataLoader(data, 4)


PAIRS = [(torch.arange(6.0).view(2, 3) + i, 10 * i) for i in range(5)]


@pytest.mark.parametrize(
    "samples",
    [
        [torch.arange(4.0) + 10 * i for i in range(3)],
        [numpy.arange(4) + 10 * i for i in range(70)],
        PAIRS,
        [{"x": x.numpy(), "y": y} for x, y in PAIRS],
        [[x] for x, _ in PAIRS],
        [3, 1, 4],
    ],
)
def test_the_advice_for_a_list_of_samples_gives_its_samples(daemon, samples):
    """A list has no meaning of its own: the first expression in the error makes what torch's loader makes of the list."""
    with pytest.raises(TypeError) as error:
        batchd.DataLoader(samples, 2)
    words = str(error.value)
    begin = min(i for i in (words.find(" (") + 1, words.find(" {") + 1) if i)
    for end in range(len(words), begin, -1):  # the longest text that is an expression
        try:
            given = eval(words[begin:end], {"torch": torch, "numpy": numpy, "dataset": samples})
        except SyntaxError:
            continue
        break
    theirs = torch.utils.data.DataLoader(samples, len(samples))
    with batchd.DataLoader(given, len(samples)) as loader:
        ((ours,), (wanted,)) = list(loader), list(theirs)
    if isinstance(wanted, dict):
        assert ours.keys() == wanted.keys()
        ours, wanted = list(ours.values()), list(wanted.values())
    wanted = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    assert len(ours) == len(wanted) and all(map(torch.equal, ours, wanted))


def test_a_list_of_fields_is_a_tuple(daemon):
    """The error for a list of arrays names the tuple, too, and tuple(list) is one of fields."""
    x, y = some()
    with pytest.raises(TypeError, match=r"list of 2 tensors, .*tuple\(dataset\) if each is a field"):
        batchd.DataLoader([x, y])
    with pytest.raises(TypeError, match=r"list of 2 arrays, .*numpy.stack"):
        batchd.DataLoader([x.numpy(), y.numpy()])


class Foreign:
    """An array of a library that the loader does not know, such as JAX."""

    def __array__(self, dtype=None, copy=None):
        return numpy.arange(N)


def test_the_advice_for_one_array_and_for_frames_works(daemon):
    """A tensor or array alone, another library's array, a data frame, a StackDataset: what is written gives its rows."""
    pandas = pytest.importorskip("pandas")
    x, y = some()
    frame = pandas.DataFrame({"a": range(N), "b": numpy.arange(N) / 4})
    stacked = torch.utils.data.StackDataset(x, y)
    cases = [
        (x, "write (dataset,)", (x,)),
        (x.numpy(), "write (dataset,)", (x,)),
        (Foreign(), "write (numpy.asarray(dataset),)", (torch.arange(N),)),
        (frame["b"], "write (numpy.asarray(dataset),)", (torch.arange(N) / 4,)),
        (frame, "{name: dataset[name].to_numpy() for name in dataset.columns}", (torch.arange(N), torch.arange(N) / 4)),
        (stacked, "hand over dataset.datasets", (x, y)),
    ]
    for dataset, words, wanted in cases:
        with pytest.raises(TypeError) as error:
            batchd.DataLoader(dataset)
        assert words in str(error.value)
        expression = words.removeprefix("write ").removeprefix("hand over ")
        with batchd.DataLoader(eval(expression, {"numpy": numpy, "dataset": dataset}), N) as loader:
            (batch,) = loader
        batch = tuple(batch.values()) if isinstance(batch, dict) else batch
        assert all(torch.equal(a.double(), b.double()) for a, b in zip(batch, wanted, strict=True))
    for wrong in ((x, list(range(N))), (x, frame["a"]), (x, Foreign()), {"x": x, "y": range(N)}):
        key = "y" if isinstance(wrong, dict) else 1
        with pytest.raises(TypeError, match=rf"numpy.asarray\(dataset\[{key!r}\]\)"):
            batchd.DataLoader(wrong)
    with pytest.raises(TypeError, match=r"dataset\[1\] is a tuple of arrays: fields do not nest"):
        batchd.DataLoader((x, (y, y)))


def test_a_mask_is_not_dropped(daemon):
    """numpy's own function refuses to lose a mask's values, too: filled() says what stands for them."""
    masked = numpy.ma.masked_array([1.0, 1e20, 3.0], [0, 1, 0])
    with pytest.raises(TypeError, match="data is a MaskedArray, and its mask would be lost: .*filled"):
        batchd.DataLoader((masked,), 3)
    with batchd.DataLoader((masked.filled(-1), numpy.ma.getmaskarray(masked)), 3) as loader:
        ((values, mask),) = loader
    assert values.tolist() == [1, -1, 3] and mask.tolist() == [False, True, False]


def test_more_than_the_users_memory_is_refused(make_daemon):
    """The arrays are charged: the error says what the limit is."""
    make_daemon(config="memory: 96MiB\n")
    with pytest.raises(batchd.LimitError, match="memory"):
        batchd.DataLoader((torch.zeros(200 << 20, dtype=torch.uint8), torch.zeros(200 << 20, dtype=torch.uint8)))


def test_a_state_belongs_to_all_values(daemon):
    """Proves that one other value, far from those that are looked at in a file, is another data set."""
    x = numpy.zeros(100_000)
    with batchd.DataLoader((x,), 1000) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with batchd.DataLoader((x.copy(),), 1000) as loader:
        loader.load_state_dict(state)
        assert len(list(loader)) == 99
    x[50_003] = 1
    with batchd.DataLoader((x,), 1000) as loader:
        with pytest.raises(batchd.InvalidError, match="the state belongs to another data set"):
            loader.load_state_dict(state)
            next(iter(loader))


def test_status_does_not_tell_the_id(daemon):
    """It would be enough to join the job from another container, and to read its data."""
    with batchd.DataLoader({"a": torch.zeros(8), "b": torch.zeros(8)}, batch_size=2, job="secret") as loader:
        next(iter(loader))
        (status,) = batchd.status()["loaders"]
        assert status["dataset"] == "memory:a,b"


def test_a_warm_loader_makes_room_for_another(make_daemon):
    """What a closed loader still keeps is given up for the next one, whose memory is then opened all the same."""
    make_daemon(config="memory: 192MiB\nlinger: 1h\nlimits:\n  memory_per_user: 0.5\n")
    for value in range(4):
        data = torch.full((60, 1 << 20), value, dtype=torch.uint8)
        with batchd.DataLoader((data,), batch_size=2, job=f"job {value}", n_slots=2) as loader:
            for (batch,) in loader:
                assert (batch == value).all()


def test_another_process_that_ends_takes_nothing_with_it(daemon):
    """Data of a trainer that was killed does not trouble the others of the job."""
    x, y = some()
    program = (
        "import torch, batchd, numpy, sys, time\n"
        "rng = numpy.random.default_rng(1)\n"
        "x = torch.from_numpy((rng.random((103, 3, 5)) * 100).astype('float32'))\n"
        "y = torch.from_numpy(rng.integers(0, 9, 103))\n"
        "loader = batchd.DataLoader((x, y), rank=1, world_size=2, job='two', batch_size=8)\n"
        "next(iter(loader)); print('ready', flush=True); time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    with batchd.DataLoader((x, y), rank=0, world_size=2, job="two", batch_size=8, on_stall="ignore") as loader:
        child.kill()
        child.wait()
        assert torch.equal(torch.cat([b.clone() for _, b in loader]), y[0::2])
