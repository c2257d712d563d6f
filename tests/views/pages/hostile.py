"""A hostile corpus: runs, scores and spans whose texts try to break a page or to overload it."""

from __future__ import annotations

from collections.abc import Sequence

from oteval.model import Event, Gap, Message, Score, Span, SpanRef, ToolCall, Trajectory
from oteval.store import Store

from .conftest import SECOND, START, put, run, score

TEXTS = (
    "<script>document.title = 'owned'; alert(1)</script>",
    "</textarea></title></style></script><script src=https://evil.invalid/x.js></script>",
    '"><img src=x onerror="document.title=\'owned\'"><svg/onload=alert(1)>',
    "<svg xmlns='http://www.w3.org/2000/svg'><script>document.title='owned'</script></svg>",
    "<a href=javascript:document.title='owned'>javascript:alert(1)</a>",
    "javascript:document.title='owned'//",
    "<iframe src=https://evil.invalid></iframe><link rel=stylesheet href=//evil.invalid/x.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.invalid'><base href=//evil.invalid>",
    "{{ 7 * 7 }}{% raw %} ${7*7} #{7*7} <%= 7*7 %>",
    "admin\u202egnp.exe\u2066\u2069\u200f \u0000\u0007\u001b[31mred\u001b[0m \x9b31m \u2028 \ufeff",
    "lone \ud800 and \udfff surrogates, \ufffe, \U0010ffff, e" + "\u0301" * 500,
    "'; DROP TABLE trajectories; --",
    "../../../etc/passwd%00%2e%2e/\\..\\?q=#frag&amp;&#x3c;script&#x3e;",
    "\r\nset-cookie: a=b\r\n\r\n<h1>",
    "W" * 5000,
)
"""Texts that are dangerous where they are not treated as text."""
LARGE = 10_000_000  # characters
CALLS = 5000
HUGE_NUMBERS = (10**400, -(10**30), 1e308, float("nan"), float("inf"), 2**64)
IMAGE = {
    "type": "image_url",
    "image_url": {"url": "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9Lz4="},
}


def deep_json(levels: int = 200) -> object:
    """Return lists in lists."""
    found: object = "bottom"
    for _ in range(levels):
        found = [found]
    return found


def fill(store: Store) -> list[Trajectory]:
    """Write the corpus, and return its runs: one for each text, then those that are heavy."""
    runs = [with_text(number, text) for number, text in enumerate(TEXTS, 1)]
    runs += _heavy(len(runs) + 1)
    put(store, *runs)
    scores = [found for number, one in enumerate(runs) for found in _scores(one, number)]
    store.scores.write(scores)
    return runs


def with_text(number: int, text: str) -> Trajectory:
    """Return a run that has a text in every place that takes one."""
    call = ToolCall(text, {text: [text, *HUGE_NUMBERS], "deep": deep_json()}, id=text)
    return run(
        number,
        agent=text,
        messages=[
            Message("system", text),
            Message("user", text, name=text, parts=(IMAGE, {"type": text, "url": text})),
            Message("assistant", text, tool_calls=(call,), parts=({"type": "reasoning"},)),
            Message("tool", text, tool_call_id=text, name=text, is_error=True),
            Message(text, text),
        ],
        service=text,
        models=(text, text + "2"),
        dialects=(text,),
        conversation_id=text,
        attributes={text: text},
        gaps=(Gap("redacted", text, text),),
    )


def _heavy(first: int) -> list[Trajectory]:
    large = "<b>&\"' \u202e" * (LARGE // 9)
    calls = tuple(
        ToolCall(f"tool_{at}", {"text": '"<&' * 700}, f"c{at}", START + at, START + at + 1)
        for at in range(CALLS)
    )
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 200_000}}
    user = Message("user", "Go")
    contents: Sequence[Sequence[Message]] = (
        [Message("user", large), Message("assistant", large)],
        [user, Message("assistant", None, tool_calls=calls)],
        [user, *(Message("assistant", None, tool_calls=(call,)) for call in calls)],
        [user, *(Message("tool", '"<&\u202e' * 1000, tool_call_id="c1") for _ in range(400))],
        [user, Message("assistant", "images", parts=(image,) * 40)],
        [Message("user" * 10_000, "x" * 100, name="n" * 100_000) for _ in range(100)],
    )
    return [
        run(first + at, agent="a" * 1_000_000, messages=messages, conversation_id="c" * 1_000_000)
        for at, messages in enumerate(contents)
    ]


def _scores(one: Trajectory, number: int) -> list[Score]:
    """Return scores with a text everywhere; many for some runs."""
    text = TEXTS[number % len(TEXTS)]
    bad = {"passed": False, "score": 0.0, "label": text, "metadata": {text: [text, 10**30]}}
    found = [score(one, text, comment=text, **bad)]
    if number >= len(TEXTS):
        named = "call 0 tool_0(" + "".join(f"call {at} tool_{at}( " for at in range(30))
        long = named + "<long> " * 100_000
        found += [score(one, f"check {at} {'e' * 1000}", comment=long, **bad) for at in range(40)]
    return found


def spans(trajectory: Trajectory, count: int, *, is_large: bool = False) -> list[Span]:
    """Return the spans of a run's trace: with hostile texts, and large ones if wanted."""
    root: SpanRef = trajectory.root_span
    found = []
    for at in range(count):
        text = TEXTS[at % len(TEXTS)]
        attributes: dict[str, object] = {"text": text, text: text}
        if is_large:
            attributes |= {f"large.{key}": '"<&' * 100_000 for key in range(3)}
            attributes |= {f"many.{key}": key for key in range(1000)}
        found.append(
            Span(
                root.trace_id,
                root.span_id if at == 0 else f"{at:016x}"[::-1],
                "" if at == 0 else root.span_id,
                name=text,
                start_ns=START + at,
                end_ns=START + at + SECOND,
                status_code=2,
                status_message=text,
                attributes=attributes,
                events=(Event(text, START, {text: text}),),
                scope=text,
                scope_version=text,
            )
        )
    return found
