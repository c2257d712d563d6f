"""The files of collector/: each is parsed and checked against the components that it names."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from oteval.scoring.config import load_config
from oteval.serve.publish.metrics import ScoringMetrics
from oteval.serve.status_pages import ListenerMetrics

from ..make import ROOT

FOLDER = ROOT / "collector"
COLLECTORS = sorted(
    path for path in FOLDER.glob("*.yaml") if path.name not in ("compose.yaml", "oteval.yaml")
)
# The component types that the files may use, with the Go modules that have them; all are in the
# contrib distribution.
_CORE = "go.opentelemetry.io/collector"
_CONTRIB = "github.com/open-telemetry/opentelemetry-collector-contrib"
KNOWN = {
    "receivers": {
        "otlp": f"{_CORE}/receiver/otlpreceiver",
        "kafka": f"{_CONTRIB}/receiver/kafkareceiver",
    },
    "processors": {
        "memory_limiter": f"{_CORE}/processor/memorylimiterprocessor",
        "batch": f"{_CORE}/processor/batchprocessor",
        "attributes": f"{_CONTRIB}/processor/attributesprocessor",
        "filter": f"{_CONTRIB}/processor/filterprocessor",
        "redaction": f"{_CONTRIB}/processor/redactionprocessor",
        "tail_sampling": f"{_CONTRIB}/processor/tailsamplingprocessor",
        "transform": f"{_CONTRIB}/processor/transformprocessor",
    },
    "exporters": {
        "otlp_grpc": f"{_CORE}/exporter/otlpexporter",
        "otlp_http": f"{_CORE}/exporter/otlphttpexporter",
        "kafka": f"{_CONTRIB}/exporter/kafkaexporter",
        "loadbalancing": f"{_CONTRIB}/exporter/loadbalancingexporter",
    },
    "extensions": {
        "health_check": f"{_CONTRIB}/extension/healthcheckextension",
        "file_storage": f"{_CONTRIB}/extension/storage/filestorage",
    },
    "connectors": {},
}
# The options of these components, as their `config.schema.yaml` and READMEs list them (v0.162.0).
OPTIONS = {
    "redaction": {"allow_all_keys", "allowed_keys", "allowed_values", "blocked_key_patterns"}
    | {"blocked_values", "db_sanitizer", "hash_function", "hmac_key", "ignored_key_patterns"}
    | {"ignored_keys", "redact_all_types", "summary", "url_sanitizer"},
    "transform": {"error_mode", "trace_statements", "metric_statements", "log_statements"},
    "kafka": {"brokers", "protocol_version", "client_id", "conn_idle_timeout", "rack_id", "tls"}
    | {"auth", "metadata", "timeout", "traces", "logs", "metrics"},
}
OPTIONS_OF_KAFKA = {
    "receivers": {"group_id", "group_instance_id", "group_rebalance_strategies", "initial_offset"}
    | {"session_timeout", "heartbeat_interval", "autocommit", "message_marking", "error_backoff"}
    | {"min_fetch_size", "max_fetch_size", "max_fetch_wait", "max_partition_fetch_size"}
    | {"header_extraction", "telemetry", "partition_processing"},
    "exporters": {"partition_traces_by_id", "partition_logs_by_trace_id", "record_headers"}
    | {"partition_logs_by_resource_attributes", "partition_metrics_by_resource_attributes"}
    | {"topic_from_attribute", "include_metadata_keys", "record_partitioner", "producer"}
    | {"retry_on_failure", "sending_queue"},
}
_VARIABLE = re.compile(r"\$\{env:(\w+)(?::-([^}]*))?\}")


def read(path: Path) -> dict[str, Any]:
    """Return a file's content."""
    value = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(value, dict)
    return value


def used(service: dict[str, Any], kind: str) -> set[str]:
    """Return the components of a kind that the service starts."""
    if kind == "extensions":
        return set(service["extensions"])
    return {name for line in service["pipelines"].values() for name in line.get(kind, ())}


@pytest.mark.parametrize("path", COLLECTORS, ids=lambda path: path.stem)
def test_what_the_pipelines_use_is_defined_and_the_reverse(path: Path):
    """No component is used without being there, and none is there without being used."""
    config = read(path)

    assert set(config) <= {*KNOWN, "service"}
    for kind, types in KNOWN.items():
        defined = set(config.get(kind, {}))
        assert defined == used(config["service"], kind), kind
        assert {name.partition("/")[0] for name in defined} <= set(types)
    for name, line in config["service"]["pipelines"].items():
        assert name.partition("/")[0] in ("traces", "logs")
        assert line["receivers"]
        assert line["exporters"]


@pytest.mark.parametrize("path", COLLECTORS, ids=lambda path: path.stem)
def test_processors_come_in_the_order_that_they_need(path: Path):
    """Memory is limited first; processors that read content or whole traces precede batching."""
    for line in read(path)["service"]["pipelines"].values():
        assert line["processors"][0] == "memory_limiter"
        assert "batch" not in line["processors"][:-1]


@pytest.mark.parametrize("path", COLLECTORS, ids=lambda path: path.stem)
def test_queues_on_disk_have_their_extension(path: Path):
    """A queue's storage is a started extension; exports to oteval are retried without a limit."""
    config = read(path)

    for name, exporter in config["exporters"].items():
        exporter = exporter.get("protocol", {}).get("otlp", exporter)
        storage = exporter["sending_queue"].get("storage")
        assert storage is None or storage in config["service"]["extensions"]
        if name in ("otlp_http/oteval", "loadbalancing") and path.stem != "kafka-out":
            assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"
            assert storage == "file_storage"


@pytest.mark.parametrize("path", COLLECTORS, ids=lambda path: path.stem)
def test_endpoints_are_those_of_oteval_and_of_the_compose_file(path: Path):
    """Every exporter sends to a service of compose.yaml, or to Kafka, at a port it listens on."""
    config = read(path)
    services = {*read(FOLDER / "compose.yaml")["services"], "kafka"}

    for name, exporter in config["exporters"].items():
        for endpoint in [exporter.get("endpoint"), *exporter.get("brokers", ())]:
            if endpoint is None:
                continue
            host, _, port = _defaulted(endpoint).removeprefix("http://").partition(":")
            assert host in services
            kind = name.partition("/")[0]
            assert port == {"otlp_http": "4318", "otlp_grpc": "4317", "kafka": "9092"}[kind]
    for name, receiver in config["receivers"].items():
        ports = {p: _defaulted(r["endpoint"]).rpartition(":")[2]
                 for p, r in receiver.get("protocols", {}).items()}  # fmt: skip
        if name == "otlp":
            assert ports == {"grpc": "4317", "http": "4318"}


def _defaulted(text: str) -> str:
    return _VARIABLE.sub(lambda found: found[2] or "", text)


def test_every_variable_is_in_the_readme_with_its_files():
    """The README's table has each variable, and no other; files that it names are there."""
    readme = (FOLDER / "README.md").read_text("utf-8")
    told = set(re.findall(r"^\| `([A-Z_]+)` \|", readme, re.MULTILINE))
    found = {name for path in COLLECTORS for name, _ in _VARIABLE.findall(path.read_text("utf-8"))}
    compose = set(re.findall(r"\$\{(\w+):\?", (FOLDER / "compose.yaml").read_text("utf-8")))

    assert told == found | compose
    for name in re.findall(r"`([\w-]+\.(?:yaml|yml|service))`", readme):
        assert (FOLDER / name).exists()
    for path in COLLECTORS:
        assert f"`{path.name}`" in readme


@pytest.mark.parametrize("path", COLLECTORS, ids=lambda path: path.stem)
def test_options_are_those_that_the_components_document(path: Path):
    """Redaction, transform and Kafka have no option that their current versions do not know."""
    config = read(path)

    for kind in ("receivers", "processors", "exporters"):
        for name, options in config.get(kind, {}).items():
            component = name.partition("/")[0]
            if component in OPTIONS:
                more = OPTIONS_OF_KAFKA[kind] if component == "kafka" else set()
                assert set(options) <= OPTIONS[component] | more


def test_redaction_reaches_values_of_every_type_and_texts_outside_attributes():
    """Lists and maps are masked too; names and status messages by the same patterns."""
    text = (FOLDER / "redaction.yaml").read_text("utf-8")
    config = yaml.safe_load(text)
    redaction, transform = (
        config["processors"][name] for name in ("redaction/values", "transform/texts")
    )

    assert redaction["redact_all_types"] is True
    assert "ignored_keys" not in redaction
    statements = [one for group in transform["trace_statements"] for one in group["statements"]]
    assert sorted(statements) == sorted(
        'replace_pattern({}, "{}", "****")'.format(target, pattern.replace("\\", "\\\\"))
        for target in ("span.name", "span.status.message", "spanevent.name")
        for pattern in redaction["blocked_values"]
    )
    # Statements about spans and about their events have different contexts.
    assert [
        len({s.split(".")[0] for s in g["statements"]}) for g in transform["trace_statements"]
    ] == [1, 1]
    assert transform["error_mode"] == "propagate"
    for signal, line in config["service"]["pipelines"].items():
        assert "redaction/values" in line["processors"]
        assert ("transform/texts" in line["processors"]) == (signal == "traces")
    assert "Not masked: attributes of span links" in text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("card 4111 1111 1111 1111 please", "card **** please"),
        ("5500-0000-0000-0004", "****"),
        ("3782 822463 10005", "****"),
        ("write to jane.doe@example.org today", "write to **** today"),
        ("sk-proj-abcdefghijklmnopqrstu", "****"),
        ("1732665600000", "1732665600000"),
        ("1732665600000000", "1732665600000000"),
        ("1732665600000000000", "1732665600000000000"),
        ("risk-free", "risk-free"),
    ],
)
def test_the_patterns_of_redaction_mask_what_they_say(text: str, masked: str):
    """In RE2, which the Collector uses: cards, addresses and keys, and no time in ms, us or ns."""
    import re2

    for pattern in read(FOLDER / "redaction.yaml")["processors"]["redaction/values"][
        "blocked_values"
    ]:
        text = re2.sub(pattern, "****", text)

    assert text == masked


def test_kafka_takes_what_fits_and_keeps_the_records_of_a_trace_together():
    """Both signals are partitioned by trace; what is sent can be fetched, and oteval takes it."""
    sending = read(FOLDER / "kafka-in.yaml")["exporters"]["kafka"]
    receiving = read(FOLDER / "kafka-out.yaml")["receivers"]["kafka"]

    assert sending["partition_traces_by_id"] is sending["partition_logs_by_trace_id"] is True
    assert "partition_logs_by_resource_attributes" not in sending
    size = sending["producer"]["max_message_bytes"]
    assert size <= min(receiving["max_fetch_size"], receiving["max_partition_fetch_size"])
    for name in ("message.max.bytes", "max.message.bytes", "replica.fetch.max.bytes"):
        assert name in (FOLDER / "kafka-in.yaml").read_text("utf-8")
    for signal in ("traces", "logs"):
        assert [sending[signal]["topic"]] == receiving[signal]["topics"]
    _check_serve(["serve", "--max-request=64MB"])


def test_the_loop_of_tail_scoring_ends():
    """Scored traces from oteval go to the backend and never back to oteval."""
    pipelines = read(FOLDER / "tail-scoring.yaml")["service"]["pipelines"]

    assert pipelines["traces/scored"]["exporters"] == ["otlp_grpc/backend"]
    assert pipelines["traces/in"]["receivers"] == ["otlp"]
    assert pipelines["traces/in"]["exporters"] == ["otlp_http/oteval"]


def test_the_compose_file_is_whole():
    """Its volumes, configs and files are there, and oteval's command is one that oteval takes."""
    compose = read(FOLDER / "compose.yaml")
    services = compose["services"]

    assert {"collector", "oteval", "prometheus", "jaeger"} == set(services)
    for service in services.values():
        assert ("image" in service) != ("build" in service)
        assert ":latest" not in service.get("image", ":")
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            exists = (FOLDER / source).exists() if source.startswith(".") else False
            assert exists or source in compose["volumes"]
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")
    assert (ROOT / services["oteval"]["build"]["dockerfile"]).exists()
    _check_serve(services["oteval"]["command"])
    assert load_config(FOLDER / "oteval.yaml").retention is not None


def _check_serve(arguments: list[str]) -> None:
    """Assert that `oteval serve` knows each option."""
    from oteval.cli.serve import serve

    assert arguments[0] == "serve"
    known = {name for option in serve.params for name in option.opts}
    assert {text.partition("=")[0] for text in arguments[1:] if text.startswith("-")} <= known


def test_prometheus_scrapes_oteval_and_its_alerts_name_its_metrics():
    """The target is oteval's port, and every metric in a rule is one that oteval has."""
    config = read(FOLDER / "prometheus.yml")
    rules = [rule for group in read(FOLDER / "alerts.yml")["groups"] for rule in group["rules"]]

    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["oteval:4318"]}]
    known = _metric_names()
    assert rules
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(re.findall(r"oteval_\w+", rule["expr"])) <= known
        assert rule["annotations"]["summary"]


def _metric_names() -> set[str]:
    metrics = ListenerMetrics(dict)
    metrics.observe("traces", "ok", 1, 1, 0.1)
    text = metrics.text().decode()
    names = set(re.findall(r"^(oteval_\w+)", text, re.MULTILINE))
    source = (ROOT / "oteval" / "serve" / "publish" / "metrics.py").read_text("utf-8")
    assert ScoringMetrics
    found = set(re.findall(r'"(oteval_\w+)"', source))
    live = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    told = set(re.findall(r"`(oteval_\w+)`", live))
    told |= {f"oteval_forward_{end}" for end in ("bytes", "quota_bytes", "ok")}
    return names | {f"{name}_total" for name in found} | found | told


def test_the_unit_runs_what_there_is_and_is_hardened():
    """Systemd starts `oteval serve` with known options, as a dedicated user with few rights."""
    unit = configparser.RawConfigParser(strict=False, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((FOLDER / "oteval.service").read_text("utf-8"))
    service = unit["Service"]

    _check_serve(service["ExecStart"].split()[1:])
    assert service["DynamicUser"] == service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert "SIGKILL" not in service.get("KillSignal", "")


def test_the_image_does_not_run_as_root_and_starts_serve():
    """The Containerfile copies existing files, drops root and runs a valid command of oteval."""
    text = (FOLDER / "Containerfile").read_text("utf-8")

    (copied,) = re.findall(r"^COPY (pyproject.+) \./$", text, re.MULTILINE)
    assert all((ROOT / name).exists() for name in copied.split())
    assert re.search(r"^USER \d+$", text, re.MULTILINE)
    (command,) = re.findall(r"^CMD (\[.+\])$", text, re.MULTILINE)
    _check_serve(yaml.safe_load(command))
