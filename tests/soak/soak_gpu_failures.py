"""On the fake driver, every CUDA call of a daemon and its trainers ends in an error: the first of its kind, the
second, the last, or each of them. Some errors are temporary (out of memory, an invalid value, an unknown error), and
one ends the process's use of the GPU.

Whatever fails, on either side: a trainer has the right bytes, or prints which error it was and what to do. The daemon
survives, or ends with 75 because its GPU is lost. No process breaks a rule of CUDA or leaves anything behind. The next
trainer has its batches on the GPU as if nothing had happened, from the next daemon if needed, or it copies and says for
how long: for a minute where the driver has refused to open a slab, until the daemon restarts where the driver never
opened any. tests/unit/gpu/test_gpus.c and tests/daemon/test_cuda_failures.c do the same for each single call in single processes."""

import concurrent.futures
import os
import random
import shutil
import subprocess

import crew
from fake_driver import GIVES_BACK, Place, make_rows

STICKY = 700
ERRORS = {
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    1: "CUDA_ERROR_INVALID_VALUE",
    987: "CUDA error 987",
    STICKY: "CUDA_ERROR_ILLEGAL_ADDRESS",
}
WHICH = ("first", "second", "last", "each")
BATCHES = 24
# A trainer may look for a while for a daemon that has lost its GPU; in these runs there is no other daemon.
ALWAYS = ["--rank", 0, "--world", 1, "--batch", 8, "--most", BATCHES, "--reconnect-ms", 400]


class Kind:
    """A way in which batches come, and the options with which a trainer asks for it."""

    def __init__(self, name, path, args, personality=""):
        self.name, self.path, self.args, self.personality = name, path, args, personality
        self.calls = {}  # {"daemon" or "trainer": {call: count}}

    def arrives(self, last):
        """Whether the output of a trainer shows that it got its batches as expected: where CUDA IPC fails, a descriptor
        replaces it."""
        return last.startswith(
            tuple(
                f"end {BATCHES} batches by {path}" for path in (["IPC", "VMM"] if self.path == "IPC" else [self.path])
            )
        )

    def place(self, args, folder, daemon_rules="", trainer_env=None):
        folder.mkdir(parents=True)
        control = folder / "rules"
        control.write_text(daemon_rules)
        common = {"FAKECUDA_PERSONALITY": self.personality, "FAKECUDA_DELAY_US": "50"}
        return Place(
            folder,
            common | {"FAKECUDA_CONTROL": str(control)},
            common | {"FAKECUDA_GATED": "1"} | (trainer_env or {}),
            ["--linger", "0s"],
            args.build,
        )

    def train(self, place, job, **env):
        return place.train(*self.args, *ALWAYS, "--job", job, **env)


def rule(call, which, error, n):
    return f"{call}:{ {'first': 1, 'second': 2, 'last': n, 'each': '*'}[which]}={error}"


def said(result):
    status, last, err = result
    return f"{status}: {last} | {err}"


def judge(kind, result, call, error):
    """What is wrong with the end of a trainer that may have met the error."""
    status, last, err = result
    text = f"{last}\n{err}"
    if status == 0:
        if not last.startswith(f"end {BATCHES} batches by "):
            return [f"an odd end: {last}"]
        if (
            not kind.arrives(last) and ERRORS[error] not in last and (call != "cuDeviceGetAttribute" or error == STICKY)
        ):  # a capability that a GPU does not report is not used
            return [f"no reason for another path: {last}"]
        return []
    if status != 2:
        return [f"exit status {status}"]
    wrong = []
    if "trainer: cu" in err and error == STICKY and "ILLEGAL_ADDRESS" in err:
        return []  # the program itself noticed first
    if "the target is no memory of the loader's GPU" in err and error == 1:
        return []  # this error of cuPointerGetAttribute means that
    if ERRORS[error] not in text and call != "cuCtxPopCurrent":  # then other calls fail, in other ways
        wrong.append("the error is not named")
    if not any(word in text for word in ("GPU", "cuda:0")):
        wrong.append("it is not said that it was the GPU")
    if not any(words in text for words in ("nvidia-smi", "doctor", "start it again", "open again", "new process")):
        wrong.append("it is not said what to do")
    return wrong


def books(place, call, error):
    """The fake driver's reports of all processes. Resources that a call could not free are left over, and may disturb
    later calls; nothing of a lost GPU is freed."""
    reports = (
        []
        if call in GIVES_BACK and (error != STICKY or call == "cuCtxPopCurrent")
        else place.reports("daemon") + place.reports("trainer")
    )
    wrong = [f"violations: {r.violations}" for r in reports if r.violations]
    return wrong + [f"left over: {r.leaks}" for r in reports if r.leaks and error != STICKY]


def in_daemon(args, folder, kind, call, which, error):
    with kind.place(args, folder, rule(call, which, error, kind.calls["daemon"][call])) as place:
        met = [kind.train(place, "one")]
        if not place.daemon.lost():
            met.append(kind.train(place, "two"))
        if which == "last":
            place.daemon.end()
        else:
            (folder / "rules").write_text("")
        lost = place.daemon.lost()
        if lost or which == "last":
            status = place.daemon.end()
            (folder / "rules").write_text("")
            place.daemon.start()
        after = kind.train(place, "three")
    if (
        lost
        and len(met) == 2
        and any(words in met[1][2] for words in ("is stopping", "no batchd answers", "went away"))
    ):
        met.pop()  # the daemon was already ending when the error came
    wrong = [w for result in met for w in judge(kind, result, call, error)]
    if (lost or which == "last") and status != (75 if lost else 0):
        wrong.append(f"the daemon ended with {status}")
    if lost and error != STICKY:
        wrong.append("the GPU is lost for an error that passes")
    if place.status:
        wrong.append(f"the daemon ended with {place.status} at last")
    refused = after[1].startswith(f"end {BATCHES} batches by copy: ") and (
        "the daemon tries again in a minute" in after[1] or "restart the daemon" in after[1]
    )
    if after[0] or not (
        refused
        or kind.arrives(after[1])
        or after[1].startswith(f"end {BATCHES} batches by copy: the daemon's copies to Fake GPU 0 fail")
    ):
        wrong.append(f"the next trainer: {said(after)}")
    wrong += books(place, call, error)
    hit = any("injected" in r.counts for r in place.reports("daemon")) or lost
    return wrong, hit, "\n  ".join(map(said, met)), place.daemon.output()


def in_trainer(args, folder, kind, call, which, error):
    with kind.place(args, folder) as place:
        met = kind.train(place, "one", FAKECUDA_FAIL=rule(call, which, error, kind.calls["trainer"][call]))
        after = kind.train(place, "two")
    wrong = judge(kind, met, call, error)
    if place.status:
        wrong.append(f"the daemon ended with {place.status}")
    if after[0] or not kind.arrives(after[1]):
        wrong.append(f"the next trainer: {said(after)}")
    wrong += books(place, call, error)
    hit = any("injected" in r.counts for r in place.reports("trainer")) or met[0] == 2
    return wrong, hit, said(met), place.daemon.output()


def count_calls(args, folder, kind):
    """Of a run without errors."""
    with kind.place(args, folder / f"usual-{kind.name}") as place:
        results = [kind.train(place, job) for job in ("one", "two")]
    if any(r[0] or not r[1].startswith(f"end {BATCHES} batches by {kind.path}") for r in results):
        raise crew.Failure(f"undisturbed: {results}\n{place.daemon.output()}")
    first = place.reports("trainer")[0]
    kind.calls = {"daemon": place.daemon_report().calls, "trainer": first.calls}
    for calls in kind.calls.values():
        calls["run"] = 20
        calls.pop("cuGetErrorName", None)


def scenario(args, folder, progress):
    if (args.build / ".cuda").read_text().strip() == "0":
        return {"failures_made": "0, as this build knows no GPUs"}
    rows = make_rows(folder)
    subprocess.run(
        [args.build / "batchctl", "sample-data", folder / "pictures", "--classes", "4", "--per-class", "50"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    kinds = [
        Kind("arrays", "IPC", ["--dataset", rows]),
        Kind("copied", "copy", ["--dataset", rows], "no-ipc"),
        Kind("descriptor", "VMM", ["--dataset", rows], "no-legacy-ipc"),
    ]
    if (args.build / ".cuda").read_text().strip() == "1":
        kinds.append(
            Kind(
                "images",
                "IPC",
                [
                    "--dataset",
                    f"imagefolder:{folder}/pictures",
                    "--transform",
                    "train224",
                    "--dtype",
                    "float16",
                    "--nchw",
                    "--check",
                    "twin",
                ],
            )
        )
    for kind in kinds:
        count_calls(args, folder, kind)
    sides = [(in_daemon, kind, "daemon") for kind in kinds if kind.name in ("arrays", "descriptor")] + [
        (in_trainer, kind, "trainer") for kind in kinds
    ]
    cases = [
        (side, kind, call, which, error)
        for side, kind, who in sides
        for call in kind.calls[who]
        for which in WHICH
        for error in ERRORS
        if call != "run" or error == STICKY
    ]  # queued work fails fatally or not at all
    rng = random.Random(args.seed)
    rng.shuffle(cases)
    if args.rounds:
        cases = cases[: args.rounds]
    progress.total = len(cases)
    failures, n_hit, done = [], 0, 0

    def one(numbered):
        number, (side, kind, call, which, error) = numbered
        sub = folder / f"{number}"
        try:
            wrong, hit, trainers, log = side(args, sub, kind, call, which, error)
        except AssertionError as e:
            wrong, hit, trainers, log = [str(e)], True, "", ""
        shutil.rmtree(sub, ignore_errors=True)
        where = f"{side.__name__}, {kind.name}: {call}, {which}, {ERRORS[error]}"
        return hit, f"{where}: {'; '.join(wrong)}\n  {trainers}\n{log}" if wrong else ""

    with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2))) as pool:
        for hit, failure in pool.map(one, enumerate(cases)):
            done += 1
            n_hit += hit
            failures += [failure] if failure else []
            progress(done)
    if failures:
        raise crew.Failure(f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures[:20]))
    return {"failures_made": len(cases), "that_were_met": n_hit}


if __name__ == "__main__":
    crew.main("gpu_failures", __doc__, 0, 120, scenario)
