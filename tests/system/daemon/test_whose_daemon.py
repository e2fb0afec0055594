"""Which daemon a script finds or starts: its user's own, the system's, and the message where a user may not use that
one. In a mount namespace with a /run and a /tmp of its own, as root and as an ordinary user."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from daemons import BUILD, REPO, skip_unless_others_reach_the_build

NOBODY = 65534
SYSTEM = "/run/batchd/batchd.socket"

PRELUDE = (
    f"""
import grp, json, os, pathlib, pwd, signal, stat, subprocess, sys, time
SYSTEM, BUILD, NOBODY = {SYSTEM!r}, {str(BUILD)!r}, {NOBODY}
GROUP = grp.getgrall()[-1] if grp.getgrall()[-1].gr_gid not in (0, NOBODY) else grp.getgrgid(1)
USER = pwd.getpwuid(NOBODY).pw_name
"""
    + """
TRAIN = '''
import batchd
loader = batchd.DataLoader("random:length=20,shape=3", 4, arrays="numpy")
print(sum(len(x) for x, y in loader), loader.socket)
'''

def run(*argv, user=None, **env):
    who = dict(user=user, group=user, extra_groups=[]) if user else {}
    kept = {k: v for k, v in os.environ.items() if k not in ("BATCHD_SOCKET", "XDG_RUNTIME_DIR", "BATCHD_CONFIG", "XDG_CONFIG_HOME")}
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, cwd="/", env={**kept, "HOME": "/tmp/home", **env}, **who)

def script(user=None, **env):
    return run(sys.executable, "-c", TRAIN, user=user, **env)

def batchctl(*argv, user=None, **env):
    return run(f"{BUILD}/batchctl", *argv, user=user, **env)

def start_system(mode="0660", **env):
    pathlib.Path("/tmp/system.yaml").write_text(f"socket_mode: '{mode}'\\nsocket_group: {GROUP.gr_name}\\n")
    process = subprocess.Popen([f"{BUILD}/batchd", "--config", "/tmp/system.yaml", "--socket", SYSTEM], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not os.path.exists(SYSTEM) or stat.S_IMODE(os.stat(SYSTEM).st_mode) != int(mode, 8):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return process

def pid_of(user=None, **env):
    return json.loads(batchctl("status", "--json", user=user, **env).stdout)["daemon"]["pid"]

started = []
def note(user=None, **env):
    started.append(pid_of(user, **env))
"""
)


def in_namespace(body):
    """Runs the script as root of a machine without daemons; the daemons that it records in `started` are ended."""
    if os.geteuid() != 0:
        pytest.skip("needs root for a /run of its own")
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/run"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    skip_unless_others_reach_the_build()
    if any(str(path).startswith(("/tmp/", "/run/")) for path in (BUILD, REPO)):
        pytest.skip(f"{REPO} lies under a folder that is empty in the test's namespace")
    source = (
        PRELUDE
        + "try:\n"
        + textwrap.indent(textwrap.dedent(body), "    ")
        + textwrap.dedent("""
    finally:
        for pid in started:
            os.kill(pid, signal.SIGTERM)
    """)
    )
    places = "mount -t tmpfs none /run && mount -t tmpfs -o mode=1777 none /tmp && mkdir -m 0777 /tmp/home"
    python = pathlib.Path(os.path.realpath(sys.base_prefix))
    hidden = [folder for folder in reversed(python.parents) if not os.stat(folder).st_mode & 0o001]
    if hidden:  # a Python in a user's home: shown to every user, in this namespace
        places += (
            f" && mkdir /run/python && mount --bind {python} /run/python && mount -t tmpfs -o mode=0755 none {hidden[0]} && mkdir -p {python} && "
            f"mount --bind /run/python {python}"
        )
    places += ' && exec "$@"'
    env = {
        k: v for k, v in os.environ.items() if k not in ("TMPDIR", "XDG_CACHE_HOME", "BATCHD_SOCKET")
    }  # they do not exist there
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", places, "sh", sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=300,
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_daemon_of_roots_own_hinders_no_other_user():
    """Root's first script starts a daemon for root; another user's first script starts one for that user; the system's
    address stays free."""
    in_namespace("""
        root = script()
        assert root.stdout == "20 /tmp/batchd-0/socket\\n" and not root.stderr, root
        note()
        nobody = script(NOBODY)
        assert nobody.stdout == f"20 /tmp/batchd-{NOBODY}/socket\\n" and not nobody.stderr, nobody
        note(NOBODY)
        assert not os.path.exists("/run/batchd") and len(set(started)) == 2
        os.mkdir("/run/root", 0o700)
        runtime = script(XDG_RUNTIME_DIR="/run/root")
        assert runtime.stdout == "20 /run/root/batchd/socket\\n", runtime
        note(XDG_RUNTIME_DIR="/run/root")
    """)


def test_a_user_outside_the_group_gets_a_daemon_and_a_line_about_it():
    """The line names the group and the command; the second script, whose daemon runs, prints nothing more."""
    in_namespace("""
        system = start_system()
        started.append(system.pid)
        first = script(NOBODY)
        assert first.stdout == f"20 /tmp/batchd-{NOBODY}/socket\\n", first
        assert first.stderr.count("\\n") == 1 and f"`usermod -aG {GROUP.gr_name} {USER}`" in first.stderr, first.stderr
        note(NOBODY)
        second = script(NOBODY)
        assert second.stdout == first.stdout and not second.stderr, second
        assert script().stdout == f"20 {SYSTEM}\\n"
    """)


def test_a_user_who_is_refused_is_told_how_to_be_let_in():
    """Where no daemon may be started: by batchctl, and for a named socket."""
    in_namespace("""
        system = start_system()
        started.append(system.pid)
        for env in ({}, {"BATCHD_SOCKET": SYSTEM}):
            refused = batchctl("status", user=NOBODY, **env)
            assert refused.returncode == 4 and f"group {GROUP.gr_name}" in refused.stderr and f"usermod -aG {GROUP.gr_name} {USER}" in refused.stderr, refused
        os.kill(started.pop(), signal.SIGTERM)
        system.wait()
        started.append(start_system("0600").pid)
        refused = batchctl("status", user=NOBODY)
        assert refused.returncode == 4 and "serves user root alone" in refused.stderr, refused
    """)


def test_a_directory_that_is_not_safe_names_its_cure():
    """The place of the user's own daemon belongs to another user, or others may write to it."""
    in_namespace("""
        os.mkdir(f"/tmp/batchd-{NOBODY}", 0o700)
        os.chown(f"/tmp/batchd-{NOBODY}", 12345, 12345)
        refused = script(NOBODY)
        assert "belongs to user 12345; remove it as root, or set $XDG_RUNTIME_DIR" in refused.stderr, refused
        os.chown(f"/tmp/batchd-{NOBODY}", NOBODY, NOBODY)
        os.chmod(f"/tmp/batchd-{NOBODY}", 0o777)
        refused = script(NOBODY)
        assert f"others may write to it; `chmod go-w /tmp/batchd-{NOBODY}`" in refused.stderr, refused
        os.makedirs("/run/batchd")
        os.chown("/run/batchd", 12345, 12345)  # as `systemd-tmpfiles --create` leaves it for the service
        assert script().stdout == "20 /tmp/batchd-0/socket\\n"
        note()
    """)


def test_a_users_own_configuration_is_read():
    """The user's file, before the system's; the file that $BATCHD_CONFIG names, before that; a name without a file is
    an error that says so."""
    in_namespace("""
        def memory(path, size):
            path = pathlib.Path(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"memory: {size}\\n")
            return path
        def budget(**env):
            run_env = dict(XDG_RUNTIME_DIR="/run/r", **env)
            done = script(**run_env)
            assert done.returncode == 0, done
            status = json.loads(batchctl("status", "--json", **run_env).stdout)
            os.kill(status["daemon"]["pid"], signal.SIGTERM)
            while os.path.exists("/run/r/batchd/socket"):
                time.sleep(0.01)
            return status["memory"]["budget_bytes"] >> 20
        os.mkdir("/run/r", 0o700)
        memory("/tmp/home/.config/batchd/batchd.yaml", "200MiB")
        memory("/tmp/x/batchd/batchd.yaml", "300MiB")
        memory("/tmp/home/named.yaml", "400MiB")
        assert [budget(), budget(XDG_CONFIG_HOME="/tmp/x"), budget(BATCHD_CONFIG="/tmp/home/named.yaml")] == [200, 300, 400]
        missing = script(XDG_RUNTIME_DIR="/run/r", BATCHD_CONFIG="none.yaml")
        assert "$BATCHD_CONFIG names none.yaml: No such file" in missing.stderr, missing
        os.chown("/tmp/home/.config/batchd/batchd.yaml", 12345, 12345)
        assert budget() != 200
        checked = run(f"{BUILD}/batchd", "--check-config", XDG_CONFIG_HOME="/tmp/x")
        assert checked.stdout.startswith("/tmp/x/batchd/batchd.yaml: valid"), checked
    """)


def test_the_log_of_a_daemon_of_ones_own_is_named():
    """When it ends without a message; its lines have times."""
    in_namespace("""
        os.mkdir("/run/r", 0o700)
        os.environ["XDG_RUNTIME_DIR"] = "/run/r"
        import batchd
        loader = batchd.DataLoader("random:length=1000,shape=3", 4, arrays="numpy", reconnect=0)
        iterator = iter(loader)
        next(iterator)
        pid = batchd.status(loader.socket)["daemon"]["pid"]
        log = pathlib.Path("/run/r/batchd/daemon.log").read_text()
        assert log and all(line[:4].isdigit() and line[10] == "T" and " batchd[" in line for line in log.splitlines()), log
        os.kill(pid, signal.SIGKILL)
        try:
            for _ in range(1000):
                next(iterator)
        except batchd.LostError as e:
            assert "its log /run/r/batchd/daemon.log says why" in str(e), e
        else:
            raise AssertionError("it went on")
    """)


def test_bench_measures_where_no_daemon_runs():
    """Uses a private daemon and says so in one line; nothing is left of it. A named socket is not replaced."""
    in_namespace("""
        done = batchctl("bench", "random:length=100,shape=3", "--epochs", "1", "--quiet", user=NOBODY)
        assert done.returncode == 0 and "IMAGES/S" in done.stdout, done
        assert done.stderr == "batchctl bench: no daemon runs for this user; measuring with a private one, as --private does\\n", done
        assert os.listdir("/tmp") == ["home"], os.listdir("/tmp")
        named = batchctl("bench", "random:length=100,shape=3", BATCHD_SOCKET="/run/none")
        assert named.returncode == 3 and "/run/none" in named.stderr, named
    """)
