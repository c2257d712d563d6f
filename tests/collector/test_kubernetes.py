"""The Kubernetes manifest and the Helm chart agree with oteval and with each other.

No cluster runs here. The chart is rendered by Helm's own library where it is installed
(`make test-helm`), and otherwise only its files are checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import oteval
from benchmarks.served import Served
from oteval.cli import cli
from oteval.cli.serve import serve

from ..make import ROOT

FOLDER = ROOT / "collector"
MANIFEST = FOLDER / "kubernetes" / "oteval.yaml"
MONITOR = FOLDER / "kubernetes" / "service-monitor.yaml"
CHART = FOLDER / "helm" / "oteval"
TOKENS = {"OTEVAL_INGEST_TOKEN": "in", "OTEVAL_READ_TOKEN": "out"}
Documents = dict[str, dict[str, Any]]


def documents(text: str) -> Documents:
    """Return the documents of a text by their kind; there is one of each."""
    parsed = [document for document in yaml.safe_load_all(text) if document]
    kinds = {document["kind"]: document for document in parsed}
    assert len(kinds) == len(parsed)
    return kinds


@pytest.fixture(scope="module")
def manifest() -> Documents:
    """Return the documents of the plain manifest, including the Prometheus operator's."""
    return documents(f"{MANIFEST.read_text('utf-8')}\n---\n{MONITOR.read_text('utf-8')}")


@pytest.fixture
def rendered() -> Documents:
    """Return the documents of the chart, as Helm renders them for a release called oteval."""
    helm = pytest.importorskip("helm_python", reason="make test-helm installs Helm's library")
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render({"serviceMonitor": {"enabled": True}}, name="oteval", namespace="x")
    return documents("\n---\n".join(files[name] for name in files if name.endswith(".yaml")))


def pod_of(documents: Documents) -> dict[str, Any]:
    """Return the specification of the pod."""
    pod = documents["StatefulSet"]["spec"]["template"]["spec"]
    assert isinstance(pod, dict)
    return pod


def check(documents: Documents, folder: Path) -> None:
    """Assert that documents agree with each other and with oteval's options."""
    pod = pod_of(documents)
    (container,) = pod["containers"]
    command, *options = container["args"]
    settings = dict(option.split("=", 1) for option in options)
    assert command == "serve"
    assert set(settings) <= {name for option in serve.params for name in option.opts}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    claims = [
        claim["metadata"]["name"]
        for claim in documents["StatefulSet"]["spec"]["volumeClaimTemplates"]
    ]
    assert set(mounts.values()) == {*(volume["name"] for volume in pod["volumes"]), *claims}
    assert mounts[str(Path(settings["--db"]).parent)] in claims
    file = documents["ConfigMap"]["data"][Path(settings["--config"]).name]
    assert mounts[str(Path(settings["--config"]).parent)] == "config"
    assert float(settings["--grace"]) < pod["terminationGracePeriodSeconds"]
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert settings["--http"] == f"0.0.0.0:{ports['otlp-http']}"
    assert settings["--grpc"] == f"0.0.0.0:{ports['otlp-grpc']}"
    assert {port["targetPort"] for port in documents["Service"]["spec"]["ports"]} == set(ports)
    labels = documents["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert documents["Service"]["spec"]["selector"].items() <= labels.items()
    assert documents["StatefulSet"]["spec"]["replicas"] == 1
    assert pod["enableServiceLinks"] is False
    _check_configuration(file, folder)


def _check_configuration(text: str, folder: Path) -> None:
    path = folder / "oteval.yaml"
    path.write_text(text)
    result = CliRunner().invoke(cli, ["config", "check", str(path)])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(text) == yaml.safe_load((FOLDER / "oteval.yaml").read_text("utf-8"))


def test_the_manifest_starts_what_there_is(manifest: Documents, tmp_path: Path):
    """Options, mounts, ports and labels are there, and its oteval.yaml passes `config check`."""
    check(manifest, tmp_path)


def test_the_pod_has_few_rights(manifest: Documents):
    """It is the image's user, gains no privileges, and writes to its volumes alone."""
    pod = pod_of(manifest)
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    image = (FOLDER / "Containerfile").read_text("utf-8")
    assert f"USER {pod['securityContext']['runAsUser']}" in image
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert container["image"].rpartition(":")[2] == oteval.__version__


@pytest.mark.slow
def test_the_server_answers_the_probes_and_prometheus(manifest: Documents, tmp_path: Path):
    """A server with the secret's variables answers probes without a token, and scrapes with one."""
    (container,) = pod_of(manifest)["containers"]
    probes = [
        container[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "liveness", "readiness")
    ]
    (endpoint,) = manifest["ServiceMonitor"]["spec"]["endpoints"]
    token = endpoint["authorization"]["credentials"]["key"]
    (tmp_path / "oteval.yaml").write_text(
        manifest["ConfigMap"]["data"]["oteval.yaml"].replace("/data", str(tmp_path))
    )
    # As a volume with fsGroup is mounted.
    tmp_path.chmod(0o2770)
    server = Served(tmp_path, environment=TOKENS)
    try:
        answers = {path: server.get(path, headers={})[0] for path in probes}
        scraped = server.get(endpoint["path"], headers={"authorization": f"Bearer {TOKENS[token]}"})
        refused = server.get(endpoint["path"], headers={})
    finally:
        server.stop()

    assert answers == dict.fromkeys(probes, 200)
    assert scraped[0] == 200
    assert refused[0] == 401


def test_the_chart_renders_what_the_manifest_says(
    manifest: Documents, rendered: Documents, tmp_path: Path
):
    """With its default values it is the plain manifest, apart from labels and the pull policy."""
    check(rendered, tmp_path)

    assert _plain(rendered) == _plain(manifest)


def _plain(documents: Documents) -> Any:
    """Return documents without chart-only fields, with oteval.yaml parsed."""
    plain_documents = {kind: _without_labels(document) for kind, document in documents.items()}
    data = plain_documents["ConfigMap"]["data"]
    data["oteval.yaml"] = yaml.safe_load(data["oteval.yaml"])
    (container,) = pod_of(plain_documents)["containers"]
    container.pop("imagePullPolicy", None)
    plain_documents["StatefulSet"]["spec"]["template"]["metadata"].pop("annotations", None)
    return plain_documents


def _without_labels(value: Any) -> Any:
    if isinstance(value, Mapping):
        names = ("labels", "selector", "matchLabels")
        return {key: _without_labels(item) for key, item in value.items() if key not in names}
    return [_without_labels(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"extraArgs": ["--forward=http://jaeger:4318", "--monitor-interval=30s"]},
        {"image": {"tag": "1.2", "pullSecrets": [{"name": "registry"}]}, "grace": 120},
        {"storage": {"className": "fast", "size": "1Ti"}, "nodeSelector": {"disk": "ssd"}},
        {"tolerations": [{"key": "a", "operator": "Exists"}], "affinity": {"nodeAffinity": {}}},
        {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    ],
)
def test_every_value_of_the_chart_gives_valid_documents(values: dict[str, Any]):
    """Helm's linter has no objection, and the documents have the values where they belong."""
    helm = pytest.importorskip("helm_python", reason="make test-helm installs Helm's library")

    lint = helm.lint(str(CHART), values)
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="my", namespace="x")

    assert lint["errors"] == []
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    kinds = documents("\n---\n".join(texts))
    assert {document["metadata"]["name"] for document in kinds.values()} == {"my-oteval"}
    assert all(option in str(kinds["StatefulSet"]) for option in values.get("extraArgs", ()))
    assert ("ServiceMonitor" in kinds) == ("serviceMonitor" in values)


@pytest.mark.parametrize(
    "values",
    [
        {"image": {"tag": 1.2}},
        {"serviceMonitors": {"enabled": True}},
        {"tokensSecret": ""},
        {"grace": "30s"},
        {"replicas": 3},
        {"extraArgs": ["serve"]},
    ],
)
def test_values_that_the_chart_does_not_have_are_refused(values: dict[str, Any]):
    """A misspelt value or a wrong type is an error."""
    helm = pytest.importorskip("helm_python", reason="make test-helm installs Helm's library")

    with helm.Chart.load(str(CHART)) as chart, pytest.raises(helm.HelmError):
        chart.validate_schema(values)


def test_templates_use_only_values_that_the_chart_has():
    """A structural check without Helm: `.Values.a.b` in a template is in values.yaml, and used."""
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    templates = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", templates))

    for name in used:
        value: Any = values
        for part in name.split("."):
            assert part in value, name
            value = value[part]
    assert {name.partition(".")[0] for name in used} == set(values)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == oteval.__version__
    actions = re.findall(r"\{\{-? *(if|with|range|define|end)\b", templates)
    assert actions.count("end") * 2 == len(actions)
