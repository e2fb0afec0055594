"""Two builds of two versions on one machine: the client of one meets the daemon of the other, both ways.

The other build is this tree with other numbers in its headers. Only what the numbers are compiled into is compiled again.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from daemons import REPO, WIRE_VERSION, Daemon, until

pytestmark = pytest.mark.long("compiles a second build")

OTHER, OTHER_WIRE = "9.8.7", WIRE_VERSION + 3
VERSION = re.search(r'BATCHD_VERSION "(.+)"', (REPO / "client" / "batchd.h").read_text())[1]
# Where the numbers are in an object. Headers keep their times, so that nothing else is made again.
NUMBERED = "client/link/connect.c client/ctl/batchctl.c client/ctl/doctor/daemon.c daemon/daemon.c daemon/config/options.c daemon/server/ipc/peer.c"

SCRIPT = """
import batchd
loader = batchd.DataLoader("random:length=20,shape=3", 4, arrays="numpy")
print(sum(len(x) for x, y in loader), batchd._lib._c._name)
"""


def replace(path, old, new):
    stat, text = path.stat(), path.read_text()
    assert re.search(old, text), f"{old} is not in {path}"
    path.write_text(re.sub(old, new, text))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def build_other(build, folder, wire):
    """A copy of the sources and of what was made of them, with another version, and with this number of a protocol."""
    if build != REPO / "build":
        pytest.skip("copies build/ only, whose paths are relative")
    listed = subprocess.run(
        ["git", "-C", str(REPO), "ls-files", "-z", "client", "daemon", "proto", "systemd", "Makefile"],
        capture_output=True,
    )
    if listed.returncode:
        pytest.skip("no git checkout")
    for name in listed.stdout.decode().split("\0")[:-1]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (REPO / name).is_file():
            shutil.copy2(REPO / name, folder / name)
    (folder / "tests").mkdir()
    shutil.copytree(REPO / "tests/setup", folder / "tests/setup")
    shutil.copy2(REPO / "tests/build.mk", folder / "tests/build.mk")
    for place in ("client", "daemon", "proto"):
        shutil.copytree(build / place, folder / "build" / place, symlinks=True)
    for name in (".cuda", ".packages", "libbatchd.a", "libdaemon.a"):
        shutil.copy2(build / name, folder / "build" / name)
    replace(folder / "client/batchd.h", r'BATCHD_VERSION ".+"', f'BATCHD_VERSION "{OTHER}"')
    replace(folder / "proto/wire.h", r"WIRE_VERSION = \d+", f"WIRE_VERSION = {wire}")
    replace(folder / "proto/wire.h", r"WIRE_LEAST_VERSION = \d+", f"WIRE_LEAST_VERSION = {wire}")
    for name in NUMBERED.split():
        (folder / name).touch()
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "BUILD")}
    cuda = (build / ".cuda").read_text().strip()
    argv = ["make", "-s", "-C", str(folder), f"CUDA={cuda}", "wheel-programs", "build/libbatchd.a"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = [line for line in done.stdout.splitlines() if line.startswith("  CC")]
    assert len(made) <= 2 * len(NUMBERED.split()), done.stdout
    return folder / "build"


@pytest.fixture(scope="module")
def other_protocol(build, tmp_path_factory):
    return build_other(build, tmp_path_factory.mktemp("protocol"), OTHER_WIRE)


@pytest.fixture(scope="module")
def other_version(build, tmp_path_factory):
    return build_other(build, tmp_path_factory.mktemp("version"), WIRE_VERSION)


@pytest.fixture
def service(tmp_path):
    """service(build): a daemon of that build; a script meets it because $BATCHD_SOCKET names it."""
    made = []

    def start(build):
        folder = pathlib.Path(f"/tmp/batchd-skew-{os.getpid()}-{len(made)}")
        folder.mkdir()
        made.append(Daemon(folder, build=build))
        return made[-1]

    yield start
    for daemon in made:
        daemon.process.terminate()
        daemon.process.wait()
        shutil.rmtree(daemon.folder)


def library(build):
    return next(build.glob("libbatchd.so.*.*.*"))


def script(build, **env):
    kept = {k: v for k, v in os.environ.items() if k not in ("BATCHD_SOCKET", "XDG_RUNTIME_DIR")}
    env = {**kept, "BATCHD_LIBRARY": str(library(build)), "PYTHONPATH": str(REPO / "client/python"), **env}
    return subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("way", ["this client", "other client"])
def test_another_protocol_is_an_error_that_names_both_and_the_cure(build, other_protocol, service, way):
    mine, its = (build, other_protocol) if way == "this client" else (other_protocol, build)
    done = script(mine, BATCHD_SOCKET=str(service(its).socket))
    assert done.returncode != 0
    (said,) = [line for line in done.stderr.splitlines() if "Error" in line and "batchd" in line]
    for part in (f"batchd {VERSION}", f"batchd {OTHER}", "install one version of both, and restart the daemon"):
        assert part in said, said
    numbers = [int(n) for n in re.findall(r"(?<![.\d])\d+(?![.\d])", said)]
    assert {WIRE_VERSION, OTHER_WIRE} <= set(numbers), said


@pytest.mark.parametrize("way", ["this client", "other client"])
def test_two_versions_with_one_protocol_agree(build, other_version, service, way):
    mine, its = (build, other_version) if way == "this client" else (other_version, build)
    daemon = service(its)
    done = script(mine, BATCHD_SOCKET=str(daemon.socket))
    assert done.returncode == 0 and done.stdout.split()[0] == "20", done.stderr
    shown = subprocess.run(
        [mine / "batchctl", "status", "--json", "--socket", daemon.socket], capture_output=True, text=True
    )
    assert f'"{OTHER if its == other_version else VERSION}"' in shown.stdout, shown


def test_batchctl_of_another_protocol_names_both(build, other_protocol, service):
    shown = subprocess.run(
        [other_protocol / "batchctl", "status", "--socket", service(build).socket], capture_output=True, text=True
    )
    assert shown.returncode != 0 and VERSION in shown.stderr and OTHER in shown.stderr, shown


def test_two_environments_with_two_protocols_have_a_daemon_each(build, other_protocol):
    """Without $BATCHD_SOCKET: the second to come is told, gets a daemon beside the first, and both go on."""
    runtime = pathlib.Path(f"/tmp/batchd-skew-{os.getpid()}-runtime")
    runtime.mkdir(mode=0o700)
    try:
        for mine in (build, other_protocol, build, other_protocol):
            done = script(mine, XDG_RUNTIME_DIR=str(runtime))
            assert done.returncode == 0, done.stderr
            rows, loaded = done.stdout.split()
            assert rows == "20" and pathlib.Path(loaded).resolve().parent == mine.resolve()
        programs = [p for p in running_below(build, other_protocol) if str(runtime) in p[1]]
        assert sorted(p[0] for p in programs) == sorted(str((b / "batchd").resolve()) for b in (build, other_protocol))
    finally:
        for _, arguments, pid in running_below(build, other_protocol):
            if str(runtime) in arguments:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 15)
        until(
            "the daemons are gone",
            lambda: not [p for p in running_below(build, other_protocol) if str(runtime) in p[1]],
        )
        shutil.rmtree(runtime)


def running_below(*builds):
    found = []
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            program, arguments = os.readlink(place / "exe"), (place / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if program in [str((b / "batchd").resolve()) for b in builds]:
            found.append((program, arguments, int(place.name)))
    return found
