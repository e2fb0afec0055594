"""Facts about this machine that affect the measurements: facts.py BUILD prints "- NAME: VALUE" lines.

Changes no setting, and never fails: an unknown fact is reported as unknown.
"""

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
)
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


def system():
    found = re.search(r'PRETTY_NAME="?([^"\n]*)', contents("/etc/os-release", ""))
    return found.group(1) if found else "not known"


def collect(build, env=None):
    """{name: value}, in the order of printing."""
    facts = query()
    if not facts:
        facts = {"card": "nvidia-smi finds none, or is not there"}
    raw = pcie_raw(facts)
    if raw:
        facts["PCIe, one direction"] = f"{raw:.1f} GB/s at most"
    facts["MPS"] = mps()
    said = say([str(pathlib.Path(build) / "tests/gpu/conformance"), "--facts"], env) or ""
    for line in said.splitlines():
        kind, _, rest = line.partition("\t")
        name, _, value = rest.partition("\t")
        if kind == "fact":
            facts[name] = value
    if not said:
        facts["attributes"] = "the driver says none"
    facts["system"] = f"{system()}, Linux {platform.release()}"
    facts["processors"] = f"{os.cpu_count()} ({processor()}), {memory()}"
    facts["NUMA nodes"] = str(len(list(pathlib.Path("/sys/devices/system/node").glob("node[0-9]*"))) or "not known")
    for name in ("enabled", "shmem_enabled"):
        facts[f"transparent huge pages, {name}"] = chosen(contents(THP / name))
    facts["huge pages reserved"] = contents("/proc/sys/vm/nr_hugepages")
    facts["tools"] = ", ".join(f"{tool}: {shutil.which(tool) or 'no'}" for tool in TOOLS)
    return facts


def lines(facts):
    return [f"- {name}: {value}" for name, value in facts.items()]


if __name__ == "__main__":
    print("\n".join(lines(collect(sys.argv[1]))))
