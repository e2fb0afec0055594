"""batchd's command line: options, configuration, exit codes, signals."""

import os
import re
import signal
import subprocess
import time

import pytest
from conftest import BUILD, REPO

WAIT_S = 300


def batchd(*args, cwd=None, env=None):
    return subprocess.run(
        [str(BUILD / "batchd"), *map(str, args)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )


def wait_for(what, condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {WAIT_S} s"
        time.sleep(0.01)


def test_help_and_manual_know_every_option():
    """Proves that --help is written to stdout, exits 0, and lists the same options as the manual."""
    result = batchd("--help")
    assert result.returncode == 0 and result.stderr == ""
    in_help = set(re.findall(r"--([a-z-]+)", result.stdout.split("\n\n")[1]))
    manual = (REPO / "daemon" / "man" / "batchd.8").read_text()
    in_manual = set(
        re.findall(r"-([a-z-]+[a-z])", "\n".join(line for line in manual.splitlines() if line.startswith(".It Fl")))
    )
    assert in_help == in_manual
    assert "config" in in_help and "idle-exit" in in_help


def test_version_is_the_headers():
    """Proves that daemon and client library report the same version."""
    header = (REPO / "client" / "batchd.h").read_text()
    assert batchd("--version").stdout == f"batchd {re.search(r'BATCHD_VERSION .([0-9.]+).', header)[1]}\n"


@pytest.mark.parametrize(
    "args, complaint",
    [
        (["--nonsense"], "unrecognized option '--nonsense'"),
        (["--workers"], "option '--workers' requires an argument"),
        (["serve"], "'serve' is not an option"),
        (["--workers", "0"], "--workers: '0' is not valid; expected auto or a whole number from 1 to 1024"),
        (
            ["--memory", "2G"],
            "--memory: '2G' is not valid; expected auto or a size from 16MiB to 64TiB, such as 512MiB",
        ),
        (["--linger", "5m"], "--linger: '5m' is not valid; expected a duration from 0s to 30d, such as 30s or 5min"),
        (["--idle-exit", "soon"], "--idle-exit: 'soon' is not valid; expected never or a duration"),
        (["--log-level", "all"], "--log-level: 'all' is not valid; expected error, warning, notice, info or debug"),
        (["--dataset", "imagefolder:/data"], "--dataset: 'imagefolder:/data' has no name; expected NAME=SPEC"),
        (["--dataset", "a b=random:length=1,shape=1"], "--dataset: 'a b' is not a name; expected 1 to 64 letters"),
        (
            ["--dataset", "a=pictures:/data"],
            "is not a source; expected imagefolder:DIR, files:LIST, tar:SHARDS, mds:SHARDS, zip:FILE, arrow:FILES, npy:FILE[,FILE], npz:FILE, idx:FILE[,FILE], cifar:FILE[,FILE...], tokens:FILE[,FILE...],length=T, blend:[WEIGHT*]DATASET;;[WEIGHT*]DATASET..., random:... or serve:NAME",
        ),
        (["--log", "/nonexistent/log"], "--log: /nonexistent/log cannot be opened: No such file or directory"),
        (["--config", "/nonexistent.yaml"], "/nonexistent.yaml: cannot be read: No such file or directory"),
    ],
)
def test_wrong_options_are_configuration_errors_in_one_line(args, complaint):
    """Proves exit code 78 and a line that names option, value and the expected values."""
    result = batchd("--check-config", *args)
    assert result.returncode == 78
    assert complaint in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) <= 2  # usage errors add "Try 'batchd --help'."


def test_check_config_says_what_is_there(tmp_path):
    """Proves that a valid file exits 0 and starts nothing, and that a mistake is named with its line."""
    file = tmp_path / "batchd.yaml"
    file.write_text("workers: 2\ndatasets:\n- {name: a, source: 'random:length=1,shape=1'}\n")
    socket = tmp_path / "s"
    result = batchd("--config", file, "--socket", socket, "--check-config")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{file}: valid; 1 data set, 0 pipelines\n", "")
    assert not socket.exists()
    file.write_text("workers: 2\nwokers: 3\n")
    result = batchd("--config", file, "--check-config")
    assert result.returncode == 78
    assert f"{file}:2: unknown key 'wokers'; did you mean 'workers'?" in result.stderr


def test_options_win_over_the_file_and_later_ones_over_earlier(make_daemon):
    """Proves the order of precedence by the log output at the effective level."""
    d = make_daemon("--log-level", "error", "--log-level", "notice", config="log_level: error\n")
    wait_for("notice", lambda: "batchd[notice]: started:" in d.output())


def test_relative_paths_are_those_of_the_directory_it_was_started_in(tmp_path):
    """Proves it for --socket, --log and --dataset: the daemon serves the files of its current directory, and reports
    absolute paths."""
    process = subprocess.Popen(
        [str(BUILD / "batchd"), "--socket", "run/s", "--log", "batchd.log", "--dataset", "a=imagefolder:pictures"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_for("socket", lambda: (tmp_path / "run" / "s").exists())
        wait_for("log", lambda: f"serves at {tmp_path}/run/s" in (tmp_path / "batchd.log").read_text())
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["batchd.log"]


def test_relative_sources_become_absolute_one_by_one(tmp_path):
    """Proves that both files of an npy source are found from the current directory, by the error about a bad name."""
    result = batchd("--check-config", "--dataset", "a=npy:x.npy,/y.npy,sub/z.npy", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    result = batchd("--check-config", "--dataset", "a=folder:x", cwd=tmp_path)
    assert "'folder:x' is not a source" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_it_and_nothing_is_left(tmp_path, number):
    """Proves a clean exit with code 0 that leaves no socket, lock or directory behind."""
    process = subprocess.Popen(
        [str(BUILD / "batchd"), "--foreground", "--socket", str(tmp_path / "run" / "s")],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "started:" in process.stderr.readline()
    process.send_signal(number)
    errors = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 0, errors
    assert list(tmp_path.iterdir()) == []


def test_signals_that_come_very_early_leave_nothing_either(tmp_path):
    """Proves it from the first moment that the socket is visible, before there is a loop."""
    for _ in range(20):
        process = subprocess.Popen(
            [str(BUILD / "batchd"), "--socket", str(tmp_path / "run" / "s")],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (tmp_path / "run" / "s").exists():
            assert process.poll() is None
        process.terminate()
        assert process.wait(WAIT_S) == 0
        assert list(tmp_path.iterdir()) == []


def test_a_second_daemon_on_the_same_socket_is_told(daemon):
    """Proves exit code 1, a line with the path, and that the first daemon continues."""
    result = batchd("--socket", daemon.socket)
    assert result.returncode == 1
    assert f"{daemon.socket}: another batchd is running there; stop it, or choose another --socket" in result.stderr
    assert daemon.answers()


def test_it_starts_where_another_was_killed(make_daemon):
    """Proves that a crash leaves nothing that has to be removed by hand."""
    d = make_daemon()
    d.kill()
    assert d.socket.exists()
    d.start()
    assert d.answers()


def test_idle_exit_ends_it_by_itself(tmp_path):
    """Proves that an unused daemon exits with code 0 after the configured time."""
    process = subprocess.Popen(
        [str(BUILD / "batchd"), "--socket", str(tmp_path / "s"), "--idle-exit", "200ms"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.wait(WAIT_S) == 0
    assert list(tmp_path.iterdir()) == []


def test_reload_says_what_changed_and_when_it_counts(make_daemon):
    """Proves SIGHUP: live keys now, others later, command line still first, mistakes change nothing."""
    d = make_daemon("--log-level", "notice", config="linger: 10s\nio_threads: 2\n")
    file = d.folder / "batchd.yaml"
    wait_for("start", lambda: "started:" in d.output())

    file.write_text("linger: 20s\nio_threads: 3\nlog_level: error\n")
    d.process.send_signal(signal.SIGHUP)
    wait_for("reload", lambda: "reloaded:" in d.output())
    assert re.search(r"configuration-changed: linger changed; in force", d.output())
    assert re.search(r"configuration-changed: io_threads changed; takes effect at the next start", d.output())
    assert "log_level changed" not in d.output()

    file.write_text("linger: 20 s\n")
    d.process.send_signal(signal.SIGHUP)
    wait_for("refusal", lambda: "reload-failed:" in d.output())
    assert f"{file}:1: linger: '20 s' is not valid" in d.output()
    assert d.answers()


def test_systemds_variables_of_a_parent_are_not_ours(tmp_path):
    """Proves that a daemon started from within another service does not take that service's descriptors or watchdog for its own."""
    result = batchd(
        "--socket",
        tmp_path / "s",
        "--idle-exit",
        "100ms",
        env={"LISTEN_PID": "1", "LISTEN_FDS": "1", "WATCHDOG_PID": "1", "WATCHDOG_USEC": "1"},
    )
    assert result.returncode == 0, result.stderr
    assert f"serves at {tmp_path}/s" in result.stderr


def test_a_directory_others_may_write_to_is_refused(tmp_path):
    """Proves that the daemon does not listen where other users could replace its socket, and says how to fix that."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    result = batchd("--socket", tmp_path / "open" / "s")
    assert result.returncode == 1
    assert (
        "others may write to it, so a socket there would not be safe; chmod go-w it or choose another" in result.stderr
    )


def test_check_config_tells_all_mistakes_at_once(tmp_path):
    """Proves that unknown keys, wrong values and wrong entries of lists are all named with their lines, and that the exit code is 78."""
    file = tmp_path / "b.yaml"
    file.write_text(
        "wokers: 4\nmemory: 2G\nnonsense:\n  deep: [1, {a: b}]\nlinger: soon\ndatasets:\n  - name: a b\n    source: random:length=1\n"
        "  - name: fine\n    source: relative/x\n  - name: good\n    source: random:length=1,shape=1\n"
    )
    result = batchd("--config", file, "--check-config")
    assert result.returncode == 78 and result.stdout == ""
    for line, word in (
        (1, "unknown key 'wokers'; did you mean 'workers'?"),
        (2, "memory: '2G' is not valid"),
        (3, "unknown key 'nonsense'"),
        (5, "linger: 'soon' is not valid"),
        (7, "datasets[0].name: 'a b' is not a name"),
        (10, "datasets[1].source: 'relative/x' is not"),
    ):
        assert f"{file}:{line}: {word}" in result.stderr, result.stderr
    assert len(result.stderr.splitlines()) == 6, result.stderr
    started = batchd("--config", file)
    assert started.returncode == 78 and len(started.stderr.splitlines()) == 1, started.stderr


def test_check_config_looks_for_the_data(tmp_path):
    """Proves that a missing folder is reported, but not as a mistake (it may be mounted later), and that a real mistake
    is reported as one."""
    file = tmp_path / "b.yaml"
    file.write_text(f"datasets:\n  - name: a\n    source: npy:{tmp_path}/b.yaml,{tmp_path}/gone.npy\n")
    result = batchd("--config", file, "--check-config")
    assert result.returncode == 0 and result.stdout == f"{file}: valid; 1 data set, 0 pipelines\n"
    assert (
        result.stderr
        == f"batchd[warning]: dataset-missing: data set a: {tmp_path}/gone.npy: No such file or directory\n"
    )
    file.write_text("datasets:\n  - name: a\n    source: serve:x\n  - name: b\n    source: random:length=1,shape=1\n")
    result = batchd("--config", file, "--check-config")
    assert (result.stdout, result.stderr) == (f"{file}: valid; 2 data sets, 0 pipelines\n", "")
