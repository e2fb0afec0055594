"""What a reader finds: comments that keep their shape, documents whose links, names and commands are there."""
import os
import re
import shutil
import subprocess

import pytest

from daemons import REPO

PAGES = [*sorted(REPO.glob("daemon/man/*.[1-8]")), *sorted(REPO.glob("client/man/*.[1-8]"))]


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


def test_no_tool_reflows_comments():
    """Every section of .clang-format leaves comments as they are, and has the tree's width; ruff has the same."""
    sections = [s for s in (REPO / ".clang-format").read_text().split("\n---\n") if "Language:" in s]
    assert len(sections) == 3 and all("ReflowComments: false" in s and "ColumnLimit: 120" in s for s in sections)
    assert "line-length = 120" in (REPO / ".ruff.toml").read_text() and "max_line_length = 120" in (REPO / ".editorconfig").read_text()


def test_the_manual_of_the_library_has_every_function():
    """The synopsis of libbatchd(3) has exactly what the library exports, with the parameters of batchd.h, and the text mentions each."""
    page = (REPO / "client/man/libbatchd.3").read_text()
    synopsis, _, text = page.partition(".Sh DESCRIPTION")
    exported = set(re.findall(r"\b(batchd_\w+);", (REPO / "client/batchd.map").read_text()))
    listed = {name: len(re.findall(r'"[^"]+"', arguments)) for name, arguments in re.findall(r"^\.Fn (batchd_\w+)(.*)$", synopsis, re.MULTILINE)}
    header = re.sub(r"/\*.*?\*/", "", (REPO / "client/batchd.h").read_text(), flags=re.DOTALL)
    declared = {name: arguments.count(",") + 1 for name, arguments in re.findall(r"\b(batchd_\w+)\(([^)]*)\);", header)}
    assert len(exported) > 30 and set(listed) == exported
    assert listed == {name: declared[name] for name in exported}
    producers = {name for name in exported if name.startswith("batchd_produce_")} | {"batchd_arrays"}
    assert not {name for name in producers if f".Fn {name}" not in text}


@pytest.mark.parametrize("page, columns", [*((page, 78) for page in PAGES), (REPO / "daemon/man/batchd.yaml.5", 50)], ids=lambda v: getattr(v, "name", str(v)))
def test_manual_pages_fit(page, columns):
    """No line of a page is wider than the terminal; the configuration's, which is read beside an editor, fits half of one."""
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    environment = {**os.environ, "MANWIDTH": str(columns), "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    shown = subprocess.run(["man", "-l", page], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", env=environment, check=True).stdout
    lines = [re.sub(r".\x08|\x1b\[[0-9;]*m", "", line).rstrip() for line in shown.splitlines()]
    wide = [line for line in lines if len(line) > columns]
    assert len(lines) > 50 and not wide, wide
