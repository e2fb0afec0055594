"""Thumbnails of the last batch, as the live page asks for them: against Pillow and the batch itself, and for whom."""

import base64
import http.client
import json
import os
import socket
import subprocess

import numpy as np
import pytest
from PIL import Image

import batchd
from daemons import BUILD, skip_unless_others_reach_the_build, until

pytestmark = pytest.mark.skipif(
    subprocess.run(["sh", "-c", "ldconfig -p | grep -q libmicrohttpd.so.12"]).returncode != 0,
    reason="libmicrohttpd.so.12 is not installed",
)

NOBODY = 65534


class Page:
    """A reader of a daemon's page over its Unix socket."""

    def __init__(self, path):
        self.path = path

    def get(self, path):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(300)
        connection.sock.connect(str(self.path))
        connection.request("GET", path)
        answer = connection.getresponse()
        try:
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def number(self):
        return json.loads(self.get("/status.json")[1])["loaders"][0]["number"]

    def batch(self, number=None):
        """The last batch, once the daemon makes it: it makes few in a second."""
        path = f"/batch/{number or self.number()}.json"
        status, text = until("pictures", lambda: (got := self.get(path))[0] != 503 and got)
        assert status == 200, (status, text)
        return json.loads(text)


@pytest.fixture
def page(make_daemon, tmp_path):
    make_daemon("--metrics", f"unix:{tmp_path / 'page'}")
    return Page(tmp_path / "page")


def pixels(picture):
    return np.frombuffer(base64.b64decode(picture["rgb"]), np.uint8).reshape(picture["height"], picture["width"], 3)


def last_batch_of(loader):
    """Takes one batch and keeps it: it is the last that the trainer was given, but for those that wait in its ring."""
    return next(iter(loader))


MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_thumbnails_are_the_rows_reduced_by_pillow(page, samples, dtype, layout):
    """val224 has no random op, so each picture is known by its index; 224 pixels become 75, by a factor of 3."""
    kept = dict(batch_size=8, transform="val224", dtype=dtype, layout=layout, arrays="numpy", shuffle=True)
    loader = batchd.DataLoader(f"imagefolder:{samples}", job="thumbs", **kept)
    batch = last_batch_of(loader)
    made = page.batch()
    assert made["job"] == "thumbs" and made["rank"] == 0 and made["rows"] == 8 and len(made["pictures"]) == 8
    plain = batchd.DataLoader(
        f"imagefolder:{samples}", 8, transform="val224", dtype="uint8", layout="NHWC", arrays="numpy", job="plain"
    )
    of_index = dict(enumerate(row.copy() for images, _ in plain for row in images))
    for picture in made["pictures"]:
        expected = np.asarray(Image.fromarray(of_index[picture["index"]]).reduce(3))
        assert expected.shape == (75, 75, 3)
        apart = np.abs(pixels(picture).astype(int) - expected)
        assert apart.max() <= 1, apart.max()
        file = samples / picture["name"]
        assert file.exists() and sorted(p.name for p in samples.iterdir())[picture["label"]] == file.parent.name
    del batch


def test_a_small_row_is_shown_as_it_is_and_a_large_one_stays_small(page, samples):
    for n, factor in ((64, 1), (500, 6)):
        transform = [["Resize", [n, n]], "ToTensor"]
        loader = batchd.DataLoader(
            f"imagefolder:{samples}", 2, transform=transform, dtype="uint8", layout="NHWC", arrays="numpy", job=f"n{n}"
        )
        images, _ = last_batch_of(loader)
        loaders = json.loads(page.get("/status.json")[1])["loaders"]
        number = until(
            "the job is seen",
            lambda: next(
                (x["number"] for x in json.loads(page.get("/status.json")[1])["loaders"] if x["job"] == f"n{n}"), 0
            ),
        )
        first = page.batch(number)["pictures"][0]
        assert first["width"] == first["height"] == -(-n // factor) <= 96, loaders
        loader.close()


def test_views_are_shown_beside_each_other(page, samples):
    crop = lambda n: [["RandomResizedCrop", n], "ToTensor"]  # noqa: E731
    loader = batchd.DataLoader(
        f"imagefolder:{samples}", 4, transform={"global": crop(96), "local": crop(32)}, arrays="numpy"
    )
    batch = last_batch_of(loader)
    made = page.batch()["pictures"]
    assert [(p["row"], p["view"], p["width"]) for p in made[:4]] == [
        (0, "global", 96),
        (0, "local", 32),
        (1, "global", 96),
        (1, "local", 32),
    ]
    assert len(made) == 8
    del batch


def test_arrays_of_pictures_and_of_numbers(page, tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (16, 20, 30, 3), np.uint8)
    np.save(tmp_path / "x.npy", images)
    loader = batchd.DataLoader(f"npy:{tmp_path}/x.npy", 4, arrays="numpy", job="pictures")
    batch = last_batch_of(loader)
    for picture in page.batch()["pictures"]:
        assert (pixels(picture) == images[picture["index"]]).all()
    loader.close()
    del batch
    np.save(tmp_path / "x.npy", np.zeros((16, 5), np.float32))
    loader = batchd.DataLoader(f"npy:{tmp_path}/x.npy", 4, arrays="numpy", job="numbers")
    batch = last_batch_of(loader)
    find = lambda: [x["number"] for x in json.loads(page.get("/status.json")[1])["loaders"] if x["job"] == "numbers"]  # noqa: E731
    number = until("the job is seen", find)[0]
    status, text = until("an answer", lambda: (got := page.get(f"/batch/{number}.json"))[0] != 503 and got)
    assert status == 409 and "no field that is an image" in text
    del batch


def as_user(uid, function):
    """The function's result, of a process of that user."""
    pipe_from, pipe_to = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setuid(uid)
            os.write(pipe_to, json.dumps(function()).encode()[:4000])
        finally:
            os._exit(0)
    os.close(pipe_to)
    with open(pipe_from) as said:
        text = said.read()
    os.waitpid(child, 0)
    return json.loads(text)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user as well")
def test_only_the_jobs_own_user_sees_pictures(make_daemon, tmp_path_factory):
    """Root sees the job in the status, but not its pictures: a file server may keep files from root, too."""
    skip_unless_others_reach_the_build()
    folder = tmp_path_factory.mktemp("open")
    parent = folder
    while not parent.stat().st_mode & 0o1000:  # up to the folder for all users' temporary files
        os.chmod(parent, parent.stat().st_mode | 0o055)
        parent = parent.parent
    np.save(folder / "x.npy", np.full((16, 8, 8, 3), 200, np.uint8))
    os.chmod(folder / "x.npy", 0o644)
    d = make_daemon("--metrics", f"public:unix:{folder / 'page'}", config='socket_mode: "0666"\n')
    os.chmod(d.folder, 0o755)
    page = Page(folder / "page")
    until("the daemon listens", (folder / "page").exists)
    spec = f"npy:{folder / 'x.npy'}"
    argv = [BUILD / "batchctl", "bench", "--socket", d.socket, "--batch-size", "4", "--seconds", "600s", spec]
    trainer = subprocess.Popen(argv, stdout=subprocess.DEVNULL, user=NOBODY, group=NOBODY, extra_groups=[])
    try:
        until("its job is there", lambda: json.loads(page.get("/status.json")[1])["loaders"])
        number = page.number()
        path = f"/batch/{number}.json"
        assert page.get(path) == (
            403,
            "images are shown to the user of the job only; open the page as that user\n",
        )
        ask = lambda: page.get(path)[0]  # noqa: E731
        until("its user sees them", lambda: as_user(NOBODY, ask) == 200)
        assert as_user(12345, ask) == 403
    finally:
        trainer.terminate()
        trainer.wait()


def test_a_hostile_reader_gets_few_pictures_and_stops_nobody(page, samples):
    """Thousands of questions, many of them nonsense: most are refused, at no cost, and the trainer notices nothing."""
    loader = batchd.DataLoader(f"imagefolder:{samples}", 8, arrays="numpy", job="attacked")
    it = iter(loader)
    next(it)
    number = page.number()
    until("a batch behind the first is ready", lambda: page.get(f"/batch/{number}.json")[0] == 200)
    seen = [page.get(f"/batch/{number}.json")[0] for _ in range(200)]
    assert 503 in seen and set(seen) <= {200, 503}
    for path in (
        "",
        "x",
        "x.json",
        "1",
        "-1.json",
        "1.json/..",
        "9" * 30 + ".json",
        "18446744073709551616.json",
        ".json",
    ):
        assert page.get("/batch/" + path)[0] == 404, path
    assert page.get("/batch/18446744073709551615.json")[0] == 404
    assert sum(1 for _ in it) == 11
    loader.close()
