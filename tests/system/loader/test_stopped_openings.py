"""Openings whose client has gone: they end, and their threads are free."""

import pathlib
import re
import struct
import subprocess
import sys

import batchd
from daemons import until

N = (1 << 32) - 1  # sequences: 48 GiB of zeros to read


def test_an_opening_ends_when_its_last_client_has_gone(daemon, tmp_path):
    """A script that is killed while its index is read: the thread ends long before the file does, and the job's name is
    free for other data."""
    with open(tmp_path / "t.idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, N, 0))
        f.truncate(34 + 12 * N)  # zeros: empty sequences
    (tmp_path / "t.bin").write_bytes(bytes(2))
    script = f"import batchd; batchd.DataLoader('tokens:{tmp_path}/t.idx,length=1', 1, job='mine', arrays='numpy')"
    child = subprocess.Popen([sys.executable, "-c", script])
    until("it is being opened", lambda: batchd.status()["workers"]["io_busy"])
    child.kill()
    child.wait()
    until("the opening ends", lambda: not batchd.status()["workers"]["io_busy"])
    until("its loader has gone", lambda: not batchd.status()["loaders"])
    read = int(re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{daemon.pid}/io").read_text())[1])
    assert read < 12 * N // 2, "the index was read to its end"
    with batchd.DataLoader("random:length=8,shape=1", 4, job="mine", arrays="numpy") as loader:
        assert len(list(loader)) == 2
