"""`make install` follows GNU conventions: everything under DESTDIR and PREFIX, usable from there, and `make uninstall`
removes it again."""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[3]


def make(build, *args):
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    with open(
        build / ".installing", "w"
    ) as alone:  # files that contain the prefix are made in the build folder, for one installation at a time
        fcntl.flock(alone, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-s", "-C", str(REPO), f"BUILD={build}", *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment,
            timeout=600,
        )
    assert done.returncode == 0, done.stdout + done.stderr


def files_under(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_symlink() or p.is_file()}


@pytest.fixture(scope="module")
def installed(build, tmp_path_factory):
    dest = tmp_path_factory.mktemp("dest")
    make(build, "install", f"DESTDIR={dest}", "PREFIX=/opt/batchd")
    return dest


def test_everything_lands_below_destdir_and_prefix(installed):
    # Proves that each kind of file is installed where GNU's and systemd's conventions look for it, and nothing elsewhere.
    files = files_under(installed)
    assert all(f.startswith("opt/batchd/") for f in files), files
    expected = {
        "bin/batchd",
        "bin/batchctl",
        "include/batchd.h",
        "lib/libbatchd.a",
        "lib/libbatchd.so",
        "lib/libbatchd.so.0",
        "lib/libbatchd.so.0.1.0",
        "lib/pkgconfig/batchd.pc",
        "lib/systemd/system/batchd.service",
        "lib/systemd/system/batchd.socket",
        "lib/sysusers.d/batchd.conf",
        "lib/tmpfiles.d/batchd.conf",
        "share/man/man1/batchctl.1",
        "share/man/man8/batchd.8",
        "share/man/man5/batchd.yaml.5",
        "share/bash-completion/completions/batchctl",
        "share/doc/batchd/LICENSE",
        "share/doc/batchd/README.md",
        "share/doc/batchd/batchd.yaml",
        "share/doc/batchd/gpu.conf",
        "share/doc/batchd/batchd-modules-load.conf",
        "share/doc/batchd/client/examples/train_graph.py",
        "share/doc/batchd/client/python/README.md",
        "share/doc/batchd/client/python/guide/errors.md",
        "share/doc/batchd/systemd/README.md",
        "share/doc/batchd/systemd/containers/Dockerfile",
        "share/doc/batchd/systemd/kubernetes/chart/Chart.yaml",
        "share/doc/batchd/systemd/slurm/prolog.sh",
    }
    assert expected <= {f.removeprefix("opt/batchd/") for f in files}, expected - {
        f.removeprefix("opt/batchd/") for f in files
    }


def test_the_administrators_page_names_installed_files(installed):
    # Proves that each file of its table is where the page says, below the prefix.
    table = (REPO / "systemd/README.md").read_text().partition("Installed, below")[2].partition("Made at run time")[0]
    named = re.findall(r"`((?:bin|lib|share|include)/[\w./-]+)`", table)
    missing = [name for name in named if not (installed / "opt/batchd" / name).exists() and "linux-gnu" not in name]
    assert len(named) > 15 and not missing, missing


def test_unit_starts_the_installed_daemon(installed):
    # Proves that the unit names the daemon of this installation, not the default path.
    unit = (installed / "opt/batchd/lib/systemd/system/batchd.service").read_text()
    starts = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert starts and all(line.startswith("ExecStart=/opt/batchd/bin/batchd") for line in starts), starts


def test_links_of_installed_pages_lead_to_installed_files(installed):
    # Proves that a page names a file of the source only as such, and has its pictures beside it.
    documents = installed / "opt/batchd/share/doc/batchd"
    dead, n = [], 0
    for page in documents.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            n += 1
            if "://" not in target and not (page.parent / target).exists():
                dead.append(f"{page.relative_to(documents)}: {target}")
    text = (documents / "README.md").read_text()
    assert n > 10 and not dead and "manual pages: batchctl, libbatchd" in text, dead
    assert "how it works inside (`daemon/ARCHITECTURE.md` in the source)" in text


def test_soname_links_lead_to_the_library(installed):
    # Proves that a program linked against libbatchd.so finds the library at run time under its soname.
    lib = installed / "opt/batchd/lib"
    assert os.readlink(lib / "libbatchd.so") == "libbatchd.so.0.1.0"
    assert os.readlink(lib / "libbatchd.so.0") == "libbatchd.so.0.1.0"
    shown = subprocess.run(["readelf", "-d", lib / "libbatchd.so"], capture_output=True, text=True, check=True).stdout
    assert "Library soname: [libbatchd.so.0]" in shown


@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
def test_example_trainer_compiles_with_the_installed_pkg_config_file(installed, tmp_path, static, daemon, samples):
    # Proves that a C trainer needs only the installed files: it compiles, links, and reads batches from a daemon.
    if not shutil.which("pkg-config"):
        pytest.skip("pkg-config is not installed")
    prefix = installed / "opt/batchd"
    environment = {**os.environ, "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig", "PKG_CONFIG_SYSROOT_DIR": str(installed)}
    query = ["pkg-config", "--cflags", "--libs", *(["--static"] if static else []), "batchd"]
    flags = subprocess.run(query, capture_output=True, text=True, check=True, env=environment).stdout.split()
    if static:
        flags = [f"{prefix}/lib/libbatchd.a" if f == "-lbatchd" else f for f in flags]
    program = tmp_path / "train"
    subprocess.run(
        [*os.environ.get("CC", "cc").split(), "-o", program, REPO / "client/examples/train.c", *flags], check=True
    )
    linked = subprocess.run(
        ["ldd", program],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "LD_LIBRARY_PATH": f"{prefix}/lib"},
    ).stdout
    assert ("libbatchd.so.0" in linked) != static
    done = subprocess.run(
        [program, f"imagefolder:{samples}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        env={**environment, "LD_LIBRARY_PATH": f"{prefix}/lib"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("way", ["path", "prefix"])
def test_package_finds_a_library_in_a_prefix_of_its_own(build, installed, tmp_path, way):
    # Proves that `make install PREFIX=~/.local`, or into a virtual environment, is enough for Python: by the daemon in
    # $PATH, or as the environment's own.
    package = tmp_path / "site/deep/er"  # as far from the tree's build/ as site-packages is
    shutil.copytree(REPO / "client/python/batchd", package / "batchd")
    prefix = installed / "opt/batchd"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BATCHD_") and k != "LD_LIBRARY_PATH"}
    environment.update(
        PYTHONPATH=str(package),
        PATH=os.pathsep.join([str(prefix / "bin")] * (way == "path") + ["/usr/bin", "/bin"]),
        BATCHD_ARRAYS="numpy",
    )
    code = f"import sys; sys.prefix = {str(prefix)!r}; " if way == "prefix" else ""
    code += "import batchd; print(next(line.split()[-1] for line in open('/proc/self/maps') if 'libbatchd' in line))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    system = any(pathlib.Path(folder, "libbatchd.so.0").exists() for folder in ("/usr/local/lib", "/usr/lib"))
    assert done.returncode == 0 and (system or done.stdout.strip() == str(prefix / "lib/libbatchd.so.0.1.0")), (
        done.stdout + done.stderr
    )


def test_uninstall_removes_what_install_put_there(build, tmp_path):
    # Proves that the two lists are one.
    make(build, "install", f"DESTDIR={tmp_path}", "PREFIX=/usr", "libdir=/usr/lib/x")
    assert files_under(tmp_path)
    make(build, "uninstall", f"DESTDIR={tmp_path}", "PREFIX=/usr", "libdir=/usr/lib/x")
    assert files_under(tmp_path) == set()
    assert not (tmp_path / "usr/share/doc/batchd").exists()
