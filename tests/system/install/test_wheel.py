"""The wheel: what is in it, what it asks of a machine, and that it works in an environment that has nothing else.

`make check-wheel` builds it and runs these; otherwise they take dist/batchd-*.whl (or $BATCHD_WHEEL) if it is there."""

import base64
import csv
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time
import zipfile

import numpy
import pytest

from daemons import REPO

pytestmark = pytest.mark.long("the wheel has its own build")

STRANGER = 54321  # no user of this number in any database
EVERYWHERE = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
# The libraries in it, by the names of Debian's sources; whatever else comes is a decision, made in linked.py.
LINKED = {"jansson", "libgd2", "libjpeg-turbo", "libpng1.6", "libuv1", "libwebp", "libyaml", "libzstd", "protobuf-c"}
LINKED |= {"libmicrohttpd", "librandom123", "xxhash", "zlib"}

FIRST_BATCH = """
import batchd, batchd._lib
loader = batchd.DataLoader("random:length=20,shape=3", 4, arrays="numpy")
print(sum(len(x) for x, y in loader), batchd._lib._c._name)
"""


def find_wheel():
    given = os.environ.get("BATCHD_WHEEL")
    found = (
        [pathlib.Path(given)]
        if given
        else sorted((REPO / "dist").glob(f"batchd-*-py3-none-manylinux*_{os.uname().machine}.whl"))
    )
    if not found or not found[-1].exists():
        pytest.skip("no wheel: `make wheel` makes it, `make check-wheel` makes and tests it")
    return found[-1]


@pytest.fixture(scope="module")
def wheel():
    return find_wheel()


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def elf_files(folder):
    files = [p for p in folder.rglob("*") if p.is_file() and p.open("rb").read(4) == b"\x7fELF"]
    assert {p.name for p in files} == {"batchd", "batchctl", "libbatchd.so.0", "libbatchd-inline.so.0"}
    return files


def readelf(*argv):
    return subprocess.run(["readelf", "--wide", *argv], check=True, capture_output=True, text=True).stdout


# ---- the file ----


def test_no_file_in_it_asks_for_more_than_its_tag_says(wheel, unpacked):
    """Every version of the C library that an ELF file names, and every library that it needs."""
    tag = re.search(r"manylinux_2_(\d+)_", wheel.name)
    newest = 0
    for path in elf_files(unpacked):
        minors = [int(n) for n in re.findall(r"Name: GLIBC_2\.(\d+)", readelf("--version-info", str(path)))]
        assert max(minors) <= int(tag[1]), path
        newest = max(newest, *minors)
        assert set(re.findall(r"NEEDED.*\[(.*)\]", readelf("--dynamic", str(path)))) <= EVERYWHERE, path
        assert "RUNPATH" not in readelf("--dynamic", str(path)), path
    assert newest == int(tag[1]), "the tag promises less than the files need"


def test_auditwheel_gives_it_the_same_tag(wheel):
    try:
        import auditwheel  # noqa: F401

        tool = [sys.executable, "-m", "auditwheel"]
    except ImportError:
        tool = [shutil.which("auditwheel") or pytest.skip("auditwheel is not installed (pip)")]
    shown = subprocess.run([*tool, "show", str(wheel)], check=True, capture_output=True, text=True).stdout
    tag = re.search(r"manylinux_2_\d+_\w+?(?=\.whl)", wheel.name)[0]
    assert f'consistent with the following platform tag: "{tag}"' in " ".join(shown.split()), shown


def test_every_file_has_its_hash_and_the_programs_may_be_run(wheel):
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        record = next(n for n in names if n.endswith(".dist-info/RECORD"))
        listed = {row[0]: row[1:] for row in csv.reader(io.StringIO(z.read(record).decode()))}
        assert sorted(listed) == sorted(names) and len(set(names)) == len(names)
        for name, (digest, size) in listed.items():
            if name == record:
                continue
            data = z.read(name)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert int(size) == len(data)
            is_program = name.split("/")[1] in ("_bin", "_lib", "scripts")
            assert bool((z.getinfo(name).external_attr >> 16) & stat.S_IXUSR) == is_program, name
    assert wheel.stat().st_size <= 6e6


def test_it_lists_all_that_was_linked_with_its_licence(unpacked):
    (path,) = unpacked.glob("*.dist-info/sboms/*.cdx.json")
    parts = {c["name"]: c for c in json.loads(path.read_text())["components"]}
    compiler = {name for name in parts if name == "glibc" or name.startswith("gcc-")}
    assert set(parts) - compiler == LINKED
    (info,) = unpacked.glob("*.dist-info")
    metadata = (info / "METADATA").read_text()
    for name, part in parts.items():
        assert part["version"] and part["licenses"][0]["expression"].split(" AND ")[0] in metadata
        assert f"License-File: linked/{name}.txt" in metadata
        assert "opyright" in (info / "licenses" / "linked" / f"{name}.txt").read_text()
    assert "Apache License" in (info / "licenses" / "LICENSE").read_text()


def test_its_long_description_has_no_link_that_leads_nowhere(unpacked):
    """A package index shows the guide alone: without the files beside which it lies in the tree."""
    (info,) = unpacked.glob("*.dist-info")
    text = (info / "METADATA").read_text()
    assert not re.findall(r"\]\((?!#|\w+://).*?\)", text) and "](#install)" in text


# ---- an environment ----


class Environment:
    """A virtual environment with the wheel, and numpy from this one; programs run there with nothing else in $PATH."""

    def __init__(self, folder, wheel):
        self.folder, self.python = folder, folder / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        (self.site,) = folder.glob("lib/python*/site-packages")
        self.before = self.files()
        self.pip("install", "--no-index", "--no-deps", str(wheel))
        self.beside = folder.parent / f"{folder.name}-numpy"
        self.beside.mkdir()
        for path in pathlib.Path(numpy.__file__).parents[1].glob("numpy*"):
            (self.beside / path.name).symlink_to(path)

    def files(self):
        return {str(p.relative_to(self.folder)) for p in self.folder.rglob("*")}

    def pip(self, *argv):
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--python", str(self.python), *argv], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def environment(self, runtime, **more):
        return {
            "PATH": str(self.folder / "bin"),
            "PYTHONPATH": str(self.beside),
            "XDG_RUNTIME_DIR": str(runtime),
            "BATCHD_ARRAYS": "numpy",
            **more,
        }

    def run(self, argv, runtime, before=(), env=(), **options):
        return subprocess.run(
            [*before, *argv],
            env={**self.environment(runtime), **dict(env)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            **options,
        )

    def stop_daemon(self, runtime, **options):
        """Ends the daemon that a script has started there; returns the program that it ran."""
        shown = self.run([str(self.folder / "bin" / "batchctl"), "status", "--json"], runtime, **options)
        assert shown.returncode == 0, shown.stderr
        pid = json.loads(shown.stdout)["daemon"]["pid"]
        program = os.readlink(f"/proc/{pid}/exe")
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 300
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            time.sleep(0.02)
        return program


def has_pip():
    shown = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, text=True)
    return shown.returncode == 0 and int(re.search(r"pip (\d+)", shown.stdout)[1]) >= 23


@pytest.fixture(scope="module")
def place(wheel, tmp_path_factory):
    if not has_pip():
        pytest.skip("needs pip 23 or later (pip --python)")
    folder = tmp_path_factory.mktemp("env")
    for parent in (folder, *folder.parents):  # for the user without a home
        if parent.owner() == folder.owner() and parent.stat().st_mode & 0o7777 == 0o700:
            parent.chmod(0o755)
    return Environment(folder / "venv", wheel)


@pytest.fixture
def runtime():
    folder = pathlib.Path(f"/tmp/batchd-wheel-{os.getpid()}-{time.monotonic_ns()}")
    folder.mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder)


def connection(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return s


def expect_first_batch(place, runtime, **options):
    done = place.run([str(place.python), "-c", FIRST_BATCH], runtime, **options)
    assert done.returncode == 0, done.stderr
    rows, library = done.stdout.split()
    assert rows == "20" and library == str(place.site / "batchd" / "_lib" / "libbatchd.so.0")
    assert not done.stderr, done.stderr


def test_the_first_batch_comes_without_anything_else_on_the_machine(place, runtime):
    """No compiler, no other program in $PATH: the module takes its own library, which starts its own daemon."""
    assert shutil.which("cc", path=place.environment(runtime)["PATH"]) is None
    expect_first_batch(place, runtime)
    assert place.stop_daemon(runtime) == str(place.site / "batchd" / "_bin" / "batchd")


def with_mount(*mount):
    """What to put in front of a command that then runs with this mount; skips where that may not be done."""
    argv = [shutil.which("unshare"), "-m", shutil.which("sh"), "-c", f'mount {" ".join(mount)} && exec "$@"', "sh"]
    if not argv[0] or subprocess.run([*argv, shutil.which("true")], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    return argv


@pytest.mark.parametrize("home", ["none", "read-only", "missing"])
def test_the_first_batch_comes_whatever_the_home(place, runtime, home, tmp_path):
    env = {"TMPDIR": str(tmp_path / "a folder that is not there"), "PATH": f"{place.folder}/bin:/usr/bin:/bin"}
    before = ()
    if home == "read-only":
        env["HOME"] = str(tmp_path)
        before = with_mount("-t", "tmpfs", "-o", "ro", "none", str(tmp_path))
    elif home == "missing":
        env["HOME"] = "/nonexistent"
    expect_first_batch(place, runtime, env=env, before=before)
    place.stop_daemon(runtime)


def test_a_user_that_no_database_knows_gets_a_batch(place, runtime):
    """As in a container that is run with some number for a user."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    os.chown(runtime, STRANGER, STRANGER)
    as_stranger = {"user": STRANGER, "group": STRANGER, "extra_groups": []}
    try:
        reached = place.run([str(place.python), "-c", "import numpy"], runtime, **as_stranger).returncode == 0
    except PermissionError:
        reached = False
    if not reached:
        pytest.skip("other users cannot reach this Python")
    expect_first_batch(place, runtime, **as_stranger)
    place.stop_daemon(runtime)


def test_the_first_batch_comes_without_sys(place, runtime):
    """Some containers have no /sys, from which the daemon learns of processors and NUMA nodes."""
    hide = with_mount("-t", "tmpfs", "none", "/sys")
    env = {"PATH": f"{place.folder}/bin:/usr/bin:/bin"}
    expect_first_batch(place, runtime, before=hide, env=env)
    place.stop_daemon(runtime)


@pytest.mark.parametrize("flags", [["-S"], ["-S", "-s", "-B", "-P"], ["-O"]], ids=" ".join)
def test_the_first_batch_comes_without_the_site_module(place, runtime, flags):
    """Tools that start Python without site packages name the places of packages themselves."""
    if "-P" in flags and sys.version_info < (3, 11):
        pytest.skip("-P came with Python 3.11")
    env = {"PYTHONPATH": f"{place.site}:{place.beside}"}
    done = place.run([str(place.python), *flags, "-c", FIRST_BATCH], runtime, env=env)
    assert done.returncode == 0 and done.stdout.split()[0] == "20" and not done.stderr, done
    assert place.stop_daemon(runtime) == str(place.site / "batchd" / "_bin" / "batchd")


def test_an_import_out_of_an_archive_says_that_it_has_to_be_unpacked(place, wheel, tmp_path):
    """A wheel is a zip file, and Python imports out of these; but no program runs there and no library is loaded."""
    archive = shutil.copy(wheel, tmp_path / "app.pyz")
    env = {"PYTHONPATH": f"{archive}:{place.beside}", "PATH": "/nonexistent"}
    done = subprocess.run([sys.executable, "-S", "-c", "import batchd"], env=env, capture_output=True, text=True)
    if done.returncode == 0:
        pytest.skip("this machine has a batchd installed, whose library is found")
    assert str(archive) in done.stderr and "unpack" in done.stderr.splitlines()[-1], done.stderr


def test_a_tool_that_unpacks_an_archive_can_run_it(place, wheel, runtime, tmp_path):
    """As shiv and pex do at their first start: without the rights of the files' modes, the daemon could not be started."""
    with zipfile.ZipFile(wheel) as z:
        for entry in z.infolist():
            path = z.extract(entry, tmp_path)
            os.chmod(path, entry.external_attr >> 16 & 0o7777)
    env = {"PYTHONPATH": f"{tmp_path}:{place.beside}"}
    done = place.run([str(place.python), "-S", "-c", FIRST_BATCH], runtime, env=env)
    assert done.returncode == 0 and done.stdout.split()[0] == "20", done.stderr
    assert place.stop_daemon(runtime).startswith(str(tmp_path))


def test_two_environments_do_not_disturb_each_other(place, wheel, runtime, tmp_path):
    """A script goes on when the environment whose daemon it uses is removed, and the next daemon is its own."""
    other = Environment(tmp_path / "venv", wheel)
    expect_first_batch(other, runtime)
    script = FIRST_BATCH.replace("print", "import sys; print('open', flush=True); sys.stdin.readline(); print")
    process = subprocess.Popen(
        [str(place.python), "-c", script],
        env=place.environment(runtime),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "open\n"
    other.pip("uninstall", "-y", "batchd")
    out, _ = process.communicate("go\n", timeout=300)
    assert process.returncode == 0 and out.split()[0] == "20"
    assert place.stop_daemon(runtime).startswith(str(other.site))  # " (deleted)" behind it
    expect_first_batch(place, runtime)
    assert place.stop_daemon(runtime) == str(place.site / "batchd" / "_bin" / "batchd")


def test_commands_and_doctor_are_those_of_the_wheel(place, runtime):
    version = re.search(r'BATCHD_VERSION "(.+)"', (REPO / "client" / "batchd.h").read_text())[1]
    for name in ("batchd", "batchctl"):
        command = [str(place.folder / "bin" / name), "--version"]
        shown = place.run(command, runtime, env={"PYTHONPATH": ""})  # without numpy: the package is not imported
        assert shown.stdout.split() == [name, version], shown
    doctor = place.run([str(place.python), "-m", "batchd", "doctor", "--json"], runtime)
    assert json.loads(doctor.stdout), doctor


def test_man_shows_the_pages_of_the_wheel(place):
    """Those of the environment whose programs are in $PATH."""
    pages = [place.folder / "share/man" / name for name in ("man1/batchctl.1", "man8/batchd.8", "man5/batchd.yaml.5")]
    assert [page.read_text().count(".Sh NAME") for page in pages] == [1, 1, 1]
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    environment = {"PATH": f"{place.folder}/bin:/usr/bin:/bin", "HOME": "/nonexistent"}
    for page in pages:
        shown = subprocess.run(["man", "-w", page.stem], env=environment, capture_output=True, text=True)
        assert shown.stdout.strip() == str(page), shown


def test_it_serves_metrics_without_a_library_of_the_machine(place, runtime):
    """libmicrohttpd is in the daemon; of what the machine has, the daemon loads the C library only."""
    daemon, page = place.site / "batchd" / "_bin" / "batchd", runtime / "metrics"
    argv = [str(daemon), "--socket", str(runtime / "s"), "--foreground", "--metrics", f"unix:{page}"]
    process = subprocess.Popen(argv, env=place.environment(runtime), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 300
        while not page.exists():
            assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
            time.sleep(0.02)
        with connection(str(page)) as c:
            c.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = b"".join(iter(lambda: c.recv(1 << 16), b""))
        maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text()
    finally:
        process.terminate()
        process.communicate(timeout=300)
    assert answer.startswith(b"HTTP/1.") and b" 200 " in answer.split(b"\r\n")[0] and b"batchd_build_info" in answer
    loaded = {os.path.basename(line.split()[-1]) for line in maps.splitlines() if ".so" in line}
    assert loaded <= EVERYWHERE, loaded


def test_uninstalling_leaves_nothing(wheel, runtime, tmp_path):
    if not has_pip():
        pytest.skip("needs pip 23 or later (pip --python)")
    env = Environment(tmp_path / "venv", wheel)
    expect_first_batch(env, runtime)
    env.stop_daemon(runtime)
    env.pip("uninstall", "-y", "batchd")
    folders = {"share", "share/man", *(f"share/man/man{section}" for section in (1, 5, 8))}  # pip leaves them, empty
    assert env.files() - folders == env.before - folders


def test_a_missing_compiler_is_named_before_anything_is_downloaded(tmp_path):
    """`make wheel MACHINE=aarch64` on a machine that has apt and no compiler for Arm."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("apt-get", "dpkg-deb"):
        (programs / name).write_text(f"#!/bin/sh\necho called >>{tmp_path}/calls\n")
        (programs / name).chmod(0o755)
    backend = [sys.executable, REPO / "client/python/wheel/backend.py", "--machine", "aarch64", "wheel"]
    done = subprocess.run(
        [*backend, "--into", tmp_path / "dist", "--build", tmp_path / "build", "--sysroot", tmp_path / "root"],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "apt-get install gcc-aarch64-linux-gnu" in done.stderr, done
    assert not (tmp_path / "calls").exists() and not list(tmp_path.glob("root*"))


def test_the_wheel_for_aarch64_makes_the_same_pixels(unpacked, tmp_path):
    """With qemu-user, decoded and transformed: equal to this machine's, byte for byte."""
    if os.uname().machine != "x86_64":
        pytest.skip("compares with x86-64")
    found = sorted((REPO / "dist").glob("batchd-*-py3-none-manylinux*_aarch64.whl"))
    root = REPO / "build-sysroot" / "aarch64"
    if not found or not root.exists():
        pytest.skip("no wheel for aarch64: `make wheel MACHINE=aarch64` makes it")
    if not shutil.which("qemu-aarch64-static"):
        pytest.skip("qemu-aarch64-static is not installed (qemu-user-static)")
    zipfile.ZipFile(found[-1]).extractall(tmp_path)
    programs = {
        "x86_64": [str(unpacked / "batchd/_bin/batchctl")],
        "aarch64": ["qemu-aarch64-static", "-L", str(root), str(tmp_path / "batchd/_bin/batchctl")],
    }
    for path in (unpacked / "batchd/_bin/batchctl", tmp_path / "batchd/_bin/batchctl"):
        path.chmod(0o755)
    subprocess.run([*programs["x86_64"], "sample-data", "--quiet", "--per-class=2", str(tmp_path / "p")], check=True)
    for path in sorted((tmp_path / "p").rglob("*.jpg"))[:4]:
        for transform in ("train224", "val224"):
            made = []
            for name, program in programs.items():
                out = tmp_path / f"{name}.npy"
                argv = [*program, "load", "--transform", transform, "--seed", "5", "--out", str(out), str(path)]
                subprocess.run(argv, check=True, capture_output=True)
                made.append(out.read_bytes())
            assert made[0] == made[1] and len(made[0]) > 500_000, (path.name, transform)


# ---- the sources ----


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    backend = REPO / "client" / "python" / "wheel" / "backend.py"
    if not (REPO / ".git").exists():
        pytest.skip("no git checkout")
    subprocess.run([sys.executable, str(backend), "--into", str(folder), "sdist"], check=True, capture_output=True)
    (packed,) = folder.glob("batchd-*.tar.gz")
    with tarfile.open(packed) as tar:
        tar.extractall(folder)
    return packed


def test_sources_without_the_libraries_name_the_packages(sources, tmp_path):
    """pip shows the list that `make` prints: what is missing, and what for."""
    if not has_pip():
        pytest.skip("needs pip")
    fakes = tmp_path / "bin"
    fakes.mkdir()
    (fakes / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
    (fakes / "dpkg-query").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{fakes}:{os.environ['PATH']}",
        "PKG_CONFIG_LIBDIR": str(tmp_path),
        "PKG_CONFIG_PATH": "",
    }
    env = {k: v for k, v in env.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH")}
    argv = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "-w", str(tmp_path), str(sources)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    for package in ("libuv1-dev", "libprotobuf-c-dev", "libjpeg-dev"):
        assert package in said, said
    assert "Traceback" not in said, said


def test_sources_have_all_that_a_build_reads(sources):
    """make's own opinion: every file that it would compile, and every header next to it, is there."""
    folder = sources.parent / sources.name[: -len(".tar.gz")]
    missing = [
        name
        for name in subprocess.run(["git", "-C", str(REPO), "ls-files"], capture_output=True, text=True).stdout.split()
        if name.startswith(("client/", "daemon/", "proto/", "systemd/")) and not (folder / name).exists()
    ]
    assert not missing
    done = subprocess.run(
        ["make", "-n", "-C", str(folder), "BUILD=elsewhere", "wheel-programs"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "main.c" in done.stdout, done.stderr


def test_metadata_without_a_build_is_that_of_a_wheel(sources, unpacked, tmp_path):
    """A resolver asks the sources what they need before anything is compiled; the licences differ by what is linked."""
    folder = sources.parent / sources.name[: -len(".tar.gz")]
    code = "import sys; import backend; print(backend.prepare_metadata_for_build_wheel(sys.argv[1]))"
    env = {**os.environ, "PYTHONPATH": str(folder / "client" / "python" / "wheel"), "PATH": ""}  # no make, no compiler
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / done.stdout.strip() / "METADATA").read_text().splitlines()
    (info,) = unpacked.glob("*.dist-info")
    assert [line for line in said if not line.startswith("License")] == [
        line for line in (info / "METADATA").read_text().splitlines() if not line.startswith("License")
    ]
