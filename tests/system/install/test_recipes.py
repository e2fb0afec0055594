"""The recipes for clusters below systemd/: as much of them as one machine can run."""

import fcntl
import fnmatch
import os
import shutil
import stat
import subprocess
import time

import pytest

from daemons import REPO, skip_unless_others_reach_the_build

RECIPES = REPO / "systemd"


def test_kubernetes_configuration_is_valid(build):
    path = RECIPES / "kubernetes" / "base" / "batchd.yaml"
    done = subprocess.run([build / "batchd", "--config", path, "--check-config"], capture_output=True, text=True)
    assert done.returncode == 0 and ": valid" in done.stdout, done


@pytest.mark.parametrize("name", ["sidecar/pod.yaml", "daemonset/daemonset.yaml"])
def test_manifests_fit_the_schemas(name):
    if not shutil.which("kubernetes-validate"):
        pytest.skip("kubernetes-validate is not installed (pip)")
    path = RECIPES / "kubernetes" / name
    subprocess.run(["kubernetes-validate", "--strict", str(path)], check=True)


def gone_within(process, seconds):
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return process.poll() is not None


@pytest.mark.parametrize(
    "user, on_demand, other_job, ends",
    [(54321, True, "", True), (54322, True, "8\n", False), (54323, False, "", False)],
    ids=["last job", "another job", "own daemon"],
)
def test_epilog_ends_what_the_last_job_of_a_user_left(build, tmp_path, user, on_demand, other_job, ends):
    """The daemon that a script has started; not while the user has another job there, and not the user's own daemon."""
    if os.geteuid() != 0 or not shutil.which("pkill"):
        pytest.skip("needs root, to be another user, and pkill")
    skip_unless_others_reach_the_build()
    place = f"/tmp/batchd-epilog-{os.getpid()}-{time.monotonic_ns()}"
    os.mkdir(place, 0o700)
    os.chown(place, user, user)
    (tmp_path / "squeue").write_text(f"#!/bin/sh\nprintf '7\\n{other_job}'\n")
    (tmp_path / "squeue").chmod(0o755)
    argv = [f"{build}/batchd", "--socket", f"{place}/socket", *(["--on-demand"] if on_demand else []), "--foreground"]
    daemon = subprocess.Popen(argv, user=user, group=user, extra_groups=[], stderr=subprocess.DEVNULL, cwd="/")
    try:
        deadline = time.monotonic() + 300
        while not os.path.exists(f"{place}/socket") and time.monotonic() < deadline:
            time.sleep(0.02)
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_UID": str(user), "SLURM_JOB_ID": "7"}
        subprocess.run([RECIPES / "slurm" / "epilog.sh"], check=True, env=env)
        assert gone_within(daemon, 300 if ends else 0.5) == ends
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(place)


def test_scripts_may_be_run():
    for path in [*RECIPES.glob("slurm/*.sh"), RECIPES / "debian" / "build", RECIPES / "debian" / "rules"]:
        assert path.stat().st_mode & stat.S_IXUSR, path


def test_debian_packages_claim_every_installed_file_once(build, tmp_path):
    """A new file of `make install` must be in one of the packages; dh_missing would say so only when they are built."""
    places = ["PREFIX=/usr", "libdir=/usr/lib/x86_64-linux-gnu", "sysconfdir=/etc", "unitdir=/lib/systemd/system"]
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    with open(build / ".installing", "w") as alone:  # as in test_install
        fcntl.flock(alone, fcntl.LOCK_EX)
        argv = ["make", "-s", "-C", REPO, f"BUILD={build}", f"DESTDIR={tmp_path}", *places, "install"]
        subprocess.run(argv, check=True, capture_output=True, env=env)
    lists = {p.stem: p.read_text().split() for p in (RECIPES / "debian").glob("*.install")}
    for path in tmp_path.rglob("*"):
        name = str(path.relative_to(tmp_path))
        if not path.is_dir():
            owners = [
                package
                for package, patterns in lists.items()
                if any(fnmatch.fnmatch(name, p) or fnmatch.fnmatch(name, p + "/*") for p in patterns)
            ]
            assert len(owners) == 1, (name, owners)
