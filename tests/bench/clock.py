"""CPU seconds and memory of processes, read from /proc: the cost of a loader includes its workers and its daemon."""

import os
import pathlib

TICKS = os.sysconf("SC_CLK_TCK")


def _stat(pid):
    """(parent, CPU seconds, CPU seconds of children that were waited for), or None when the process is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS, (int(fields[13]) + int(fields[14])) / TICKS


def family(root):
    """root and its living descendants."""
    children = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            stat = _stat(entry.name)
            if stat:
                children.setdefault(stat[0], []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def cpu_s(pids):
    """CPU seconds of these processes so far, and of their children that have ended."""
    total = 0.0
    for pid in pids:
        stat = _stat(pid)
        if stat:
            total += stat[1] + stat[2]
    return total


def resident_bytes(pid):
    """Resident memory now, shared memory included; and the highest so far."""
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024, int(status["VmHWM"].split()[0]) * 1024
