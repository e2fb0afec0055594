"""Several data sets as one: concatenated as torch's ConcatDataset, or blended with weights."""

import collections
import io
import os
import pathlib
import subprocess
import tarfile
import warnings

import numpy
import pytest

REPO = pathlib.Path(__file__).resolve().parents[3]
TOOL = pathlib.Path(os.environ.get("BATCHD_BUILD", REPO / "build")) / "tests" / "tools" / "dataset"


def listed(spec):
    done = subprocess.run([TOOL, spec], check=True, stdout=subprocess.PIPE, text=True)
    return [line.split("\t") for line in done.stdout.splitlines() if not line.startswith("# ")]


def refusal(spec):
    done = subprocess.run([TOOL, spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1, done.stdout
    return done.stderr


def put_tar(path, files):
    """(picture, label) pairs as WebDataset's samples."""
    with tarfile.open(path, "w") as tar:
        for i, (data, label) in enumerate(files):
            for name, part in ((f"{i:05}.jpg", data), (f"{i:05}.cls", str(label).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(part)
                tar.addfile(info, io.BytesIO(part))


@pytest.fixture
def parts(samples, tmp_path):
    """A folder and a tar of a third of its pictures, with labels of their own."""
    files = sorted(samples.rglob("*.jpg"))[::3]
    put_tar(tmp_path / "b.tar", [(p.read_bytes(), i % 4) for i, p in enumerate(files)])
    return [f"imagefolder:{samples}", f"tar:{tmp_path}/b.tar"]


def test_samples_follow_each_other_as_in_concat_dataset(parts):
    """Proves order, names and labels of a list against the lists of its parts, and of nested selections by torch."""
    one = sum((listed(part) for part in parts), [])
    assert listed("blend:" + ";;".join(parts)) == one
    assert listed("blend:" + ";;".join(parts + parts[:1])) == one + listed(parts[0])


def test_batches_of_a_list_are_those_of_its_parts(daemon, parts):
    """Proves pixels, labels and the shuffled order for data sets of two kinds: the order is DistributedSampler's over
    torch's ConcatDataset."""
    torch = pytest.importorskip("torch")
    import batchd

    options = dict(batch_size=8, transform="val224", dtype="uint8")
    rows = []
    for i, part in enumerate(parts):
        for images, labels in batchd.DataLoader(part, job=f"part{i}", **options):
            rows += [
                (x.tobytes() if hasattr(x, "tobytes") else x.numpy().tobytes(), int(y)) for x, y in zip(images, labels)
            ]
    concat = torch.utils.data.ConcatDataset([list(range(len(listed(p)))) for p in parts])
    assert len(concat) == len(rows)
    for rank in range(2):
        loader = batchd.DataLoader(parts, shuffle=True, seed=4, rank=rank, world_size=2, job="list", **options)
        assert list(loader.dataset.classes) == list(batchd.DataLoader(parts[0], job="c", **options).dataset.classes)
        sampler = torch.utils.data.DistributedSampler(concat, 2, rank, shuffle=True, seed=4)
        loader.set_epoch(3)
        sampler.set_epoch(3)
        got = []
        for images, labels in loader:
            for x, y in zip(images, labels):
                got.append((x.tobytes() if hasattr(x, "tobytes") else x.numpy().tobytes(), int(y)))
        assert got == [rows[i] for i in sampler]


def test_arrays_are_gathered_from_their_parts(daemon, tmp_path):
    """Proves rows of two files in shuffled order against numpy's concatenation."""
    import batchd

    x = [numpy.random.default_rng(i).integers(0, 255, (n, 3, 5), "uint8") for i, n in enumerate((70, 30, 45))]
    for i, a in enumerate(x):
        numpy.save(tmp_path / f"{i}.npy", a)
    whole = numpy.concatenate(x)
    loader = batchd.DataLoader(
        [f"npy:{tmp_path}/{i}.npy" for i in range(3)], batch_size=32, shuffle=True, arrays="numpy"
    )
    seen = []
    for batch in loader:
        images = batch[0] if isinstance(batch, (tuple, list)) else batch
        indices = loader.last_batch.indices
        assert (numpy.asarray(images) == whole[indices]).all()
        seen += list(indices)
    assert sorted(seen) == list(range(145))


def epoch_of(spec, epoch=0, world_size=1, states=None, stop=None, name="", **more):
    """(index, pixels) of one epoch in the order of its positions, without padding; and a state after `stop` batches."""
    import batchd

    rows, state = {}, None
    for rank in range(world_size):
        loader = batchd.DataLoader(
            spec,
            batch_size=4,
            shuffle=True,
            seed=5,
            transform="train224",
            dtype="uint8",
            rank=rank,
            world_size=world_size,
            job=f"{name}{world_size}-{epoch}-{stop}-{bool(states)}",
            **more,
        )
        if states:
            loader.load_state_dict(states)
        loader.set_epoch(epoch)
        at = 0
        for step, batch in enumerate(loader):
            last = loader.last_batch
            n = len(last.indices) - last.n_padding
            for k in range(n):
                image = numpy.asarray(batch[0][k])
                rows[at * world_size + rank] = int(last.indices[k]), image.tobytes()
                at += 1
            if stop is not None and step + 1 == stop:
                state = loader.state_dict()
                break
        loader.close()
    return [rows[i] for i in sorted(rows)], state


def counts_of(rows, sizes):
    """For each part, how often each of its samples came."""
    came = collections.Counter(i for i, _ in rows)
    firsts = [sum(sizes[:k]) for k in range(len(sizes))]
    return [[came[first + i] for i in range(n)] for first, n in zip(firsts, sizes)]


def test_weights_decide_how_often_samples_come(daemon, parts):
    """Proves the number of samples of each part in two epochs, that each comes as often as any other or once more, that
    another epoch takes others, and the order: torch's permutation of the epoch's list."""
    torch = pytest.importorskip("torch")
    import batchd

    sizes = [len(listed(p)) for p in parts]
    n = sum(sizes)
    chosen = []
    for epoch in range(2):
        rows, _ = epoch_of(batchd.blend({parts[0]: 0.2, parts[1]: 0.8}), epoch, name="w")
        first, second = counts_of(rows, sizes)
        assert abs(sum(first) - n * 0.2) < 1 and sum(first) + sum(second) == n == len(rows)
        assert set(first) == {0, 1} and set(second) <= {sum(second) // sizes[1], sum(second) // sizes[1] + 1}
        listing = [i for i in range(sizes[0]) if first[i]]
        whole, rest = divmod(sum(second), sizes[1])
        listing += [sizes[0] + i for i in range(sizes[1])] * whole
        listing += [sizes[0] + i for i in range(sizes[1]) if second[i] > whole]
        g = torch.Generator()
        g.manual_seed(5 + epoch)
        assert [i for i, _ in rows] == [listing[p] for p in torch.randperm(n, generator=g).tolist()]
        chosen.append(tuple(first))
    assert chosen[0] != chosen[1]


def test_a_blend_is_the_same_on_any_number_of_ranks_and_after_a_resume(daemon, parts):
    """Proves indices and augmented pixels, sample for sample, on 1, 2 and 3 ranks, and for an epoch that 3 ranks begin
    and 2 end; a sample that comes twice is augmented twice."""
    import batchd

    blend = batchd.blend([(parts[0], 1), (parts[1], 3)], seed=9)
    whole, _ = epoch_of(blend, name="r")
    for world_size in (2, 3):
        assert epoch_of(blend, world_size=world_size, name="r")[0] == whole
    begun, state = epoch_of(blend, world_size=3, stop=2, name="r")
    ended, _ = epoch_of(blend, world_size=2, states=state, name="r")
    assert begun + ended == whole
    pixels = collections.defaultdict(set)
    for index, image in whole:
        pixels[index].add(image)
    came = collections.Counter(i for i, _ in whole)
    assert max(came.values()) >= 2 and all(len(pixels[i]) == k for i, k in came.items())
    other = epoch_of(batchd.blend([(parts[0], 1), (parts[1], 3)], seed=10), name="o")[0]
    assert sorted(i for i, _ in other) != sorted(i for i, _ in whole)


def test_what_does_not_go_together_is_refused(parts, samples, tmp_path):
    """Proves that data sets with other fields, types, shapes or classes are refused by name, and malformed lists too."""
    numpy.save(tmp_path / "a.npy", numpy.zeros((4, 3), "uint8"))
    numpy.save(tmp_path / "b.npy", numpy.zeros((4, 4), "uint8"))
    (tmp_path / "other" / "cat").mkdir(parents=True)
    (tmp_path / "other" / "cat" / "0.jpg").write_bytes(b"")
    a = f"npy:{tmp_path}/a.npy"
    (tmp_path / "t.bin").write_bytes(bytes(100))
    endless = f"tokens:{tmp_path}/t.bin,length=4,windows=random"
    for spec, words in (
        (f"0.5*{endless};;0.5*tokens:{tmp_path}/t.bin,length=4", "windows=random has no end"),
        (f"tokens:{tmp_path}/t.bin,length=4;;{endless}", "give samples=N"),
        (f"{parts[0]};;{a}", "one has images, the other arrays"),
        (f"{a};;npy:{tmp_path}/b.npy", "different types or shapes of the field"),
        (f"{parts[1]};;{parts[1]}#image=jpg,label=cls,id=cls", "one has more fields than the other"),
        (f"{parts[1]}#image=jpg,label=cls;;{parts[1]}#image=jpg,class=cls", "only one has the field label"),
        (f"{parts[0]};;imagefolder:{tmp_path}/other", "its class 0 is 'cat', and 'disc'"),
        (f"0.5*{a};;{a}", "either every data set has a weight, or none"),
        (f"{a};;0.5*{a}", "either every data set has a weight, or none"),
        (f"0*{a}", "a weight of 0"),
        (f"{a};;", "expected a data set"),
        (f"seed=3;;{a}", "it is for weights"),
        (f"seed=x;;1*{a}", "expected seed=NUMBER"),
        (f"seed=99999999999999999999;;1*{a}", "more than 64 bits"),
        (f"blend:{a}", "no blend"),
        ("serve:x", "no blend, serve:"),
        (";;".join([a] * 65), "more than 64 data sets"),
    ):
        assert words in refusal("blend:" + spec), spec


def test_what_the_client_refuses(daemon, parts):
    """Proves errors of lists and blends that name the data set, before the daemon is asked."""
    import batchd

    with pytest.raises(batchd.NotFoundError, match="/no/such"):
        batchd.DataLoader([parts[0], "imagefolder:/no/such"])
    with pytest.raises(ValueError, match="weight must be"):
        batchd.blend({parts[0]: 0})
    with pytest.raises(ValueError, match="is no blend"):
        batchd.DataLoader([parts[0], "blend:" + parts[1]])
    with pytest.raises(ValueError, match="no data sets"):
        batchd.blend({})
    with pytest.raises(ValueError, match="dataset is an empty list"):
        batchd.DataLoader([])
    for several in (lambda: batchd.DataLoader([parts[0], object()]), lambda: batchd.blend({object(): 1})):
        with pytest.raises(TypeError, match="a list with object in it: .*concatenate_datasets.*save_to_disk"):
            several()
    with pytest.raises(ValueError, match="'train' is one of several data sets, and each must say what it is"):
        batchd.DataLoader([parts[0], "train"])


@pytest.mark.parametrize("weights", [None, (0.7, 0.3)])
def test_a_loader_outlives_its_daemon(daemon, parts, weights, monkeypatch):
    """After a restart the loader names the same data sets again, and goes on with the batch that was due; the working
    directory may be another one by then."""
    pytest.importorskip("torch")
    import batchd

    spec = parts if weights is None else batchd.blend(dict(zip(parts, weights)), seed=5)
    options = dict(batch_size=8, transform="val224", dtype="uint8", shuffle=True, seed=3)
    with batchd.DataLoader(spec, job="whole", **options) as loader:
        whole = [(images.clone(), labels.clone()) for images, labels in loader]
    found = []
    with batchd.DataLoader(spec, job="interrupted", n_slots=3, **options) as loader, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether the loader tells of so short an absence
        for images, labels in loader:
            found.append((images.clone(), labels.clone()))
            if len(found) == 2:
                daemon.kill()
                monkeypatch.chdir("/")
                daemon.start()
    assert len(found) == len(whole) > 5
    for (images, labels), (expected, told) in zip(found, whole):
        assert images.equal(expected) and labels.equal(told)


def test_numbers_of_samples_are_no_labels_beside_labels(daemon, tmp_path):
    """Proves that arrays with labels and arrays without do not go together, nor shards; where no array has labels, there
    are none."""
    import batchd

    for name in "ab":
        numpy.save(tmp_path / f"x{name}.npy", numpy.zeros((3, 2), "float32"))
        numpy.save(tmp_path / f"y{name}.npy", numpy.full(3, 7))
    labelled, not_labelled = f"npy:{tmp_path}/xa.npy,{tmp_path}/ya.npy", f"npy:{tmp_path}/xb.npy"
    for parts in ([labelled, not_labelled], [not_labelled, labelled]):
        with pytest.raises(batchd.InvalidError, match="do not go together: one has more fields"):
            batchd.DataLoader(parts, 3)
    with batchd.DataLoader([not_labelled] * 3, 9, arrays="numpy") as loader:
        assert len(next(iter(loader))) == 1
    put_tar(tmp_path / "lab.tar", [(b"x", 7)] * 4)
    with tarfile.open(tmp_path / "nolab.tar", "w") as tar:
        for i in range(4):
            tar.addfile(tarfile.TarInfo(f"{i}.jpg"))
    for parts in (["lab", "nolab"], ["nolab", "lab"]):
        with pytest.raises(batchd.InvalidError, match="do not go together|no label"):
            batchd.DataLoader([f"tar:{tmp_path}/{p}.tar" for p in parts], 3)


def test_a_weight_for_no_sample_is_refused(daemon, tmp_path):
    """Proves both sides of the limit: a part that no epoch would have, and one of two rows of 200."""
    import batchd

    for name in "ab":
        numpy.save(tmp_path / f"{name}.npy", numpy.full((100, 1), ord(name)))
    a, b = (f"npy:{tmp_path}/{name}.npy" for name in "ab")
    with pytest.raises(batchd.InvalidError, match="the weight of data set 1 is so small that an epoch of 200 samples"):
        batchd.DataLoader(batchd.blend({a: 0.001, b: 1}), 10)
    with batchd.DataLoader(batchd.blend({a: 0.01, b: 1}), 200, arrays="numpy") as loader:
        assert (next(iter(loader))[0] == ord("a")).sum() == 2
