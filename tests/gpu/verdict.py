"""The assumptions about a driver and a GPU, and a run's answers: verdict.py [DOUBLE REAL [RESULTS_JSON]] prints the
table; without arguments that of RESULTS.md before a run.

Each assumption is judged by the conformance program's lines (outcomes.py) and bench.py's rows. An answer is "yes" (it
holds), "no", or None where the run does not answer it, with the figure or the words that it is based on.
"""

import json
import os
import sys
import typing

from outcomes import Outcomes, compared, read


class Run:
    """One run: the conformance program's lines on the fake driver and on the driver, bench.py's rows and claims. Any may be empty."""

    def __init__(self, fake=None, real=None, rows=(), claims=()):
        self.outcomes = Outcomes(real or {})
        self.n_same, differ = compared(fake or {}, real or {})
        self.n_differ = len(differ)
        self.rows = {row["what"]: row for row in rows}
        self.claims = list(claims)
        self.text, self.number = self.outcomes.text, self.outcomes.number

    def row(self, what):
        return self.rows[what]["value"] if what in self.rows else None


class Assumption(typing.NamedTuple):
    what: str
    where: str
    by: str
    judge: typing.Callable


def yes(true):
    return "yes" if true else "no"


def whether(case, name, *good):
    """The line has one of these words."""

    def judge(run):
        text = run.text(case, name)
        answer = None if text in (None, "could not be tried") else yes(text in good)
        return answer, f"{name}: {text or 'did not run'}"

    return judge


def every(*judges):
    """All of them hold: a "no" is enough for "no", a missing answer leaves it open."""

    def judge(run):
        found = [j(run) for j in judges]
        answers = [answer for answer, _ in found]
        answer = "no" if "no" in answers else None if None in answers else "yes"
        return answer, "; ".join(dict.fromkeys(said for _, said in found))

    return judge


def named(name, judge):
    def with_name(run):
        answer, said = judge(run)
        return answer, f"{name}: {said}"

    return with_name


def refused(case, name):
    """Anything but "works" and "no answer"."""

    def judge(run):
        text = run.text(case, name)
        answer = None if text in (None, "could not be tried", "no context there") else yes(text != "works")
        return answer, f"{name}: {text or 'did not run'}"

    return judge


def at_most(case, name, most, unit):
    def judge(run):
        value = run.number(case, name)
        return (
            (None, "did not run") if value is None else (yes(value <= most), f"{value:.3g} {unit} (at most {most:g})")
        )

    return judge


def row_at_most(what, most, unit):
    def judge(run):
        value = run.row(what)
        return (
            (None, "not measured") if value is None else (yes(value <= most), f"{value:.3g} {unit} (at most {most:g})")
        )

    return judge


def row_at_least(what, least, unit):
    def judge(run):
        value = run.row(what)
        return (
            (None, "not measured")
            if value is None
            else (yes(value >= least), f"{value:.3g} {unit} (at least {least:g})")
        )

    return judge


def stranger(kind, relation, works):
    line = f"{kind}, {relation}"
    return whether("strangers", line, "works") if works else refused("strangers", line)


def codes_differ(run):
    if not len(run.outcomes):
        return None, "not compared"
    return yes(run.n_same and not run.n_differ), f"{run.n_same} are the same, {run.n_differ} differ"


def several_nodes(run):
    near, far = run.row("copies from the GPU's own node"), run.row("copies from another node")
    if near is None or far is None:
        return None, "one node here, or the driver names none"
    return yes(near > far), f"{near:.3g} and {far:.3g} GB/s"


ASSUMPTIONS = (
    Assumption(
        "CUDA IPC does not cross users or PID namespaces",
        "nothing relies on it: `daemon/server/device.c` does not use it there in any case",
        'check-gpu, "strangers"',
        every(
            *(
                stranger("legacy handle", r, False)
                for r in ("root to another user", "a user to another user", "another PID namespace")
            )
        ),
    ),
    Assumption(
        "an IPC or a network namespace of its own does CUDA IPC no harm",
        "containers; `PrivateNetwork=` in the unit",
        '"strangers"',
        every(*(stranger("legacy handle", r, True) for r in ("another IPC namespace", "another network namespace"))),
    ),
    Assumption(
        "memory by descriptor crosses users and namespaces",
        "trainers of other users and in containers",
        '"strangers"',
        every(
            *(
                stranger("descriptor", r, True)
                for r in (
                    "root to another user",
                    "a user to another user",
                    "a user to root",
                    "another PID namespace",
                    "another IPC namespace",
                    "another network namespace",
                )
            )
        ),
    ),
    Assumption(
        "a mapping lives on, readable, when its owner is killed; at worst reading it is an error",
        "trainers let go of it when the daemon is gone",
        '"ipc killed"',
        every(
            whether("ipc killed", "read two seconds later", "the bytes are still there"),
            whether("ipc killed", "the reader can go on", "works"),
        ),
    ),
    Assumption(
        "memory by descriptor lives on when its owner is killed",
        "a trainer reads its last batch to the end",
        '"vmm"',
        whether("vmm", "its bytes after the owner was killed", "yes"),
    ),
    Assumption(
        "work of a killed trainer has ended when its process is gone",
        "the daemon gives its slots to others then",
        '"work of the dead"',
        whether("work of the dead", "its kernel writes after that", "no"),
    ),
    Assumption(
        "the daemon can register its writable mapping of a sealed memfd",
        "pinning in the daemon",
        '"host memory"',
        whether("host memory", "register the daemon's mapping of a sealed memfd", "works"),
    ),
    Assumption(
        "a trainer can register its read-only mapping (not all x86 machines can)",
        "trainers without IPC copy from their own pinned memory where it is refused",
        '"host memory"',
        whether("host memory", "register a read-only mapping as such", "works"),
    ),
    Assumption(
        "copies and another process's kernels overlap without MPS: a compute-bound kernel loses less than 2 %",
        "a step beside the daemon",
        '"overlap"',
        at_most("overlap", "arithmetic is slower by", 2, "%"),
    ),
    Assumption(
        "a kernel bound by memory loses less than 5 % to the copies",
        "a step beside the daemon",
        '"overlap"',
        at_most("overlap", "copying on the GPU is slower by", 5, "%"),
    ),
    Assumption(
        "opening a slab takes milliseconds",
        "seconds to attach",
        '"attach"',
        at_most("attach", "open a handle of 512 MiB", 50, "ms"),
    ),
    Assumption(
        "a context takes some 500 MB",
        "memory of the GPU",
        '"context size"',
        at_most("context size", "a process's context takes", 700, "MiB"),
    ),
    Assumption(
        "registering 1 GiB of present pages takes less than 0.3 s",
        "seconds to attach",
        '"registration"',
        at_most("registration", "register memfd pages, prefaulted", 300, "ms/GiB"),
    ),
    Assumption(
        "pinning in pieces of 64 MiB holds up another process's calls for less than 20 ms",
        "other trainers while one attaches",
        '"pin stall"',
        every(
            *(
                named(
                    call,
                    at_most("pin stall", f"{call} while another process pins in pieces of 64 MiB, worst", 20, "ms"),
                )
                for call in ("cuMemGetInfo", "cuMemAlloc and cuMemFree", "a small kernel")
            )
        ),
    ),
    Assumption(
        "where a machine has several NUMA nodes, copies from the GPU's own are faster",
        "`mbind` before pinning (`numa_node` in the status)",
        "bench-gpu on such a machine",
        several_nodes,
    ),
    Assumption(
        "a mapping for reading only is enforced by the GPU",
        "nothing relies on it",
        '"vmm reading"',
        refused("vmm reading", "kernel that writes what is mapped for reading"),
    ),
    Assumption(
        "the finishing kernel waits for memory only: it moves its bytes at 80 % or more of the rate of a copy on the device",
        "time until a step can begin",
        'bench-gpu, "finishing kernel"',
        row_at_least("slowest finishing kernel, of the device-to-device rate", 80, "%"),
    ),
    Assumption(
        "pinned memfd pages of 4 KiB are copied at 95 % or more of the rate of the driver's own memory",
        "pages of the daemon's slabs",
        "bench-gpu, page kinds",
        row_at_least("memfd pages, of the rate of cuMemHostAlloc", 95, "%"),
    ),
    Assumption(
        "the fake driver has the driver's error codes where NVIDIA documents none",
        "none that code depends on",
        'check-gpu, "fake and real driver the same"',
        codes_differ,
    ),
)


def before():
    """The table of RESULTS.md before any measurement."""
    lines = ["| what is assumed | where it matters | answered by |", "|---|---|---|"]
    return lines + [f"| {a.what} | {a.where} | {a.by} |" for a in ASSUMPTIONS]


def table(run):
    lines = ["| what is assumed | where it matters | holds | what was seen |", "|---|---|---|---|"]
    for a in ASSUMPTIONS:
        answer, said = a.judge(run)
        lines.append(
            f"| {a.what} | {a.where} | {'not answered' if answer is None else 'yes' if answer == 'yes' else '**no**'} | {said} |"
        )
    if run.claims:
        lines += ["", "| what is claimed | wanted | measured | met |", "|---|---|---|---|"]
        lines += [f"| {c['what']} | {c['wanted']} | {c['measured']} | {c['met']} |" for c in run.claims]
    return lines


def run_of(fake=None, real=None, results=None):
    """From files; any of them may be missing."""
    there = [path if path and os.path.exists(path) else None for path in (fake, real, results)]
    found = {}
    if there[2]:
        with open(there[2]) as f:
            found = json.load(f)
    return Run(there[0] and read(there[0]), there[1] and read(there[1]), found.get("rows", ()), found.get("claims", ()))


if __name__ == "__main__":
    print("\n".join(table(run_of(*sys.argv[1:])) if len(sys.argv) > 1 else before()))
