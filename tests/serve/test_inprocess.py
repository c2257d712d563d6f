"""`oteval.InProcess`: a span processor that writes to a database."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import TracerProvider

import oteval
from oteval.store import Store

from ..agent import answer
from ..record.test_span_capture import CONFIG, WANTED


def recorded(recorder: oteval.InProcess) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(recorder)
    return provider


def test_runs_can_be_read_and_scored_at_once(tmp_path: Path):
    """A run that just ended is among the trajectories, and is scored."""
    (tmp_path / "wanted.json").write_text(WANTED)
    (tmp_path / "oteval.yaml").write_text(CONFIG)
    with oteval.InProcess(tmp_path / "runs.duckdb") as recorder:
        provider = recorded(recorder)
        answer("one", "look_up", provider=provider)
        runs = recorder.trajectories()
        answer("two", provider=provider)

        assert [run.messages[0].content for run in runs] == ["one"]
        assert [score.passed for score in recorder.score(tmp_path / "oteval.yaml")] == [True, False]


def test_scores_until_an_interruption_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that is interrupted at the second run loses no score of the first."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "interrupted_evaluator.py").write_text(
        "def check(outputs):\n"
        "    if outputs[0]['content'] == 'two':\n"
        "        raise KeyboardInterrupt\n"
        "    return True\n"
    )
    rules = "evaluators: [{name: e, type: python, call: 'interrupted_evaluator:check'}]"
    (tmp_path / "oteval.yaml").write_text(rules)
    with oteval.InProcess(tmp_path / "runs.duckdb") as recorder:
        provider = recorded(recorder)
        answer("one", provider=provider)
        answer("two", provider=provider)
        with pytest.raises(KeyboardInterrupt):
            recorder.score(tmp_path / "oteval.yaml")
    with Store(tmp_path / "runs.duckdb") as store:
        scores = list(store.scores.read())

    assert [score.passed for score in scores] == [True]
    sys.modules.pop("interrupted_evaluator")


def test_spans_and_log_records_are_there_for_others_after_shutdown(tmp_path: Path):
    """The provider's shutdown writes waiting spans, and closes the file."""
    path = tmp_path / "runs.duckdb"
    recorder = oteval.InProcess(path, interval=60)
    provider, loggers = recorded(recorder), LoggerProvider(shutdown_on_exit=False)
    loggers.add_log_record_processor(recorder.logs)
    loggers.get_logger("l").emit(body="hello", event_name="e")
    answer("q", "look_up", provider=provider)

    loggers.shutdown()
    provider.shutdown()
    provider.shutdown()

    with Store(path) as store:
        assert store.spans.count() == (4, 1)
    assert recorder.dropped == 0


def test_every_span_of_many_threads_is_written_once(tmp_path: Path):
    """Back-pressure loses nothing: a queue of 100 takes 4,000 spans of 8 threads."""
    with oteval.InProcess(tmp_path / "runs.duckdb", max_waiting=100, interval=0.01) as recorder:
        tracer = recorded(recorder).get_tracer("t")

        def work() -> None:
            for _ in range(500):
                tracer.start_span("s").end()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert recorder.force_flush()
        assert recorder._store.spans.count() == (4000, 0)
        assert recorder.dropped == 0


def test_what_comes_after_shutdown_is_counted(tmp_path: Path):
    """A span that ends too late is dropped and counted, without an error."""
    recorder = oteval.InProcess(tmp_path / "runs.duckdb")
    provider = recorded(recorder)
    recorder.shutdown()

    provider.get_tracer("t").start_span("late").end()

    assert recorder.dropped == 1


def test_a_store_that_fails_does_not_fail_the_agent(caplog: pytest.LogCaptureFixture):
    """The agent continues; the loss is counted, logged once, and reported by force_flush."""
    store = Store()
    recorder = oteval.InProcess(store, interval=0.01)
    provider = recorded(recorder)
    store.close()

    with caplog.at_level(logging.WARNING, "oteval"):
        answer("one", provider=provider)
        flushed = recorder.force_flush()
        answer("two", provider=provider)
        recorder.shutdown()

    assert not flushed
    assert recorder.error is not None
    assert recorder.dropped == 4
    assert len(caplog.records) == 1
    assert "spans cannot be written" in caplog.text


def test_a_second_process_is_told_who_holds_the_file(tmp_path: Path):
    """Opening fails at once, not at the first span."""
    with (
        oteval.InProcess(tmp_path / "runs.duckdb"),
        pytest.raises(oteval.StoreLocked),
    ):
        oteval.InProcess(tmp_path / "runs.duckdb")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_records_nothing_and_does_not_hang(tmp_path: Path):
    """The child ends by itself, and the parent's recording is complete."""
    with oteval.InProcess(tmp_path / "runs.duckdb") as recorder:
        provider = recorded(recorder)
        child = os.fork()
        if child == 0:
            provider.get_tracer("t").start_span("child").end()
            os._exit(0 if not recorder.force_flush(10) else 1)
        _, status = os.waitpid(child, 0)
        answer("parent", provider=provider)

        assert os.waitstatus_to_exitcode(status) == 0
        assert [run.messages[0].content for run in recorder.trajectories()] == ["parent"]
