"""The recipes for Ray Train and SkyPilot, with Ray itself and with SkyPilot's own parser where they are installed.

Both bring hundreds of megabytes, so they are in no environment of this tree: RAY_PYTHON and SKY_PYTHON name Pythons that
have ray[train] with torch, and skypilot."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from daemons import REPO

pytestmark = pytest.mark.long("other programs: Ray, SkyPilot")

SKY = REPO / "systemd" / "contrib" / "skypilot" / "train.yaml"


def python_with(variable, module):
    given = os.environ.get(variable)
    if given:
        return given
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed; {variable} may name a Python that has it")
    return sys.executable


def test_two_workers_of_ray_train_have_each_sample_once(build):
    """In the order of torch's sampler; the workers find each other's daemon by themselves."""
    from torch.utils.data import DistributedSampler

    python = python_with("RAY_PYTHON", "ray")
    runtime = pathlib.Path(f"/tmp/batchd-ray-{os.getpid()}")
    runtime.mkdir(mode=0o700)
    env = {k: v for k, v in os.environ.items() if not k.startswith("BATCHD_")}
    env.update(PYTHONPATH=str(REPO / "client" / "python"), BATCHD_LIBRARY=str(build / "libbatchd.so.0"))
    env.update(XDG_RUNTIME_DIR=str(runtime), RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled", RAY_DEDUP_LOGS="0")
    # Ray's workers have niceness 15, which gets them next to nothing on a machine that has other work.
    env.update(RAY_worker_niceness="0", RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S="400", OMP_NUM_THREADS="1")
    script = f"import ray, runpy; ray.init(num_cpus=4, include_dashboard=False, _temp_dir='{runtime}/ray')\n"
    script += f"runpy.run_path('{REPO}/client/examples/ray_train.py', run_name='__main__')"
    try:
        done = subprocess.run([python, "-c", script], env=env, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        said = dict(re.findall(r"rank (\d) of 2: samples \[([\d, ]+)\]", done.stdout + done.stderr))
        for rank in (0, 1):
            expected = list(DistributedSampler(range(40), 2, rank, shuffle=True, seed=3))
            assert [int(i) for i in said[str(rank)].split(",")] == expected
    finally:
        subprocess.run(["pkill", "-f", f"batchd --socket {runtime}"])
        shutil.rmtree(runtime, ignore_errors=True)


CHECK = """
import sys, sky, yaml
task = sky.Task.from_yaml_config(yaml.safe_load(open(sys.argv[1])))
print(task.num_nodes, [dict(r.accelerators) for r in task.resources])
"""


def test_skypilots_own_parser_takes_the_task(tmp_path):
    python = python_with("SKY_PYTHON", "sky")
    text = SKY.read_text()
    assert "file_mounts" in text
    # A bucket would be looked up, in a cloud; what remains is checked here.
    (tmp_path / "train.yaml").write_text(re.sub(r"file_mounts:\n(  .*\n)+", "", text))
    for broken in (False, True):
        if broken:
            (tmp_path / "train.yaml").write_text(text.replace("num_nodes", "n_nodes"))
        done = subprocess.run(
            [python, "-c", CHECK, str(tmp_path / "train.yaml")],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert (done.returncode == 0) != broken, done.stderr
        assert broken or done.stdout.split() == ["2", "[{'A100':", "8}]"], done.stdout


def test_skypilots_variables_become_torchruns_arguments(tmp_path):
    """What `run` says, in a shell, with the variables of the second of two nodes."""
    yaml = pytest.importorskip("yaml")
    programs = tmp_path / "environment" / "bin"
    programs.mkdir(parents=True)
    (programs / "torchrun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (programs / "torchrun").chmod(0o755)
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1"}
    env.update(SKYPILOT_NUM_GPUS_PER_NODE="8", SKYPILOT_NODE_IPS="192.0.2.7\n192.0.2.8")
    run = yaml.safe_load(SKY.read_text())["run"]
    done = subprocess.run(["bash", "-c", run], env=env, capture_output=True, text=True, check=True)
    expected = "--nnodes=2 --node-rank=1 --nproc-per-node=8 --master-addr=192.0.2.7 --master-port=29500 train.py"
    assert done.stdout.split() == expected.split()
