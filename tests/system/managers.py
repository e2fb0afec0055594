"""Service managers that run our own units: systemd itself (a private instance of the user's manager), and a small
double for machines where it cannot run.

Both: start() listens and starts nothing; the first connection starts batchd. address; main_pid(); n_starts(); story(),
to explain an unexpected number; restart(); reload(); stop(). watchdog_s: the time without a ping after which batchd is
killed.

The fake driver implements the parts that the unit relies on: socket activation, READY and WATCHDOG messages,
Restart=on-failure."""

import fcntl
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time

from daemons import REPO, until

WAIT_S = 300
RESTART_S = 0.2


# All managers of one user share one control group for batchd.service, and stopping one manager's service kills those of
# the others: so one runs at a time, whichever process runs the tests. The program is the lock file.
SYSTEMD = pathlib.Path("/lib/systemd/systemd")


class Unavailable(Exception):
    """Why this manager cannot run here."""


class Double:
    """The protocol that systemd speaks to a service, and its rules for restarting one."""

    def __init__(self, build, folder, argv, watchdog_s):
        self.watchdog_s = watchdog_s
        self.argv, self.address = [str(build / "batchd"), *argv], folder / "batchd.socket"
        self.log = folder / "double.log"
        self._notify = folder / "notify"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._process = None
        self._n_starts = 0
        self._wanted = self._ready = self._ending = False
        self._lock = threading.RLock()

    def start(self):
        self._listener.bind(str(self.address))
        self._listener.listen(128)
        self._messages.bind(str(self._notify))
        self._thread = threading.Thread(target=self._manage, daemon=True)
        self._thread.start()

    def _spawn(self):
        env = {
            **os.environ,
            "NOTIFY_SOCKET": str(self._notify),
            "LISTEN_FDS": "1",
            "WATCHDOG_USEC": str(int(self.watchdog_s * 1e6)),
        }
        fd = self._listener.fileno()
        # A shell puts the socket where the protocol wants it, and its own pid, which exec keeps, into the environment.
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", f'exec 3<&{fd} && export LISTEN_PID=$$ && exec "$@"', "bash", *self.argv],
                env=env,
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._n_starts += 1
        self._ready, self._pinged = False, time.monotonic()

    def _read(self):
        while select.select([self._messages], [], [], 0)[0]:
            for line in self._messages.recv(4096).decode().splitlines():
                self._ready |= line == "READY=1"
                if line in ("READY=1", "WATCHDOG=1"):
                    self._pinged = time.monotonic()

    def _manage(self):
        while not self._ending:
            with self._lock:
                self._read()
                if self._process is None:
                    if self._wanted or select.select([self._listener], [], [], 0)[0]:
                        self._spawn()
                elif self._process.poll() is not None:
                    self._wanted = self._process.returncode not in (0, 78)
                    self._process = None
                    if self._wanted:
                        time.sleep(RESTART_S)
                elif self._ready and time.monotonic() - self._pinged > self.watchdog_s:
                    self._process.kill()
            time.sleep(0.005)

    def main_pid(self):
        return until("batchd is ready", lambda: self._ready and self._process and self._process.pid)

    def n_starts(self):
        return self._n_starts

    def story(self):
        return self.log.read_text(errors="replace")[-3000:]

    def restart(self):
        with self._lock:
            process = self._process
            process.terminate()
            assert process.wait(WAIT_S) == 0
            self._process = None
            self._spawn()

    def reload(self):
        self._process.send_signal(signal.SIGHUP)

    def stop(self):
        self._ending = True
        self._thread.join()
        code = 0
        if self._process:
            self._process.terminate()
            code = self._process.wait(WAIT_S)
        self._listener.close()
        self._messages.close()
        assert code == 0, self.log.read_text(errors="replace")


# Settings that a user's manager may not use, or that would keep batchd from a test's folders.
NOT_FOR_USERS = (
    "User",
    "Group",
    "SocketUser",
    "SocketGroup",
    "Protect",
    "Private",
    "Restrict",
    "Capability",
    "Ambient",
    "NoNewPrivileges",
    "Device",
    "IPAddress",
    "LimitMEMLOCK",
    "LimitNOFILE",
    "SystemCall",
    "MemoryDeny",
    "LockPersonality",
    "RemoveIPC",
    "Keyring",
    "ProcSubset",
    "RuntimeDirectory",
    "CacheDirectory",
    "ConfigurationDirectory",
    "UMask",
    "Requires=",
    "After=remote",
)


class Systemd:
    """The real units, without the settings that only the system's manager can use, under a manager of our own in a
    mount namespace of its own (where a directory makes systemd believe that it booted the machine)."""

    def __init__(self, build, folder, argv, watchdog_s):
        for tool in ("unshare", "nsenter", "systemctl"):
            if not shutil.which(tool):
                raise Unavailable(f"{tool} is not here")
        if os.geteuid() or not SYSTEMD.exists():
            raise Unavailable("needs root and systemd")
        self.address = folder / "batchd.socket"
        self._units, self._output = folder / "units", folder / "batchd.log"
        self._units.mkdir()
        self._write_units(build, argv, watchdog_s)
        self._env = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "HOME": str(folder),
            "LC_ALL": "C",
            "SYSTEMD_UNIT_PATH": f"{self._units}:/usr/lib/systemd/user",
        }
        self._env.pop("DBUS_SESSION_BUS_ADDRESS", None)
        (folder / "run").mkdir(mode=0o700)
        self.log = folder / "systemd.log"
        self._alone = open(SYSTEMD, "rb")
        fcntl.flock(self._alone, fcntl.LOCK_EX)
        with open(self.log, "ab") as log:
            self._manager = subprocess.Popen(
                [
                    "unshare",
                    "--mount",
                    "bash",
                    "-c",
                    "mount -t tmpfs none /run/systemd 2>/dev/null || { mkdir -p /run/systemd && mount -t tmpfs none "
                    f"/run/systemd; }} && mkdir -p /run/systemd/system && exec {SYSTEMD} --user --log-target=console",
                ],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until(
                "systemd runs",
                lambda: self._manager.poll() is not None
                or self._ctl("is-system-running", check=False).stdout.strip() in ("running", "degraded"),
            )
        except AssertionError:
            self._manager.kill()
        if self._manager.poll() is not None:
            self._alone.close()
            raise Unavailable(f"systemd does not run here: {self.log.read_text(errors='replace')[-300:]}")

    def _write_units(self, build, argv, watchdog_s):
        for name in ("batchd.service", "batchd.socket"):
            lines = [
                line
                for line in (REPO / "systemd" / "units" / name).read_text().splitlines()
                if not line.startswith(NOT_FOR_USERS) and not line.startswith("#")
            ]
            text = "\n".join(lines) + "\n"
            text = text.replace("/usr/bin/batchd", " ".join([str(build / "batchd"), *argv]))
            text = re.sub("ListenSequentialPacket=.*", f"ListenSequentialPacket={self.address}", text)
            text = re.sub("WatchdogSec=.*", f"WatchdogSec={watchdog_s}", text)
            if name == "batchd.service":
                inherited = [k for k in ("LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS") if k in os.environ]
                environment = "".join(f'Environment="{k}={os.environ[k]}"\n' for k in inherited)
                text = text.replace(
                    "[Service]\n", f"[Service]\nTimeoutAbortSec=1\nStandardError=append:{self._output}\n{environment}"
                )
            (self._units / name).write_text(text)

    def _ctl(self, *argv, check=True):
        done = subprocess.run(
            ["nsenter", "--mount", f"--target={self._manager.pid}", "systemctl", "--user", *argv],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (
            not check or done.returncode == 0
        ), f"systemctl {argv}: {done.stderr}{self.log.read_text(errors='replace')[-2000:]}"
        return done

    def _show(self, name):
        return self._ctl("show", "batchd.service", "--property", name, "--value").stdout.strip()

    def start(self):
        self._ctl("start", "batchd.socket")
        self._seen = set()

    def main_pid(self):
        return until("batchd is active", lambda: self._show("ActiveState") == "active" and int(self._show("MainPID")))

    def n_starts(self):
        return 1 + int(self._show("NRestarts"))

    def story(self):
        logs = [log.read_text(errors="replace")[-3000:] for log in (self._output, self.log)]
        return "\n".join([*logs, self._ctl("show", "batchd.service").stdout])

    def restart(self):
        self._ctl("restart", "batchd.service")

    def reload(self):
        self._ctl("reload", "batchd.service")

    def stop(self):
        self._ctl("stop", "batchd.socket", "batchd.service", check=False)
        result = self._show("Result")
        self._manager.terminate()
        try:
            self._manager.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._manager.kill()
            self._manager.wait()
        self._alone.close()
        assert result == "success", self.log.read_text(errors="replace")[-2000:]
