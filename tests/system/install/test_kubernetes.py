"""The recipes for Kubernetes: what Helm's own code makes of the chart, and what the owners' models say of manifests."""

import shutil
import subprocess

import pytest

from daemons import REPO

pytestmark = pytest.mark.long("other programs: Helm")

PLACE = REPO / "systemd" / "kubernetes"
RECIPES = {"daemonset": [], "sidecar": ["values-sidecar.yaml"], "gpu": ["values-gpu.yaml"]}


def load(path):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (pip)")
    return yaml.safe_load(path.read_text())


def manifests(recipe, more=None):
    """Of `helm template batchd chart -f ...`, by kind."""
    helm = pytest.importorskip("helm_python", reason="Helm's library is not installed (pip install helm-python-sdk)")
    yaml = pytest.importorskip("yaml")
    values = {}
    for name in RECIPES[recipe]:
        values.update(load(PLACE / "chart" / name))
    made = helm.Chart.load(str(PLACE / "chart")).render({**values, **(more or {})}, name="batchd")
    documents = [yaml.safe_load(text) for text in made.values() if text.strip()]
    return {d["kind"]: d for d in documents if d}


def patched(base, patch):
    """As a strategic merge patch does it here: lists of named things are merged by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {k: patched(base.get(k), patch[k]) if k in patch else base[k] for k in {**base, **patch}}
    if isinstance(base, list) and all("name" in item for item in [*base, *patch]):
        changed = {item["name"]: item for item in patch}
        return [patched(item, changed[item["name"]]) if item["name"] in changed else item for item in base]
    return patch


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_chart_makes_what_kustomize_makes(recipe):
    """Helm and Kustomize users run the same thing: every field, and the daemon's configuration."""
    made = manifests(recipe)
    config = pytest.importorskip("yaml").safe_load(made.pop("ConfigMap")["data"]["batchd.yaml"])
    assert config == load(PLACE / "base" / "batchd.yaml")
    if recipe == "sidecar":
        (name, expected) = ("Pod", load(PLACE / "sidecar" / "pod.yaml"))
    else:
        (name, expected) = ("DaemonSet", load(PLACE / "daemonset" / "daemonset.yaml"))
    if recipe == "gpu":
        expected = patched(expected, load(PLACE / "gpu" / "gpu.yaml"))
        assert expected["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"
    assert list(made) == [name]
    if name == "DaemonSet":  # Kustomize puts a checksum into the ConfigMap's name instead
        del made[name]["spec"]["template"]["metadata"]["annotations"]
    assert made[name] == expected


def test_the_chart_has_no_complaint_of_helm_and_refuses_unknown_values():
    helm = pytest.importorskip("helm_python", reason="Helm's library is not installed (pip install helm-python-sdk)")
    for recipe, files in RECIPES.items():
        report = helm.lint(str(PLACE / "chart"), load(PLACE / "chart" / files[0]) if files else {}, strict=True)
        assert not report["errors"], report
    report = helm.lint(str(PLACE / "chart"), {"recipe": "deamonset"}, strict=True)
    assert report["errors"] or [m for m in report["messages"] if m["severity"] == 3], report


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_the_chart_makes_fits_the_schemas(recipe, tmp_path):
    if not shutil.which("kubernetes-validate"):
        pytest.skip("kubernetes-validate is not installed (pip)")
    yaml = pytest.importorskip("yaml")
    for kind, document in manifests(recipe).items():
        (tmp_path / "manifest.yaml").write_text(yaml.safe_dump(document))
        subprocess.run(["kubernetes-validate", "--strict", str(tmp_path / "manifest.yaml")], check=True)


def test_the_charts_version_is_batchds():
    text = (REPO / "client" / "batchd.h").read_text()
    version = text.split('BATCHD_VERSION "')[1].split('"')[0]
    chart = (PLACE / "chart" / "Chart.yaml").read_text().splitlines()
    assert f"version: {version}" in chart and f"appVersion: {version}" in chart


def lost(given, known, path=""):
    """Paths in given that a model has not taken over: fields that it does not know."""
    if isinstance(given, dict):
        if not isinstance(known, dict):
            return [path]
        return [
            p for k, v in given.items() for p in (lost(v, known[k], f"{path}.{k}") if k in known else [f"{path}.{k}"])
        ]
    if isinstance(given, list):
        return [p for i, v in enumerate(given) for p in lost(v, known[i], f"{path}[{i}]")]
    return [] if str(given) == str(known) else [path]


@pytest.mark.parametrize(
    "name, model", [("runtime.yaml", "TrainerV1alpha1ClusterTrainingRuntime"), ("job.yaml", "TrainerV1alpha1TrainJob")]
)
def test_kubeflows_own_models_know_every_field(name, model):
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="kubeflow-trainer-api is not installed (pip)")
    given = load(PLACE / "kubeflow" / name)
    assert lost(given, getattr(models, model).from_dict(given).to_dict()) == []
    broken = {**given, "spec": {**given["spec"], "noSuchField": 1}}  # that this check sees a slip of the pen
    assert lost(broken, getattr(models, model).from_dict(broken).to_dict()) == [".spec.noSuchField"]


def test_the_runtimes_sidecar_is_that_of_the_pod():
    """One recipe: what the pages say of the sidecar holds under Kubeflow, too."""
    runtime = load(PLACE / "kubeflow" / "runtime.yaml")
    spec = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod = load(PLACE / "sidecar" / "pod.yaml")["spec"]
    for name in ("initContainers", "volumes", "shareProcessNamespace", "securityContext"):
        assert spec[name] == pod[name], name
    assert load(PLACE / "kubeflow" / "job.yaml")["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
