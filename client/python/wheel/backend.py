"""The build backend of the package with everything inside (PEP 517). It needs the standard library only.

Nothing is compiled against Python, so one wheel fits every Python of a machine: `py3-none-PLATFORM`.

build_wheel       runs make, and links the libraries of this machine; the wheel is for this machine (linux_x86_64).
build_portable    is `make wheel`: the libraries are linked from archives, so the wheel runs on every machine whose C
                  library is new enough (manylinux_2_NN), and carries their licences and a list of them (linked.py).
                  It is compiled against an old C library in a folder (sysroot.py).
build_sdist       the sources; without the libraries that batchd needs, building from them names the missing packages.
"""

import argparse
import base64
import glob
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

import elf
import linked
import sysroot

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULE = ROOT / "client" / "python"
PROGRAMS = {
    "batchd": "_bin/batchd",
    "batchctl": "_bin/batchctl",
    "libbatchd.so.0": "_lib/libbatchd.so.0",
    "libbatchd-inline.so.0": "_lib/libbatchd-inline.so.0",
}
MANUAL = ("client/man/batchctl.1", "daemon/man/batchd.8", "daemon/man/batchd.yaml.5")
COMMAND = """#!python
# {name}, which this environment's package carries. The package itself is not imported: this needs neither numpy nor time.
import importlib.util, os, sys
program = os.path.join(os.path.dirname(importlib.util.find_spec("batchd").origin), "_bin", "{name}")
os.execv(program, [program] + sys.argv[1:])
"""
LEFT_OUT = ("tests/", ".ci/", ".github/")  # of an sdist; a build needs only:
NEEDED = ("tests/setup/packages", "tests/layers", "tests/build.mk")


def version():
    return re.search(r'^#define BATCHD_VERSION "(.+)"', (ROOT / "client" / "batchd.h").read_text(), re.M)[1]


def project(key):
    """A text of the module's pyproject.toml. Python has a reader of that format from 3.11 on only."""
    return re.search(rf'^{key} = .*?"(.+?)"', (MODULE / "pyproject.toml").read_text(), re.M)[1]


def guide():
    """The guide's pages one after the other, without pictures and links to other files: where it is shown, these are
    not."""
    index = (MODULE / "README.md").read_text()
    pages = [(MODULE / name).read_text() for name in re.findall(r"\]\((guide/[\w-]+\.md)\)", index)]
    text = "\n".join([index, *(page.replace("[Guide](../README.md)\n\n", "") for page in pages)])
    text = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n+", "", text, flags=re.M)
    return re.sub(r"\[([^\]]*)\]\((?!#|\w+://)[^)]*\)", r"\1", text)


def metadata(licences=(), expression="Apache-2.0"):
    lines = ["Metadata-Version: 2.4", "Name: batchd", f"Version: {version()}", f"Summary: {project('description')}"]
    lines += [f"License-Expression: {expression}"] + [f"License-File: {name}" for name in licences]
    lines += [f"Requires-Python: {project('requires-python')}", f"Requires-Dist: {project('dependencies')}"]
    lines += ["Classifier: Operating System :: POSIX :: Linux", "Classifier: Programming Language :: Python :: 3"]
    lines += ["Description-Content-Type: text/markdown", "", guide()]
    return "\n".join(lines)


# ---- building ----


def make(build, *variables, env=None):
    """Runs make for what goes into a wheel; a make that fails has said why. env: more variables of the environment."""
    argv = ["make", "-s", "-C", str(ROOT), f"-j{os.cpu_count() or 1}", f"BUILD={build}", *variables]
    try:
        environment = {**os.environ, **(env or {})}
        status = subprocess.run([*argv, "wheel-programs"], stdin=subprocess.DEVNULL, env=environment).returncode
    except FileNotFoundError:
        raise SystemExit("batchd is built from C sources here, and there is no make: `apt-get install make`") from None
    if status:
        raise SystemExit(
            "batchd's C sources could not be built; the reason stands above. A ready wheel needs no compiler"
        )


def strip(source, target):
    shutil.copyfile(source, target)
    cross = f"{elf.machine(source)}-linux-gnu-strip"
    tool = os.environ.get("STRIP") or (cross if shutil.which(cross) else "strip")
    subprocess.run([tool, "--strip-unneeded", str(target)], check=True)


class Wheel:
    """A wheel in the making: a zip file that lists its files with their hashes."""

    def __init__(self, folder, tag):
        self.info = f"batchd-{version()}.dist-info"
        self.name = f"batchd-{version()}-py3-none-{tag}.whl"
        self.record = []
        self.when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]  # zip begins in 1980
        self.zip = zipfile.ZipFile(os.path.join(folder, self.name), "w", zipfile.ZIP_DEFLATED, compresslevel=9)

    def add(self, name, data, mode=0o644):
        if isinstance(data, str):
            data = data.encode()
        entry = zipfile.ZipInfo(name, self.when)
        entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}\n")

    def finish(self):
        name = f"{self.info}/RECORD"
        entry = zipfile.ZipInfo(name, self.when)
        entry.external_attr, entry.compress_type = 0o100644 << 16, zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, "".join(self.record) + f"{name},,\n")
        self.zip.close()
        return self.name


def pack(folder, build, tag, libraries=()):
    """libraries: what was linked from archives (linked.Library)."""
    wheel = Wheel(folder, tag)
    for path in sorted((MODULE / "batchd").glob("*.py")):
        wheel.add(f"batchd/{path.name}", path.read_bytes())
    with tempfile.TemporaryDirectory() as place:
        for name, target in PROGRAMS.items():
            strip(os.path.join(build, name), os.path.join(place, name))
            wheel.add(f"batchd/{target}", pathlib.Path(place, name).read_bytes(), 0o755)
    for name in MANUAL:  # man looks for them beside the folders of $PATH
        path = ROOT / name
        wheel.add(f"batchd-{version()}.data/data/share/man/man{path.suffix[1:]}/{path.name}", path.read_bytes())
    licences = {"LICENSE": (ROOT / "LICENSE").read_text()}
    licences.update((f"linked/{library.name}.txt", library.licence_text()) for library in libraries)
    for name, text in licences.items():
        wheel.add(f"{wheel.info}/licenses/{name}", text)
    if libraries:
        wheel.add(f"{wheel.info}/sboms/batchd.cdx.json", linked.sbom(version(), libraries))
    wheel.add(f"{wheel.info}/METADATA", metadata(licences, linked.expression(libraries)))
    for name in ("batchd", "batchctl"):
        wheel.add(f"batchd-{version()}.data/scripts/{name}", COMMAND.format(name=name), 0o755)
    wheel.add(
        f"{wheel.info}/WHEEL",
        f"Wheel-Version: 1.0\nGenerator: batchd {version()}\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n",
    )
    return wheel.finish()


def programs(build):
    return [os.path.join(build, name) for name in PROGRAMS]


def build_portable(folder, build, root, machine, *variables):
    """root: the folder to compile against (sysroot.py), made if it is not there; None: this machine's own files."""
    env = {}
    if root:
        sysroot.create(root, machine)
        more, env = sysroot.compiler(root, machine)
        variables = (*more, *variables)
    make(build, "STATIC_DEPS=1", *variables, env=env)
    tag = elf.manylinux(programs(build))
    return pack(folder, build, tag, linked.libraries(glob.glob(os.path.join(build, "*.map")), build, root))


# ---- PEP 517 ----


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory(prefix="batchd-build-") as build:  # pip builds where the source is
        make(build, "CFLAGS=-O3")
        return pack(wheel_directory, build, f"linux_{elf.machine(os.path.join(build, 'batchd'))}")


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """What build_wheel would say, without building: resolvers ask for it first."""
    name = f"batchd-{version()}.dist-info"
    folder = pathlib.Path(metadata_directory, name)
    folder.mkdir()
    (folder / "METADATA").write_text(metadata(["LICENSE"]))
    return name


def sources():
    """The files of an sdist, relative to the root."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if listed.returncode == 0 and (ROOT / ".git").exists():
        names = listed.stdout.decode().split("\0")[:-1]
    else:  # an unpacked sdist has nothing but its sources
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        names = [n for n in names if n != "PKG-INFO" and not n.startswith(("build", "dist/"))]
    return sorted(n for n in names if n in NEEDED or not n.startswith(LEFT_OUT) and (ROOT / n).is_file())


def build_sdist(sdist_directory, config_settings=None):
    base = f"batchd-{version()}"
    when = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    path = os.path.join(sdist_directory, base + ".tar.gz")

    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = when
        return member

    with open(path, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=when) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name in sources():
                tar.add(ROOT / name, f"{base}/{name}", recursive=False, filter=plain)
            text = metadata().encode()
            member = plain(tarfile.TarInfo(f"{base}/PKG-INFO"))
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return os.path.basename(path)


def main():
    parser = argparse.ArgumentParser(description="Builds batchd's portable wheel, or its sdist.")
    parser.add_argument("what", choices=("wheel", "sdist"))
    parser.add_argument("--into", default="dist")
    parser.add_argument("--build", help="make's build folder")
    parser.add_argument("--sysroot", help="the folder to compile against, made if it is missing; empty: this machine")
    parser.add_argument("--machine", choices=sysroot.ARCHITECTURES, default=os.uname().machine)
    parser.add_argument("variables", nargs="*", help="for make: NAME=VALUE")
    args = parser.parse_args()
    os.makedirs(args.into, exist_ok=True)
    if args.what == "sdist":
        name = build_sdist(args.into)
    else:
        name = build_portable(args.into, args.build, args.sysroot, args.machine, *args.variables)
    path = os.path.join(args.into, name)
    print(f"{path}  {os.path.getsize(path) / 1e6:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
