"""The units, checked by systemd's own tools, and the daemon under a service manager that a test can simulate."""

import os
import re
import select
import shutil
import socket
import subprocess
import time

import pytest
from conftest import BUILD, REPO

UNITS = REPO / "systemd" / "units"
MAX_EXPOSURE = 0.8
MAX_EXPOSURE_GPU = 1.5
WAIT_S = 300


def tool(name):
    path = shutil.which(name)
    if not path:
        pytest.skip(f"{name} is not here")
    return path


def run(*argv):
    return subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0"}
    )


@pytest.fixture
def units(tmp_path):
    """The units as installed, with a program that exists."""
    for name in ("batchd.service", "batchd.socket"):
        text = (UNITS / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/bin/batchd", "/bin/true"))
    return tmp_path


def test_units_are_what_systemd_understands(units):
    """Proves that systemd-analyze finds no unknown directive, bad value or missing unit."""
    result = run(
        tool("systemd-analyze"), "verify", "--man=no", str(units / "batchd.service"), str(units / "batchd.socket")
    )
    complaints = [line for line in result.stderr.splitlines() if "batchd" in line]
    assert result.returncode == 0 and not complaints, result.stderr


def test_service_is_hardened(units):
    """Proves that the exposure level, as systemd counts it, stays far below that of memcached's or journald's units."""
    result = run(tool("systemd-analyze"), "security", "--offline=yes", "--no-pager", str(units / "batchd.service"))
    if "unrecognized option" in result.stderr:
        pytest.skip("this systemd-analyze has no --offline")
    level = re.search(r"Overall exposure level for .*: ([0-9.]+)", result.stdout)
    assert level, result.stdout + result.stderr
    assert float(level[1]) < MAX_EXPOSURE, result.stdout


@pytest.fixture
def gpu_units(units):
    """The same with the drop-in for GPU machines. As one text too, because not every systemd-analyze reads drop-ins
    beside a file."""
    drop_in = (UNITS / "gpu.conf").read_text()
    (units / "batchd.service.d").mkdir()
    (units / "batchd.service.d/gpu.conf").write_text(drop_in)
    text = (units / "batchd.service").read_text()
    unit, service = drop_in.split("[Unit]", 1)[1].split("[Service]", 1)
    text = (
        text.replace("[Service]", unit + "[Service]", 1)
        .replace("[Install]", service + "\n[Install]")
        .replace("Also=batchd.socket", "")
    )
    (units / "merged.service").write_text(text)
    return units


def directives(text):
    """The settings of a unit file, with all values of repeated settings."""
    found = {}
    for line in text.splitlines():
        name, is_one, value = line.partition("=")
        if is_one and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_gpu_drop_in_is_what_systemd_understands(gpu_units):
    """Proves the same for the drop-in, alone and merged into the unit."""
    for name in ("batchd.service", "merged.service"):
        result = run(
            tool("systemd-analyze"), "verify", "--man=no", str(gpu_units / name), str(gpu_units / "batchd.socket")
        )
        # nvidia-modprobe and nvidia-smi may be missing, which the unit allows and systemd-analyze mentions
        complaints = [
            line
            for line in result.stderr.splitlines()
            if ("batchd" in line or "merged" in line or "gpu.conf" in line)
            and "nvidia-modprobe" not in line
            and "nvidia-smi" not in line
        ]
        assert not complaints, result.stderr


def test_gpu_machines_are_hardened_too(gpu_units):
    """Proves that CUDA needs few permissions: devices by name, the machine's abstract sockets, still no network, no
    capabilities."""
    result = run(tool("systemd-analyze"), "security", "--offline=yes", "--no-pager", str(gpu_units / "merged.service"))
    if "unrecognized option" in result.stderr:
        pytest.skip("this systemd-analyze has no --offline")
    level = re.search(r"Overall exposure level for .*: ([0-9.]+)", result.stdout)
    assert level, result.stdout + result.stderr
    assert float(level[1]) < MAX_EXPOSURE_GPU, result.stdout


def test_gpu_drop_in_works_at_the_first_start_after_boot(gpu_units):
    """Proves that the driver's module and the nodes of all GPUs exist before the daemon: the module is loaded before
    the unit's device filter is built, and the programs that make nodes may make them, and may be missing."""
    said = directives((UNITS / "gpu.conf").read_text())
    assert said["Wants"] == ["modprobe@nvidia_uvm.service"]
    assert {"modprobe@nvidia_uvm.service", "nvidia-persistenced.service"} == set(" ".join(said["After"]).split())
    assert [line.split()[0] for line in said["ExecStartPre"]] == ["+-/usr/bin/nvidia-modprobe", "+-/usr/bin/nvidia-smi"]
    assert all(line.endswith(" rwm") for line in said["DeviceAllow"]) and "char-nvidia-uvm rwm" in said["DeviceAllow"]
    base = directives((gpu_units / "batchd.service").read_text())
    assert (
        base["CapabilityBoundingSet"] == [""] and "CapabilityBoundingSet" not in said
    )  # the daemon itself makes no nodes
    modules = (UNITS / "batchd-modules-load.conf").read_text()
    assert [line for line in modules.splitlines() if line and not line.startswith("#")] == ["nvidia-uvm"]


def test_gpu_drop_in_lets_cuda_processes_meet_and_opens_no_network(gpu_units):
    """Proves that the daemon's abstract sockets are in the trainers' network namespace, and that the settings that
    forbid a network stay."""
    base, said = (directives(path.read_text()) for path in (UNITS / "batchd.service", UNITS / "gpu.conf"))
    assert base["PrivateNetwork"] == ["yes"] and said["PrivateNetwork"] == ["no"]
    for name, value in (("RestrictAddressFamilies", "AF_UNIX"), ("IPAddressDeny", "any")):
        assert base[name] == [value] and name not in said


def system_calls(group):
    """Those of a group of systemd's, of the groups in it too."""
    said = run(tool("systemd-analyze"), "syscall-filter", "--no-pager", group)
    if said.returncode:
        pytest.skip(f"this systemd-analyze does not list {group}")
    calls = set()
    for line in said.stdout.splitlines()[1:]:
        name = line.strip()
        if name.startswith("@"):
            calls |= system_calls(name)
        elif name and not name.startswith("#"):
            calls.add(name)
    return calls


def test_numa_nodes_and_niceness_may_be_used_and_nothing_else_of_their_group(units):
    """Proves what the filter's lines together let through: the calls that place workers and slots, and the one by which
    workers step back."""
    allowed = set()
    for line in directives((UNITS / "batchd.service").read_text())["SystemCallFilter"]:
        for name in line.lstrip("~").split():
            calls = system_calls(name) if name.startswith("@") else {name}
            allowed = allowed - calls if line.startswith("~") else allowed | calls
    assert {"mbind", "sched_setaffinity", "get_mempolicy", "memfd_create", "openat2"} <= allowed
    assert allowed & system_calls("@resources") == {"mbind", "sched_setaffinity", "sched_setscheduler", "setpriority"}


def test_user_group_and_directories_are_made(tmp_path):
    """Proves that sysusers and tmpfiles files create what the units rely on, in a root directory of the test's own."""
    if os.geteuid() != 0:
        pytest.skip("needs root to give directories away")
    sysusers, tmpfiles = tool("systemd-sysusers"), tool("systemd-tmpfiles")
    (tmp_path / "etc").mkdir()
    result = run(sysusers, f"--root={tmp_path}", str(UNITS / "batchd.sysusers"))
    assert result.returncode == 0, result.stderr
    assert re.search(r"^batchd:", (tmp_path / "etc/passwd").read_text(), re.M)
    assert re.search(r"^batchd:", (tmp_path / "etc/group").read_text(), re.M)
    uid = int(re.search(r"^batchd:[^:]*:(\d+):", (tmp_path / "etc/passwd").read_text(), re.M)[1])
    result = run(tmpfiles, "--create", f"--root={tmp_path}", str(UNITS / "batchd.tmpfiles"))
    assert result.returncode == 0, result.stderr
    for name, mode in (("run/batchd", 0o755), ("var/cache/batchd", 0o750)):
        st = (tmp_path / name).stat()
        assert (st.st_uid, st.st_mode & 0o7777) == (uid, mode), name


def test_example_configuration_is_valid():
    """Proves that the example loads as it is, and that the defaults it shows are the defaults."""
    result = run(str(BUILD / "batchd"), "--config", str(UNITS / "batchd.yaml"), "--check-config")
    assert result.returncode == 0, result.stderr


def test_socket_unit_and_client_agree_on_the_address():
    """Proves that trainers look where systemd listens."""
    header = (REPO / "proto" / "address.h").read_text()
    address = re.search(r'ADDRESS_SYSTEM "([^"]+)"', header)[1]
    assert f"ListenSequentialPacket={address}\n" in (UNITS / "batchd.socket").read_text()


class Manager:
    """systemd's side towards the daemon: a socket for its messages, a socket to serve, a watchdog."""

    def __init__(self, folder, watchdog_usec=None):
        self.messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.messages.bind(str(folder / "notify"))
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.address = folder / "unit.socket"
        self.listener.bind(str(self.address))
        self.listener.listen(16)
        env = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify"), "LISTEN_FDS": "1"}
        if watchdog_usec:
            env["WATCHDOG_USEC"] = str(watchdog_usec)
        # A shell puts the socket where the protocol wants it and its own pid, which exec keeps, into the environment.
        fd = self.listener.fileno()
        script = f'exec 3<&{fd} && export LISTEN_PID=$$ && exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", str(BUILD / "batchd")],
            env=env,
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def expect(self, word):
        """Reads messages until one has this line; returns all its lines."""
        deadline = time.monotonic() + WAIT_S
        seen = []
        while (left := deadline - time.monotonic()) > 0 and select.select([self.messages], [], [], left)[0]:
            lines = self.messages.recv(4096).decode().splitlines()
            seen.append(lines)
            if any(line == word or line.startswith(word + "=") for line in lines):
                return lines
        pytest.fail(f"no {word} within {WAIT_S} s, only {seen}; {self.process.poll()}")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        _, errors = self.process.communicate(timeout=WAIT_S)
        self.messages.close()
        self.listener.close()
        return errors


def connects(address):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(WAIT_S)
        s.connect(str(address))


def test_daemon_serves_the_managers_socket_and_reports_its_life(tmp_path):
    """Proves READY, RELOADING with its time, READY again, STOPPING, and that the manager's socket survives."""
    manager = Manager(tmp_path)
    try:
        assert any(line.startswith("STATUS=") for line in manager.expect("READY=1"))
        connects(manager.address)
        manager.process.send_signal(1)  # SIGHUP
        assert any(line.startswith("MONOTONIC_USEC=") for line in manager.expect("RELOADING=1"))
        manager.expect("READY=1")
        manager.process.terminate()
        manager.expect("STOPPING=1")
        assert manager.process.wait(WAIT_S) == 0
        assert manager.address.is_socket()
    finally:
        errors = manager.stop()
    assert "error" not in errors


def test_watchdog_is_fed_in_time(tmp_path):
    """Proves that pings come when the manager requests them."""
    manager = Manager(tmp_path, watchdog_usec=400_000)
    try:
        manager.expect("READY=1")
        for _ in range(3):
            manager.expect("WATCHDOG=1")
    finally:
        manager.stop()


def test_wrong_configuration_reaches_the_managers_status(tmp_path):
    """Proves that `systemctl status` shows file and line, and that the exit code tells systemd not to try again."""
    (tmp_path / "c.yaml").write_text("workers: many\n")
    messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    messages.bind(str(tmp_path / "notify"))
    result = subprocess.run(
        [str(BUILD / "batchd"), "--config", str(tmp_path / "c.yaml")],
        capture_output=True,
        text=True,
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
    )
    assert result.returncode == 78
    assert "RestartPreventExitStatus=78" in (UNITS / "batchd.service").read_text()
    messages.setblocking(False)
    assert (
        messages.recv(4096).decode().startswith(f"STATUS={tmp_path}/c.yaml:1: workers: 'many' is not valid; expected ")
    )
    messages.close()


def test_the_manual_explains_every_key_of_the_example():
    """Proves that batchd.yaml(5) is complete: the example has every key, as a setting or commented out."""
    manual = (REPO / "daemon/man/batchd.yaml.5").read_text()
    table = (REPO / "daemon/config/key.c").read_text()
    keys = {name.split(".")[-1] for name in re.findall(r"\{\s*KEY\(([a-z_.]+),", table)}
    example = (UNITS / "batchd.yaml").read_text()
    assert len(keys) > 30
    for key in sorted(keys):
        assert re.search(rf"^#? *{key}:", example, re.M), f"systemd/units/batchd.yaml lacks {key}"
        assert re.search(rf"\bCm (cache\.)?{key}\b", manual), f"batchd.yaml(5) lacks {key}"
