"""A store for reports: two versions of an agent, with their verdicts and faults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from oteval.model import (
    Dataset,
    Example,
    Experiment,
    Feedback,
    Gap,
    Message,
    Run,
    Score,
    ToolCall,
    Trajectory,
    Usage,
    Vote,
)
from oteval.model.selection import EVERYTHING, Selection
from oteval.store import RunExpression, RunFunction, Store
from oteval.views.report import ReportRun, from_keys, run_groups

from ...make import asks, call, run

START_NS = 1_795_000_000_000_000_000
HOUR_NS = 3_600_000_000_000
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
    "'\"&amp; \u202etxt.exe \x00\x1b[31m \u2028 {{ 7*7 }} ]]> <!-- \ud800"
)
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
ASKED = (
    "My headphones came broken, I want my money back",
    "Cancel the order I placed this morning",
    "Where is my parcel? It should have come on Monday",
    "Change the delivery address to Lindenstrasse 7",
    "I was charged twice for one order",
    "Can I return shoes I have worn once?",
    "Send the invoice of March again",
    "The voucher does not work at the checkout",
)


def messages(request: str, amount: float, *, fails: bool, skips: bool) -> list[Message]:
    """Return what a refund agent says and does."""
    order = call("get_order", {"order_id": "4711"}, "c1", start_ns=10, end_ns=250_000_010)
    policy = call("check_policy", {"category": "electronics"}, "c2", start_ns=20, end_ns=90_000_020)
    refund = ToolCall("refund_order", {"order_id": "4711", "amount": amount}, "c3")
    conversation = [
        Message("system", "You are a refund agent. Read the order and the policy first."),
        Message("user", request),
        asks(order) if skips else asks(order, policy),
        Message(
            "tool", '{"item": "headphones", "amount": 42.0}', tool_call_id="c1", name="get_order"
        ),
    ]
    if not skips:
        conversation.append(Message("tool", '{"days": 30}', tool_call_id="c2", name="check_policy"))
    conversation.append(asks(refund, text="I will refund that now."))
    text = "Error: the payment service timed out" if fails else f'{{"refunded": {amount}}}'
    conversation.append(
        Message("tool", text, tool_call_id="c3", name="refund_order", is_error=fails)
    )
    last = "Something went wrong, a colleague will help." if fails else f"I refunded {amount} EUR."
    return [*conversation, Message("assistant", last)]


def trajectories(cases: int = 40, seed: int = 7) -> Iterator[tuple[Trajectory, list[Score]]]:
    """Yield each case by two versions of an agent, with its verdicts."""
    rng = random.Random(seed)
    for number in range(cases * 2):
        case, version = number % cases, 1 + number // cases
        request = f"{ASKED[case % len(ASKED)]} (order {4711 + case})"
        fails = rng.random() < (0.05 if version == 1 else 0.12)
        skips = rng.random() < (0.08 if version == 1 else 0.25)
        wrong = rng.random() < 0.1
        start = START_NS + number * HOUR_NS
        gaps = (Gap("content_truncated", "a value ends at 250 characters", "ab"),) if wrong else ()
        trajectory = run(
            number + 1,
            *messages(request, 420.0 if wrong else 42.0, fails=fails, skips=skips),
            start_ns=start,
            end_ns=start + int(rng.lognormvariate(0.8, 0.7) * 1e9),
            agent="refunds",
            service="shop",
            models=("gpt-5-mini",),
            dialects=("genai",),
            usage=Usage(rng.randint(700, 9000), rng.randint(60, 900), 100, 3),
            attributes={"test.case.id": f"case-{case:02}", "service.version": f"v{version}"},
            gaps=gaps,
            steps=(("agent", "tools", "agent"),),
        )
        yield trajectory, scores(trajectory, rng, fails=fails, skips=skips, wrong=wrong)


def scores(
    trajectory: Trajectory, rng: random.Random, *, fails: bool, skips: bool, wrong: bool
) -> list[Score]:
    """Return the verdicts of three evaluators."""
    root = trajectory.root_span

    def score(name: str, **fields: object) -> Score:
        values = {"status": "ok", "version": "1", **fields}
        return Score(trajectory.id, root.trace_id, root.span_id, name, **values)  # type: ignore[arg-type]

    good = not (skips or wrong)
    why = "missing: check_policy" if skips else "refund_order: amount is 420, expected 42"
    verdicts = [
        score("refund-policy", score=float(good), passed=good, comment="" if good else why),
        score("tool-errors", score=float(not fails), passed=not fails),
    ]
    quality = min(1.0, max(0.0, rng.gauss(0.55 if skips else 0.85, 0.08)))
    if rng.random() < 0.06:
        verdicts.append(score("quality", status="error", comment="the judge timed out after 60 s"))
    elif wrong:
        verdicts.append(score("quality", status="not_evaluated", comment="content_truncated"))
    else:
        cost = {"cost": 0.0004, "reasoning": "polite and right"}
        verdicts.append(score("quality", score=quality, passed=quality >= 0.6, metadata=cost))
    return verdicts


def hostile(number: int = 5000) -> tuple[Trajectory, list[Score]]:
    """Return a run in which every text contains markup."""
    image = {"type": "blob", "mime_type": "image/png", "content": PIXEL}
    evil = {"type": HOSTILE, "image_url": {"url": "javascript:alert(1)"}}
    remote = {"type": "image_url", "image_url": {"url": "https://evil.example/pixel.png"}}
    trajectory = run(
        number,
        Message("user", HOSTILE),
        asks(call(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE), call("unseen")),
        Message("tool", HOSTILE, name=HOSTILE, tool_call_id=HOSTILE, is_error=True),
        Message(HOSTILE, "x" * 300_000, parts=(image, evil, remote)),
        Message("assistant"),
        agent=HOSTILE,
        service=HOSTILE,
        conversation_id=HOSTILE,
        models=(HOSTILE,),
        start_ns=START_NS,
        end_ns=START_NS + HOUR_NS,
        gaps=(Gap(HOSTILE, HOSTILE, HOSTILE),),
        attributes={"service.version": HOSTILE},
    )
    root = trajectory.root_span
    return trajectory, [
        Score(
            *(trajectory.id, root.trace_id, root.span_id, name, HOSTILE),
            score=0.5,
            label=HOSTILE,
            passed=False,
            comment=HOSTILE,
            metadata={HOSTILE: HOSTILE},
        )
        for name in (HOSTILE, "refund-policy")
    ]


def fill(store: Store, cases: int = 40, *, evil: bool = False) -> None:
    """Store the sample."""
    samples = [*trajectories(cases), *([hostile()] if evil else [])]
    runs = [trajectory for trajectory, _ in samples]
    store.trajectories.write(runs, [trajectory.root_span.trace_id for trajectory in runs])
    store.scores.write([score for _, verdicts in samples for score in verdicts])


def experiments(store: Store, cases: int = 20, seed: int = 3) -> None:
    """Store two experiments of two repetitions each, and a comparison in both orders."""
    rng = random.Random(seed)
    ids: dict[tuple[str, int, int], str] = {}
    examples = [
        Example(f"example-{case:02}", {"question": question(case)}) for case in range(cases)
    ]
    dataset = Dataset("refunds", tuple(examples), created_ns=START_NS)
    store.datasets.add(dataset)
    for name in ("candidate", "baseline"):
        experiment = Experiment(
            f"x-{name}",
            name,
            dataset="refunds",
            dataset_version=dataset.version,
            repetitions=2,
            expected=2 * cases,
            created_ns=START_NS,
        )
        store.experiments.add(experiment)
        runs, feedback = [], []
        for case in range(cases):
            for repetition in range(2):
                experiment_run, run_feedback = one_run(experiment, case, repetition, rng)
                runs.append(experiment_run)
                feedback += run_feedback
                ids[name, case, repetition] = experiment_run.id
        store.experiments.write(experiment.id, runs, feedback)
    store.experiments.add(
        Experiment(
            "x-c",
            "a-comparison",
            kind="comparison",
            compared=("baseline", "candidate"),
            created_ns=START_NS,
        )
    )
    store.experiments.write("x-c", votes=list(votes(ids, cases, rng)))


def question(case: int) -> str:
    """Return the question of an example."""
    return f"{ASKED[case % len(ASKED)]} (case {case})"


def one_run(
    experiment: Experiment, case: int, repetition: int, rng: random.Random
) -> tuple[Run, list[Feedback]]:
    """Return a run of an experiment with its feedback."""
    skips = rng.random() < (0.1 if experiment.name == "baseline" else 0.3)
    name = f"{experiment.id}-{case}-{repetition}"
    conversation = messages(question(case), 42.0, fails=False, skips=skips)
    broken = case == 3 and repetition == 1
    experiment_run = Run(
        name,
        experiment.id,
        f"example-{case:02}",
        repetition,
        inputs={"question": question(case)},
        outputs=None if broken else {"messages": [message.as_dict() for message in conversation]},
        error="TimeoutError: the target took longer than 60 s" if broken else "",
        start_ns=START_NS + case * HOUR_NS,
        end_ns=START_NS + case * HOUR_NS + int(rng.lognormvariate(0.5, 0.4) * 1e9),
    )
    if broken:
        return experiment_run, []
    value = min(1.0, max(0.0, rng.gauss(0.6 if skips else 0.8, 0.1)))
    common = {"version": "1", "time_ns": START_NS}
    return experiment_run, [
        Feedback(
            name,
            "policy",
            key="policy",
            status="ok",
            score=float(not skips),
            passed=not skips,
            comment="missing: check_policy" if skips else "",
            **common,
        ),
        Feedback(name, "quality", key="quality", status="ok", score=value, **common),
    ]


def votes(ids: dict[tuple[str, int, int], str], cases: int, rng: random.Random) -> Iterator[Vote]:
    """Yield the votes on pairs of runs, in both orders."""
    for case in range(cases):
        sides = (ids["baseline", case, 0], ids["candidate", case, 0])
        leaning = rng.gauss(0.15, 0.6)
        for order in (sides, sides[::-1]):
            ahead = leaning + rng.gauss(0, 0.35) > 0
            winner = sides[1] if ahead else sides[0]
            vote = Vote(
                *("x-c", "preference", "1", "preference", f"example-{case:02}", 0, order),
                tuple(1.0 if run_id == winner else 0.0 for run_id in order),
                comment="The first answer reads the policy before it refunds.",
                time_ns=START_NS,
            )
            if case == 5:
                vote = replace(vote, status="error", scores=(), comment="the judge refused")
            yield vote


def read(
    store: Store,
    group: RunFunction | RunExpression | None = None,
    *,
    case: str = "",
    selection: Selection = EVERYTHING,
) -> list[ReportRun]:
    """Read all runs of a report."""
    chosen = [run for run in store.trajectories.read() if selection.matches(run)]
    chosen = chosen[-(selection.limit or len(chosen)) :]
    ids, starts = [run.id for run in chosen], [run.start_ns for run in chosen]
    keys = pa.table(
        [pa.array(ids, pa.string()), pa.array(starts, pa.int64())], ["trajectory_id", "start_ns"]
    )
    return list(from_keys(store, keys, run_groups(group, case) if group else None))
