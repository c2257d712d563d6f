"""Metrics about scores and their destinations, as Prometheus reads them on /metrics.

Each `ScoringMetrics` has its own registry. Agent names come from outside. So each evaluator has
series for its first 200 agents only; the others share the label "other".
"""

from __future__ import annotations

from collections import Counter as Totals, deque
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ...model import EvaluationResult

__all__ = ["ScoringMetrics"]

_MAX_AGENTS = 200
# Verdicts and errors that count for the pass rate.
_WINDOW = 200
_SCORE_BUCKETS = tuple(n / 10 for n in range(11))
_SECONDS_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


def _queue_gauges(name: str, entries: str) -> dict[str, str]:
    return {
        f"{name}_waiting_requests": f"{entries} that wait to be sent.",
        f"{name}_bytes": "Bytes on disk: held, waiting to be sent, or refused for good.",
        f"{name}_ok": "1 if the endpoint accepted the last request, otherwise 0.",
        f"{name}_failing_seconds": "Seconds since the endpoint began to fail; 0 while it accepts.",
        f"{name}_refused_kept": "Requests refused for good that `oteval resend` would send again.",
    }


_GAUGES = {
    "open_traces": "Traces that are not complete yet.",
    "oldest_open_trace_seconds": "Age of the oldest open trace.",
    "put_off": "Evaluations due later: retries, or postponed by a budget or hanging calls.",
    "config_ok": "1 if oteval.yaml was valid when it last changed, otherwise 0.",
}
_FORWARD_GAUGES = {
    "forward_held_spans": "Spans held for their scores.",
    "forward_oldest_seconds": "Age of the oldest held span.",
    "forward_quota_bytes": "Bytes on disk at which the queue is full.",
    **_queue_gauges("forward", "Parts of requests"),
}
_EVENTS_GAUGES = _queue_gauges("events", "Requests")
_COUNTERS = {
    "config_reloads": "Times that a changed oteval.yaml was loaded.",
    "config_failures": "Times that a changed oteval.yaml was invalid.",
}
_FORWARD_COUNTERS = {
    "forward_sent_spans": "Spans that the endpoint accepted.",
    "forward_rejected_spans": "Spans that the endpoint rejected from requests it accepted.",
    "forward_refused": "Requests refused for good, and kept.",
    "forward_looped_spans": "Spans that came back or came twice.",
}
_EVENTS_COUNTERS = {
    "events_sent": "Events that the endpoint accepted.",
    "events_rejected": "Events that the endpoint rejected from requests it accepted.",
    "events_refused": "Requests refused for good, and kept.",
}


_PUSH_GAUGES = {
    **_queue_gauges("push", "Requests"),
    "push_quota_bytes": "Bytes on disk at which the queue is full.",
    "push_waiting_for_spans": "Requests whose scores wait for their spans to arrive.",
}
_PUSH_COUNTERS = {
    "push_written": "Scores that were written or changed.",
    "push_unchanged": "Scores that the backend had already.",
    "push_unknown": "Scores given up because their span never arrived.",
    "push_refused_scores": "Scores that the backend refused.",
}


class ScoringMetrics:
    """The metrics about live scoring in one server.

    Attributes:
        registry: The Prometheus registry. Other parts may add metrics.
    """

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        by_agent = ("evaluator", "agent")
        self._scores = Counter(
            "oteval_scores", "Scores by status.", (*by_agent, "status"), registry=registry
        )
        self._verdicts = Counter(
            "oteval_verdicts", "Scores that pass or fail.", (*by_agent, "passed"), registry=registry
        )
        self._values = Histogram(
            "oteval_score", "Values of scores.", by_agent, buckets=_SCORE_BUCKETS, registry=registry
        )
        self._pass_rate = Gauge(
            "oteval_pass_rate",
            f"Share of passes among the last {_WINDOW} verdicts and errors.",
            by_agent,
            registry=registry,
        )
        self._evaluation_seconds = Histogram(
            "oteval_evaluation_seconds",
            "Duration of evaluations.",
            ("evaluator",),
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )
        self._lag = Histogram(
            "oteval_scoring_lag_seconds",
            "Time from a trace's completion to its score.",
            ("evaluator",),
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )
        self._cost = Counter(
            "oteval_cost_dollars", "Cost of LLM judges.", ("evaluator",), registry=registry
        )
        self._to_judge = Gauge(
            "oteval_to_judge",
            "Trajectories that wait to be evaluated.",
            ("evaluator",),
            registry=registry,
        )
        self._agents: dict[str, set[str]] = {}
        self._recent: dict[tuple[str, str], deque[bool]] = {}
        self._gauges: dict[str, Gauge] = {}
        self._counters: dict[str, Counter] = {}
        self._failures: dict[str, Counter] = {}
        self._push_gauges: dict[str, Gauge] = {}
        self._push_counters: dict[str, Counter] = {}
        self._totals: dict[tuple[str, str], float] = {}
        self._register(_GAUGES, _COUNTERS)
        self._gauges["config_ok"].set(1)

    def register_forward(self) -> None:
        """Add the metrics about forwarding, which only a server that forwards has."""
        self._register_endpoint("forward", _FORWARD_GAUGES, _FORWARD_COUNTERS)

    def register_events(self) -> None:
        """Add the metrics about log events, which only a server that exports events has."""
        self._register_endpoint("events", _EVENTS_GAUGES, _EVENTS_COUNTERS)

    def count_scores(
        self,
        evaluator: str,
        results: Sequence[tuple[str, EvaluationResult]],
        *,
        seconds: float,
        lag: float = 0.0,
        cost: float = 0.0,
    ) -> None:
        """Count the scores that an evaluator returned for some runs.

        Args:
            evaluator: The evaluator's name.
            results: The agent's name and the result of each run.
            seconds: The duration of all evaluations.
            lag: Seconds from the traces' completion to the scores.
            cost: The cost of all evaluations in US dollars.
        """
        if not results:
            return
        seconds_each, duration = seconds / len(results), self._evaluation_seconds.labels(evaluator)
        lags = self._lag.labels(evaluator)
        by_agent: dict[str, list[EvaluationResult]] = {}
        for agent, result in results:
            by_agent.setdefault(self._agent_label(evaluator, agent), []).append(result)
            duration.observe(seconds_each)
            lags.observe(lag)
        for agent, agent_results in by_agent.items():
            self._count_results_of((evaluator, agent), agent_results)
        if cost > 0:
            self._cost.labels(evaluator).inc(cost)

    def _count_results_of(
        self, labels: tuple[str, str], results: Sequence[EvaluationResult]
    ) -> None:
        for status, count in Totals(result.status for result in results).items():
            self._scores.labels(*labels, status).inc(count)
        values = [result.score for result in results if result.score is not None]
        if values:
            observed = self._values.labels(*labels)
            for value in values:
                observed.observe(value)
        for passed, count in Totals(result.passed for result in results).items():
            if passed is not None:
                self._verdicts.labels(*labels, str(passed).lower()).inc(count)
        # As in reports, a run does not count as passed if the evaluator failed on it.
        self._note_verdicts(
            labels,
            [
                result.passed is True
                for result in results
                if result.passed is not None or result.status == "error"
            ],
        )

    def _note_verdicts(self, labels: tuple[str, str], verdicts: Sequence[bool]) -> None:
        if verdicts:
            recent = self._recent.setdefault(labels, deque(maxlen=_WINDOW))
            recent.extend(verdicts)
            self._pass_rate.labels(*labels).set(sum(recent) / len(recent))

    def update_scoring(
        self,
        *,
        open_traces: int,
        oldest: float,
        to_judge: Mapping[str, int],
        put_off: int,
        config_error: bool,
        reloads: int,
        failures: int,
    ) -> None:
        """Update the metrics about the state of live scoring.

        Args:
            open_traces: The number of traces that are not complete.
            oldest: The age of the oldest of them (s).
            to_judge: The number of waiting trajectories by evaluator.
            put_off: The number of evaluations that are due later.
            config_error: Whether oteval.yaml is invalid.
            reloads: How often oteval.yaml was loaded again.
            failures: How often it was invalid at such a time.
        """
        self._gauges["open_traces"].set(open_traces)
        self._gauges["oldest_open_trace_seconds"].set(oldest)
        self._gauges["put_off"].set(put_off)
        self._gauges["config_ok"].set(not config_error)
        for name, count in to_judge.items():
            self._to_judge.labels(name).set(count)
        self._count_up_to("config_reloads", reloads)
        self._count_up_to("config_failures", failures)

    def update_forward(self, state: Mapping[str, Any]) -> None:
        """Update the metrics about forwarding from `Forwarder.state`."""
        self.register_forward()
        self._gauges["forward_held_spans"].set(state["held_spans"])
        self._gauges["forward_oldest_seconds"].set(state["oldest_seconds"])
        self._gauges["forward_quota_bytes"].set(state["quota"])
        self._count_up_to("forward_sent_spans", state["sent"])
        self._count_up_to("forward_rejected_spans", state["rejected"])
        self._count_up_to("forward_looped_spans", state["looped"])
        self._update_queue("forward", state)

    def update_events(self, state: Mapping[str, Any]) -> None:
        """Update the metrics about log events from `EventExporter.state`."""
        self.register_events()
        self._count_up_to("events_sent", state["sent"])
        self._count_up_to("events_rejected", state["rejected"])
        self._update_queue("events", state)

    def update_push(self, state: Mapping[str, Any]) -> None:
        """Update the metrics about writing scores to a trace backend from its state."""
        name = state["name"]
        if not self._push_gauges:
            label = ("backend",)
            for key, text in _PUSH_GAUGES.items():
                self._push_gauges[key] = Gauge(f"oteval_{key}", text, label, registry=self.registry)
            for key, text in _PUSH_COUNTERS.items():
                counter = Counter(f"oteval_{key}", text, label, registry=self.registry)
                self._push_counters[key] = counter
        values = {**state, "quota_bytes": state["quota"], "ok": state["error"] is None}
        for key, gauge in self._push_gauges.items():
            gauge.labels(name).set(values[key.removeprefix("push_")])
        for key, counter in self._push_counters.items():
            total = state[key.removeprefix("push_")]
            growth = total - self._totals.get((key, name), 0)
            self._totals[key, name] = total
            counter.labels(name).inc(max(0, growth))

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return bytes(generate_latest(self.registry))

    def _register_endpoint(
        self, name: str, gauges: Mapping[str, str], counters: Mapping[str, str]
    ) -> None:
        if name in self._failures:
            return
        self._register(gauges, counters)
        self._gauges[f"{name}_ok"].set(1)
        self._failures[name] = Counter(
            f"oteval_{name}_failures", "Failed attempts.", ("status",), registry=self.registry
        )

    def _register(self, gauges: Mapping[str, str], counters: Mapping[str, str]) -> None:
        for name, text in gauges.items():
            self._gauges[name] = Gauge(f"oteval_{name}", text, registry=self.registry)
        for name, text in counters.items():
            self._counters[name] = Counter(f"oteval_{name}", text, registry=self.registry)

    def _update_queue(self, name: str, state: Mapping[str, Any]) -> None:
        for key in ("waiting_requests", "bytes", "failing_seconds", "refused_kept"):
            self._gauges[f"{name}_{key}"].set(state[key])
        self._gauges[f"{name}_ok"].set(state["error"] is None)
        self._count_up_to(f"{name}_refused", state["refused"])
        for status, count in state["failures"].items():
            growth = count - self._totals.get((f"{name}_failures", status), 0)
            self._totals[f"{name}_failures", status] = count
            self._failures[name].labels(status).inc(growth)

    def _count_up_to(self, name: str, total: float) -> None:
        """Increase a counter to a total that other code counts."""
        growth = total - self._totals.get((name, ""), 0)
        self._totals[name, ""] = total
        self._counters[name].inc(max(0, growth))

    def _agent_label(self, evaluator: str, agent: str) -> str:
        agents = self._agents.setdefault(evaluator, set())
        if agent not in agents and len(agents) >= _MAX_AGENTS:
            return "other"
        agents.add(agent)
        return agent
