from __future__ import annotations

import threading
from pathlib import Path

from oteval.evaluators.judge import JudgeCall
from oteval.store import Store


def made(number: int, **fields: object) -> JudgeCall:
    """Return a call with a key for a number."""
    known = {"answer": {"score": True, "n": number}, "cost": 0.25, "time_ns": number, **fields}
    return JudgeCall(f"{number:032x}", "m", **known)  # type: ignore[arg-type]


def test_a_call_survives_the_store(tmp_path: Path):
    """The call is found unchanged in the same process and after reopening the store."""
    whole = made(
        1, base_url="u", rung="tool", raw="{}", requests=2, input_tokens=3, output_tokens=4,
        cached_tokens=1, latency=0.5, answered_by="m2",
    )  # fmt: skip
    path = tmp_path / "x.duckdb"
    with Store(path) as store:
        calls = store.judge_calls.of("e", JudgeCall)
        calls.put(whole)
        assert calls.get(whole.key) == whole
        store.judge_calls.flush()
        assert calls.get(whole.key) == whole
    with Store(path) as store:
        assert store.judge_calls.of("other", JudgeCall).get(whole.key) == whole
        assert store.judge_calls.of("e", JudgeCall).get(f"{2:032x}") is None
        assert store.judge_calls.of("e", JudgeCall, again=True).get(whole.key) is None


def test_the_newest_answer_of_a_key_is_returned(store: Store):
    """A later call without an answer does not hide an earlier answer."""
    calls = store.judge_calls.of("e", JudgeCall)
    calls.put(made(1, time_ns=1, raw="old"))
    calls.put(made(1, time_ns=2, raw="new"))
    calls.put(made(1, time_ns=3, answer=None, error="x"))
    store.judge_calls.flush()

    found = calls.get(made(1).key)

    assert found is not None
    assert found.raw == "new"


def test_the_cost_of_an_evaluator_includes_failures(store: Store):
    """The cost since a time includes unwritten calls; calls without a price cost nothing."""
    mine, other = (store.judge_calls.of(name, JudgeCall) for name in ("e", "f"))
    mine.put(made(10))
    mine.put(made(20, answer=None, error="x"))
    mine.put(made(30, cost=None))
    other.put(made(40))

    assert store.judge_calls.spent("e", 0) == 0.5
    assert store.judge_calls.spent("e", 15) == 0.25
    assert [row["errors"] for row in store.judge_calls.totals()] == [1, 0]


def test_many_threads_may_use_it_at_once(store: Store):
    """No call is lost, and each is found while others are being written."""
    calls = store.judge_calls.of("e", JudgeCall)
    missing: list[int] = []

    def work(start: int) -> None:
        for number in range(start, start + 50):
            calls.put(made(number))
            if calls.get(made(number).key) is None:
                missing.append(number)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 400, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not missing
    assert store.judge_calls.totals()[0]["calls"] == 400


def test_a_call_after_closing_is_ignored(tmp_path: Path):
    """A call that was in progress at Ctrl-C does not fail on the closed database."""
    with Store(tmp_path / "x.duckdb") as store:
        calls = store.judge_calls.of("e", JudgeCall)
    calls.put(made(1))

    assert calls.get(made(1).key) is None
