"""The daemon's probes (USDT): those of the sources are the documented ones, and a build with <sys/sdt.h> has them."""

import os
import re
import shutil
import subprocess

import pytest

from conftest import REPO


def probes_of_sources():
    found = {}
    for path in sorted((REPO / "daemon").rglob("*.c")):
        for name in re.findall(r"\bPROBE\((\w+),", path.read_text()):
            found.setdefault(name, path.name)
    return found


def header():
    """The path of <sys/sdt.h> as the compiler finds it, or None."""
    cc = shutil.which(os.environ.get("CC", "cc"))
    if not cc:
        return None
    made = subprocess.run([cc, "-M", "-x", "c", "-"], input="#include <sys/sdt.h>\n", capture_output=True, text=True)
    paths = re.findall(r"(\S+/sys/sdt\.h)", made.stdout)
    return paths[0] if made.returncode == 0 and paths else None


def notes(binary):
    """{name: arguments} of the provider batchd, as readelf shows them."""
    text = subprocess.run(["readelf", "-n", str(binary)], capture_output=True, text=True, check=True).stdout
    found = {}
    for provider, name, arguments in re.findall(r"Provider: (\S+)\s+Name: (\S+)\s.*?Arguments: ([^\n]*)", text, re.S):
        if provider == "batchd":
            found[name] = arguments.split()
    return found


def test_the_documented_probes_are_those_of_the_sources():
    # Proves that a name which an operator reads in ARCHITECTURE.md exists, and that none is left out.
    page = (REPO / "daemon/ARCHITECTURE.md").read_text()
    section = page[page.index("## Watching it") :]
    section = section[: section.index("\n## ", 1)]
    documented = {
        name for name in re.findall(r"`(\w+)`", section) if re.match(r"(slot|session|job|producer)_\w+$", name)
    }
    assert documented == set(probes_of_sources())


def test_a_build_with_the_header_has_every_probe(build):
    # Proves that tracers find the probes in the binary, each with its three arguments.
    place = header()
    if not place:
        pytest.skip("<sys/sdt.h> (Debian: systemtap-sdt-dev) is not installed")
    if not shutil.which("readelf"):
        pytest.skip("readelf is not installed")
    if os.path.getctime(place) > (build / "batchd").stat().st_mtime:
        pytest.skip("batchd was built before <sys/sdt.h> was installed")
    found = notes(build / "batchd")
    assert set(found) == set(probes_of_sources())
    assert all(len(arguments) == 3 for arguments in found.values()), found
