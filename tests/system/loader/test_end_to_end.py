"""Real trainers in real processes against a real daemon: the batches agree with the sampler and Pillow, whichever other
trainers run or die."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from fork_server import with_torch

PRELUDE = """
import hashlib, json, os, signal, sys, time
import numpy as np
import batchd
def digests(images):
    return [hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest() for row in np.asarray(images)]
def say(**what):
    print(json.dumps(what), flush=True)
"""


class Trainer:
    """A script in a process of its own, which prints lines of JSON."""

    def __init__(self, script, rank=0, world_size=1, *, stdin=subprocess.DEVNULL, **more):
        env = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "BATCHD_ARRAYS": "numpy",
            "MASTER_PORT": "29511",
            **more,
        }
        argv = ["-c", PRELUDE + textwrap.dedent(script)]
        pipes = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if env["BATCHD_ARRAYS"] == "torch" or "torch" in script:
            self.process = with_torch().popen(argv, env, **pipes)
        else:
            self.process = subprocess.Popen([sys.executable, *argv], text=True, env=env, **pipes)

    def hear(self):
        line = self.process.stdout.readline()
        assert line, f"the trainer said nothing more:\n{self.process.stderr.read()}"
        return json.loads(line)

    def finish(self):
        out, err = (
            self.process.stdout.read(),
            self.process.stderr.read(),
        )  # not communicate(): hear() has read some of it into the buffer
        assert self.process.wait(300) == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def tell(self, line=""):
        """Lets a script continue that waits in sys.stdin.readline() (and was made with stdin=PIPE)."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr, self.process.stdin):
            if pipe:
                pipe.close()


EPOCH = """
loader = batchd.DataLoader({dataset!r}, batch_size={batch_size}, shuffle=True, seed={seed}, transform={transform!r}, job={job!r}, dtype="uint8")
loader.set_epoch({epoch})
for images, labels in loader:
    b = loader.last_batch
    say(epoch=b.epoch, step=b.step, indices=b.indices.tolist(), padding=b.n_padding, labels=labels.tolist(), digests=digests(images))
"""


def epoch_script(dataset, *, batch_size=16, seed=0, epoch=0, transform="train224", job="e2e"):
    return EPOCH.format(dataset=dataset, batch_size=batch_size, seed=seed, epoch=epoch, transform=transform, job=job)


def rows_of(said):
    """{sample index: digest of its pixels} of all rows that a trainer got."""
    return {i: d for b in said for i, d in zip(b["indices"], b["digests"])}


def torch_order(n, world_size, rank, seed, epoch):
    pytest.importorskip("torch")
    from torch.utils.data import DistributedSampler

    sampler = DistributedSampler(range(n), world_size, rank, shuffle=True, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def test_two_ranks_read_an_epoch_exactly_as_torchs_sampler_says(daemon, photos):
    # Every index of every rank in torch's order; together every sample; labels as the folders say.
    script = epoch_script(f"imagefolder:{photos}", seed=3, epoch=2)
    trainers = [Trainer(script, rank, 2) for rank in range(2)]
    for rank, trainer in enumerate(trainers):
        said = trainer.finish()
        got = [i for b in said for i in b["indices"]]
        assert got == torch_order(400, 2, rank, 3, 2)
        assert [b["step"] for b in said] == list(range(13))
        assert all(label == i // 20 for b in said for i, label in zip(b["indices"], b["labels"]))


def test_pixels_do_not_depend_on_workers_ranks_or_restarts(make_daemon, samples):
    # The same digests for 1, 2 and 8 workers, for 1, 2 and 4 ranks, and from a second daemon.
    golden = None
    for workers in (1, 2, 8):
        d = make_daemon("--workers", workers)
        for world in (1, 2, 4) if workers == 2 else (1,):
            trainers = [
                Trainer(epoch_script(f"imagefolder:{samples}", epoch=1, job=f"w{world}"), r, world)
                for r in range(world)
            ]
            rows = {}
            for t in trainers:
                rows.update(rows_of(t.finish()))
            assert len(rows) == 96
            golden = golden or rows
            assert rows == golden
        d.stop()


def test_two_jobs_at_once_do_not_disturb_each_other(daemon, samples):
    # Each gets the same as alone.
    scripts = [
        epoch_script(f"imagefolder:{samples}", job="a", seed=1),
        epoch_script(f"imagefolder:{samples}", job="b", seed=2, transform="val224"),
    ]
    alone = [Trainer(s).finish() for s in scripts]
    together = [t.finish() for t in [Trainer(s) for s in scripts]]
    assert together == alone


def test_a_killed_trainers_slots_come_back_and_the_others_notice_nothing(daemon, samples, batchctl):
    # Rank 1 is killed while it holds batches, again and again; rank 0's epoch is not affected, and at the end nothing
    # is held.
    dataset = f"imagefolder:{samples}"
    alone = Trainer(epoch_script(dataset, batch_size=4, job="alone"), 0, 2).finish()
    survivor = Trainer(
        """
        loader = batchd.DataLoader(%r, batch_size=4, shuffle=True, transform="train224", job="kill", dtype="uint8")
        for images, labels in loader:
            b = loader.last_batch
            say(epoch=b.epoch, step=b.step, indices=b.indices.tolist(), padding=b.n_padding, labels=labels.tolist(), digests=digests(images))
            time.sleep(0.05)
        """
        % dataset,
        0,
        2,
    )
    said = [survivor.hear()]
    for _ in range(5):
        victim = Trainer(
            """
            loader = batchd.DataLoader(%r, batch_size=4, shuffle=True, transform="train224", job="kill", dtype="uint8")
            held = [batch for batch, _ in zip(loader, range(3))]
            say(held=len(held))
            time.sleep(600)
            """
            % dataset,
            1,
            2,
        )
        assert victim.hear() == {"held": 3}
        victim.kill()
        said.append(survivor.hear())
    said += survivor.finish()
    assert said == alone
    for _ in range(100):
        status = json.loads(batchctl("status", "--json").stdout)
        if not status["sessions"]:
            break
    assert status["sessions"] == []
    assert all(s["held"] == 0 for loader in status["loaders"] for s in loader["streams"])


def test_a_resumed_trainer_goes_on_where_its_checkpoint_says(daemon, samples):
    # Killed after batch k, resumed from the state saved at k, in another world size too: together exactly one epoch.
    first = Trainer(
        """
        loader = batchd.DataLoader("imagefolder:%s", batch_size=8, shuffle=True, transform="val224", job="r", dtype="uint8")
        for k, (images, labels) in enumerate(loader):
            say(indices=loader.last_batch.indices.tolist(), state=loader.state_dict())
            if k == 4:
                os.kill(os.getpid(), signal.SIGKILL)
        """
        % samples
    )
    said = [first.hear() for _ in range(5)]
    first.kill()
    seen = [i for b in said for i in b["indices"]]
    second = [
        Trainer(
            """
        loader = batchd.DataLoader("imagefolder:%s", batch_size=8, shuffle=True, transform="val224", job="r2", dtype="uint8")
        loader.load_state_dict(json.loads(%r))
        for images, labels in loader:
            say(indices=loader.last_batch.indices.tolist(), epoch=loader.last_batch.epoch, padding=loader.last_batch.n_padding)
        """
            % (samples, json.dumps(said[-1]["state"])),
            rank,
            2,
        )
        for rank in range(2)
    ]
    for t in second:
        for b in t.finish():
            assert b["epoch"] == 0 and b["padding"] == 0
            seen += b["indices"]
    assert sorted(seen) == list(range(96))


def test_share_gives_every_trainer_the_same_batches_decoded_once(daemon, samples, batchctl):
    # Four trainers, one decode. They begin and leave together: the last one alone would have its epoch decoded for itself.
    script = (
        """
        loader = batchd.DataLoader("imagefolder:%s", batch_size=8, shuffle=True, mode="share", job="s", world_size=4, rank=None, dtype="uint8")
        for k, (images, labels) in enumerate(loader):
            say(indices=loader.last_batch.indices.tolist(), digests=digests(images))
            if k == 0:
                sys.stdin.readline()
        say()
        sys.stdin.readline()
        """
        % samples
    )
    trainers = [Trainer(script, rank, stdin=subprocess.PIPE) for rank in range(4)]
    said = [[t.hear()] for t in trainers]
    for t in trainers:
        t.tell()
    for t, its in zip(trainers, said):
        its.extend(iter(t.hear, {}))
    for t in trainers:
        t.tell()
        assert t.finish() == []
    assert len(said[0]) == 12 and all(s == said[0] for s in said)
    status = json.loads(batchctl("status", "--json").stdout)
    decoded = status["loaders"][0]["samples_decoded"]
    window = status["loaders"][0]["streams"][0]["window"]
    assert decoded <= 96 + window * 8


def pillow_val224(path):
    from PIL import Image

    image = Image.open(path).convert("RGB")
    w, h = image.size
    w, h = (256, int(256 * h / w)) if w <= h else (int(256 * w / h), 256)
    image = image.resize((w, h), Image.BILINEAR)
    left, top = int(round((w - 224) / 2.0)), int(round((h - 224) / 2.0))
    return np.asarray(image.crop((left, top, left + 224, top + 224)))


def test_val224_is_pillows_byte_for_byte_through_the_whole_daemon(daemon, photos):
    # All 400 photographs, uint8 NHWC, before Normalize.
    pytest.importorskip("PIL")
    import batchd

    files = sorted(photos.glob("*/*"))
    loader = batchd.DataLoader(
        f"imagefolder:{photos}", batch_size=50, transform="val224", dtype="uint8", layout="NHWC", arrays="numpy"
    )
    seen = 0
    for images, _ in loader:
        for row, index in zip(images, loader.last_batch.indices):
            assert (row == pillow_val224(files[index])).all(), files[index].name
            seen += 1
    assert seen == 400


def test_float32_is_what_totensor_and_normalize_give(daemon, samples):
    # The same IEEE operations: /255, -mean, /std.
    torch = pytest.importorskip("torch")
    import batchd

    kw = dict(batch_size=32, transform="val224", arrays="torch", shuffle=True)
    for (x, _), (u, _) in zip(
        batchd.DataLoader(f"imagefolder:{samples}", **kw),
        batchd.DataLoader(f"imagefolder:{samples}", dtype="uint8", **kw),
    ):
        mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
        assert torch.equal(x, u.to(torch.float32).div(255).sub(mean).div(std))


def test_odd_files_are_pillows_pixels_or_named_and_replaced(make_daemon, odd, batchctl, tmp_path):
    # Pictures that Pillow opens arrive with Pillow's pixels; the others are counted and named in the status, and their
    # rows hold another sample.
    Image = pytest.importorskip("PIL.Image")
    import batchd

    make_daemon(config="bad_data: 100%\n")
    names = sorted({*os.listdir(odd)} - {"png_decompression_dos.png"})  # which Pillow refuses for its text
    listing = tmp_path / "list.txt"
    listing.write_text("".join(f"{odd / n}\t{i}\n" for i, n in enumerate(names)))
    readable = {}
    for i, name in enumerate(names):
        try:
            Image.open(odd / name).convert("RGB")
            readable[i] = pillow_val224(odd / name)
        except Exception:
            pass
    assert 0 < len(readable) < len(names)
    loader = batchd.DataLoader(
        f"files:{listing}", batch_size=8, transform="val224", dtype="uint8", layout="NHWC", arrays="numpy"
    )
    replaced, position = 0, 0
    for images, labels in loader:
        b = loader.last_batch
        replaced += b.n_replaced
        for row, label, index in zip(images, labels, b.indices):
            assert int(label) == index and index in readable
            assert (row == readable[int(index)]).all(), names[index]
            if position in readable:
                assert index == position
            position += 1
    assert position == len(names) and replaced == len(names) - len(readable)
    bad = json.loads(batchctl("status", "--json").stdout)["loaders"][0]["bad"]
    assert {b["index"] for b in bad} == set(range(len(names))) - set(readable)
    assert all(names[b["index"]] in b["error"] for b in bad)


def test_too_much_bad_data_ends_the_loader_with_the_list(daemon, odd, tmp_path):
    # The default budget is 1 %.
    import batchd

    listing = tmp_path / "list.txt"
    listing.write_text(f"{odd}/broken.png\t0\n{odd}/hopper.jpg\t1\n")
    with pytest.raises(batchd.Error, match="broken.png"):
        for _ in batchd.DataLoader(f"files:{listing}", batch_size=2, transform="val224"):
            pass


def test_a_crashed_daemon_is_survived_from_the_token(make_daemon, samples):
    # Killed in the middle of an epoch and started again: the loader continues with the next batch.
    import batchd

    d = make_daemon()
    loader = batchd.DataLoader(
        f"imagefolder:{samples}", batch_size=8, shuffle=True, seed=4, transform="val224", arrays="numpy"
    )
    got = []
    for k, (images, _) in enumerate(loader):
        got += loader.last_batch.indices.tolist()
        kept = images.copy()
        if k == 5:
            d.kill()
            assert (images == kept).all()  # held batches stay readable
            d.start()
    assert got == torch_order(96, 1, 0, 4, 0)


def test_an_index_is_reused_and_notices_new_files(make_daemon, samples, tmp_path):
    # A second daemon serves from the index, and finds a new file.
    import shutil
    import batchd

    folder = tmp_path / "tree"
    shutil.copytree(samples, folder)
    time.sleep(
        0.1
    )  # an index of folders that changed only just now is not kept: their times could not tell another change apart
    d = make_daemon(config=f"index_cache: {tmp_path / 'index'}\n")
    with batchd.DataLoader(f"imagefolder:{folder}", transform="val224") as loader:
        assert len(loader.dataset) == 96
        assert len(list((tmp_path / "index").iterdir())) == 1
    d.restart()
    with batchd.DataLoader(f"imagefolder:{folder}", transform="val224") as loader:
        assert len(loader.dataset) == 96
    victim = sorted(folder.glob("*/*"))[0]
    shutil.copy(victim, victim.with_name("zzz.jpg"))
    with batchd.DataLoader(f"imagefolder:{folder}", transform="val224", job="new") as loader:
        assert len(loader.dataset) == 97


def test_arrays_come_row_by_row_as_they_were_saved(daemon, tmp_path):
    # Every dtype; labels of three kinds; order as torch's.
    import batchd

    rng = np.random.default_rng(0)
    for dtype in (
        "float32",
        "float16",
        "float64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "bool",
        "complex64",
        "complex128",
    ):
        x = (rng.random((100, 3, 5)) * 100).astype(dtype)
        for y in (
            rng.integers(0, 10, 100).astype("int32"),
            rng.random(100).astype("float32"),
            rng.random((100, 2)).astype("float64"),
        ):
            np.save(tmp_path / "x.npy", x)
            np.save(tmp_path / "y.npy", y)
            with batchd.DataLoader(
                f"npy:{tmp_path / 'x.npy'},{tmp_path / 'y.npy'}", batch_size=16, shuffle=True, seed=9, arrays="numpy"
            ) as loader:
                order = []
                for features, labels in loader:
                    i = loader.last_batch.indices
                    order += i.tolist()
                    assert features.dtype == x.dtype and (features == x[i]).all()
                    assert labels.dtype == (np.int64 if y.dtype.kind == "i" else y.dtype) and (labels == y[i]).all()
                assert order == torch_order(100, 1, 0, 9, 0)


def test_a_batch_sampler_is_obeyed(daemon, samples):
    # Batches of different sizes, samples twice.
    import batchd

    batches = [[5, 5, 1], [95], [0, 2, 4, 6], list(range(40))]
    loader = batchd.DataLoader(
        f"imagefolder:{samples}",
        batch_sampler=batches * 5,
        batch_size=40,
        transform="val224",
        dtype="uint8",
        arrays="numpy",
    )
    for _ in range(2):
        got = [loader.last_batch.indices.tolist() for _ in loader]
        assert got == batches * 5


def test_writing_into_a_batch_changes_no_other_trainers(daemon, samples):
    # Twice the same epochs, while one trainer overwrites everything that it gets.
    import batchd

    kw = dict(batch_size=8, shuffle=True, transform="val224", arrays="numpy")
    clean = [
        hashlib.sha1(x.tobytes()).hexdigest()
        for _ in range(2)
        for x, _ in batchd.DataLoader(f"imagefolder:{samples}", **kw)
    ]
    for writable in (False, True):
        loader = batchd.DataLoader(f"imagefolder:{samples}", writable=writable, **kw)
        for half in (clean[:12],):
            got = []
            for x, _ in loader:
                got.append(hashlib.sha1(x.tobytes()).hexdigest())
                x *= 0
                x -= 1
            assert got == half


def test_keeping_every_batch_copies_instead_of_waiting_forever(daemon, samples):
    # A list of all batches, as in evaluations.
    import batchd

    loader = batchd.DataLoader(
        f"imagefolder:{samples}", batch_size=8, transform="val224", dtype="uint8", arrays="numpy"
    )
    with pytest.warns(RuntimeWarning):
        kept = [(images, loader.last_batch.indices) for images, _ in loader]
    assert len(kept) == 12
    again = batchd.DataLoader(f"imagefolder:{samples}", batch_size=8, transform="val224", dtype="uint8", arrays="numpy")
    for (images, indices), (fresh, _) in zip(kept, again):
        assert (images == fresh).all() and indices.tolist() == again.last_batch.indices.tolist()
