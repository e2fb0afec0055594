"""tokens: windows of token files, against the reading code of nanoGPT, llm.c and Megatron-LM, written again here from
their documentation on numpy's memmap."""

import gzip
import io
import lzma
import pickle
import struct
import tarfile
import warnings

import numpy
import pytest

torch = pytest.importorskip("torch")
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

import batchd  # noqa: E402 (torch may be missing)

T = 16


def some_tokens(n, seed=0, most=50257):
    return numpy.random.default_rng(seed).integers(0, most, n)


def raw_file(path, n=1000, seed=0, dtype="uint16"):
    some_tokens(n, seed).astype(dtype).tofile(path)
    return path


def nanogpt_batch(path, ix, block_size):
    """get_batch of nanoGPT's train.py, for given starts."""
    data = numpy.memmap(path, dtype=numpy.uint16, mode="r")
    x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(numpy.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(numpy.int64)) for i in ix])
    return x, y


def same(batch, expected):
    for got, wanted in zip(batch, expected):
        assert got.dtype == wanted.dtype == torch.int64 and got.is_contiguous()
        assert torch.equal(got, wanted)


def test_nanogpts_own_draws_give_its_batches(daemon, tmp_path):
    """stride=1 numbers the windows by their first token, so nanoGPT's torch.randint, as a batch_sampler, gives nanoGPT's
    batches."""
    path = raw_file(tmp_path / "train.bin")
    torch.manual_seed(1337)
    draws = [torch.randint(1000 - T, (12,)) for _ in range(20)]
    with batchd.DataLoader(f"tokens:{path},stride=1", length=T, batch_sampler=draws, batch_size=12) as loader:
        assert len(loader.dataset) == 1000 - T
        for batch, ix in zip(loader, draws, strict=True):
            same(batch, nanogpt_batch(path, ix, T))


def test_random_windows_are_real_ones_uniform_and_resumable(daemon, tmp_path):
    """windows=random: each is a window of the file, every start is as likely, ranks draw different ones, and a state
    continues the same endless sequence."""
    tokens = numpy.arange(64 + T, dtype="uint16")
    tokens.tofile(tmp_path / "t.bin")
    spec = f"tokens:{tmp_path}/t.bin,windows=random"
    starts = []
    with batchd.DataLoader(spec, length=T, batch_size=64, seed=3) as loader:
        for step, (x, y) in enumerate(loader):
            assert torch.equal(x[:, 1:], y[:, :-1]) and torch.equal(y, x[:, :1] + 1 + torch.arange(T))
            starts.append(x[:, 0].clone())
            if step == 59:
                state = loader.state_dict()
            if step == 99:
                break
    counts = numpy.bincount(torch.cat(starts).numpy(), minlength=64)
    assert len(counts) == 64
    expected = 100 * 64 / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi-square, 63 degrees: p < 1e-5 beyond
    with batchd.DataLoader(spec, length=T, batch_size=64, seed=3) as loader:
        loader.load_state_dict(state)
        for x, _ in zip((x[:, 0].clone() for x, _ in loader), range(40)):
            assert torch.equal(x, starts[60 + _])
    halves = []
    for rank in range(2):
        with batchd.DataLoader(spec, length=T, batch_size=32, seed=3, rank=rank, world_size=2, job="j") as loader:
            halves.append(next(iter(loader))[0][:, 0].clone())
    assert torch.equal(torch.stack(halves, 1).flatten(), starts[0])
    with batchd.DataLoader(spec, length=T, batch_size=64, seed=4) as loader:
        assert not torch.equal(next(iter(loader))[0][:, 0], starts[0])


@pytest.mark.parametrize("samples", ["", ",samples=64"])
def test_a_loop_that_draws_the_same_windows_again_is_told(daemon, tmp_path, samples):
    """nanoGPT's get_batch makes new draws in each call, and an epoch of windows=random begins with the first ones again."""
    path = raw_file(tmp_path / "t.bin")

    def firsts(begin, **options):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with batchd.DataLoader(
                f"tokens:{path},windows=random{samples}", length=T, batch_size=2, **options
            ) as loader:
                got = begin(loader)
        return got, [str(w.message) for w in told]

    got, told = firsts(lambda loader: [next(iter(loader))[0].tolist() for _ in range(3)])
    assert got[0] == got[1] == got[2]
    assert [("begins with the windows that the epochs before" in text) for text in told] == ([] if samples else [True])
    got, told = firsts(lambda loader: [x.tolist() for (x, _), _ in zip(loader, range(3))])
    assert got[0] != got[1] != got[2] and not told


def test_an_endless_order_is_not_shuffled(daemon, tmp_path):
    path = raw_file(tmp_path / "t.bin")
    with pytest.raises(ValueError, match="leave shuffle out"):
        batchd.DataLoader(f"tokens:{path},windows=random", length=T, shuffle=True)
    with pytest.raises(TypeError, match="for token files"):
        batchd.DataLoader("random:length=4,shape=2", length=T)
    with batchd.DataLoader(f"tokens:{path},windows=random,samples=10", length=T, shuffle=True, batch_size=5) as loader:
        assert len(loader) == 2


# ---- llm.c ----


def llmc_file(path, tokens, llama=False):
    header = numpy.zeros(256, "int32")
    header[:3] = (20240801, 7, len(tokens)) if llama else (20240520, 1, len(tokens))
    path.write_bytes(header.tobytes() + tokens.astype("uint32" if llama else "uint16").tobytes())
    return path


def llmc_batches(path, B, T, rank, world, dtype="uint16"):
    """DataLoader of llm.c's dataloader.h without shuffling: a rank's block of B * T + 1 tokens in each step."""
    data = numpy.memmap(path, dtype=dtype, mode="r", offset=1024)
    for step in range((len(data) - 1) // (world * B * T)):
        at = (step * world + rank) * B * T
        block = torch.from_numpy(data[at : at + B * T + 1].astype(numpy.int64))
        yield block[:-1].view(B, T), block[1:].view(B, T)


@pytest.mark.parametrize("llama", [False, True])
def test_one_process_gets_llmcs_batches(daemon, tmp_path, llama):
    path = llmc_file(tmp_path / "t.bin", some_tokens(1001), llama)
    with batchd.DataLoader(f"tokens:{path}", length=T, batch_size=4, drop_last=True) as loader:
        expected = list(llmc_batches(path, 4, T, 0, 1, "uint32" if llama else "uint16"))
        assert len(loader) == len(expected) == 15
        for batch, wanted in zip(loader, expected, strict=True):
            same(batch, wanted)


def test_ranks_together_get_llmcs_step_and_a_sampler_each_ranks_own(daemon, tmp_path):
    """In a step all ranks together have the rows of llm.c's step. Which rank has which is DistributedSampler's rule,
    unless a batch_sampler deals blocks as llm.c does."""
    B, world = 4, 2
    path = llmc_file(tmp_path / "t.bin", some_tokens(1001))
    expected = [list(llmc_batches(path, B, T, rank, world)) for rank in range(world)]
    got = []
    for rank in range(world):
        with batchd.DataLoader(
            f"tokens:{path}", length=T, batch_size=B, drop_last=True, rank=rank, world_size=world, job="llmc"
        ) as loader:
            got.append([(x.clone(), y.clone()) for x, y in loader])
    for step in range(len(expected[0])):
        rows = {tuple(row.tolist()) for rank in range(world) for row in got[rank][step][0]}
        assert rows == {tuple(row.tolist()) for rank in range(world) for row in expected[rank][step][0]}
    for rank in range(world):
        blocks = [range((s * world + rank) * B, (s * world + rank + 1) * B) for s in range(len(expected[rank]))]
        with batchd.DataLoader(f"tokens:{path}", length=T, batch_size=B, batch_sampler=blocks) as loader:
            for batch, wanted in zip(loader, expected[rank], strict=True):
                same(batch, wanted)


def test_shards_of_a_pattern_follow_each_other(daemon, tmp_path):
    """A pattern stands for its files in the order of their names; windows do not cross files."""
    parts = [some_tokens(n, n) for n in (100, 33, 18)]
    for i, part in enumerate(parts):
        llmc_file(tmp_path / f"shard_{i:03}.bin", part)
    rows = [p[k : k + T + 1] for p in parts for k in range(0, len(p) - T, T)]
    with batchd.DataLoader(f"tokens:{tmp_path}/shard_*.bin,form=whole", length=T, batch_size=3) as loader:
        got = torch.cat([w.clone() for w, _ in loader])
    assert torch.equal(got, torch.from_numpy(numpy.stack(rows)))
    for pattern in ("shard_{000..002}.bin", "shard_00{0,1,2}.bin", "shard_{000,001}.bin,{tmp_path}/shard_*2.bin"):
        pattern = pattern.replace("{tmp_path}", str(tmp_path))
        with batchd.DataLoader(f"tokens:{tmp_path}/{pattern},form=whole", length=T, batch_size=3) as loader:
            assert torch.equal(torch.cat([w.clone() for w, _ in loader]), got), pattern
    with pytest.raises(batchd.NotFoundError, match="shard_003.bin: No such file"):
        batchd.DataLoader(f"tokens:{tmp_path}/shard_{{000..003}}.bin", length=T)
    with pytest.raises(ValueError, match="expected {000..123} or {a,b} in braces"):
        batchd.DataLoader(f"tokens:{tmp_path}/shard_{{x}}.bin", length=T)
    with pytest.raises(batchd.NotFoundError, match="no file has such a name"):
        batchd.DataLoader(f"tokens:{tmp_path}/nothing_*.bin", length=T)


def test_a_misspelt_option_is_named(daemon, tmp_path, monkeypatch):
    """A part that has the form of an option is one, unless a file has this name."""
    monkeypatch.chdir(tmp_path)
    raw_file("t.bin", 100)
    with pytest.raises(ValueError, match="no option 'strid'; the options are: length stride samples seed windows form"):
        batchd.DataLoader("tokens:t.bin,strid=3", length=T)
    raw_file("strid=3", 100)
    with batchd.DataLoader("tokens:strid=3", length=T) as loader:
        assert len(loader.dataset) == 99 // T


# ---- Megatron-LM ----

CODES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}


def megatron_files(prefix, documents, code):
    """As IndexedDatasetBuilder writes them: one sequence a document."""
    dtype = numpy.dtype(CODES[code])
    lengths = numpy.array([len(d) for d in documents], "int32")
    pointers = numpy.concatenate([[0], numpy.cumsum(lengths[:-1].astype("int64") * dtype.itemsize)]).astype("int64")
    with open(f"{prefix}.bin", "wb") as f:
        for d in documents:
            f.write(numpy.asarray(d).astype(dtype).tobytes())
    with open(f"{prefix}.idx", "wb") as f:
        f.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1))
        f.write(lengths.tobytes() + pointers.tobytes() + numpy.arange(len(lengths) + 1, dtype="int64").tobytes())


class IndexedDataset:
    """Reads a pair as Megatron's indexed_dataset.py does."""

    def __init__(self, prefix):
        with open(f"{prefix}.idx", "rb") as f:
            assert f.read(9) == b"MMIDIDX\x00\x00"
            version, code, n, n_documents = struct.unpack("<QBQQ", f.read(25))
            offset = f.tell()
        buffer = memoryview(numpy.memmap(f"{prefix}.idx", mode="r", order="C"))
        self.dtype = numpy.dtype(CODES[code])
        self.lengths = numpy.frombuffer(buffer, "int32", n, offset)
        self.pointers = numpy.frombuffer(buffer, "int64", n, offset + self.lengths.nbytes)
        self.data = memoryview(numpy.memmap(f"{prefix}.bin", mode="r", order="C"))

    def __getitem__(self, i):
        return numpy.frombuffer(self.data, self.dtype, self.lengths[i], self.pointers[i])


def gpt_samples(dataset, T):
    """GPTDataset's samples without its shuffles: T tokens a sample and one that the next begins with, across
    documents."""
    stream = numpy.concatenate([dataset[i] for i in range(len(dataset.lengths))]).astype("int64")
    for k in range((len(stream) - 1) // T):
        yield stream[k * T : k * T + T + 1]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", ["", ".bin", ".idx"])
def test_megatrons_pair_gives_its_samples(daemon, tmp_path, code, name):
    """Named by prefix, by .bin or by .idx: never read as raw uint16."""
    info = numpy.iinfo(CODES[code])
    documents = [some_tokens(n, n, min(50257, info.max)) for n in (40, 1, 0, 7, 300, 2)]
    megatron_files(tmp_path / "corpus", documents, code)
    expected = numpy.stack(list(gpt_samples(IndexedDataset(tmp_path / "corpus"), T)))
    with batchd.DataLoader(f"tokens:{tmp_path}/corpus{name}", length=T, batch_size=32, arrays="numpy") as loader:
        ((x, y),) = loader
    assert (x == expected[:, :-1]).all() and (y == expected[:, 1:]).all() and len(x) == len(expected)


# ---- files of others, changes ----


def test_a_shuffled_epoch_is_distributed_samplers(daemon, tmp_path):
    path = raw_file(tmp_path / "t.bin", 1000, dtype="uint32")
    tokens = numpy.fromfile(path, "uint32").astype("int64")
    n = (1000 - 1) // T
    sampler = torch.utils.data.DistributedSampler(range(n), 1, 0, shuffle=True, seed=5)
    sampler.set_epoch(2)
    with batchd.DataLoader(f"tokens:{path},dtype=uint32", length=T, batch_size=8, shuffle=True, seed=5) as loader:
        loader.set_epoch(2)
        got = torch.cat([x.clone() for x, _ in loader])
    assert torch.equal(got, torch.from_numpy(numpy.stack([tokens[k * T : k * T + T] for k in sampler])))


def test_the_default_type_is_refused_where_it_cannot_be(daemon, tmp_path):
    (tmp_path / "t.bin").write_bytes(bytes(1001))
    with pytest.raises(batchd.InvalidError, match="no whole number of uint16 tokens"):
        batchd.DataLoader(f"tokens:{tmp_path}/t.bin", length=T)
    with pytest.raises(batchd.NotFoundError, match="absent.bin"):
        batchd.DataLoader(f"tokens:{tmp_path}/absent.bin", length=T)


def test_verify_reads_each_window_once(batchctl, tmp_path):
    """batchctl reads token files like other arrays; windows that are drawn are refused, not read for ever."""
    path = raw_file(tmp_path / "t.bin")
    done = batchctl("verify", "--quiet", f"tokens:{path},length={T}")
    assert done.returncode == 0 and "62" in done.stdout, done.stdout + done.stderr
    done = batchctl("verify", "--quiet", f"tokens:{path},length={T},windows=random")
    assert done.returncode == 2 and "draws its windows at random" in done.stderr


def not_tokens(kind):
    """The bytes of a file that is none of tokens, as other libraries write it."""
    out, tokens = io.BytesIO(), some_tokens(1000).astype("int64")
    if kind == "npy":
        numpy.save(out, tokens)
    elif kind == "npz":
        numpy.savez(out, tokens)
    elif kind == "torch":
        torch.save(torch.from_numpy(tokens), out)
    elif kind == "old torch":
        torch.save(torch.from_numpy(tokens), out, _use_new_zipfile_serialization=False)
    elif kind == "gzip":
        return gzip.compress(tokens.astype("u2").tobytes())
    elif kind == "text":
        return b"To be, or not to be: that is the question. " * 20
    elif kind == "hellaswag":
        return numpy.asarray([20240522, 1, 4] + [0] * 253, "<i4").tobytes() + bytes(2000)
    elif kind == "big endian":
        return numpy.asarray([20240520, 1, 1000] + [0] * 253, ">i4").tobytes() + bytes(2000)
    elif kind == "uint32":
        return numpy.random.default_rng(0).integers(0, 128000, 1000, "u4").tobytes()
    elif kind == "int64":
        return tokens.tobytes()
    elif kind == "xz":
        return lzma.compress(tokens.astype("u2").tobytes())
    elif kind == "tar":
        with tarfile.open(fileobj=out, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("a.txt"))
    elif kind == "safetensors":
        text = b'{"tokens":{"dtype":"U16","shape":[1000],"data_offsets":[0,2000]}}'
        return struct.pack("<Q", len(text)) + text + tokens.astype("u2").tobytes()
    elif kind == "hdf5":
        return b"\x89HDF\r\n\x1a\n" + bytes(2040)
    elif kind in ("parquet", "arrow file", "arrow stream"):
        table = pyarrow.table({"tokens": tokens})
        if kind == "parquet":
            pyarrow.parquet.write_table(table, out)
        else:
            write = pyarrow.ipc.new_file if kind == "arrow file" else pyarrow.ipc.new_stream
            with write(out, table.schema) as writer:
                writer.write_table(table)
    else:
        pickle.dump(tokens.tolist(), out, int(kind))
    content = out.getvalue()
    return content + bytes(len(content) % 2)


@pytest.mark.parametrize(
    "kind, words",
    [
        ("npy", "a .npy file"),
        ("npz", "a zip archive"),
        ("torch", "a zip archive"),
        ("old torch", "a pickle"),
        ("2", "a pickle"),
        ("4", "a pickle"),
        ("5", "a pickle"),
        ("gzip", "compressed"),
        ("text", "a text"),
        ("hellaswag", "llm.c's format 20240522, which is not read"),
        ("big endian", "llm.c's format 20240520 with its bytes the other way round"),
        ("uint32", "say dtype=uint32"),
        ("int64", "say dtype=int64"),
        ("xz", "compressed by xz"),
        ("tar", "a tar archive"),
        ("safetensors", "a safetensors file"),
        ("hdf5", "an HDF5 file"),
        ("parquet", "a Parquet file"),
        ("arrow file", "an Arrow file"),
        ("arrow stream", "an Arrow stream"),
    ],
)
def test_other_files_are_refused(daemon, tmp_path, kind, words):
    """Proves that no file of another library's passes for uint16 tokens."""
    (tmp_path / "t.bin").write_bytes(not_tokens(kind))
    with pytest.raises(batchd.InvalidError, match=words):
        batchd.DataLoader(f"tokens:{tmp_path}/t.bin", length=T)
    if kind == "int64":
        with batchd.DataLoader(f"tokens:{tmp_path}/t.bin,dtype=int64", length=T) as loader:
            assert torch.equal(next(iter(loader))[0][0], torch.from_numpy(some_tokens(1000)[:T].astype("int64")))
    if kind == "uint32":
        with batchd.DataLoader(f"tokens:{tmp_path}/t.bin,dtype=uint16", length=T) as loader:
            assert len(loader.dataset) == (2000 - 1) // T


@pytest.mark.parametrize("more", [-1, 0, 1, 150])
def test_a_header_and_its_file_agree(daemon, tmp_path, more):
    """Proves that a count which was written before the last tokens were added is refused, as by llm.c."""
    llmc_file(tmp_path / "l.bin", some_tokens(200))
    content = bytearray((tmp_path / "l.bin").read_bytes())
    struct.pack_into("<i", content, 8, 200 - more)
    (tmp_path / "l.bin").write_bytes(content)
    if more == 0:
        with batchd.DataLoader(f"tokens:{tmp_path}/l.bin", length=6) as loader:
            assert len(loader.dataset) == 33
        return
    with pytest.raises(batchd.InvalidError, match=f"its header promises {200 - more} tokens"):
        batchd.DataLoader(f"tokens:{tmp_path}/l.bin", length=6)


@pytest.mark.parametrize("name", ["corpus", "corpus.bin", "corpus.idx"])
def test_a_pair_of_links_as_huggingface_caches_it(daemon, tmp_path, name):
    """Files that are called by their hashes, and links beside each other: the pair is read, not its index as tokens."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    documents = [some_tokens(40), some_tokens(60)]
    megatron_files(tmp_path / "pair", documents, 8)
    for ending, digest in (("bin", "5f3a"), ("idx", "c01d")):
        (tmp_path / f"pair.{ending}").rename(tmp_path / "blobs" / digest)
        (tmp_path / "snapshot" / f"corpus.{ending}").symlink_to(f"../blobs/{digest}")
    with batchd.DataLoader(f"tokens:{tmp_path}/snapshot/{name}", 100, length=9, arrays="numpy") as loader:
        rows = next(iter(loader))[0]
    assert (rows == numpy.concatenate(documents)[:99].reshape(11, 9)).all()
    with pytest.raises(batchd.InvalidError, match="an index of Megatron's: its name has to end in .idx"):
        batchd.DataLoader(f"tokens:{tmp_path}/blobs/c01d", length=9)


@pytest.mark.parametrize("text", ["tokens:length=8", "cifar:version=10", "memory:id=5"])
def test_a_kind_without_a_file_says_what_to_write(daemon, text):
    with pytest.raises(batchd.InvalidError, match=f"^(data ?set: )?{text}: no file is named; expected imagefolder:DIR"):
        batchd.DataLoader(text)


@pytest.mark.parametrize("index", [b"TNTIDX\0\0" + bytes(40), b"", b"MMIDIDX\0\0" + b"\2" + bytes(40)])
def test_a_bin_beside_an_unknown_index_wants_its_type(daemon, tmp_path, index):
    """Proves it for the .bin and the pair's prefix; an index of DALI's is of shards."""
    tokens = some_tokens(100).astype("i4")
    tokens.tofile(tmp_path / "m.bin")
    (tmp_path / "m.idx").write_bytes(index)
    for name in ("m.bin", "m"):
        words = "version 2 of" if b"\2" in index else "not an index of Megatron's.*say dtype="
        with pytest.raises(batchd.InvalidError, match=f"m.idx: {words}"):
            batchd.DataLoader(f"tokens:{tmp_path}/{name}", length=T)
    if index.startswith(b"MMIDIDX"):
        with pytest.raises(batchd.InvalidError, match="read alone, with dtype=..., where no .idx lies beside it"):
            batchd.DataLoader(f"tokens:{tmp_path}/m.bin,dtype=int32", length=9)
        (tmp_path / "m.bin").rename(tmp_path / "alone.bin")
        batchd.DataLoader(f"tokens:{tmp_path}/alone.bin,dtype=int32", length=9).close()
    else:
        with batchd.DataLoader(f"tokens:{tmp_path}/m.bin,dtype=int32", 100, length=9, arrays="numpy") as loader:
            assert (next(iter(loader))[0] == tokens[:99].reshape(11, 9)).all()
    raw_file(tmp_path / "d.bin")
    (tmp_path / "d.idx").write_text("v1.2 0\n")
    batchd.DataLoader(f"tokens:{tmp_path}/d.bin", length=T).close()
