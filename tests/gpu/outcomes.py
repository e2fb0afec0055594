"""The output of the conformance program (cases/) as a table: {(case, kind, name): value}."""


def read(path):
    with open(path, errors="replace") as f:
        return lines_of(f)


def lines_of(text):
    """Lines "KIND NAME = VALUE" under headings "# CASE"; a repeated name gets a number."""
    case, lines = "", {}
    for line in text:
        line = line.rstrip("\n")
        if line.startswith("# "):
            case = line[2:]
            continue
        kind, _, rest = line.partition(" ")
        name, equals, value = rest.strip().partition(" = ")
        if kind not in ("exact", "class", "open", "time") or not equals:
            continue
        key, n = (case, kind, name), 1
        while key in lines:
            n += 1
            key = (case, kind, f"{name} ({n})")
        lines[key] = value
    return lines


def compared(fake, real):
    """(how many lines are the same on both, the keys of those that differ), of the lines that must be the same."""
    keys = [k for k in list(fake) + [k for k in real if k not in fake] if k[1] in ("exact", "class")]
    wrong = [k for k in keys if fake.get(k) != real.get(k)]
    return len(keys) - len(wrong), wrong


def tables(fake, real):
    """Both drivers' answers side by side, as Markdown: those that differ, answers to open questions, measured times."""
    same, wrong = compared(fake, real)
    keys = list(fake) + [k for k in real if k not in fake]
    lines = [f"{same} expectations hold on the fake driver and on the driver, {len(wrong)} differ."]
    for title, rows in (
        ("Where they differ", wrong),
        ("Open questions, answered here", [k for k in keys if k[1] == "open"]),
        ("Measured", [k for k in keys if k[1] == "time"]),
    ):
        if rows:
            lines += ["", f"### {title}", "", "| case | what | fake | driver |", "|---|---|---|---|"]
        lines += [f"| {k[0]} | {k[2]} | {fake.get(k, '-')} | {real.get(k, '-')} |" for k in rows]
    return lines


class Outcomes:
    """The lines of one run, looked up by case and name. A missing line raises nothing: its case may not have run."""

    def __init__(self, lines):
        self._lines = {(case, name): value for (case, _, name), value in lines.items()}

    def text(self, case, name):
        return self._lines.get((case, name))

    def number(self, case, name):
        try:
            return float(self._lines[case, name].split()[0])
        except (KeyError, ValueError, IndexError):
            return None

    def __len__(self):
        return len(self._lines)
