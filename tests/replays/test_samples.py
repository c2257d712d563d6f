"""Samples of repeated sessions: chance, or the change."""

from __future__ import annotations

from oteval.model import Dataset, Example, Experiment, Feedback, Run
from oteval.replays.samples import SampledOutcome, sampled_outcomes
from oteval.scoring import ExperimentResults, ResultRow


def results(**passes: str) -> ExperimentResults:
    """Return runs that passed (p), failed (f), were not evaluated (n) or crashed (e)."""
    rows = []
    for name, letters in passes.items():
        example = Example(id=name, inputs={"question": name})
        for number, letter in enumerate(letters):
            error = "crashed" if letter == "e" else ""
            run = Run(f"{name}-{number}", "x", name, repetition=number, error=error)
            status = "not_evaluated" if letter in "ne" else "ok"
            passed = None if letter in "ne" else letter == "p"
            score = None if passed is None else float(passed)
            entry = Feedback(
                run.id, "check", "1", "check", score=score, passed=passed, status=status
            )
            rows.append(ResultRow(run, example, (entry,)))
    return ExperimentResults(Experiment("x", "x"), Dataset("d", (), "d"), tuple(rows))


def outcome(recorded: str, new: str, unedited: str | None = None) -> SampledOutcome:
    """Return the outcome of one session."""
    before = None if unedited is None else results(s=unedited)
    (only,) = sampled_outcomes(results(s=recorded), results(s=new), before)
    return only


def test_without_a_change_samples_show_whether_the_outcome_repeats() -> None:
    """All, some or none of them have the recorded outcome; runs without a verdict do not count."""
    assert outcome("f", "ffffffffff").verdict == "repeats"
    assert outcome("f", "ffpffnffff").verdict == "varies"
    assert outcome("p", "ffffffffff").verdict == "differs"
    assert outcome("n", "ffffffffff").verdict == "unknown"
    assert outcome("f", "ffpffnffff").samples == (1, 9)


def test_a_change_is_the_cause_if_samples_without_it_differ() -> None:
    """The exact test of both shares decides, whatever the recorded run did by chance."""
    caused = outcome("p", "ffffffffff", "pppppppppf")
    chance = outcome("p", "fpfppffpff", "ppfpfppfpf")

    assert (caused.verdict, chance.verdict) == ("cause", "chance")
    assert caused.p_adjusted is not None
    assert caused.p_adjusted < 0.001
    assert outcome("p", "ffff", "nnnn").verdict == "unknown"
    assert caused.as_dict()["unchanged"]["passed"] == 9


def test_sessions_are_tested_together() -> None:
    """One of many sessions that differ by chance is not taken for a cause; causes come first."""
    equal = {f"s{number}": "pppppfffff" for number in range(12)}
    one = {**equal, "s3": "ppppffffff"}

    new = {**one, "s5": "pppppppppp"}
    outcomes = sampled_outcomes(results(), results(**new), results(**{**equal, "s5": "f" * 10}))

    assert [o.session for o in outcomes if o.verdict == "cause"] == ["s5"]
    assert outcomes[0].session == "s5"
    assert all(o.p_adjusted >= o.p_value for o in outcomes)  # type: ignore[operator]


def test_runs_that_crash_are_an_outcome() -> None:
    """They have no verdict, but `completed` shows them."""
    outcomes = sampled_outcomes(results(s="p"), results(s="eeeeeeeeee"), results(s="p" * 10))

    assert [(o.key, o.verdict) for o in outcomes] == [("completed", "cause")]
