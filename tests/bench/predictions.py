"""What a verdict predicts, beside what the change then brings: predictions.py [options].

A daemon with one worker makes the verdict on a trainer that takes a certain time for each batch; then the same trainer
runs with two workers, and with the decoded cache filled. Each row is one trainer: its verdict's cause, and for each
change the speed that was predicted and the speed that came, as times the first. Rounds are medians. The last column is
the greater of predicted / actual and its inverse.

Two workers need two processors that nothing else uses."""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "system"), str(HERE.parents[1] / "client/python")]

from daemons import BUILD, Daemon  # noqa: E402

os.environ.setdefault("BATCHD_BUILD", str(BUILD))
import batchd  # noqa: E402

OFF = "cache:\n  decoded: off\n  jpeg: off\n"
RECIPES = {
    "train224": "train224",
    "val224": "val224",
    "crop": ["RandomHorizontalFlip", ["CenterCrop", 32]],
    "blur": [["Resize", 256], ["CenterCrop", 224], ["GaussianBlur", 23, [4.0, 4.0]]],
}


def busy_wait(seconds):
    """A training step: it takes that long of a GPU, so of no processor."""
    time.sleep(seconds)


def trained(folder, dataset, transform, step, workers, cached, seconds):
    """(batches per second, verdict) of a trainer; with the cache, of epochs after the first."""
    folder.mkdir()
    d = Daemon(folder, ("--workers", workers, "--memory", "2GiB"), "" if cached else OFF)
    try:
        options = {"batch_size": 32, "n_slots": 4, "shuffle": True, "dtype": "uint8", "progress": False}
        with batchd.DataLoader(dataset, transform=transform, socket=str(d.socket), **options) as loader:
            for _ in loader if cached else ():
                pass
            n, began = 0, time.monotonic()
            while time.monotonic() - began < seconds:
                for _ in loader:
                    busy_wait(step)
                    n += 1
                    if time.monotonic() - began >= seconds:
                        break
            return n / (time.monotonic() - began), loader.verdict("since_start")
    finally:
        d.stop()


def compare(place, dataset, transform, step, args):
    """For each change the predicted and the actual speed-up: medians of the rounds."""
    predicted, actual, causes = {"cpu": [], "cache": []}, {"cpu": [], "cache": []}, []
    for n in range(args.rounds):
        run = lambda what, *setting: trained(  # noqa: E731
            place / f"{what}-{time.monotonic_ns()}", dataset, transform, step, *setting, args.seconds
        )
        before, verdict = run("before", 1, False)
        causes.append(verdict.cause)
        predicted["cpu"].append(1 + verdict.twice_the_cpu)
        predicted["cache"].append(1 + verdict.decoded_cache)
        actual["cpu"].append(run("cpu", 2, False)[0] / before)
        actual["cache"].append(run("cache", 1, True)[0] / before)
    middle = {what: (statistics.median(predicted[what]), statistics.median(actual[what])) for what in predicted}
    return max(causes, key=causes.count), middle


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "dataset", metavar="DATASET", help="pictures that fit the decoded cache, such as imagefolder:DIR"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--steps", default="0,0.01,0.03", help="seconds that a training step takes")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="batchd-predictions-") as place:
        for name in args.recipes.split(","):
            for step in map(float, args.steps.split(",")):
                cause, found = compare(pathlib.Path(place), args.dataset, RECIPES[name], step, args)
                for what, (predicted, actual) in found.items():
                    off = max(predicted / actual, actual / predicted)
                    results.append(
                        {"recipe": name, "step_s": step, "cause": cause, "change": what}
                        | {"predicted": predicted, "actual": actual, "off": off}
                    )
                    if not args.json:
                        print(
                            f"{name:9} step {1000 * step:3.0f} ms  {cause:9} {what:5} "
                            f"predicted {predicted:5.2f} actual {actual:5.2f} off {off:4.2f}",
                            flush=True,
                        )
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
