"""A folder with what the portable wheel is compiled and linked against: an old C library, and newer archives.

The C library is that of Debian 11 (2.31), so that a program cannot come to need anything later; all that is above 2.28
in it is some functions, whose older versions client/python/wheel/old-glibc.c takes. The libraries that are linked from
archives are those of Debian 12, which still get corrections. Packages come from apt's own sources and with apt's own
checks, into a folder; nothing is installed.

It also makes such a folder for another architecture, for a compiler of Debian's (gcc-aarch64-linux-gnu).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

OLD, NEW = "bullseye", "bookworm"
C_LIBRARY = ("libc6", "libc6-dev", "libcrypt-dev")
LIBRARIES = (
    "linux-libc-dev libgd-dev libjansson-dev libjpeg62-turbo-dev libmicrohttpd-dev libpng-dev libprotobuf-c-dev "
    "librandom123-dev libuv1-dev libwebp-dev libxxhash-dev libyaml-dev libzstd-dev systemtap-sdt-dev zlib1g-dev"
).split()
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def _run(*argv, **options):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv[:2])}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def sources():
    """Lines for apt's sources.list: the mirror that $DEBIAN_MIRROR names, else the ones that this machine's apt uses."""
    found = {}
    if os.environ.get("DEBIAN_MIRROR"):
        found[os.environ["DEBIAN_MIRROR"]] = {NEW}
    else:
        # Not `indextargets`, which knows nothing before the first `apt-get update`. Debian's come before additional ones.
        first = {}
        for uri, suite in re.findall(
            r"^'(\S+)/dists/(\S+)/InRelease'", _run("apt-get", "--print-uris", "update"), re.M
        ):
            if suite in (NEW, f"{NEW}-updates", f"{NEW}-security"):
                found.setdefault(first.setdefault(suite, uri), set()).add(suite)
    main = next((uri for uri, suites in found.items() if NEW in suites), None)
    if main is None:
        raise SystemExit(
            f"apt has no mirror of Debian 12 ({NEW}): set DEBIAN_MIRROR to the address of one, or build the wheel "
            "for this machine's C library with `make wheel SYSROOT=`"
        )
    found[main].add(OLD)
    return [f"deb [signed-by={KEYS}] {uri} {suite} main" for uri, suites in found.items() for suite in sorted(suites)]


def fetch(folder, machine):
    """The packages' files, in folder."""
    if not os.path.exists(KEYS):
        raise SystemExit(f"{KEYS} is missing: apt-get install debian-archive-keyring")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "sources").write_text("\n".join(sources()) + "\n")
    (folder / "status").touch()
    settings = {
        "APT::Architecture": ARCHITECTURES[machine],
        "APT::Architectures": ARCHITECTURES[machine],
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Dir::Etc::sourcelist": folder / "sources",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": "-",
        "Dir::State": folder,
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
    }
    apt = ["apt-get", "-qq"] + [f"-o{name}={value}" for name, value in settings.items()]
    packages = [f"{name}/{OLD}" for name in C_LIBRARY] + list(LIBRARIES)
    _run(*apt, "update")
    _run(*apt, "download", *packages, cwd=folder)
    return sorted(folder.glob("*.deb"))


def unpack(packages, root):
    """Their contents in root, and a list of which package has which file, for the licences (linked.py)."""
    owners, facts = {}, {}
    for path in packages:
        shown = _run(
            "dpkg-deb", "--show", "--showformat=${Package}\t${source:Package}\t${source:Version}\t${Architecture}", path
        )
        package, source, version, architecture = shown.split("\t")
        facts[package] = [source, version, architecture]
        _run("dpkg-deb", "--extract", path, root)
        for line in _run("dpkg-deb", "--contents", path).splitlines():
            name = line.split(None, 5)[5].split(" -> ")[0]
            if not name.endswith("/"):
                owners[os.path.normpath(name)] = package
    (root / "packages.json").write_text(json.dumps({"owners": owners, "packages": facts}))
    for path in root.rglob("*"):  # links to places in the root, which would lead out of it
        if path.is_symlink() and os.readlink(path).startswith("/"):
            target = root / os.readlink(path).lstrip("/")
            path.unlink()
            path.symlink_to(os.path.relpath(target, path.parent))


def cross_compiler(machine):
    """Its name; ends the program where it is not installed."""
    triplet = f"{machine}-linux-gnu"
    gcc = f"{triplet}-gcc"
    if not shutil.which(gcc):
        raise SystemExit(f"{gcc} is missing: apt-get install gcc-{triplet.replace('_', '-')}")
    return gcc


def create(root, machine):
    """Makes root if it is not there yet, or lacks a package of the lists above."""
    root = pathlib.Path(root)
    made = root / "packages.json"
    if made.exists() and {*C_LIBRARY, *LIBRARIES} <= set(json.loads(made.read_text())["packages"]):
        return
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            raise SystemExit(f"{tool} is missing: the portable wheel is made on Debian or Ubuntu")
    cross_compiler(machine)  # before minutes of downloads
    new, packages = root.with_name(root.name + ".new"), root.with_name(root.name + ".packages")
    for folder in (new, packages, root):
        shutil.rmtree(folder, ignore_errors=True)
        if folder != root:
            folder.mkdir(parents=True)
    print(f"Fetching the C library of Debian 11 and the archives of Debian 12 for {machine} into {root}")
    unpack(fetch(packages.resolve(), machine), new)
    shutil.rmtree(packages)
    new.rename(root)


def compiler(root, machine):
    """(make's variables, environment) for compiling against root.

    A cross compiler looks into folders of its own C library first; so all of them are named."""
    root, triplet = os.path.realpath(root), f"{machine}-linux-gnu"
    gcc = cross_compiler(machine)
    own = _run(gcc, "-print-file-name=include").strip()
    headers = [own, f"{root}/usr/include/{triplet}", f"{root}/usr/include"]
    libraries = [f"{root}/usr/lib/{triplet}", f"{root}/lib/{triplet}"]
    cc = [gcc, f"--sysroot={root}", "-nostdinc", *(f"-isystem {h}" for h in headers)]
    cc += [f"-B{libraries[0]}/", *(f"-L{where}" for where in libraries)]
    variables = [f"CC={' '.join(cc)}", *(f"{n.upper()}={triplet}-{n}" for n in ("ar", "objcopy", "ld"))]
    environment = {
        "PKG_CONFIG_LIBDIR": f"{libraries[0]}/pkgconfig:{root}/usr/share/pkgconfig",
        "PKG_CONFIG_PATH": "",
        "PKG_CONFIG_SYSROOT_DIR": root,
    }
    return variables, environment


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root")
    parser.add_argument("--machine", choices=ARCHITECTURES, default=os.uname().machine)
    args = parser.parse_args()
    sys.exit(create(args.root, args.machine))
