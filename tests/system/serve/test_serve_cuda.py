"""Batches of batchd.serve on a GPU, on the fake driver: the same as on the CPU, through the path of other loaders."""

import json
import os
import pathlib
import signal
import subprocess

import pytest

torch = pytest.importorskip("torch")

import batchd  # noqa: E402
import served_data as data  # noqa: E402
from fork_server import with_torch  # noqa: E402
from test_serve import serve  # noqa: E402, F401

HERE = pathlib.Path(__file__).resolve().parents[1]

BEGIN = """
import gc, itertools, sys, warnings
import torch as real
import gpu_torch, batchd
import served_data as data
from batchd import _lib
mode, rank, personality, n_pageable = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
gpu_torch.use()

def on_cpu(value):
    if isinstance(value, gpu_torch.Tensor):
        return value.cpu()
    if isinstance(value, real.Tensor):
        raise SystemExit("a tensor is not on the GPU")
    if isinstance(value, dict):
        return {key: on_cpu(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(on_cpu, value))
    return type(value)(map(on_cpu, value)) if isinstance(value, (list, tuple)) else value
"""

PROGRAM = """
for raw in (False, True) if mode == "shard" else (False,):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loader = batchd.DataLoader("serve:speech", device="cuda", raw=raw, mode=mode, rank=rank, world_size=2 if mode == "share" else 1,
                                   job=f"on a GPU {raw}", n_slots=4)
    assert loader.transport == {"": "cuda-ipc", "no-legacy-ipc": "cuda-vmm-fd"}.get(personality, "copy")
    assert len(told) == (loader.transport == "copy"), [str(w.message) for w in told]
    for epoch in range(2):
        loader.set_epoch(epoch)
        for batch in loader:
            print(data.digest(on_cpu(batch)), flush=True)
            assert raw or _lib.n_leased(loader._handle) == 0
            kept = batch  # until the next one
    batch = kept = None
    gc.collect()
    assert _lib.n_leased(loader._handle) == 0 and gpu_torch.counter("pageable") == n_pageable
    loader.close()
gc.collect()
gpu_torch.done()
"""

KEEPING = """
warnings.simplefilter("ignore")  # of copies

def tensors(value):
    if isinstance(value, gpu_torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)

other, kept, n_copies = gpu_torch.Stream(), [], 0
with batchd.DataLoader("serve:speech", device="cuda", raw=True, job="kept", n_slots=4) as loader:
    for epoch in range(4):
        loader.set_epoch(epoch)
        for batch in loader:
            for tensor in tensors(batch):
                loader.record_stream(tensor, other)
            n_copies += sum(hasattr(tensor._memory, "streams") for tensor in tensors(batch))
            kept.append(batch)
            del kept[:-5]
    assert n_copies and len(loader._cuda._exported) <= 4 * 2 + 4, (n_copies, len(loader._cuda._exported))
    batch = tensor = None
    kept.clear()
    gc.collect()
gpu_torch.ok(gpu_torch._cu.cuStreamDestroy_v2(other._p))
gc.collect()
gpu_torch.done()
"""


@pytest.fixture
def daemon(build, make_daemon, monkeypatch, tmp_path):
    """A daemon on the fake driver; only its GPU thread may call CUDA."""
    fake = build / "libfakecuda.so"
    if not fake.exists():
        pytest.skip(f"{fake} is not built")
    monkeypatch.setenv("BATCHD_LIBCUDA", str(fake))
    monkeypatch.setenv("FAKECUDA_DIR", str(tmp_path))
    monkeypatch.setenv("FAKECUDA_REPORT", str(tmp_path / "report"))
    with monkeypatch.context() as m:
        m.setenv("FAKECUDA_ALLOW_THREADS", "batchd-gpu*")
        yield make_daemon()
    daemon_reports = [p.read_text() for p in tmp_path.glob("report.*")]
    assert not any("violation " in text for text in daemon_reports), daemon_reports


def start(mode="shard", rank=0, personality="", n_pageable=0, program=PROGRAM):
    """n_pageable: how many batches it copies to the GPU out of memory that is not pinned."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]]))
    for daemons in ("FAKECUDA_ALLOW_THREADS", "FAKECUDA_DELAY_US"):
        env.pop(daemons, None)
    if personality:
        env["FAKECUDA_PERSONALITY"] = personality
    return with_torch().popen(
        ["-c", BEGIN + program, mode, rank, personality, n_pageable],
        env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(trainer):
    out, err = trainer.communicate(timeout=300)
    assert trainer.returncode == 0 and out.endswith("done\n"), out + err
    return out.split()[:-1]


def copied_bytes(batchctl):
    return sum(c["bytes"] for gpu in json.loads(batchctl("status", "--json").stdout)["gpus"] for c in gpu["copies"])


@pytest.mark.parametrize(
    "personality",
    ["", "no-legacy-ipc", "no-ipc", "no-ipc,read-only-register"],
    ids=["ipc", "descriptor", "staged", "direct"],
)
def test_every_array_arrives(serve, batchctl, personality):  # noqa: F811
    """All dtypes, nested, strided and empty ones, texts beside them, two epochs, copied and raw; only the used part of
    a slot is copied to the GPU."""
    serve(data.odd(), slot_bytes=1 << 20)
    assert finish(start(personality=personality)) == [data.digest(b) for b in data.odd()] * 4
    if not personality:
        assert 0 < copied_bytes(batchctl) < 1 << 20


@pytest.mark.parametrize("mode", ["shard", "share"])
@pytest.mark.parametrize("personality", ["", "no-legacy-ipc", "no-ipc"], ids=["ipc", "descriptor", "copy"])
def test_batches_that_do_not_fit_reach_a_gpu(serve, batchctl, mode, personality):  # noqa: F811
    """The trainer copies those itself. Its next loader has slots for them, raw tensors included."""
    batches = [{"x": torch.arange(n) + 1000003 * k} for k, n in enumerate([10, 20, 5000, 30, 60000, 7, 200000, 5])]
    serve(batches)
    trainers = [start(mode, rank, personality, 2 * 3) for rank in range(2 if mode == "share" else 1)]
    for trainer in trainers:
        assert finish(trainer) == [data.digest(b) for b in batches] * (4 if mode == "shard" else 2)
    assert not [
        s
        for s in json.loads(batchctl("status", "--json").stdout)["sessions"]
        if s["state"] in ("told to go", "gone, holds batches")
    ]


def test_a_stream_may_be_recorded_for_every_tensor(serve):  # noqa: F811
    """Also for those of a batch that comes as copies, because it would have taken the last slot; and what is known of
    raw tensors does not grow with the layouts of the batches."""
    serve([{"x": torch.arange(100 + 8 * k), "y": torch.zeros(3 * k, 8)} for k in range(12)], slot_bytes=1 << 20)
    finish(start(program=KEEPING))


def test_trainers_that_share_get_them_from_one_copy(serve, batchctl):  # noqa: F811
    """Dicts as from a tokenizer, shuffled again each epoch, for two trainers on one GPU."""
    serve(data.sentences())
    of_torch = data.sentences()
    wanted = data.epoch_of(of_torch, 0) + data.epoch_of(of_torch, 1)
    trainers = [start(mode="share", rank=rank) for rank in range(2)]
    assert [finish(trainer) for trainer in trainers] == [wanted, wanted]
    copies = sum(c["copies"] for gpu in json.loads(batchctl("status", "--json").stdout)["gpus"] for c in gpu["copies"])
    assert len(wanted) <= copies <= len(wanted) + 9  # those made ahead


@pytest.fixture
def slow(monkeypatch):
    """Slow copies to the GPU."""
    monkeypatch.setenv("FAKECUDA_DELAY_US", "200000")


def test_what_was_made_arrives_before_the_producers_last_words(slow, daemon, serve):  # noqa: F811
    """The producer's epochs are over, and it has ended, long before the copies of its last batches: the daemon waits
    for them."""
    serve(data.odd()[:2], slot_bytes=1 << 20, epochs=1)  # with four slots nothing holds it up
    out, err = start().communicate(timeout=300)
    assert out.split() == [data.digest(b) for b in data.odd()[:2]], err
    assert "ProducerError" in err and "it has ended: there was one epoch" in err


def test_a_killed_producer_is_told_after_what_it_made(serve):  # noqa: F811
    """The same on the GPU as on the CPU."""
    producer = serve(data.plain(10000, 8), name="speech")
    trainer = start()
    assert trainer.stdout.readline()
    os.kill(producer.pid, signal.SIGKILL)
    out, err = trainer.communicate(timeout=300)
    assert trainer.returncode == 1 and "ProducerError" in err, out + err
    assert batchd.status()["gpus"][0]["errors"] == 0
