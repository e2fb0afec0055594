"""Comments keep their shape, and the links, names and commands in documents exist."""

import os
import re
import shutil
import subprocess

import pytest

from daemons import BUILD, REPO

DOCUMENTS = [
    path
    for pattern in (
        "*.md",
        ".github/*.md",
        "client/**/*.md",
        "daemon/**/*.md",
        "proto/*.md",
        "systemd/*.md",
        "tests/**/*.md",
    )
    for path in sorted(REPO.glob(pattern))
    if "build" not in path.relative_to(REPO).parts
]
PAGES = [*sorted(REPO.glob("daemon/man/*.[1-8]")), *sorted(REPO.glob("client/man/*.[1-8]"))]


def sources(*kinds):
    return [
        path
        for folder in ("client", "daemon", "proto", "tests")
        for kind in kinds
        for path in sorted((REPO / folder).rglob(f"*.{kind}"))
    ]


def comments(text):
    """(line, lines without their decoration) of each /* */ comment."""
    for found in re.finditer(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|//[^\n]*', text, re.DOTALL):
        if found.group().startswith("/*"):
            lines = [re.sub(r"^\s*\* ?", "", line) for line in found.group()[3:-2].split("\n")]
            yield text.count("\n", 0, found.start()) + 1, lines


def indent(line):
    return len(line) - len(line.lstrip())


def breaks_out(before, line):
    """The comment continues a list item, a diagram or an example, but at the margin."""
    inside = indent(before) >= 2 or before.startswith("- ")
    return bool(before.strip() and line.strip()) and inside and indent(line) == 0 and not line.startswith("- ")


def test_lists_and_examples_in_comments_are_whole():
    """A tool that reflows comments merges list items, diagrams and examples: their second lines begin at the margin."""
    torn = [
        f"{path.relative_to(REPO)}:{at + i}: {lines[i]}"
        for path in sources("c", "h", "cu")
        for at, lines in comments(path.read_text())
        for i in range(2, len(lines))
        if breaks_out(lines[i - 1], lines[i])
    ]
    assert not torn, "\n".join(torn)


def test_no_tool_reflows_comments():
    """Every section of .clang-format leaves comments as they are, and has the tree's width; ruff has the same."""
    sections = [s for s in (REPO / ".clang-format").read_text().split("\n---\n") if "Language:" in s]
    assert len(sections) == 3 and all("ReflowComments: false" in s and "ColumnLimit: 120" in s for s in sections)
    assert (
        "line-length = 120" in (REPO / ".ruff.toml").read_text()
        and "max_line_length = 120" in (REPO / ".editorconfig").read_text()
    )


def prose(text):
    """A document without its fenced and indented blocks."""
    return re.sub(r"^    .*$", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), flags=re.MULTILINE)


def headings(path):
    """The names under which a page's headings are linked."""
    found = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_the_landing_page_is_short():
    """README stays short; longer text belongs beside what it describes."""
    assert len((REPO / "README.md").read_text().splitlines()) <= 130


def test_links_lead_somewhere():
    """Every relative link of every document names an existing file and an existing heading of it."""
    broken, n = [], 0
    for page in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
            file, _, heading = target.partition("#")
            if "://" in target:
                continue
            n += 1
            at = page.parent / file if file else page
            if not at.exists() or heading and heading not in headings(at):
                broken.append(f"{page.relative_to(REPO)}: {target}")
    assert n > 15 and not broken, broken


def test_files_that_are_named_are_there():
    """A path in backquotes that begins with one of the tree's folders exists."""
    missing, n = [], 0
    for page in DOCUMENTS:
        for path in re.findall(r"`((?:client|daemon|proto|systemd|tests)/[\w./-]+)`", page.read_text()):
            n += 1
            if not (REPO / path).exists():
                missing.append(f"{page.relative_to(REPO)}: {path}")
    assert n > 30 and not missing, missing


ROOMS = [
    REPO / name
    for name in (
        "daemon/ARCHITECTURE.md",
        "daemon/image/README.md",
        "daemon/dataset/README.md",
        "daemon/batch/README.md",
        "daemon/server/README.md",
        "daemon/gpu/README.md",
        "client/README.md",
        "tests/README.md",
    )
]


def test_the_architecture_is_read_in_one_sitting():
    assert len(ROOMS[0].read_text().splitlines()) <= 250


@pytest.mark.parametrize("page", ROOMS, ids=lambda page: page.parent.name)
def test_what_the_architecture_names_is_there(page):
    """Each file that it names is in the tree, each `file.c: name` is in that file, and each identifier in a source."""
    files = [path for path in sources("c", "h", "py", "cu", "cuh", "proto", "html") if "build" not in path.parts]
    texts = {path: path.read_text(errors="replace") for path in files}
    words = set(re.findall(r"\w+", "\n".join(texts.values())))
    missing, n = [], 0
    for name in re.findall(r"`([^`]+)`", prose(page.read_text())):
        file, _, inside = (" ".join(name.split())).partition(": ")
        if re.fullmatch(r"[\w./-]+\.(c|h|py|cu|cuh|proto|html)", file) and not file.startswith("/"):
            n += 1
            found = [path for path in files if str(path).endswith(f"/{file}")]
            words_there = set(re.findall(r"\w+", "\n".join(texts[path] for path in found)))
            missing += [name] * (not found or not set(re.findall(r"\w+", inside)) <= words_there)
        elif re.fullmatch(r"[a-z]\w*_\w+", name):
            n += 1
            missing += [name] * (name not in words)
    assert n > 5 and not missing, missing


def test_commands_that_are_named_exist():
    """Each `make TARGET` of a document is one of the Makefile's, each `batchctl COMMAND` one of batchctl's."""
    makefiles = [REPO / "Makefile", *REPO.glob("*/build.mk"), REPO / "client/python/build.mk"]
    targets = {name for path in makefiles for name in re.findall(r"^([\w.-]+):", path.read_text(), re.MULTILINE)}
    commands = set(
        re.findall(
            r"^  ([a-z-]+) ",
            subprocess.run([BUILD / "batchctl", "help"], capture_output=True, text=True, check=True).stdout,
            re.MULTILINE,
        )
    )
    assert {"check", "demo", "format", "setup"} <= targets and {"status", "bench", "doctor", "verify"} <= commands
    wrong = []
    for page in DOCUMENTS:
        text = "\n".join(re.findall(r"^    .*$|`[^`\n]+`", page.read_text(), re.MULTILINE))
        for target in re.findall(
            r"(?:^    |[`;&]\s*|sudo )make ((?:[a-z_][\w.-]*\b(?!=))(?: [a-z_][\w.-]*\b(?!=))*)", text, re.MULTILINE
        ):
            wrong += [f"{page.relative_to(REPO)}: make {name}" for name in target.split() if name not in targets]
        for command in re.findall(r"\bbatchctl ([a-z][a-z-]*)", text):
            wrong += [f"{page.relative_to(REPO)}: batchctl {command}"] * (command not in commands)
    assert not wrong, wrong


def test_the_wire_has_its_version_and_every_message_of_a_client():
    """proto/README.md names the version of wire.h, and its table of states each body of a ClientMessage."""
    page = (REPO / "proto/README.md").read_text()
    versions = dict(re.findall(r"(WIRE_\w*VERSION) = (\d+)", (REPO / "proto/wire.h").read_text()))
    assert f"(now {versions['WIRE_VERSION']})" in page and f"below {versions['WIRE_LEAST_VERSION']}" in page
    body = re.search(r"^message ClientMessage \{(.*?)^\}", (REPO / "proto/batchd.proto").read_text(), re.DOTALL | re.M)
    messages = set(re.findall(r"^\s+(\w+) \w+ = \d+;", body.group(1), re.MULTILINE))
    table = "\n".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))
    assert len(messages) > 15 and not {name for name in messages if f"`{name}`" not in table}


def test_the_manual_of_batchctl_has_every_command():
    """The synopsis and the description of batchctl(1) have each command that batchctl lists."""
    help_text = subprocess.run([BUILD / "batchctl", "help"], capture_output=True, text=True, check=True).stdout
    commands = set(re.findall(r"^  ([a-z-]+) ", help_text, re.MULTILINE))
    synopsis, _, text = (REPO / "client/man/batchctl.1").read_text().partition(".Sh DESCRIPTION")
    assert len(commands) > 10 and commands <= set(re.findall(r"^\.Cm ([a-z-]+)", synopsis, re.MULTILINE))
    assert commands <= set(re.findall(r"^\.Ss batchctl ([a-z-]+)", text, re.MULTILINE))


def test_english_is_not_translated():
    """No document, manual page, source or message has phrases that were translated word by word."""
    banned = re.compile(
        r"\bone behind the other\b|\ban" + r"ew\b|\bstands? behind\b|\b(a|an|no|any) \w+ of yours\b|\bcounts as data\b"
    )
    files = [*DOCUMENTS, *PAGES, *sources("c", "h", "cu", "cuh", "py", "proto")]
    found = [
        f"{path.relative_to(REPO)}:{i}: {line.strip()}"
        for path in files
        if "build" not in path.relative_to(REPO).parts and path != REPO / "tests/system/documents/test_documents.py"
        for i, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if banned.search(line)
    ]
    assert len(files) > 1000 and not found, "\n".join(found)


WRONG = {  # the table of words in .github/CONTRIBUTING.md
    r"pictures?": "image",
    r"consumers?": "trainer",
    r"datasets?": "data set",
    r"filesystems?": "file system",
}


def texts_of_a_page(path):
    """Its running text, line by line: without code, links' targets, and a manual's marks of code."""
    text = re.sub(
        r"^```.*?^```|^\.Bd -literal.*?^\.Ed|`[^`]*`",
        lambda code: "\n" * code[0].count("\n"),
        path.read_text(),
        flags=re.DOTALL | re.M,
    )
    text = re.sub(r"\]\([^)\s]*\)|^    .*$|^\.(?:Li|Cm|Ar|Fa|Fl|It|Pa|Ql|Dl|Op|Ic)\b.*$", "", text, flags=re.MULTILINE)
    return enumerate(text.splitlines(), 1)


def test_one_thing_has_one_name():
    """In documents, and in the texts that programs print: those of several words, as others may be names."""
    table = (REPO / ".github/CONTRIBUTING.md").read_text()
    names = {"Dataset", "datasets:", "datasets, streaming", "HuggingFace's datasets", "job 128, dataset 8256"}
    others = "CONTRIBUTING.md", "RESULTS.md"  # the words themselves; what a benchmark of its time wrote
    found = []
    for page in [*DOCUMENTS, *PAGES]:
        if page.name in others or "bench" in page.parts:
            continue
        inside = page.relative_to(REPO).parts[0] in ("daemon", "proto", "tests") and page not in PAGES
        for i, line in texts_of_a_page(page):
            for wrong, right in WRONG.items():
                if inside and right == "trainer" or any(name in line for name in names):
                    continue
                if re.search(rf"\b{wrong}\b", line, re.IGNORECASE):
                    found.append(f"{page.relative_to(REPO)}:{i}: {right}: {line.strip()}")
    printed = re.compile(r"\b(pictures?|filesystems?|(?<!left )(?<!so far )behind)\b")
    for path in (path for path in sources("c", "h", "py") if path.relative_to(REPO).parts[0] != "tests"):
        for i, line in enumerate(path.read_text().splitlines(), 1):
            texts = [text for text in re.findall(r'"((?:[^"\\]|\\.)*)"', line) if text.count(" ") > 1]
            found += [f"{path.relative_to(REPO)}:{i}: {text}" for text in texts if printed.search(text)]
    assert all(f"| {right} |" in table for right in WRONG.values()) and not found, "\n".join(found)


def test_processes_are_called_by_their_nouns():
    """No document, manual page or source uses an indefinite pronoun for a client, a trainer or the daemon; only people are
    "who"."""
    found = []
    for page in [*DOCUMENTS, *PAGES, *sorted(REPO.glob("systemd/units/*.*")), REPO / "client/batchd.h"]:
        for i, line in enumerate(page.read_text().splitlines(), 1):
            if re.search(
                r"\b(somebody|nobody|everybody|anybody|whoever)\b|(?<!people )(?<!person )\b(who|whom)\b",
                line,
                re.IGNORECASE,
            ):
                found.append(f"{page.relative_to(REPO)}:{i}: {line}")
    for source in [f for side in ("daemon", "client", "proto") for f in sorted((REPO / side).glob("**/*"))]:
        if source.suffix in (".c", ".h", ".py", ".proto"):
            for i, line in enumerate(source.read_text().splitlines(), 1):
                if re.search(r"\b(somebody|nobody|everybody|anybody|whoever|someone)\b", line, re.IGNORECASE):
                    found.append(f"{source.relative_to(REPO)}:{i}: {line}")
    assert not found, "\n".join(found)


def test_the_example_in_the_guide_is_a_valid_configuration(tmp_path):
    """The YAML of systemd/README.md passes --check-config as it stands."""
    [example] = re.findall(r"^```yaml\n(.*?)^```", (REPO / "systemd/README.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "batchd.yaml").write_text(example)
    result = subprocess.run(
        [BUILD / "batchd", "--config", tmp_path / "batchd.yaml", "--check-config"], capture_output=True, text=True
    )
    assert result.returncode == 0 and len(example.splitlines()) > 8, result.stdout + result.stderr


def test_the_manual_of_the_library_has_every_function():
    """The synopsis of libbatchd(3) has exactly the library's exports, with the parameters of batchd.h, and the text
    mentions each."""
    page = (REPO / "client/man/libbatchd.3").read_text()
    synopsis, _, text = page.partition(".Sh DESCRIPTION")
    exported = set(re.findall(r"\b(batchd_\w+);", (REPO / "client/batchd.map").read_text()))
    listed = {
        name: len(re.findall(r'"[^"]+"', arguments))
        for name, arguments in re.findall(r"^\.Fn (batchd_\w+)(.*)$", synopsis, re.MULTILINE)
    }
    header = re.sub(r"/\*.*?\*/", "", (REPO / "client/batchd.h").read_text(), flags=re.DOTALL)
    declared = {name: arguments.count(",") + 1 for name, arguments in re.findall(r"\b(batchd_\w+)\(([^)]*)\);", header)}
    assert len(exported) > 30 and set(listed) == exported
    assert listed == {name: declared[name] for name in exported}
    producers = {name for name in exported if name.startswith("batchd_produce_")} | {"batchd_arrays"}
    assert not {name for name in producers if f".Fn {name}" not in text}


@pytest.mark.parametrize(
    "page, columns",
    [*((page, 78) for page in PAGES), (REPO / "daemon/man/batchd.yaml.5", 50)],
    ids=lambda v: getattr(v, "name", str(v)),
)
def test_manual_pages_fit(page, columns):
    """No line of a page is wider than the terminal; the configuration's page, which is read beside an editor, fits half
    of one."""
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    environment = {**os.environ, "MANWIDTH": str(columns), "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    shown = subprocess.run(
        ["man", "-l", page],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=True,
    ).stdout
    lines = [re.sub(r".\x08|\x1b\[[0-9;]*m", "", line).rstrip() for line in shown.splitlines()]
    wide = [line for line in lines if len(line) > columns]
    assert len(lines) > 50 and not wide, wide
