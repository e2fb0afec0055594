"""tests/layers on small trees: what it accepts, what it names, and that its list of known arrows only gets shorter."""

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("the machinery of tests/layers, which `make check` runs on the tree")

SCRIPT = Path(__file__).parents[1] / "layers"


class Tree:
    """Folders of C files, compiled as the Makefile does it; `known` is the script's list."""

    def __init__(self, root):
        self.root = root

    def add(self, name, includes=(), calls=()):
        """A noun: a header with includes, a .c file that has one function and calls those of others."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        function = name.replace("/", "_")
        path.with_suffix(".h").write_text(
            "".join(f'#include "{other}.h"\n' for other in includes) + f"void {function}(void);\n"
        )
        others = [other.replace("/", "_") for other in calls]
        path.with_suffix(".c").write_text(
            "".join(f"void {other}(void);\n" for other in others)
            + f"void {function}(void) {{ {' '.join(f'{other}();' for other in others)} }}\n"
        )
        compiled = self.root / "build" / name
        compiled.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [os.environ.get("CC", "cc"), "-O2", "-c", path.with_suffix(".c"), "-o", compiled.with_suffix(".o")],
            check=True,
        )

    def check(self, known=""):
        script = re.sub(r'KNOWN = """.*?"""', f'KNOWN = """\n{known}\n"""', SCRIPT.read_text(), flags=re.DOTALL)
        (self.root / "layers").write_text(script)
        return subprocess.run(
            ["python3", "layers", "build"], cwd=self.root, capture_output=True, text=True, check=False
        )


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_calls_that_go_down_pass(tree):
    """Two folders, one with two files; each calls what is below it."""
    tree.add("daemon/util/low")
    tree.add("daemon/core/slots", calls=["daemon/util/low"])
    tree.add("daemon/core/stream", calls=["daemon/core/slots"], includes=["util/low"])
    result = tree.check()
    assert result.returncode == 0, result.stdout
    assert "layers: 0 circles, 0 upward arrows" in result.stdout


def test_a_call_to_a_higher_folder_is_named(tree):
    """The arrow and the function that makes it are in the message; so is an include without a call."""
    tree.add("daemon/core/stream")
    tree.add("daemon/util/log", calls=["daemon/core/stream"])
    tree.add("daemon/util/size", includes=["core/stream"])
    result = tree.check()
    assert result.returncode == 1
    assert "goes up: daemon/util/log -> daemon/core/stream   (daemon_core_stream)" in result.stdout
    assert "goes up: daemon/util/size -> daemon/core/stream   (includes core/stream.h)" in result.stdout
    assert "2 upward arrows" in result.stdout


def test_the_client_does_not_call_the_daemon(tree):
    """Both sides may use proto, and neither may use the other's functions."""
    tree.add("proto/ring")
    tree.add("daemon/util/size", calls=["proto/ring"])
    tree.add("client/loader", calls=["proto/ring"], includes=["util/size"])
    result = tree.check()
    assert result.returncode == 1
    assert "goes up: client/loader -> daemon/util/size   (includes util/size.h)" in result.stdout


def test_a_circle_of_calls_is_named_and_counted(tree):
    """Three files of a folder call each other in a circle; a file beside them is not part of it."""
    tree.add("daemon/core/a", calls=["daemon/core/b"])
    tree.add("daemon/core/b", calls=["daemon/core/c"])
    tree.add("daemon/core/c", calls=["daemon/core/a", "daemon/core/d"])
    tree.add("daemon/core/d")
    result = tree.check()
    assert result.returncode == 1
    assert "circle: daemon/core/a daemon/core/b daemon/core/c\n" in result.stdout
    assert "daemon/core/c -> daemon/core/a   (daemon_core_a)" in result.stdout
    assert "layers: 1 circles" in result.stdout


def test_headers_that_include_each_other_are_a_circle(tree):
    """Include guards let them compile."""
    tree.add("daemon/core/a", includes=["core/b"])
    tree.add("daemon/core/b", includes=["core/a"])
    result = tree.check()
    assert result.returncode == 1
    assert "circle: daemon/core/a daemon/core/b" in result.stdout


def test_the_list_of_known_arrows_only_gets_shorter(tree):
    """A listed arrow makes a circle acceptable and is still counted; once the arrow is cut, or is part of no circle,
    its line is an error."""
    tree.add("daemon/core/a", calls=["daemon/core/b"])
    tree.add("daemon/core/b", calls=["daemon/core/a"])
    listed = tree.check("daemon/core/b -> daemon/core/a")
    assert listed.returncode == 0, listed.stdout
    assert "layers: 1 circles" in listed.stdout
    both = tree.check("daemon/core/b -> daemon/core/a\ndaemon/core/c -> daemon/core/a")
    assert both.returncode == 1
    assert "take it out of KNOWN: daemon/core/c -> daemon/core/a is not there any more" in both.stdout
    tree.add("daemon/core/a")
    cut = tree.check("daemon/core/b -> daemon/core/a")
    assert cut.returncode == 1
    assert "take it out of KNOWN: daemon/core/b -> daemon/core/a is in no circle any more" in cut.stdout


def test_a_source_without_its_object_is_an_error(tree):
    """A file that was not compiled cannot be checked."""
    tree.add("daemon/core/a")
    (tree.root / "build/daemon/core/a.o").unlink()
    result = tree.check()
    assert result.returncode == 1
    assert "build/daemon/core/a.o is missing" in result.stderr
