from __future__ import annotations

import pytest

from oteval.base.errors import ConfigError
from oteval.scoring.config import (
    Config,
    MonitorSettings,
    ThresholdSettings,
    TwoWindowsSettings,
    parse_config,
)

GOOD = """evaluators:
  - {name: refund-policy, type: trajectory_match, reference: r.json}
monitors:
"""
OPS = "notify:\n  ops: {webhook: 'http://127.0.0.1:1/x'}\n"


def parsed(text: str) -> MonitorSettings:
    """Return the one monitor of a file."""
    (monitor,) = parse_config(GOOD + text).monitors
    return monitor


def fault(text: str) -> str:
    """Return the error message of a configuration."""
    with pytest.raises(ConfigError) as caught:
        parse_config(GOOD + text, "x.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_monitor_is_one_line():
    """The shortest useful monitor has defaults for the rest."""
    monitor = parsed(
        "  - {evaluator: refund-policy, group_by: [agent, version], false_alarms: 1 per 30d, "
        "notify: [ops]}\n" + OPS
    )

    assert (monitor.title, monitor.measure, monitor.sides) == (
        "refund-policy",
        "pass_rate",
        ("worse",),
    )
    assert (monitor.false_alarms.alarms, monitor.false_alarms.per) == (1.0, 30 * 86400.0)
    assert monitor.detector.type == "e_detector"
    assert (monitor.baseline.scores, monitor.baseline.span) == (300, 86400.0)


def test_every_key_of_a_monitor():
    """All keys are read, in every form."""
    config = parse_config(
        GOOD
        + """
  - name: slow
    measure: length
    where: {agent: refunds, not: {service: test}}
    group_by: agent
    false_alarms: {alarms: 2, per: 7d}
    baseline: {from: 2026-11-01, until: "2026-11-08T12:00+01:00"}
    direction: both
    no_data: 6h
    notify: ops
  - {evaluator: refund-policy, measure: error_rate, detector: e_detector, no_data: {after: 1h}}
  - {measure: latency, detector: {type: threshold, above: 20, window: 60m, min_observations: 5}}
  - {measure: variant_shift, detector: {type: two_windows, window: 2h, p: 0.001}}
notify:
  ops: {apprise: "slack://${TOKEN}"}
  more: {apprise: ["slack://a", "mailto://b"]}
  am: {alertmanager: "http://127.0.0.1:9093/"}
  hook: {webhook: {url: "https://x/y", secret: "${SECRET}"}}
  log: {log_event: "http://127.0.0.1:4318"}
"""
    )

    longer, errors, slow, shape = config.monitors
    assert isinstance(slow.detector, ThresholdSettings)
    assert slow.sides == ("worse",)
    assert (slow.detector.above, slow.detector.window) == (20.0, 3600.0)
    assert longer.baseline.from_ == 1_793_491_200 * 10**9
    assert longer.baseline.until == (1_793_491_200 + 7 * 86400 + 11 * 3600) * 10**9
    assert (longer.sides, longer.no_data.after) == (("worse", "better"), 6 * 3600.0)
    assert longer.where.selection().agents == ("refunds",)
    assert (errors.title, errors.detector.type) == ("refund-policy error_rate", "e_detector")
    assert isinstance(shape.detector, TwoWindowsSettings)
    assert (shape.title, shape.sides) == ("variant_shift", ("worse", "better"))
    assert config.notify["am"].alertmanager is not None
    assert config.notify["am"].alertmanager.url == "http://127.0.0.1:9093"
    assert config.notify["ops"].apprise == ["slack://${TOKEN}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  - {evaluator: refund-polcy}\n", "x.yaml:4: no evaluator is called 'refund-polcy'; did"),
        ("  - {}\n", "x.yaml:4: monitors.0: give an evaluator, or a measure of runs: latency"),
        ("  - {measure: score}\n", "x.yaml:4: monitors.0: score is a measure of an evaluator"),
        (
            "  - {evaluator: refund-policy, measure: loops}\n",
            "x.yaml:4: monitors.0: loops is a measure of runs; leave out the evaluator",
        ),
        ("  - measure: latency\n    grup_by: x\n", "x.yaml:5: unknown key 'grup_by'; did you"),
        (
            "  - measure: latency\n    group_by: [agent, team]\n",
            "x.yaml:5: monitors.0.group_by: 'team': there are agent, service, user, version",
        ),
        (
            "  - measure: latency\n    false_alarms: often\n",
            "x.yaml:5: monitors.0.false_alarms: 'often' is not a rate; write for instance '1 per",
        ),
        (
            "  - measure: latency\n    detector: magic\n",
            "x.yaml:5: monitors.0.detector: write a detector's type: e_detector, threshold, two_",
        ),
        (
            "  - measure: latency\n    detector:\n      type: threshold\n      blow: 3\n",
            "x.yaml:7: unknown key 'blow'; did you mean 'below'?",
        ),
        (
            "  - measure: latency\n    detector: {type: threshold}\n",
            "x.yaml:5: monitors.0.detector: give either below or above",
        ),
        (
            "  - {measure: new_variants, detector: {type: threshold, above: 3}}\n",
            "x.yaml:4: monitors.0: new_variants has no threshold; use e_detector or two_windows",
        ),
        (
            "  - measure: latency\n    baseline: {from: 2026-11-01}\n",
            "x.yaml:5: monitors.0.baseline: give both from and until, or neither",
        ),
        (
            "  - measure: latency\n    baseline: {from: yesterday, until: 2026-01-01}\n",
            "x.yaml:5: monitors.0.baseline.from: 'yesterday' is not a time; write for instance",
        ),
        (
            "  - {measure: latency}\n  - {measure: latency}\n",
            "x.yaml:5: two monitors are called 'latency'; give one a name",
        ),
        (
            "  - {measure: latency, notify: [opps]}\n" + OPS,
            "x.yaml:4: no destination in notify is called 'opps'; did you mean 'ops'?",
        ),
        (
            "  - {measure: latency, notify: [ops]}\n",
            "x.yaml:4: no destination in notify is called 'ops'; add it: notify: {ops: ...}",
        ),
        (
            "  - {measure: latency}\nnotify:\n  ops: {}\n",
            "x.yaml:6: notify.ops: give one of apprise, alertmanager, webhook and log_event",
        ),
        (
            "  - {measure: latency}\nnotify:\n  ops: {webhook: {url: 'ftp://x'}}\n",
            "x.yaml:6: notify.ops.webhook.url: 'ftp://x' is not a URL; write http://",
        ),
        (
            "  - {evaluator: refund-policy, false_alarms: 1}\n",
            "x.yaml:4: monitors.0.false_alarms: 1 is not a rate; write for instance '1 per 30d'",
        ),
        (
            "  - {measure: latency, detector: {type: threshold, above: .nan}}\n",
            "x.yaml:4: monitors.0.detector.above: input should be a finite number",
        ),
        (
            "  - {measure: latency, notify: ops}\nnotify:\n  ops: {apprise: []}\n",
            "x.yaml:6: notify.ops: apprise has no URL and would notify no one; add one",
        ),
        (
            "  - {measure: latncy}\n",
            "x.yaml:4: monitors.0.measure: 'latncy' is not a measure, perhaps 'latency'; of an "
            "evaluator: pass_rate, score, error_rate, not_evaluated_rate; of runs: latency, tokens",
        ),
        (
            "  - {measure: latency, detector: {type: threshold, above: 3, window: 999999999d}}\n",
            "x.yaml:4: monitors.0.detector.window: must be at most 3650d",
        ),
        (
            "  - {measure: latency, detector: {type: e_detector, block: 99999999999999999999}}\n",
            "x.yaml:4: monitors.0.detector.block: input should be less than or equal to 10000",
        ),
        (
            "  - {measure: latency, baseline: {scores: 99999999999999999999}}\n",
            "x.yaml:4: monitors.0.baseline.scores: input should be less than or equal to 1000000",
        ),
        (
            "  - {measure: latency, baseline: {span: 999999999d}}\n",
            "x.yaml:4: monitors.0.baseline.span: must be at most 3650d",
        ),
        (
            "  - {measure: latency, baseline: {from: 2026-11-01, until: 9999-12-31}}\n",
            "x.yaml:4: monitors.0.baseline.until: '9999-12-31' is not between 1970 and 2262",
        ),
        (
            "  - {measure: latency}\nnotify:\n  ops: {webhook: 'http://127.0.0.1:99999/secret'}\n",
            "x.yaml:6: notify.ops.webhook: its host or port is not valid; write http://HOST:PORT",
        ),
        (
            "  - {measure: latency}\nnotify:\n  ops: {log_event: 'grpc://x:99999'}\n",
            "x.yaml:6: notify.ops.log_event: its host or port is not valid; write http://HOST",
        ),
        (
            "  - {measure: latency}\n"
            "notify:\n  ops: {webhook: {url: 'http://x', headers: {'a b': c}}}\n",
            "x.yaml:6: notify.ops.webhook.headers: 'a b' is not the name of a header; write for",
        ),
        (
            "  - {measure: latency}\n"
            'notify:\n  ops: {webhook: {url: "http://x", headers: {a: "b\\nc"}}}\n',
            "x.yaml:6: notify.ops.webhook.headers: the header 'a' has a line break or a letter",
        ),
        (
            "  - {measure: latency}\nnotify:\n  ops: {apprise: secret-of-mine}\n",
            "x.yaml:6: notify.ops: apprise: number 1 is not a URL; write for instance mailto://",
        ),
    ],
)
def test_an_error_names_the_line_and_the_key(text: str, expected: str):
    """Each fault is one line with the place and the remedy."""
    assert fault(text).startswith(expected)


def test_a_secret_is_not_in_the_file_or_in_the_error():
    """A secret as plain text is refused, and the message does not repeat it."""
    message = fault(
        "  - {measure: latency}\nnotify:\n  ops:\n    webhook: {url: 'http://x', secret: hunter2}\n"
    )

    assert message.startswith("x.yaml:7: notify.ops.webhook.secret: write ${NAME}")
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:secret/secret", "http://secret\u2100secret@127.0.0.1:1/?secret"]
)
@pytest.mark.parametrize("kind", ["webhook", "alertmanager", "log_event"])
def test_the_error_of_a_wrong_url_has_no_secret(kind: str, url: str):
    """A port that is not a number, or a host that is not one, is named without the URL."""
    text = fault(f"  - {{measure: latency}}\nnotify:\n  ops: {{{kind}: '{url}'}}\n")

    assert text.endswith("its host or port is not valid; write http://HOST:PORT/PATH")
    assert "secret" not in text


def test_the_schema_describes_monitors():
    """Editors know the short forms, such as a detector's name."""
    schema = Config.model_json_schema()

    monitor = schema["$defs"]["MonitorSettings"]["properties"]
    assert {"type": "string"} in monitor["detector"]["anyOf"]
    assert {"type": "string"} in monitor["false_alarms"]["anyOf"]


@pytest.mark.parametrize(
    "rate", ["", "1", "1 per", "1 per 30x", "0 per 30d", "1 per 0d", "-1 per 1d"]
)
def test_a_budget_of_false_alarms_is_a_number_per_period(rate: str):
    """Everything else is an error that names the field."""
    with pytest.raises(ConfigError, match=r"monitors\.0\.false_alarms: "):
        parse_config(
            "evaluators: [{name: e, type: tool_errors}]\n"
            f"monitors:\n  - {{evaluator: e, false_alarms: '{rate}'}}\n"
        )
