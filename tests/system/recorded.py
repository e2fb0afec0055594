"""Runs example scripts and keeps what their loaders gave them: for each batch the loader's number in the script, the
epoch, the sample indices and how many of them are padding.

As a program: recorded.py RESULT SCRIPT ARGUMENTS..., which writes the batches to RESULT.
"""

import json
import os
import pathlib
import runpy
import shutil
import sys

from daemons import REPO


def some_of(photos, folder, n):
    """n of the pictures, in class folders as well."""
    paths = sorted(p for p in photos.rglob("*") if p.is_file())
    for path in paths[:: len(paths) // n][:n]:
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / path.parent.name / path.name)
    return folder


class Run:
    """What one process has printed, and the batches of its loaders in their order."""

    def __init__(self, batches, output):
        self._batches, self.output = batches, output

    def loader(self, number):
        """(indices, padding) of each epoch, as one list of all its batches."""
        epochs = {}
        for of, epoch, indices, padding in self._batches:
            if of == number:
                rows, n_padding = epochs.get(epoch, ([], 0))
                epochs[epoch] = rows + indices, n_padding + padding
        return [epochs[e] for e in sorted(epochs)]


def run(server, folder, jobs):
    """A Run of each job, which is (rank, number of ranks, script, arguments...)."""
    made = []
    for i, (rank, ranks, script, *args) in enumerate(jobs):
        argv = [__file__, folder / f"job{i}.json", REPO / "client" / "examples" / script, *args]
        made.append((argv, {"RANK": str(rank), "WORLD_SIZE": str(ranks)}))
    done = server.run(*made)
    assert all(status == 0 for status, _ in done), "\n".join(output for _, output in done)
    return [Run(json.loads((folder / f"job{i}.json").read_text()), output) for i, (_, output) in enumerate(done)]


def note(batches):
    """Every loader of this process notes the batches that its loop gets: (number of the loader, epoch, indices, padding)."""
    import batchd

    numbers = {}
    iterate = batchd.DataLoader.__iter__

    def noted(loader):
        number = numbers.setdefault(id(loader), len(numbers))
        for batch in iterate(loader):
            b = loader.last_batch
            batches.append((number, b.epoch, b.indices.tolist(), b.n_padding))
            yield batch

    batchd.DataLoader.__iter__ = noted


def main():
    result, *sys.argv = sys.argv[1:]
    batches = []
    note(batches)
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
    pathlib.Path(result).write_text(json.dumps(batches))


if __name__ == "__main__":
    main()
