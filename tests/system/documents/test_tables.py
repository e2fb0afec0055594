"""What tables and texts name is there, and defaults are the same wherever they are written. Their sources are the table of
keys in daemon/config/key.c, the options that the programs themselves list, the signatures of the Python package, and
the messages in the sources."""

import inspect
import re
import subprocess

import pytest

import batchd
from daemons import BUILD, REPO

GUIDE = [REPO / "README.md", REPO / "client/python/README.md", *sorted((REPO / "client/python/guide").glob("*.md"))]
MANUAL = (REPO / "daemon/man/batchd.yaml.5").read_text()
EXAMPLE = (REPO / "systemd/units/batchd.yaml").read_text()

KEYS = {
    found["name"]: found.groupdict()
    for found in re.finditer(
        r"\{ KEY\((?P<name>[\w.]+), [\w.]+\), KIND_(?P<kind>\w+), (?P<live>true|false), "
        r'(?:"(?P<default>[^"]*)"|NULL),\s*(?P<least>[^,]+), (?P<most>[^}]+?) \}',
        (REPO / "daemon/config/key.c").read_text(),
    )
}


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def sections():
    """{key: its lines in batchd.yaml(5)}, the first of which has its values."""
    found, prefix, key = {}, "", None
    for line in MANUAL.splitlines():
        if line.startswith((".Ss", ".Sh", ".El")):
            prefix, key = "limits." if line == ".Ss Limits" else prefix if line == ".El" else "", None
        elif line.startswith(".It Cm "):
            key = prefix + line.split()[2]
            found[key] = [line]
        elif key:
            found[key].append(line)
    return found


SECTIONS = sections()


def test_the_table_of_keys_is_read_as_a_whole():
    assert len(KEYS) == (REPO / "daemon/config/key.c").read_text().count("{ KEY(") > 40
    assert KEYS.keys() <= SECTIONS.keys(), KEYS.keys() - SECTIONS.keys()


@pytest.mark.parametrize("key", KEYS)
def test_the_manual_has_the_keys_default_and_when_it_is_in_force(key):
    """ "X by default", the word that `.Pq default` follows, or for limits the value in parentheses."""
    first, *rest = SECTIONS[key]
    text, default = " ".join(rest), KEYS[key]["default"]
    assert ("(start)" in first) == (KEYS[key]["live"] == "false"), f"{key}: a reload applies it, or does not"
    if key.startswith("limits."):
        assert f"Pq {default}" in first
    elif default:
        by_default = re.findall(r"(\w+) \.Pq default|([\w.%]*[\w%]) ?,? by default", text)
        by_default = [word for words in by_default for word in words]
        assert default in by_default, f"{key}: {default} is not in {by_default}"
    word = {"COUNT_AUTO": "auto", "SIZE_AUTO": "auto", "DURATION_NEVER": "never", "CACHE": "off"}.get(KEYS[key]["kind"])
    assert not word or f"Cm {word}" in first or f"| {word}" in first


def test_what_the_example_comments_out_is_the_default(tmp_path):
    """And a key at all: without its marks, every line that is commented out is valid."""
    lines, prefix, found = [], "", {}
    for line in EXAMPLE.partition("# ---- pipelines")[0].splitlines():
        if key := re.match(r"#( *)(\w+):\s*([^\s#]*)", line):
            prefix = prefix if key[1] else f"{key[2]}." if not key[3] else ""
            lines.append(line[1:])
            if key[3]:
                found[(prefix if key[1] else "") + key[2]] = key[3]
    without = {"socket", "socket_group", "metrics", "index_cache", "cache.directory"}  # none, or it depends
    for key, value in found.items():
        assert key in KEYS, f"{key} is no key"
        assert key in without or value == KEYS[key]["default"], f"{key}: {value}"
    assert found.keys() == KEYS.keys()
    file = tmp_path / "batchd.yaml"
    file.write_text(re.sub(r"(?m)^socket_group: .*$", "socket_group: root", "\n".join(lines)))
    checked = run(BUILD / "batchd", "--config", file, "--check-config")
    assert checked.returncode == 0, checked.stderr


def test_ranges_in_the_manual_are_the_tables():
    """A range that a section names is the key's, as the program itself says it."""
    n = 0
    for key, (first, *rest) in SECTIONS.items():
        stated = re.search(r"\b(\d+) to (\d+)\b", " ".join([first, *rest[:2]]))
        if key in KEYS and stated and KEYS[key]["kind"].startswith("COUNT"):
            n += 1
            assert stated.groups() == (KEYS[key]["least"], KEYS[key]["most"]), key
    assert n >= 4


def test_help_of_the_daemon_has_the_tables_defaults():
    """Each option that is a key; and the five minutes of a daemon that a script starts, wherever they are told."""
    text = run(BUILD / "batchd", "--help").stdout
    options = dict(re.findall(r"--([a-z-]+) .*?\(default (\S+)\)$", text, re.MULTILINE))
    assert len(options) >= 7
    for option, default in options.items():
        assert KEYS[option.replace("-", "_")]["default"] == default, option
    on_demand = re.search(r"ON_DEMAND_IDLE_S = (\d+)", (REPO / "daemon/config/options.c").read_text())[1]
    assert on_demand == "300" and "idle_exit is 5m" in text
    for page in ("README.md", "systemd/README.md", "daemon/man/batchd.8"):
        assert re.search("five minutes|is 5m", (REPO / page).read_text()), page


# ---- batchctl ----


def commands():
    found = re.findall(r"^  ([a-z-]+) ", run(BUILD / "batchctl", "help").stdout, re.MULTILINE)
    return [name for name in found if name != "help"]


def options_in_help(command):
    """{option: what is said about it}."""
    text = run(BUILD / "batchctl", command, "--help").stdout
    found = re.findall(r"^  --([a-z-]+)(?: \S+)?\s+(.+?)$", text, re.MULTILINE)
    return {name: about for name, about in found if name != "help"}


def options_in_manual(command):
    page = (REPO / "client/man/batchctl.1").read_text()
    section = re.search(rf"^\.Ss batchctl {command}\n(.*?)^\.S[sh] ", page, re.DOTALL | re.MULTILINE)[1]
    found = {}
    for item in re.split(r"^\.It ", section, flags=re.MULTILINE)[1:]:
        head, _, about = item.partition("\n")
        names = re.findall(r"Fl -?([a-z-]+)", head)
        found |= {name: (names, " ".join(about.split("\n"))) for name in names}
    return found


def plain(text):
    return re.sub(r"\s+([,.;)])", r"\1", re.sub(r"\.(?:Li|Pa|Cm|Ql|Va|Ar|Pq) ", "", text))


@pytest.mark.parametrize("command", commands())
def test_the_manual_of_batchctl_has_its_options_and_their_defaults(command):
    """Both ways; where one says a default, the other says the same."""
    here, there = options_in_help(command), options_in_manual(command)
    assert here.keys() == there.keys()
    for option, about in here.items():
        names, words = there[option]
        words = plain(words)
        said = re.search(r"\(default ([\w./-]+?)(?:[,;]|\))", about)
        default = said and said[1]
        if default and default not in ("as", "$BATCHD_SOCKET"):
            words = words.replace("one second", "1s")
            told = re.search(rf"(?<![\w.]){re.escape(default)}(?!\w)", words) and re.search(r"\bdefault\b", words, re.I)
            assert told, f"{command} --{option}: {default} by default, but the manual: {words}"
        elif not said and len(names) == 1:
            assert not re.search(r"\bdefault\b", words) or "default" in about, f"{command} --{option}: {words}"


# ---- the guide ----


def inline(page):
    """What stands in backquotes in running text and tables."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]


INLINE = [(page, code) for page in GUIDE for code in inline(page)]


def test_values_in_parentheses_behind_a_key_are_its_default():
    """`limits.value_bytes` (1 MiB)."""
    n = 0
    for page in [*GUIDE, REPO / "systemd/README.md"]:
        for key, value in re.findall(r"`([a-z_.]+)`\s+\((\d+ ?(?:MiB|GiB|s|%))\)", page.read_text()):
            if key in KEYS:
                n += 1
                assert value.replace(" ", "") == KEYS[key]["default"], f"{page.name}: {key} ({value})"
    assert n >= 2


def test_dotted_keys_in_the_guide_exist():
    for page, code in INLINE:
        for key in re.findall(r"\b(?:limits|cache)\.[a-z_]+\b", code):
            assert key in KEYS, f"{page.name}: {key}"


def parameters(function):
    return inspect.signature(function).parameters


CALLS = {
    name: getattr(batchd, name)
    for name in ("DataLoader", "serve", "load", "blend", "views", "aug_splits", "WeightedSampler", "MixUp", "CutMix")
}
# Arguments of others that the guide is about: torch's loader and samplers, timm, torchvision, streaming, frameworks,
# and options in a data set's name.
OTHERS = {
    "torch": "memory_format pin_memory prefetch_factor worker_init_fn persistent_workers multiprocessing_context generator",
    "timm": "num_repeats selected_round selected_ratio num_splits separate",
    "torchvision": "antialias scale repetitions num_replicas",
    "streaming": "compression",
    "frameworks": "step_scheduler_with_optimizer ignore_data_skip columns output_all_columns mode",
    "data set": "windows stride samples form length dtype shape field images image x mask y label path text meta tags "
    "species score note",
}


def test_arguments_that_the_guide_names_exist():
    """Each `name=` in running text and tables is a parameter of the package, or one of those that are named here."""
    known = {name for call in CALLS.values() for name in parameters(call)} | set(" ".join(OTHERS.values()).split())
    unknown = [
        f"{page.name}: {code}"
        for page, code in INLINE
        if not re.search(r"^(batchctl|make|python|systemd-run|BATCHD_|mixup|targets|timm)", code)
        for name in re.findall(r"(?<![\w.\"-])([a-z_]\w*)=(?!=)", re.sub(r'"[^"]*"', '""', code))
        if name not in known
    ]
    assert not unknown, unknown


def test_defaults_that_the_guide_and_docstrings_state_are_the_signatures():
    """`name=value` followed by "(default)" or "the default", and "name (default value)" in a docstring."""
    n = 0
    for page in GUIDE:
        for name, value in re.findall(r"`(\w+)=([^`]+)`(?: \(default\)|, the default)", page.read_text()):
            defaults = [p[name].default for p in map(parameters, CALLS.values()) if name in p]
            n += 1
            assert eval(value) in defaults or set(defaults) == {None}, f"{page.name}: {name}={value}"
    assert n >= 1
    for call in CALLS.values():
        if call.__doc__ and len(parameters(call)) > 5:
            missing = [p for p in parameters(call) if not re.search(rf"\b{p}\b", call.__doc__)]
            assert set(missing) <= {"others", "data"}, f"{call.__name__}: {missing}"


def test_names_of_the_package_in_the_guide_exist():
    """batchd.NAME, and attributes of a loader and of its last batch."""
    sources = "\n".join(path.read_text() for path in (REPO / "client/python/batchd").glob("*.py"))
    for page in GUIDE:
        text = page.read_text()
        for name in re.findall(r"\bbatchd\.([A-Za-z]\w*)\b(?!\.\w|-)", text):
            if name not in ("yaml", "h", "ops"):  # files, and a module that is run
                is_there = hasattr(batchd, name) or f'"batchd.{name}' in sources
                assert is_there, f"{page.name}: batchd.{name}"
        for name in re.findall(r"`(?:[^`\n]*\b)?loader\.(\w+)", text):
            is_set = re.search(rf"\bself\.{name}\b[^=\n]* = ", sources) or f'"{name}"' in sources
            assert hasattr(batchd.DataLoader, name) or is_set, f"{page.name}: loader.{name}"
        for name in re.findall(r"\blast_batch\.(\w+)", text):
            assert name in dir(batchd.Batch) or name in batchd.Batch.__annotations__, f"{page.name}: last_batch.{name}"


def test_variables_of_the_environment_exist():
    """Each BATCHD_NAME of the guide and the manual pages is read by a program or the package."""
    sources = "\n".join(
        path.read_text(errors="replace")
        for folder in ("client", "daemon", "proto")
        for path in (REPO / folder).rglob("*")
        if path.suffix in (".c", ".h", ".py")
    )
    pages = [*GUIDE, *REPO.glob("*/man/*.[1-8]"), *REPO.glob("systemd/**/*.md")]
    for page in pages:
        for name in set(re.findall(r"\bBATCHD_[A-Z][A-Z_]+\b", page.read_text())):
            assert name in sources, f"{page.name}: {name}"


def test_options_of_commands_in_the_guide_exist():
    """`batchctl tune --job NAME`."""
    known = {command: options_in_help(command).keys() for command in commands()}
    n = 0
    for page, code in INLINE:
        for command, rest in re.findall(r"\bbatchctl ([a-z-]+)(.*)", code):
            for option in re.findall(r"--([a-z-]+)", rest):
                n += 1
                assert option in known[command], f"{page.name}: {code}"
    assert n >= 2


def sources_in_the_guide():
    """Data sets by their kinds, as they stand in quotation marks or alone."""
    kinds = "imagefolder|files|tar|mds|zip|arrow|npy|npz|idx|cifar|tokens|blend|random|serve"
    for page, code in INLINE:
        for source in re.findall(rf'"((?:{kinds}):[^"]+)"', code):
            yield page, source


def test_data_sets_in_the_guide_are_read_by_the_daemons_parser(tmp_path):
    """Each is the source of a data set in a configuration."""
    n, empty = 0, tmp_path / "batchd.yaml"
    empty.touch()
    for page, source in sources_in_the_guide():
        if "FILES" in source or "{root}" in source:
            continue  # a word that stands for names
        if source.startswith("tokens:") and "length=" not in source:
            source += ",length=1024"  # which Python has as an argument
        n += 1
        checked = run(BUILD / "batchd", "--config", empty, "--dataset", f"x={source}", "--check-config")
        assert checked.returncode == 0, f"{page.name}: {source}: {checked.stderr}"
    assert n >= 15


# ---- what an error means ----


def literals():
    """The texts in the sources, those that follow each other as one; a number or name that is filled in is a NUL."""
    for folder in ("client", "daemon", "proto"):
        for path in (REPO / folder).rglob("*"):
            if path.suffix not in (".c", ".h", ".py"):
                continue
            for run_of in re.findall(r'(?:f?"(?:[^"\\\n]|\\.)*"\s*(?:PRI\w+\s*)?)+', path.read_text(errors="replace")):
                text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', run_of)).replace('\\"', '"')
                yield re.sub(r"%[-.*\d]*(?:ll|z|l|h)?[a-zA-Z]|\{[^{}]*\}", "\0", text)


SYMPTOMS = {"a trainer waits"}  # no message


def test_messages_that_the_guide_explains_are_messages():
    """The first column of errors.md: what stands between names, numbers and dots is in a text of the sources."""
    texts = "\n".join(literals())
    page = (REPO / "client/python/guide/errors.md").read_text()
    lacking, n = [], 0
    for cell in re.findall(r"^\| (.+?) \| ", page, re.MULTILINE)[1:]:
        for part in () if cell in SYMPTOMS else re.split(r"\*[^*]+\*|\.\.\.|`\w+`: | / |; (?=the data set has)", cell):
            fragment = part.strip(" ,:'")
            if len(fragment.split()) > 1:
                n += 1
                lacking += [f"{cell}: {fragment}"] * (fragment not in texts)
    assert n > 15 and not lacking, "\n".join(lacking)


# ---- operations ----


def test_the_table_of_operations_has_what_the_daemon_has():
    """Both ways. Those without a name of torchvision's or timm's, which the client alone writes, are left out."""
    sources = (REPO / "daemon/image/transform").glob("ops-*.c")
    there = {name for path in sources for name in re.findall(r'\.name = "(\w+)"', path.read_text())}
    text = (REPO / "client/python/guide/transforms.md").read_text()
    table = re.search(r"^\| operations \| \|\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE)[1]
    named = set(re.findall(r"(?<!\w)[A-Z]\w+", " ".join(row.split(" | ")[1] for row in table.splitlines()[1:])))
    assert len(there) > 60 and named - there == {"Pillow", "MoCo", "DINO"}
    written_by_the_client = {name for name in there if name.startswith("Timm")} | {"ToPureTensor"}
    elsewhere = {"Draft", "Convert"}  # in the sections on large pictures and on 16 bits
    assert there - named == written_by_the_client | elsewhere and all(f'["{name}"' in text for name in {"Convert"})


def test_operations_in_the_guide_are_read_by_the_daemons_parser(tmp_path):
    """Each list that stands in backquotes, in a pipeline of the configuration."""
    words = {"[ops]": '["RandomHorizontalFlip"]', ", size]": ", 64]", ", mode]": ', "L"]'}
    n, file = 0, tmp_path / "batchd.yaml"
    for page, code in INLINE:
        if not re.match(r'\[+"[A-Z]', code):
            continue
        for word, value in words.items():
            code = code.replace(word, value)
        size = '["Resize", [64, 64]]'
        is_first = re.match(r'\["(Draft|Convert|SharedByViews)', code)
        before, behind = ("", f", {size}") if is_first else (f"{size}, ", "")
        numbers = "" if "ToDtype" in code else ', "ToTensor"'
        ops = code if code.startswith("[[") else f"[{before}{code}{behind}{numbers}]"
        n += 1
        file.write_text(f"pipelines: [{{name: p, transform: '{ops}'}}]\n")
        checked = run(BUILD / "batchd", "--config", file, "--check-config")
        assert checked.returncode == 0, f"{page.name}: {code}: {checked.stderr}"
    assert n >= 6


# ---- examples ----


@pytest.mark.parametrize("path", sorted((REPO / "client/examples").glob("*.py")), ids=lambda path: path.name)
def test_options_in_an_examples_first_lines_are_its_own(path):
    """And so are the numbers behind them, which are the defaults."""
    text = path.read_text()
    head = text.split('"""')[1].split("\n\n")[0]
    taken = {re.match(r'"--([\w-]+)"', part)[1]: part for part in text.split("add_argument(") if part.startswith('"--')}
    for option, value in re.findall(r"\[--([\w-]+) ?([^\]\s]*)", head):
        assert option in taken or f'["--{option}"]' in text, f"--{option}"
        assert not value or value.isupper() or re.search(rf'default="?{re.escape(value)}\b', taken[option]), option


def test_every_example_is_run_by_a_test():
    """By one of the suite, or by the runs on a GPU and on clean systems."""
    files = subprocess.run(["git", "-C", REPO, "ls-files", "tests"], capture_output=True, text=True).stdout.split()
    if not files:
        pytest.skip("no git checkout")
    tests = "\n".join((REPO / name).read_text(errors="replace") for name in files if "corpus" not in name)
    examples = [path for path in (REPO / "client/examples").iterdir() if path.suffix in (".py", ".c")]
    assert not [path.name for path in examples if path.name not in tests and f"/{path.stem}\n" not in tests]
