"""batchd and its peers in turn, in one run: prints medians and ratios, draws a plot.

Every loader has a process of its own. In each round they load one after the other for a while, so that changes in the
machine's speed affect all alike; a ratio is the median of the rounds' own ratios. CPU time includes worker processes
and the daemon.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import copies
import report
import scenarios
from machine import describe
from runner import Runner

SCENARIOS = {**scenarios.SCENARIOS, "copies": copies.copies}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument(
        "--data", type=pathlib.Path, help="an image folder of JPEGs (default: sample pictures made for this)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round of everything: is it alive?")
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="of every loader (default: one per processor)"
    )
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="may be repeated")
    parser.add_argument(
        "--before", type=pathlib.Path, metavar="BUILD", help="an earlier build, which copies measures beside this one"
    )
    parser.add_argument(
        "--kinds", action="append", choices=[kind for kind, *_ in copies.KINDS], help="of copies; may be repeated"
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="every measurement")
    parser.add_argument(
        "--plot", type=pathlib.Path, metavar="FILE", help="PNG or SVG (default: bench.png in the build folder)"
    )
    args = parser.parse_args()
    args.build = args.build.resolve()
    args.before = args.before and args.before.resolve()
    args.rounds = 1 if args.quick else args.rounds

    def interrupted(*_):
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="batchd-bench-"))
    runner = Runner(args, scratch)
    results, versions = [], {}
    try:
        args.data = args.data.resolve() if args.data else runner.sample_data()
        about = describe(args)
        report.heading(about)
        for name in args.only or SCENARIOS:
            result = SCENARIOS[name](runner)
            result["scenario"] = name
            versions.update(runner.versions)
            report.table(result)
            results.append(result)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    finally:
        runner.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    about["versions"] = versions
    report.summary(about, results, runner.absent)
    if args.json:
        args.json.write_text(json.dumps({"about": about, "absent": runner.absent, "results": results}, indent=1))
        print(f"Every measurement: {args.json}")
    report.plot(about, results, args.plot or args.build / "bench.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
