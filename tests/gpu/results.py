"""What was measured on a GPU, as RESULTS.md, results.json and results.svg:

    results.py --out DIR [--answers DIR] RESULTS_JSON...

makes them in DIR from several results.json. A part that a later file has measured replaces the earlier one's. The
conformance program's answers, `fake` and `real` in --answers, become part of it; otherwise those of the files stay.
Exit status 1 if no file can be read.
"""

import argparse
import json
import pathlib
import sys
import time

import facts
import verdict
from outcomes import lines_of, tables

TEXTS = ("fake", "real")


def by_case(earlier, later):
    """The conformance program's lines, of the later run where both have a case. A case begins with "# NAME"."""
    cases = {}
    for text in (earlier, later):
        found = {}
        for line in text.splitlines(keepends=True):
            if line.startswith("# "):
                case = line.strip()
                found[case] = ""
            if found:
                found[case] += line
        cases |= found
    return "".join(cases.values())


class Results:
    """Rows, claims and notes, each with the part of the measurements that it belongs to."""

    def __init__(self, gpu="unknown GPU", fake=False):
        self.gpu, self.fake = gpu, fake
        self.when, self.commits, self.facts = time.strftime("%Y-%m-%d %H:%M"), [], {}
        self.rows = []  # (part, group, what, value, unit)
        self.claims = []  # (part, what, wanted, measured, "yes" or "**no**")
        self.notes = []  # (part, text)
        self.took = {}  # seconds of each part that came to its end
        self.unfinished, self.skipped = [], []  # parts that were cut off, and those without time to begin
        self.answers = dict.fromkeys(TEXTS, "")

    def forget(self, part):
        """What an earlier run has measured of it."""
        for entries in (self.rows, self.claims, self.notes):
            entries[:] = [entry for entry in entries if entry[0] != part]
        self.took.pop(part, None)
        for names in (self.unfinished, self.skipped):
            names[:] = [name for name in names if name != part]

    def add(self, later):
        """A later run's parts replace those of the same name; the parts that it did not begin stay as they are."""
        begun = [*later.took, *later.unfinished]
        for part in begun:
            self.forget(part)
        self.rows += [row for row in later.rows if row[0] in begun]
        self.claims += [claim for claim in later.claims if claim[0] in begun]
        self.notes += [note for note in later.notes if note[0] in begun]
        self.took |= later.took
        self.unfinished += later.unfinished
        known = [*self.took, *self.unfinished, *self.skipped]
        self.skipped += [part for part in later.skipped if part not in known]
        self.facts |= later.facts
        self.commits += [commit for commit in later.commits if commit not in self.commits]
        self.gpu, self.fake, self.when = later.gpu, later.fake, later.when
        self.answers = {name: by_case(self.answers[name], later.answers[name]) for name in TEXTS}

    @classmethod
    def read(cls, path):
        found = json.loads(pathlib.Path(path).read_text())
        self = cls(found["gpu"], found["fake"])
        self.when, self.commits, self.facts = found["when"], found["commits"], found["facts"]
        self.rows = [(r["part"], r["group"], r["what"], r["value"], r["unit"]) for r in found["rows"]]
        self.claims = [(c["part"], c["what"], c["wanted"], c["measured"], c["met"]) for c in found["claims"]]
        self.notes = [(n["part"], n["text"]) for n in found["notes"]]
        self.took, self.unfinished, self.skipped = found["seconds"], found["unfinished"], found["skipped"]
        self.answers = found["answers"]
        return self

    def read_answers(self, folder):
        """The conformance program's, if both drivers' are there."""
        texts = [pathlib.Path(folder) / name for name in TEXTS]
        if all(path.exists() for path in texts):
            self.answers = {name: path.read_text(errors="replace") for name, path in zip(TEXTS, texts)}

    def verdict(self):
        fake, real = (lines_of(self.answers[name].splitlines()) for name in TEXTS)
        found = self.as_json()
        return verdict.table(verdict.Run(fake, real, found["rows"], found["claims"]))

    def as_json(self):
        named = lambda names, entries: [dict(zip(names, entry)) for entry in entries]
        return {
            "gpu": self.gpu,
            "fake": self.fake,
            "when": self.when,
            "commits": self.commits,
            "facts": self.facts,
            "seconds": self.took,
            "unfinished": self.unfinished,
            "skipped": self.skipped,
            "notes": named(("part", "text"), self.notes),
            "claims": named(("part", "what", "wanted", "measured", "met"), self.claims),
            "rows": named(("part", "group", "what", "value", "unit"), self.rows),
            "answers": self.answers,
        }

    def markdown(self):
        commits = f"at commit {' and '.join(self.commits)} " if self.commits else ""
        lines = ["# Measured on a GPU", "", f"{self.when}, {self.gpu}. Measured {commits}with tests/gpu/run.", ""]
        lines += facts.lines(self.facts) + [""]
        if self.fake:
            lines += ["**On the fake driver: the numbers mean nothing.**", ""]
        if self.skipped:
            lines += [f"**Not measured, as there was no time left: {', '.join(self.skipped)}.**", ""]
        if self.unfinished:
            lines += [f"**Cut off, so that some of its figures are missing: {', '.join(self.unfinished)}.**", ""]
        lines += ["![rates](results.svg)", ""]
        for group in dict.fromkeys(row[1] for row in self.rows):
            lines += [f"## {group}", "", "| what | |", "|---|---:|"]
            lines += [f"| {what} | {value:.4g} {unit} |" for _, g, what, value, unit in self.rows if g == group] + [""]
        if self.notes:
            lines += ["## What did not work", ""] + [f"- {part}: {text}" for part, text in self.notes] + [""]
        if self.answers["real"]:
            fake, real = (lines_of(self.answers[name].splitlines()) for name in TEXTS)
            lines += ["## The fake driver against this driver", "", *tables(fake, real), ""]
        return lines + ["## Verdict", "", *self.verdict()]

    def write(self, out):
        out = pathlib.Path(out)
        out.mkdir(parents=True, exist_ok=True)
        bars = [(what, value, unit) for _, _, what, value, unit in self.rows if unit in ("GB/s", "images/s")]
        for name, text in (
            ("RESULTS.md", "\n".join(self.markdown())),
            ("results.json", json.dumps(self.as_json(), indent=1)),
            ("results.svg", svg(bars)),
        ):
            (out / f"{name}.new").write_text(text + "\n")
            (out / f"{name}.new").replace(out / name)  # a run that is killed meanwhile leaves the former file


def svg(rows):
    """Bars, each unit on a scale of its own."""
    most = {}
    for _, value, unit in rows:
        most[unit] = max(most.get(unit, 0), value)
    height = 22 * len(rows) + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="900" height="{height}" fill="white"/>',
    ]
    for i, (name, value, unit) in enumerate(rows):
        y, width = 10 + 22 * i, 330 * value / (most[unit] or 1)
        text = name.replace("&", "&amp;").replace("<", "&lt;")
        out.append(
            f'<text x="430" y="{y + 13}" text-anchor="end">{text}</text><rect x="440" y="{y}" width="{width:.1f}" height="17" '
            f'fill="{"#4477aa" if unit == "GB/s" else "#228833"}"/><text x="{446 + width:.0f}" y="{y + 13}">{value:.4g} {unit}</text>'
        )
    return "\n".join(out + ["</svg>"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--answers")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    merged = None
    for path in options.files:
        try:
            found = Results.read(path)
        except (OSError, ValueError, KeyError) as e:
            print(f"results.py: {path} is left out: {type(e).__name__}: {e}", file=sys.stderr)
            continue
        if merged:
            merged.add(found)
        else:
            merged = found
    if merged is None:
        return 1
    if options.answers:
        merged.read_answers(options.answers)
    merged.write(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
