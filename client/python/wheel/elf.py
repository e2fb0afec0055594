"""What an ELF file asks of the machine that runs it, read with binutils' readelf, which is where a compiler is."""

import re
import subprocess

# Shared libraries that every Linux with glibc has (PEP 600).
EVERYWHERE = re.compile(r"(libc|libm|libdl|libpthread|librt)\.so\.\d+|ld-linux-.*\.so\.\d+")


def _readelf(option, path):
    return subprocess.run(
        ["readelf", "--wide", option, str(path)], check=True, stdout=subprocess.PIPE, universal_newlines=True
    ).stdout


def machine(path):
    name = re.search(r"Machine:\s+(.+)", _readelf("--file-header", path))[1]
    return {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}[name]


def needed(path):
    """Sonames of the shared libraries that it needs."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", _readelf("--dynamic", path))


def glibc(path):
    """The symbols that it takes from the C library: {name: (2, minor) of the version that has it}."""
    found = re.findall(r"UND (\S+?)@GLIBC_(\d+)\.(\d+)", _readelf("--dyn-syms", path))
    return {name: (int(major), int(minor)) for name, major, minor in found}


def manylinux(paths):
    """The platform tag of a wheel with these files: the oldest C library that has all that they use."""
    for path in paths:
        missing = [name for name in needed(path) if not EVERYWHERE.fullmatch(name)]
        if missing:
            raise SystemExit(
                f"{path} needs {', '.join(missing)}, which other machines may lack: link it from an archive"
            )
    newest = max([(2, 17)] + [v for path in paths for v in glibc(path).values()])
    return f"manylinux_{newest[0]}_{newest[1]}_{machine(paths[0])}"
