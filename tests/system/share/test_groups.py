"""Users in many groups: each of their groups decides what they may read, and where the daemon does not know all groups
it reads nothing for the user."""

import os

import numpy as np

from daemons import Daemon
from test_end_to_end import Trainer
from test_reliability import NO_LINGER, needs_root, public  # noqa: F401 (public is a fixture)

AS_MEMBER = """
    json.dumps(b"".decode("utf-8")), np.zeros(1).tobytes()
    os.setgroups(range(2000, 2000 + {n}))
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    try:
        with batchd.DataLoader({dataset!r}, 2, transform="val224", job={job!r}, arrays="numpy") as loader:
            say(rows=sum(len(loader.last_batch.indices) for _ in loader), replaced=0)
    except Exception as e:
        say(error=f"{{type(e).__name__}}: {{e}}")
"""


@needs_root
def test_the_last_of_many_groups_decides(build, public, samples, monkeypatch):  # noqa: F811
    # A file that its group may read, and a file that only its group may not: the hundredth group of a user counts like
    # the first. With more groups than the daemon checks it says so, and reads no path; configured data sets stay
    # available.
    folder = public / "data" / "c"
    folder.mkdir(parents=True)
    pictures = sorted(p for p in samples.glob("*/*.jpg"))[:4]
    for i, picture in enumerate(pictures):
        (folder / f"{i}.jpg").write_bytes(picture.read_bytes())
    os.chown(folder / "0.jpg", 0, 2099)
    (folder / "0.jpg").chmod(0o640)
    os.chown(folder / "1.jpg", 0, 2099)
    (folder / "1.jpg").chmod(0o604)
    for name in ("0", "1"):
        (public / name).mkdir()
        (public / name / "c").mkdir()
        (folder / f"{name}.jpg").rename(public / name / "c" / f"{name}.jpg")
    np.save(public / "x.npy", np.zeros((8, 2), "float32"))
    (public / "d").mkdir()
    d = Daemon(
        public / "d",
        [],
        NO_LINGER + f"socket_mode: 0666\ndatasets:\n  - name: named\n    source: imagefolder:{public}/data\n",
    )
    monkeypatch.setenv("BATCHD_SOCKET", str(d.socket))
    try:

        def said(n, dataset):
            return Trainer(AS_MEMBER.format(n=n, dataset=dataset, job=f"{n}-{dataset}")).finish()[0]

        assert said(100, f"imagefolder:{public}/0").get("rows") == 1
        assert "Permission denied" in said(100, f"imagefolder:{public}/1")["error"]
        assert said(50, f"imagefolder:{public}/1").get("rows") == 1  # of others
        assert "more than 256" in said(400, f"imagefolder:{public}/data")["error"]
        assert said(400, "named").get("rows") == 2
    finally:
        d.stop()
