"""tests/layers on small trees: what it accepts, what it names, and that its list of known arrows only gets shorter."""

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("the machinery of tests/layers, which `make check` runs on the tree")

SCRIPT = Path(__file__).parents[2] / "layers"


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
    tree.add("daemon/base/low")
    tree.add("daemon/batch/slots", calls=["daemon/base/low"])
    tree.add("daemon/batch/stream", calls=["daemon/batch/slots"], includes=["base/low"])
    result = tree.check()
    assert result.returncode == 0, result.stdout
    assert "layers: 0 circles, 0 upward arrows" in result.stdout


def test_a_call_to_a_higher_folder_is_named(tree):
    """The arrow and the function that makes it are in the message; so is an include without a call."""
    tree.add("daemon/batch/stream")
    tree.add("daemon/base/log", calls=["daemon/batch/stream"])
    tree.add("daemon/base/size", includes=["batch/stream"])
    result = tree.check()
    assert result.returncode == 1
    assert "goes up: daemon/base/log -> daemon/batch/stream   (daemon_batch_stream)" in result.stdout
    assert "goes up: daemon/base/size -> daemon/batch/stream   (includes batch/stream.h)" in result.stdout
    assert "2 upward arrows" in result.stdout


def test_the_client_does_not_call_the_daemon(tree):
    """Both sides may use proto, and neither may use the other's functions."""
    tree.add("proto/ring")
    tree.add("daemon/base/size", calls=["proto/ring"])
    tree.add("client/loader", calls=["proto/ring"], includes=["base/size"])
    result = tree.check()
    assert result.returncode == 1
    assert "goes up: client/loader -> daemon/base/size   (includes base/size.h)" in result.stdout


def test_a_circle_of_calls_is_named_and_counted(tree):
    """Three files of a folder call each other in a circle; a file beside them is not part of it."""
    tree.add("daemon/batch/a", calls=["daemon/batch/b"])
    tree.add("daemon/batch/b", calls=["daemon/batch/c"])
    tree.add("daemon/batch/c", calls=["daemon/batch/a", "daemon/batch/d"])
    tree.add("daemon/batch/d")
    result = tree.check()
    assert result.returncode == 1
    assert "circle: daemon/batch/a daemon/batch/b daemon/batch/c\n" in result.stdout
    assert "daemon/batch/c -> daemon/batch/a   (daemon_batch_a)" in result.stdout
    assert "layers: 1 circles" in result.stdout


def test_headers_that_include_each_other_are_a_circle(tree):
    """Include guards let them compile."""
    tree.add("daemon/batch/a", includes=["batch/b"])
    tree.add("daemon/batch/b", includes=["batch/a"])
    result = tree.check()
    assert result.returncode == 1
    assert "circle: daemon/batch/a daemon/batch/b" in result.stdout


def test_the_list_of_known_arrows_only_gets_shorter(tree):
    """A listed arrow makes a circle acceptable and is still counted; once the arrow is cut, or is part of no circle,
    its line is an error."""
    tree.add("daemon/batch/a", calls=["daemon/batch/b"])
    tree.add("daemon/batch/b", calls=["daemon/batch/a"])
    listed = tree.check("daemon/batch/b -> daemon/batch/a")
    assert listed.returncode == 0, listed.stdout
    assert "layers: 1 circles" in listed.stdout
    both = tree.check("daemon/batch/b -> daemon/batch/a\ndaemon/batch/c -> daemon/batch/a")
    assert both.returncode == 1
    assert "take it out of KNOWN: daemon/batch/c -> daemon/batch/a is not there any more" in both.stdout
    tree.add("daemon/batch/a")
    cut = tree.check("daemon/batch/b -> daemon/batch/a")
    assert cut.returncode == 1
    assert "take it out of KNOWN: daemon/batch/b -> daemon/batch/a is in no circle any more" in cut.stdout


def test_a_source_without_its_object_is_an_error(tree):
    """A file that was not compiled cannot be checked."""
    tree.add("daemon/batch/a")
    (tree.root / "build/daemon/batch/a.o").unlink()
    result = tree.check()
    assert result.returncode == 1
    assert "build/daemon/batch/a.o is missing" in result.stderr
