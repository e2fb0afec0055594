"""Facts about this machine that affect what runs on its GPU: facts.py BUILD prints "- NAME: VALUE" lines, those that ask the
driver last, because a sick driver may never answer.

Changes no setting, and never fails: an unknown fact is reported as unknown.
"""

import glob
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

# nvidia-smi's names, and the names used here.
QUERY = {
    "name": "card",
    "driver_version": "driver",
    "memory.total": "memory",
    "pcie.link.gen.current": "PCIe generation now",
    "pcie.link.gen.max": "PCIe generation at most",
    "pcie.link.width.current": "PCIe lanes now",
    "pcie.link.width.max": "PCIe lanes at most",
    "ecc.mode.current": "ECC",
    "mig.mode.current": "MIG",
    "persistence_mode": "persistence mode",
    "compute_mode": "compute mode",
    "clocks.max.sm": "greatest clock",
}
TOOLS = (
    "make",
    "cc",
    "pkg-config",
    "protoc-c",
    "nvcc",
    "compute-sanitizer",
    "nvidia-smi",
    "nvidia-cuda-mps-control",
    "python3",
    "setpriv",
    "unshare",
    "tar",
    "timeout",
)
MODULES = ("torch", "torchvision", "numpy", "pytest", "PIL", "cupy", "jax")
# GB/s of a lane and direction, after the line's coding.
LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
THP = pathlib.Path("/sys/kernel/mm/transparent_hugepage")


def say(argv, env=None):
    """Its standard output, or None."""
    try:
        p = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return p.stdout if p.returncode == 0 else None


def contents(path, default="not there"):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return default


def query(run=say):
    """nvidia-smi's answers by our names. A field that it does not know is left out; the others are read."""
    all_at_once = run(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader", "--id=0"])
    values = [v.strip() for v in (all_at_once or "").strip().split(",")]
    if len(values) == len(QUERY):
        return dict(zip(QUERY.values(), values))
    found = {}
    for field, name in QUERY.items():
        value = run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader", "--id=0"])
        if value is None and not found:
            return {}  # no nvidia-smi, or it finds no GPU
        found[name] = value.strip() if value else "not known to nvidia-smi"
    return found


def chosen(text):
    """ "always within_size [advise] never" -> "advise"."""
    found = re.search(r"\[(\w+)\]", text)
    return found.group(1) if found else text


def pcie_raw(facts):
    """GB/s of the link in one direction, or None. An idle link may run below its maximum: the maximum counts."""
    try:
        return LANE[int(facts["PCIe generation at most"])] * int(facts["PCIe lanes at most"])
    except (KeyError, ValueError):
        return None


def mps():
    control = shutil.which("nvidia-cuda-mps-control")
    pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    return ("nvidia-cuda-mps-control is installed" if control else "not installed") + (
        f", pipes in {pipe}" if os.path.isdir(pipe) else ""
    )


def processor():
    found = re.search(r"model name\s*: (.*)", contents("/proc/cpuinfo", ""))
    return found.group(1) if found else platform.machine()


def memory():
    found = re.search(r"MemTotal:\s*(\d+)", contents("/proc/meminfo", ""))
    return f"{int(found.group(1)) / (1 << 20):.0f} GiB" if found else "not known"


def zones():
    """MiB of present pages: those of a movable zone have to be moved before they are pinned."""
    found, name = [], ""
    for line in contents("/proc/zoneinfo", "").splitlines():
        words = line.split()
        if words[:1] == ["Node"]:
            name = f"{words[1]} {words[3]}".replace(",", "")
        elif words[:1] == ["present"] and words[1] != "0":
            found.append(f"node {name} {int(words[1]) // 256} MiB")
    return ", ".join(found) or "not known"


def system():
    found = re.search(r'PRETTY_NAME="?([^"\n]*)', contents("/etc/os-release", ""))
    return found.group(1) if found else "not known"


def c_library():
    said = say(["ldd", "--version"]) or ""
    return said.partition("\n")[0].rpartition(" ")[2] or "not known"


def driver_library():
    """Where the dynamic linker finds the driver's library, by its cache."""
    for line in (say(["ldconfig", "-p"]) or say(["/sbin/ldconfig", "-p"]) or "").splitlines():
        if line.strip().startswith("libcuda.so.1 "):
            return line.rpartition("=> ")[2]
    return "not in the dynamic linker's cache"


def network():
    return ", ".join(
        f"{path.name} {contents(path / 'operstate')}, flags {contents(path / 'flags')}"
        for path in sorted(pathlib.Path("/sys/class/net").glob("*"))
    )


def here():
    """Facts for which the driver is not asked, (name, value)."""
    yield "system", f"{system()}, Linux {platform.release()}, C library {c_library()}"
    if platform.release().startswith("4.4.0"):
        yield "sandbox", "this kernel's version is that of a sandbox without CUDA IPC and SO_PEERPIDFD"
    yield "processors", f"{os.cpu_count()} ({processor()}), {memory()}"
    yield "memory zones", zones()
    yield "NUMA nodes", str(len(list(pathlib.Path("/sys/devices/system/node").glob("node[0-9]*"))) or "not known")
    for name in ("enabled", "shmem_enabled"):
        yield f"transparent huge pages, {name}", chosen(contents(THP / name))
    yield "huge pages reserved", contents("/proc/sys/vm/nr_hugepages")
    yield "user", str(os.geteuid())
    yield "driver's library", driver_library()
    yield "nodes", ", ".join(sorted(glob.glob("/dev/nvidia*"))) or "no /dev/nvidia*"
    yield "network", network() or "no interfaces"
    modules = (f"{name}: {'yes' if importlib.util.find_spec(name) else 'no'}" for name in MODULES)
    yield "Python", f"{sys.executable} {platform.python_version()}, {', '.join(modules)}"
    yield "tools", ", ".join(f"{tool}: {shutil.which(tool) or 'no'}" for tool in TOOLS)
    yield "MPS", mps()


def of_the_driver(build, env=None):
    """Facts that the driver or nvidia-smi has to tell, (name, value)."""
    facts = query()
    yield from (facts or {"card": "nvidia-smi finds none, or is not there"}).items()
    raw = pcie_raw(facts)
    if raw:
        yield "PCIe, one direction", f"{raw:.1f} GB/s at most"
    said = say([str(pathlib.Path(build) / "tests/gpu/conformance"), "--facts"], env) or ""
    for line in said.splitlines():
        kind, _, rest = line.partition("\t")
        name, _, value = rest.partition("\t")
        if kind == "fact":
            yield name, value
    if not said:
        yield "attributes", "the driver says none"


def collect(build, env=None):
    return dict([*of_the_driver(build, env), *here()])


def lines(facts):
    return [f"- {name}: {value}" for name, value in facts.items()]


if __name__ == "__main__":
    for known in (here(), of_the_driver(sys.argv[1])):
        for name, value in known:
            print(f"- {name}: {value}", flush=True)
