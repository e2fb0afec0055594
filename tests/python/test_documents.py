"""What a reader finds: comments that keep their shape, documents whose links, names and commands are there."""
import re

from daemons import REPO


def sources(*kinds):
    return [path for folder in ("client", "daemon", "proto", "tests") for kind in kinds for path in sorted((REPO / folder).rglob(f"*.{kind}"))]


def comments(text):
    """(line, lines without their decoration) of each /* */ comment."""
    for found in re.finditer(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|//[^\n]*', text, re.DOTALL):
        if found.group().startswith("/*"):
            lines = [re.sub(r"^\s*\* ?", "", line) for line in found.group()[3:-2].split("\n")]
            yield text.count("\n", 0, found.start()) + 1, lines


def indent(line):
    return len(line) - len(line.lstrip())


def breaks_out(before, line):
    """The line goes on with a list item, a diagram or an example, but at the margin."""
    inside = indent(before) >= 2 or before.startswith("- ")
    return bool(before.strip() and line.strip()) and inside and indent(line) == 0 and not line.startswith("- ")


def test_lists_and_examples_in_comments_are_whole():
    """A tool that reflows comments runs list items, diagrams and examples into one another: their second lines begin at the margin."""
    torn = [f"{path.relative_to(REPO)}:{at + i}: {lines[i]}"
            for path in sources("c", "h", "cu") for at, lines in comments(path.read_text())
            for i in range(2, len(lines)) if breaks_out(lines[i - 1], lines[i])]
    assert not torn, "\n".join(torn)
