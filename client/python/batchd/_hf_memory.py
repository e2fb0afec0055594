"""HuggingFace data sets that no file has: the table is written once, as an Arrow stream into sealed memory, and handed over."""

import fcntl
import hashlib
import json
import mmap
import os
import weakref

from . import _free_memory, _memory

_BATCH_BYTES = 64 << 20
_FEWEST, _MOST = 100, 1 << 20  # rows of a record batch


def fits(n_bytes):
    """Whether a copy of so many bytes leaves at least half of the free memory to others."""
    available = _free_memory.available()
    return available is None or n_bytes <= available // 2


def _chosen(value, columns):
    """(table, rows): the columns, and which rows of them are the samples (None: all). Few rows of many are copied out."""
    import pyarrow

    table = value.data.table.select(columns)
    rows = None if value._indices is None else value._indices.column(0).to_numpy()
    if rows is None or len(rows) * 2 > table.num_rows:
        return table, rows
    pieces = value.with_format("arrow", columns=columns).iter(batch_size=1000)
    return pyarrow.concat_tables(piece.select(columns) for piece in pieces), None


def _described(table, value):
    """The table with the features of its columns alone: other metadata may differ between ranks."""
    features = value.features.to_dict()
    info = {"info": {"features": {name: features[name] for name in table.column_names}}}
    return table.replace_schema_metadata({"huggingface": json.dumps(info, sort_keys=True)})


def _write(table, out):
    import pyarrow

    n = int(table.num_rows * _BATCH_BYTES / max(table.nbytes, 1))
    with pyarrow.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=min(max(n, _FEWEST), _MOST))


def _digest(fd):
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as memory:  # closed before sealing, which a mapping would prevent
        return hashlib.blake2b(memory, digest_size=16).hexdigest()


def _sealed(table):
    """(fd, hash) of a memfd with the table's stream."""
    fd = os.memfd_create("batchd:table", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(fd, "wb", closefd=False) as out:
            _write(table, out)
        text = _digest(fd)
        fcntl.fcntl(fd, _memory.ADD_SEALS, _memory.ALL_SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd, text


def hand_over(value, columns, owner, way_out):
    """("table=HASH:FD,", rows): the text of the columns in memory, which stays open as long as owner lives, and the numbers
    of the rows that are the samples, None for all. way_out: what to do where memory is too short."""
    table, rows = _chosen(value, columns)
    if not fits(table.nbytes):
        raise MemoryError(
            f"dataset has {table.nbytes} bytes in the columns {', '.join(columns)}, and a copy for the daemon may take at "
            f"most half of the {_free_memory.available()} bytes of memory that are free: {way_out}"
        )
    fd, text = _sealed(_described(table, value))
    weakref.finalize(owner, os.close, fd)
    return f"table={text}:{fd},", rows
