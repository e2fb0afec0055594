"""How much memory this process can still have: the machine's, and that of the memory groups it is in (docker -m, systemd's
MemoryMax=, Kubernetes), whose limit kills instead of failing an allocation."""

import pathlib

_GROUPS = {  # by the controllers that a line of /proc/self/cgroup names: the mount, limit, usage, what usage gives up
    "": ("/sys/fs/cgroup", "memory.max", "memory.current", ("inactive_file", "active_file")),
    "memory": (
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
}


def _of_machine():
    """Bytes that the machine can give without swapping."""
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable:"))


def _of_group(folder, limit, usage, reclaimable):
    """Bytes that a memory group can give; None: it has no limit."""
    text = (folder / limit).read_text().strip()
    if text == "max":
        return None
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return int(text) - int((folder / usage).read_text()) + sum(int(stat.get(name, 0)) for name in reclaimable)


def _of_groups():
    """The same of each group that this process is in, and of the groups around it."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        names = "memory" if "memory" in controllers.split(",") else controllers
        if names not in _GROUPS:
            continue
        mount, *files = _GROUPS[names]
        mount, own = pathlib.Path(mount), pathlib.Path(path.lstrip("/"))
        for folder in {mount / own, *(mount / parent for parent in own.parents)}:
            try:
                yield _of_group(folder, *files)
            except (OSError, ValueError):  # a path of the host's in a container, or a root without files
                pass


def available():
    """Bytes of memory that this process can have without swapping; None: it is not known."""
    found = []
    for source in (lambda: [_of_machine()], lambda: list(_of_groups())):
        try:
            found += [n for n in source() if n is not None]
        except (OSError, ValueError, StopIteration):
            pass
    return max(0, min(found)) if found else None
