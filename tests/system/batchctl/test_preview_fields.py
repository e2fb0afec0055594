"""batchctl preview: what it says of the fields beside a picture."""

import csv
import json
import random

import pytest

import batchd

image = pytest.importorskip("PIL.Image")


def test_preview_knows_vectors_numbers_and_texts(batchctl, tmp_path):
    """Proves each kind of column of a list, as Python's csv module reads it: a class, a number, vectors short and long, a
    text; and a label that is a vector."""
    rng = random.Random(3)
    rows = []
    for i in range(6):
        image.new("RGB", (20, 20), (i * 40, 0, 0)).save(tmp_path / f"{i}.png")
        box, large = ([str(rng.random()) for _ in range(n)] for n in (4, 65))
        rows.append([f"{i}.png", "ab"[i % 2], f"text {i} ü", rng.random(), " ".join(box), " ".join(large), i % 3, 1])
    with open(tmp_path / "list.csv", "w", newline="") as f:
        csv.writer(f).writerows([["path", "kind", "caption", "score", "box", "large", "x", "y"], *rows])

    def fields(columns):
        done = batchctl(
            "preview",
            "--quiet",
            "--json",
            "--n",
            "6",
            "--out",
            f"{tmp_path}/out.png",
            f"files:{tmp_path}/list.csv#{columns}",
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        return zip(said["indices"], said["fields"], strict=True)

    for i, said in fields("image=path,label=kind,text=caption,score=score,box=box,large=large"):
        _, kind, text, score, box, _, *_ = rows[i]
        assert said["label"] == "ab".index(kind) and said["text"] == text
        assert said["score"] == pytest.approx(score, rel=1e-6)
        assert said["box"] == pytest.approx([float(b) for b in box.split()], rel=1e-6)
        assert said["large"] == {"values": 65}
    for i, said in fields("image=path,hot=x;y"):
        assert said["hot"] == [rows[i][6], rows[i][7]]
    for i, said in fields("label=x;y"):
        assert said["label"] == [rows[i][6], rows[i][7]]


def test_a_column_that_is_there_twice_is_refused_and_ends_nothing(batchctl, daemon, tmp_path):
    """Proves that a list whose last step of opening fails is freed once: batchctl and the daemon say why and go on."""
    image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("path,x,y\na.png,1,2\n")
    spec = f"files:{tmp_path}/list.csv#image=path,pair=x;y,pair=y"
    done = batchctl("preview", "--quiet", "--out", f"{tmp_path}/out.png", spec)
    assert done.returncode == 2 and "field 'pair' is there twice" in done.stderr
    for _ in range(3):
        with pytest.raises(batchd.InvalidError, match="field 'pair' is there twice"):
            batchd.DataLoader(spec, 1)
    loader = batchd.DataLoader(
        f"files:{tmp_path}/list.csv#image=path,hot=x;y", 1, transform=[["CenterCrop", 8], "ToTensor"]
    )
    assert next(iter(loader))["hot"].tolist() == [[1, 2]]
