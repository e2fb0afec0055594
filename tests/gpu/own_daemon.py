"""A daemon for one measurement or test on a GPU, with a socket in a folder of its own. Only the standard library."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

START_S = STOP_S = 20


class Daemon:
    """batchd with `args`; `env` replaces the environment, `config` is the text of its configuration file, `user` the
    number of the user that it runs as. A context manager: the daemon ends with the block, after which `wrong` says whether
    it did so well, and `last_words` has the end of its log.

    begin() and kill() may be called in turn: the next daemon has the same socket."""

    def __init__(self, build, *args, env=None, user=None, config=None):
        self.build, self.args, self.user = pathlib.Path(build), list(args), user
        self.env = dict(os.environ if env is None else env)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="batchd-gpu-"))
        self.socket, self.log = str(self.folder / "s"), self.folder / "log"
        if config is not None:
            (self.folder / "batchd.yaml").write_text(config)
            self.args += ["--config", str(self.folder / "batchd.yaml")]
        if user is not None:
            os.chown(self.folder, user, user)
        self.process = None

    def begin(self):
        """Returns when the daemon takes connections."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(self.build / "batchd"), "--foreground", "--socket", self.socket, *self.args],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **({} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}),
            )
        deadline = time.monotonic() + START_S
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the daemon does not start: {self.said()[-500:]}")
            time.sleep(0.02)

    def listens(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            try:
                s.connect(self.socket)
            except OSError:
                return False
        return True

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """None if it ended well, otherwise how it did."""
        if self.process is None:
            return None
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"the daemon did not stop within {STOP_S} s of SIGTERM"
        return f"the daemon ended with status {status}" if status else None

    def said(self):
        return self.log.read_text(errors="replace")

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.end()
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.wrong, self.last_words = self.end(), self.said()[-3000:]
        self.remove()

    def status(self):
        p = subprocess.run(
            [str(self.build / "batchctl"), "status", "--json"],
            env=self.env | {"BATCHD_SOCKET": self.socket},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
        )
        p.check_returncode()
        return json.loads(p.stdout)

    def copies(self):
        """How many copies to GPUs it has made, and how many of them from memory that is not pinned."""
        gpus = self.status()["gpus"]
        return sum(c["copies"] for g in gpus for c in g["copies"]), sum(g["pageable_copies"] for g in gpus)

    def processor_s(self):
        """Processor time that it has used so far."""
        return used_s(pathlib.Path(f"/proc/{self.process.pid}/stat"))[1]

    def threads_s(self):
        """The same by the names of its threads, of which several may have one name."""
        found = {}
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # one that has ended meanwhile
                name, used = used_s(task / "stat")
                found[name] = found.get(name, 0) + used
        return found


def used_s(stat):
    """The name of a process or thread, and its processor time."""
    before, _, after = stat.read_text().rpartition(")")
    words = after.split()
    return before.partition("(")[2], (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
