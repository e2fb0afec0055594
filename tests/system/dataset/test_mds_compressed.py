"""mds: shards that streaming has compressed give the samples of the plain ones; what is not read is refused by name."""

import os
import pathlib
import shutil
import struct
import subprocess

import pytest

from test_mds import listed, refusal, shard, upstream, values

COLUMNS = {"photo": ("jpeg", None), "caption": ("str", None), "label": ("int", 8)}


def samples(n, first=0):
    return [
        [b"\xff\xd8\xff" + os.urandom(i * 91 % 999), f"text {i}".encode(), struct.pack("<q", i)]
        for i in range(first, first + n)
    ]


def zstd(path, *options):
    """The command's frames have the length in their headers, as those of streaming's writer."""
    if not shutil.which("zstd"):
        pytest.skip("there is no zstd command")
    subprocess.run(
        ["zstd", "-q", *options, *([] if "--keep" in options else ["--rm"]), path, "-o", f"{path}.zstd"], check=True
    )


def test_streamings_own_writer(tmp_path):
    """MDSWriter with compression zstd and level 7 writes the shards; its own reader's decompression is the oracle."""
    upstream("streaming.base.format.mds.encodings")
    try:
        from streaming.base.format.mds.writer import MDSWriter
    except ImportError as e:
        pytest.skip(f"mosaicml-streaming's writer cannot be imported: {e}")
    wanted = []
    for folder, compression in (("plain", None), ("zstd", "zstd"), ("zstd7", "zstd:7")):
        with MDSWriter(
            out=str(tmp_path / folder),
            columns={"text": "str", "label": "int"},
            compression=compression,
            size_limit=1 << 12,
        ) as out:
            for i in range(500):
                out.write({"text": f"text {i} " * (i % 7), "label": i})
        names = {p.suffix for p in (tmp_path / folder).iterdir() if p.name != "index.json"}
        assert names == ({".mds"} if compression is None else {".zstd"})
        wanted.append(values(f"mds:{tmp_path}/{folder}#text=text,label=label"))
    assert wanted[0] == wanted[1] == wanted[2]


@pytest.mark.parametrize("level", ["-1", "-19", "--ultra -22"])
def test_compressed_shards_have_the_samples_of_plain_ones(tmp_path, level):
    """Names, order, labels and every value; a shard that is not compressed among them."""
    for k in range(3):
        shard(tmp_path / f"shard.{k:05}.mds", COLUMNS, samples(9, 9 * k))
    fields = "#image=photo,text=caption,label=label"
    pattern = f"mds:{tmp_path}/shard.0000{{0..2}}.mds"
    names, plain = listed(pattern + fields), values(f"mds:{tmp_path}#text=caption,label=label")
    files = read(pattern + fields)
    for k in range(2):
        zstd(tmp_path / f"shard.{k:05}.mds", *level.split())
    mixed = f"mds:{tmp_path}/shard.00000.mds.zstd::{tmp_path}/shard.00001.mds.zstd::{tmp_path}/shard.00002.mds{fields}"
    assert [label for _, label in listed(mixed)] == [label for _, label in names]
    assert read(mixed) == files
    zstd(tmp_path / "shard.00002.mds", *level.split())
    assert values(f"mds:{tmp_path}#text=caption,label=label") == plain


def read(spec):
    tool = pathlib.Path(os.environ["BATCHD_BUILD"]) / "tests" / "tools" / "dataset"
    done = subprocess.run([tool, "--read", spec], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_plain_shards_come_before_compressed_ones(tmp_path):
    """streaming keeps both where keep_zip is set: a folder has each sample once."""
    shard(tmp_path / "shard.00000.mds", COLUMNS, samples(4))
    zstd(tmp_path / "shard.00000.mds", "--keep")
    assert sorted(os.listdir(tmp_path)) == ["shard.00000.mds", "shard.00000.mds.zstd"]
    assert len(listed(f"mds:{tmp_path}")) == 4


def compressed(tmp_path):
    path = tmp_path / "shard.00000.mds"
    shard(path, COLUMNS, samples(30))
    zstd(path)
    return tmp_path / "shard.00000.mds.zstd"


@pytest.mark.parametrize("change", ["cut", "flipped", "garbage behind", "only the magic"])
def test_damaged_shards_are_refused_by_name(tmp_path, change):
    path = compressed(tmp_path)
    data = bytearray(path.read_bytes())
    if change == "flipped":
        data[len(data) // 2] ^= 0x55
    data = {"cut": data[:-9], "flipped": data, "garbage behind": data + b"xyz", "only the magic": data[:4]}[change]
    path.write_bytes(data)
    assert path.name in refusal(f"mds:{tmp_path}")


def test_a_bomb_is_refused_by_its_header(tmp_path):
    """5 GiB of zeros in some hundred kilobytes: refused before a byte of them is made."""
    if not shutil.which("zstd"):
        pytest.skip("there is no zstd command")
    path = tmp_path / "shard.00000.mds.zstd"
    part = subprocess.run(
        ["zstd", "-q", "-19", "-c", "--single-thread", "--stream-size=1073741824"],
        input=bytes(1 << 30),
        capture_output=True,
        check=True,
    ).stdout
    assert len(part) < 1 << 18
    path.write_bytes(part * 5)
    text = refusal(f"mds:{tmp_path}")
    assert path.name in text and "more bytes than a shard may have (4 GiB)" in text


def test_a_stream_without_its_length_is_refused(tmp_path):
    if not shutil.which("zstd"):
        pytest.skip("there is no zstd command")
    shard(tmp_path / "a", COLUMNS, samples(30))
    piped = subprocess.run(["zstd", "-q", "-c"], input=(tmp_path / "a").read_bytes(), capture_output=True, check=True)
    (tmp_path / "x.mds.zstd").write_bytes(piped.stdout)
    assert "without its length: unpack it (unzstd)" in refusal(f"mds:{tmp_path}")


@pytest.mark.parametrize("ending", ["gz", "bz2", "br", "snappy"])
def test_other_compressions_are_refused_by_name(tmp_path, ending):
    """All that streaming writes."""
    (tmp_path / f"shard.00000.mds.{ending}").write_bytes(b"whatever")
    text = refusal(f"mds:{tmp_path}")
    assert f"shard.00000.mds.{ending}: compressed by {ending}, which is not read" in text and "'zstd'" in text


def test_what_it_unpacks_to_is_charged(make_daemon, tmp_path):
    """A shard of 64 MiB that is some kilobytes on disk does not fit a daemon of 64 MiB, and the message says what to do."""
    batchd = pytest.importorskip("batchd")
    shard(
        tmp_path / "shard.00000.mds",
        {"b": ("bytes", None), "label": ("int", 8)},
        [[bytes(1 << 26), struct.pack("<q", 1)]],
    )
    zstd(tmp_path / "shard.00000.mds")
    make_daemon("--memory", "64MiB")
    with pytest.raises(batchd.Error) as e:
        batchd.DataLoader(f"mds:{tmp_path}#label=label", 1)
    assert "memory" in str(e.value)
    make_daemon("--memory", "512MiB")
    with batchd.DataLoader(f"mds:{tmp_path}#label=label", 1) as loader:
        assert [int(label) for (label,) in [tuple(batch.values()) for batch in loader]] == [1]
