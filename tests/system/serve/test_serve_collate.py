"""A torch DataLoader that is served collates into the daemon's slot: trainers get what the DataLoader gives, bit by bit,
for every kind of sample, and the same error where it gives one."""

import collections
import itertools
import signal

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402
import served_data as data  # noqa: E402
from batchd import _collate, _tree  # noqa: E402
from torch.utils.data import DataLoader, Dataset, default_collate  # noqa: E402
from torch.utils.data._utils.collate import default_collate_fn_map  # noqa: E402

N, BATCH = 7, 3  # the last batch has one row

DTYPES = """uint8 int8 int16 int32 int64 float16 float32 float64 bfloat16 bool complex64 complex128 uint16 uint32 uint64
    float8_e4m3fn float8_e5m2""".split()


class Sub(torch.Tensor):
    """A class of the user's."""


class Looks(list):
    """A container that looks at what default_collate puts into it."""

    def __setitem__(self, i, value):
        assert torch.is_tensor(value)
        super().__setitem__(i, value * 2)


class Own:
    """A sample that only a function of the user's collates."""


def bits(i, dtype="float32", shape=(2, 5)):
    """Any bits of a type, NaNs with payloads among them."""
    n = int(np.prod(shape)) * torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    raw = torch.from_numpy(np.random.default_rng(i).integers(0, 256, n, "uint8"))
    return (raw % 2 == 0).view(shape) if dtype == "bool" else raw.view(getattr(torch, dtype)).view(shape)


def grown(i):
    """The batches become larger than the slots."""
    return bits(i, shape=(1000 * (i // BATCH) + 1, 4))


KINDS = {
    **{f"tensor {d}": lambda i, d=d: bits(i, d) for d in DTYPES},
    **{f"label {d}": lambda i, d=d: bits(i, d, (1,))[0] for d in DTYPES},
    "strided": lambda i: bits(i, shape=(6, 8))[::2, 1::3],
    "transposed": lambda i: bits(i, shape=(6, 8)).t(),
    "channels last": lambda i: bits(i, shape=(4, 5, 3)).permute(2, 0, 1),
    "expanded": lambda i: bits(i, shape=(1, 5)).expand(4, 5),
    "conjugate": lambda i: torch.complex(bits(i), bits(i + 1)).conj(),
    "negative": lambda i: torch.complex(bits(i), bits(i + 1)).conj().imag,
    "gradient": lambda i: bits(i).requires_grad_(i % BATCH == 1),
    "parameter": lambda i: torch.nn.Parameter(bits(i)),
    "subclass": lambda i: bits(i).as_subclass(Sub if i % 2 else torch.Tensor),
    "no values": lambda i: (torch.empty(0, 3), bits(i)),
    "no dimensions": lambda i: torch.tensor(i, dtype=torch.int16),
    "two types": lambda i: bits(i % 3, "float64" if i % 2 else "int32"),
    "types by batch": lambda i: bits(i, DTYPES[i // BATCH]),
    "shapes by batch": lambda i: bits(i, shape=(1 + i // BATCH, 2)),
    "larger and larger": grown,
    **{f"array {d}": lambda i, d=d: bits(i, d).numpy() for d in DTYPES if hasattr(np, d) and d != "bool"},
    "array of bool": lambda i: bits(i, "bool").numpy(),
    "array strided": lambda i: bits(i, shape=(6, 8)).numpy()[::2, 1::3],
    "array of Fortran": lambda i: np.asfortranarray(bits(i, shape=(6, 8)).numpy()),
    "array without dimensions": lambda i: np.array(i, "float32"),
    "array, then tensors": lambda i: bits(i) if i % BATCH else bits(i).numpy(),
    "numbers of numpy": lambda i: (np.float32(i / 3), np.int64(i), np.bool_(i % 2), np.float64(i) / 7),
    "int": lambda i: i - 3,
    "large int": lambda i: 2**62 + i,
    "float": lambda i: i / 7,
    "bool": lambda i: i % 2 == 0,
    "int and float": lambda i: i / 2 if i % 2 else i,
    "texts": lambda i: (f"text {i} ü", bytes([i])),
    "tuple": lambda i: (bits(i), i),
    "list": lambda i: [bits(i), bits(i, "int64")],
    "dict": lambda i: {"x": bits(i), 3: i, "text": str(i), "y": {"z": bits(i).numpy()}},
    "named tuple": lambda i: data.Pair(bits(i), {"deep": (i, bits(i))}),
    "ordered": lambda i: collections.OrderedDict(b=bits(i), a=i),
    "nested": lambda i: {"views": [(bits(i), i), (bits(i, "uint8"), {"k": [i / 2, bits(i)]})]},
    "forty of one shape": lambda i: [bits(i + k) for k in range(40)],
    "forty and a number": lambda i: [*(bits(i, shape=()) for _ in range(40)), i],
    "one tensor twice": lambda i: [bits(i)] * 2,
    "a container that looks": lambda i: Looks([bits(i), bits(i + 1)]),
    "a class of its own": lambda i: (Own(), bits(i)),
}


class Kind(Dataset):
    def __init__(self, make, n=N):
        self._make, self._n = make, n

    def __len__(self):
        return self._n

    def __getitem__(self, i):
        return self._make(i)


class Listed(Kind):
    """A batch's samples at once."""

    def __getitems__(self, indices):
        return [self._make(i) for i in indices]


@pytest.fixture(autouse=True)
def limit():
    def on_alarm(*_):
        raise TimeoutError("the test took longer than 120 s")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def served(loader, **options):
    with batchd.serve(loader, "kinds", background="fork", **options):
        trainer = batchd.DataLoader("serve:kinds")
        got = [data.digest(batch) for batch in trainer]
        trainer.close()
    return got


def detached(value):
    """Without gradients, which no trainer gets."""
    if isinstance(value, dict):
        return {key: detached(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = map(detached, value)
        return type(value)(*items) if hasattr(value, "_fields") else (tuple if type(value) is tuple else list)(items)
    return value.detach() if torch.is_tensor(value) else value


def given(loader):
    return [data.digest(detached(batch)) for batch in loader]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_sample(daemon, monkeypatch, name):
    """Its bits, types, shapes and structure, also where a batch does not fit its slot."""
    monkeypatch.setitem(default_collate_fn_map, Own, lambda batch, *, collate_fn_map: torch.ones(len(batch)))
    loader = DataLoader(Kind(KINDS[name]), BATCH)
    assert served(loader) == given(loader)


@pytest.mark.parametrize("how", ["list", "sampler", "workers", "collate_fn", "batch_sampler", "drop_last"])
def test_every_kind_of_loader(daemon, how):
    """Those that are not collated in the slot give the same as before."""
    more = {
        "sampler": {"sampler": [6, 0, 3, 2]},
        "workers": {"num_workers": 2},
        "collate_fn": {"collate_fn": lambda samples: default_collate(samples)[0]},
        "drop_last": {"drop_last": True},
    }.get(how, {})
    dataset = (Listed if how == "list" else Kind)(KINDS["tuple"])
    if how == "batch_sampler":
        loader = DataLoader(dataset, batch_sampler=[[1, 2], [5], [0, 3, 4]])
    else:
        loader = DataLoader(dataset, BATCH, **more)
    assert served(loader) == given(loader)


def test_a_resumed_epoch_is_collated_there_too(daemon):
    """Where the DataLoader's first batches are left unread."""
    loader = DataLoader(Kind(KINDS["nested"], 20), BATCH)
    golden = given(loader)
    with batchd.serve(loader, "kinds", seed=1, background="fork"):
        trainer = batchd.DataLoader("serve:kinds")
        got = [data.digest(batch) for batch in itertools.islice(trainer, 2)]
        state = trainer.state_dict()
        trainer.close()
        trainer = batchd.DataLoader("serve:kinds")
        trainer.load_state_dict(state)
        assert got + [data.digest(batch) for batch in trainer] == golden


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda i: torch.zeros(2 + (i == 4)), "stack expects each tensor to be equal size"),
        (lambda i: None if i == 4 else torch.zeros(2), "NoneType"),
        (lambda i: {"a": 1} if i != 4 else {"b": 1}, "KeyError: 'a'"),
        (lambda i: [1] * (1 + (i == 4)), "each element in list of batch should be of equal size"),
        (lambda i: torch.zeros(2).numpy() if i == 4 else torch.zeros(2), "expected Tensor as element 1"),
        (lambda i: np.array(["x"]), "default_collate: batch must contain tensors"),
        (lambda i: torch.zeros(2).to_sparse(), "sparse tensors are not currently supported"),
    ],
)
def test_an_error_is_torchs_own(daemon, make, text):
    """It reaches the trainer after the batches that could be made."""
    loader = DataLoader(Kind(make), BATCH)
    with pytest.raises(Exception) as here:
        list(loader)
    with batchd.serve(loader, "kinds", background="fork"):
        with pytest.raises(batchd.ProducerError, match=text) as there:
            list(batchd.DataLoader("serve:kinds"))
    assert str(here.value).splitlines()[0] in str(there.value)


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("name", ["tensor float32", "array float32", "nested", "channels last", "label int64"])
def test_tensors_are_not_collated_before_they_are_in_the_slot(name):
    """The DataLoader hands over rows, and no tensor that would have to be copied."""
    loader = DataLoader(Kind(KINDS[name]), BATCH)
    for samples, batch in zip(_collate.loader_of_samples(loader), loader, strict=True):
        for leaf, wanted in zip(leaves(samples.noted()), leaves(batch), strict=True):
            if wanted.ndim > 1:
                assert type(leaf) is _tree.Rows
            if type(leaf) is _tree.Rows:
                assert (leaf.shape, leaf.dtype, leaf.nbytes) == (tuple(wanted.shape), wanted.dtype, wanted.nbytes)
                out = torch.empty_like(wanted, memory_format=torch.contiguous_format)
                leaf.stack(out)
                assert data.digest(out) == data.digest(wanted)


def test_classes_and_workers_of_the_users_are_left_alone():
    """A DataLoader of another class, with workers, or with a collate_fn of its own, gives its own batches."""

    class Derived(DataLoader):
        pass

    dataset = Kind(KINDS["tuple"])
    for loader in (
        Derived(dataset, BATCH),
        DataLoader(dataset, BATCH, num_workers=1),
        DataLoader(dataset, BATCH, collate_fn=list),
        DataLoader(dataset, batch_size=None),
    ):
        assert _collate.loader_of_samples(loader) is loader
