"""libbatchd's header, the library's exports, its map, and the Python package's declarations agree."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[3]
CLIENT = REPO / "client"


def header():
    return re.sub(r"/\*.*?\*/", "", (CLIENT / "batchd.h").read_text(), flags=re.S)


def declared():
    return set(re.findall(r"\b(batchd_\w+)\(", header()))


def listed():
    return set(re.findall(r"\b(batchd_\w+);", (CLIENT / "batchd.map").read_text()))


def nm(path, *options):
    return subprocess.run(["nm", *options, str(path)], capture_output=True, text=True, check=True).stdout


def test_shared_library_exports_what_its_map_lists_and_its_header_declares(build):
    """Nothing more, nothing less, each with its version."""
    found = {
        line.split()[-1]
        for line in nm(build / "libbatchd.so", "-D", "--defined-only", "--with-symbol-versions").splitlines()
    }
    assert {name for name in found if not name.startswith("BATCHD_0")} == {f"{name}@@BATCHD_0" for name in listed()}
    assert listed() == declared()


def test_static_library_has_no_other_global_names(build):
    """So that it clashes with no name in the trainer's program."""
    found = {
        line.split()[-1]
        for line in nm(build / "libbatchd.a", "--defined-only", "--extern-only").splitlines()
        if len(line.split()) == 3
    }
    assert found == declared()


def test_library_needs_only_libc_and_protobuf(build):
    """The library loads few other libraries into a trainer's process."""
    needed = subprocess.run(
        ["objdump", "-p", str(build / "libbatchd.so")], capture_output=True, text=True, check=True
    ).stdout
    names = {
        n
        for n in re.findall(r"NEEDED\s+(\S+)", needed)
        if not re.match(r"(libasan|libubsan|libtsan|libm|ld-linux|libgcc)", n)
    }
    assert names <= {"libc.so.6", "libprotobuf-c.so.1"}
    assert re.search(r"SONAME\s+libbatchd\.so\.0\b", needed)


def test_header_stands_alone_in_c_and_cpp(tmp_path):
    """A trainer includes it first, in either language, with warnings on."""
    for name, compiler, options in (("a.c", "cc", ["-std=c99", "-Wpedantic"]), ("a.cc", "c++", ["-std=c++11"])):
        if shutil.which(compiler) is None:
            continue
        (tmp_path / name).write_text("#include <batchd.h>\nint main(void) { batchd_options_init(0); return 0; }\n")
        subprocess.run(
            [compiler, *options, "-Wall", "-Wextra", "-Werror", f"-I{CLIENT}", "-fsyntax-only", str(tmp_path / name)],
            check=True,
        )


def fields(struct):
    """The names of the header's struct's fields, in order."""
    body = re.search(rf"struct {struct} \{{(.*?)\n\}};", re.sub(r"/\*.*?\*/", "", header(), flags=re.S), re.S).group(1)
    names = []
    for declaration in filter(None, (d.strip() for d in body.split(";"))):
        pointer = re.search(r"\(\*(\w+)\)\(", declaration)
        names += (
            [pointer.group(1)]
            if pointer
            else [re.search(r"(\w+)(\[.*)?$", d.strip()).group(1) for d in declaration.split(",")]
        )
    return names


def test_python_structs_have_the_layout_of_the_header(tmp_path):
    """Every field of every struct: same order, offset and size as the compiler's."""
    from batchd import _lib

    structs = {
        "batchd_options": _lib.Options,
        "batchd_info": _lib.Info,
        "batchd_batch": _lib.BatchStruct,
        "batchd_position": _lib.Position,
    }
    lines = [
        f'printf("{s} {f} %zu %zu\\n", offsetof(struct {s}, {f}), sizeof ((struct {s} *)0)->{f});'
        for s in structs
        for f in fields(s)
    ]
    lines += [f'printf("{s} - 0 %zu\\n", sizeof(struct {s}));' for s in structs]
    (tmp_path / "layout.c").write_text(
        "#include <stdio.h>\n#include <batchd.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n"
    )
    subprocess.run(["cc", f"-I{CLIENT}", "-o", str(tmp_path / "layout"), str(tmp_path / "layout.c")], check=True)
    expected = {}
    for line in subprocess.run(
        [str(tmp_path / "layout")], capture_output=True, text=True, check=True
    ).stdout.splitlines():
        struct, field, offset, size = line.split()
        expected.setdefault(struct, {})[field] = int(offset), int(size)
    import ctypes

    for name, struct in structs.items():
        assert ctypes.sizeof(struct) == expected[name].pop("-")[1]
        assert {f: (getattr(struct, f).offset, getattr(struct, f).size) for f, _ in struct._fields_} == expected[name]


def test_constants_and_version_are_those_of_the_header():
    """Numbers that Python repeats."""
    import batchd
    from batchd import _lib, _tree

    text = header()
    assert f'#define BATCHD_VERSION "{batchd.__version__}"' in text
    assert _lib.FOREVER == int(re.search(r"BATCHD_FOREVER \((-?\d+)\)", text).group(1))
    assert _lib.UNTIL_SIGNAL == int(re.search(r"BATCHD_UNTIL_SIGNAL \((-?\d+)\)", text).group(1))
    dtypes = re.search(r"enum batchd_dtype \{(.*?)\}", text, re.S).group(1)
    dtypes = re.sub(r"/\*.*?\*/", "", dtypes, flags=re.S)
    dtypes = tuple(d.strip().replace("BATCHD_", "").lower() for d in dtypes.split(","))
    assert dtypes[: len(_lib.DTYPES)] == _lib.DTYPES
    assert dtypes == tuple(
        d.removesuffix("fn") for d in _tree.DTYPES
    )  # made by producers; torch's float8_e4m3 has no infinities and says so


def test_every_error_code_has_an_exception():
    """Errors that a caller can act on have a class of their own."""
    from batchd import _lib, errors

    codes = {m.group(1): int(m.group(2)) for m in re.finditer(r"BATCHD_E_(\w+) = (-\d+)", header())}
    for name, number in codes.items():
        assert _lib.code_name(number).decode() == name
        e = errors.make(name, "text")
        assert isinstance(e, MemoryError if name == "NOMEM" else errors.Error) and str(e) == "text"
    assert isinstance(errors.make("NOT_FOUND", "x"), FileNotFoundError)
    assert isinstance(errors.make("INVALID", "x"), ValueError)


def test_package_installs_from_the_tree_without_a_compiler(tmp_path, build):
    """pip builds it with setuptools alone and leaves nothing in the tree; the installed copy finds the library by $BATCHD_LIBRARY."""
    pytest.importorskip("setuptools")
    shutil.copytree(
        CLIENT / "python", tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
    ]
    done = subprocess.run(
        [*pip, "--target", str(tmp_path / "site"), str(tmp_path / "source")],
        capture_output=True,
        text=True,
        env={"PATH": "/nonexistent", "HOME": str(tmp_path)},
    )
    if "No module named pip" in done.stderr:
        pytest.skip("no pip here")
    assert done.returncode == 0, done.stderr
    left = {p.name for p in (tmp_path / "source").iterdir()} - {"__pycache__"}
    assert left == {
        "README.md",
        "batchd",
        "build.mk",
        "build_elsewhere.py",
        "guide",
        "pictures",
        "pyproject.toml",
        "wheel",
    }, left
    shown = subprocess.run(
        [sys.executable, "-c", "import batchd; print(batchd.__file__, batchd.__version__)"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "BATCHD_LIBRARY": str(build / "libbatchd.so.0")},
        check=True,
    )
    assert shown.stdout.split()[0].startswith(str(tmp_path / "site"))
