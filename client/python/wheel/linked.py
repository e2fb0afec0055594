"""What was linked into the wheel's programs from archives: names, versions, licences, from the linker's maps and dpkg.

A library whose licence is not in LICENCES stops the build: each of them is a decision.
"""

import collections
import datetime
import json
import os
import pathlib
import re
import subprocess

# SPDX expressions by Debian source package.
LICENCES = {
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1",  # its start-up files and libgcc
    "gcc-12-cross": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "gcc-11": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "gcc-13": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "gcc-14": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",  # its start-up files and libc_nonshared.a; they may be linked into any program
    "jansson": "MIT",
    "libgd2": "GD",
    "libmicrohttpd": "LGPL-2.1-or-later",  # may be linked so, as the sources of all the rest are there to link it again
    "libjpeg-turbo": "IJG AND BSD-3-Clause AND Zlib",
    "libpng1.6": "libpng-2.0",
    "libuv1": "MIT",
    "libwebp": "BSD-3-Clause",
    "libyaml": "MIT",
    "libzstd": "BSD-3-Clause",
    "protobuf-c": "BSD-2-Clause",
    "librandom123": "BSD-3-Clause",
    "xxhash": "BSD-2-Clause",
    "zlib": "Zlib",
}
HEADERS = ("librandom123-dev",)  # nothing but headers, so no map names them

Library = collections.namedtuple("Library", "name package version architecture root")


def _licence_text(self):
    return pathlib.Path(self.root, "usr/share/doc", self.package, "copyright").read_text(errors="replace")


Library.licence_text = _licence_text
Library.licence = property(lambda self: LICENCES[self.name])


def _inputs(text):
    """The files that gave code to a program, from its map: members of archives, and the compiler's start-up files."""
    members = re.findall(r"^(/\S+\.a)\(", text.partition("\nMemory Configuration")[0], re.M)
    return set(members) | set(re.findall(r"^LOAD (/\S+\.o)$", text, re.M))


def _dpkg(*argv):
    try:
        done = subprocess.run(
            ["dpkg-query", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True
        )
    except FileNotFoundError:
        raise SystemExit(
            "the licences of linked libraries come from Debian's packages: build on Debian or Ubuntu"
        ) from None
    return done.stdout


def _owner(path):
    """The package that a file belongs to. dpkg knows files by the names they had before /lib became /usr/lib."""
    for name in (os.path.realpath(path), path, re.sub("^/usr/lib", "/lib", os.path.realpath(path))):
        owner = _dpkg("-S", name).partition(":")[0]
        if owner:
            return owner
    raise SystemExit(f"{path} was linked and belongs to no package: its licence is unknown")


class _Root:
    """The packages that were unpacked into a folder (sysroot.py)."""

    def __init__(self, root):
        self.path = os.path.realpath(root)
        listed = json.loads(pathlib.Path(root, "packages.json").read_text())
        self.owners, self.facts = listed["owners"], listed["packages"]

    def owner(self, path):
        return self.owners.get(os.path.relpath(path, self.path))

    def library(self, package):
        source, version, architecture = self.facts[package]
        return Library(source, package, version, architecture, self.path)


class _Machine:
    """The packages that are installed."""

    def owner(self, path):
        return _owner(path)

    def library(self, package):
        shown = _dpkg("-W", "-f", "${source:Package}\t${source:Version}\t${Architecture}\n", package).split("\n")[0]
        name, version, architecture = shown.split("\t")
        return Library(name, package, version, architecture, "/")


def libraries(maps, build, root=None):
    """One Library for each source package, sorted. root: what the programs were compiled against, besides the machine."""
    build = os.path.realpath(build) + os.sep
    files = {os.path.realpath(f) for m in maps for f in _inputs(pathlib.Path(m).read_text())}
    of_root, of_machine = _Root(root) if root else None, _Machine()
    used = {(of_root or of_machine, package) for package in HEADERS}
    for path in files:
        if root and path.startswith(of_root.path + os.sep):
            used.add((of_root, of_root.owner(path)))
        elif not path.startswith(build):
            used.add((of_machine, of_machine.owner(path)))
    found = {}
    for place, package in sorted(used, key=lambda u: u[1]):
        library = place.library(package)
        if library.name not in LICENCES:
            raise SystemExit(f"{package} was linked: name the licence of {library.name} in {__file__}")
        found.setdefault(library.name, library)
    return [found[name] for name in sorted(found)]


def _distribution():
    found = re.search(r"^ID=\"?(\w+)", pathlib.Path("/etc/os-release").read_text(), re.M)
    return found[1] if found else "debian"


def expression(libraries):
    """The licence of the whole, as SPDX writes it."""
    parts = [f"({p})" if " WITH " in p else p for p in (library.licence for library in libraries)]
    return " AND ".join(dict.fromkeys(["Apache-2.0", *" AND ".join(parts).split(" AND ")] if parts else ["Apache-2.0"]))


def sbom(version, libraries):
    """The list of parts as CycloneDX has it."""
    me = {"type": "application", "bom-ref": "batchd", "name": "batchd", "version": version}
    me.update(purl=f"pkg:pypi/batchd@{version}", licenses=[{"license": {"id": "Apache-2.0"}}])
    parts = []
    for library in libraries:
        purl = f"pkg:deb/{_distribution()}/{library.name}@{library.version}?arch=source"
        parts.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": library.name,
                "version": library.version,
                "purl": purl,
                "licenses": [{"expression": library.licence}],
            }
        )
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", 0)) or None
    when = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc) if seconds else None
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": me, **({"timestamp": when.isoformat()} if when else {})},
        "components": parts,
        "dependencies": [{"ref": "batchd", "dependsOn": [p["bom-ref"] for p in parts]}],
    }
    return json.dumps(document, indent=1) + "\n"
