"""The result of verifying one session, and its JSON form for other processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal, cast

from ..base.jsontext import to_jsonable
from ..evaluators import to_messages
from ..model import Fidelity
from ..record import TooManyParts, encoded, form_of, typed_text
from .divergence import Divergence
from .replay_result import ReplayResult

__all__ = [
    "ReturnedJson",
    "VerifiedSession",
    "VerifyStatus",
    "combined",
    "exit_status",
    "returned_json",
]

_MISSING: Final = "missing_call"
_COUNTS = ("model_calls", "tool_calls", "exchanges")
_NO_RESULT = {**ReplayResult("", "semconv").as_dict(), **dict.fromkeys(_COUNTS)}
_RESULT_FIELDS = _NO_RESULT.keys() - {"session", "passed", "fidelity"}

VerifyStatus = Literal[
    "passed", "diverged", "error", "timeout", "crashed", "unverified", "not_replayed"
]
"""How a replay ended: ``error`` if the agent raised, ``not_replayed`` if it could not start.

``unverified``: the replay stopped before a tool ran, or could not guard something.
"""


@dataclass(frozen=True)
class VerifiedSession:
    """The replay of one session with the agent's current code.

    Attributes:
        session: The id of the session.
        status: How it ended.
        detail: One line about an error, a timeout, a crash, or why nothing was replayed.
        result: The result of the player; None if the replay did not begin, or its process died.
        output: The end of the agent's output, if the session did not pass.
        seconds: How long it took.
        returned: The results of the target, by turn.
    """

    session: str
    status: VerifyStatus
    detail: str = ""
    result: ReplayResult | None = None
    output: str = ""
    seconds: float = 0.0
    returned: tuple[ReturnedJson, ...] = ()

    @property
    def fidelity(self) -> Fidelity | None:
        """``wire`` or ``semconv``; None if it is not known."""
        return self.result.fidelity if self.result else None

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """The differences from the recording."""
        return self.result.divergences if self.result else ()

    @property
    def failed(self) -> bool:
        """Whether the agent behaves differently from the recording."""
        return self.status not in ("passed", "not_replayed", "unverified")

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        result = self.result.as_dict() if self.result else _NO_RESULT
        own = {"session": self.session, "status": self.status, "detail": self.detail}
        return {
            **own,
            "fidelity": self.fidelity,
            **{name: value for name, value in result.items() if name in _RESULT_FIELDS},
            "output": self.output,
            "seconds": round(self.seconds, 3),
            "returned": list(map(asdict, self.returned)),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> VerifiedSession:
        """Read the JSON form."""
        return cls(
            session=value["session"],
            status=value["status"],
            detail=value["detail"],
            result=_result(value) if value["fidelity"] else None,
            output=value["output"],
            seconds=value["seconds"],
            returned=tuple(ReturnedJson(**value) for value in value.get("returned", ())),
        )


def _result(value: Mapping[str, Any]) -> ReplayResult:
    counts = {
        f"{prefix}{name}": value[name][key]
        for name in _COUNTS
        for key, prefix in (("recorded", ""), ("served", "served_"))
    }
    counts["served"] = counts.pop("served_model_calls")
    counts["served_tools"] = counts.pop("served_tool_calls")
    return ReplayResult(
        session=value["session"],
        fidelity=cast("Fidelity", value["fidelity"]),
        reasons=tuple(value["reasons"]),
        divergences=tuple(map(_divergence, value["divergences"])),
        flagged=value["flagged"],
        live=value["live"],
        executed=tuple((name, arguments) for name, arguments in value.get("executed", ())),
        missing=tuple(value.get("missing", ())),
        unguarded=tuple(value.get("unguarded", ())),
        tools=dict(value.get("tools", {})),
        **counts,
    )


def _divergence(value: Mapping[str, Any]) -> Divergence:
    names = {field.name for field in fields(Divergence)}
    values = {key: item for key, item in value.items() if key in names and item is not None}
    for side in ("recorded", "actual"):
        item = values.get(side)
        if isinstance(item, Mapping) and "role" in item:
            values[side] = to_messages([item])[0]
    return Divergence(**values)


def combined(processes: Iterable[VerifiedSession]) -> VerifiedSession | None:
    """Combine the results of a command's processes; None if there are none.

    Each process replays the whole recording, so a call that is missing in one process may have been
    made by another.
    """
    all_of_them = list(processes)
    active = [process for process in all_of_them if _took_part(process)] or all_of_them[:1]
    if len(active) < 2:
        return active[0] if active else None
    first = max(active, key=lambda process: process.result.served if process.result else 0)
    results = [process.result for process in active if process.result]
    served = sum(result.served for result in results)
    recorded_calls = results[0].model_calls
    missing = _missing_in_all(results)
    divergences = [d for result in results for d in result.divergences if d.kind != _MISSING]
    if missing:
        summary = f"none of {len(active)} processes made {missing[0]}"
        divergences.append(Divergence(_MISSING, summary))
    note = f"{len(active)} processes replayed the session; each had all of the recording"
    result = replace(
        results[0],
        served=min(served, recorded_calls - sum(name.startswith("model call") for name in missing)),
        served_tools=min(sum(result.served_tools for result in results), results[0].tool_calls),
        divergences=tuple(divergences),
        missing=missing,
        executed=max((result.executed for result in results), key=len),
        unguarded=tuple(dict.fromkeys(line for result in results for line in result.unguarded)),
        tools={name: line for result in results for name, line in result.tools.items()},
        reasons=(*results[0].reasons, note),
    )
    problem = max(
        (process for process in active if process.status not in ("passed", "diverged")),
        key=lambda process: process.status != "unverified",
        default=None,
    )
    status: VerifyStatus = "diverged" if divergences else "passed"
    return replace(
        first,
        status=problem.status if problem and not divergences else status,
        detail=problem.detail if problem else "",
        result=result,
    )


def _missing_in_all(results: Sequence[ReplayResult]) -> tuple[str, ...]:
    """The names of the recorded calls that no process made."""
    other_missing = [set(result.missing) for result in results[1:]]
    return tuple(
        name for name in results[0].missing if all(name in names for names in other_missing)
    )


def _took_part(process: VerifiedSession) -> bool:
    result = process.result
    if result is None or result.unguarded or process.status not in ("passed", "diverged"):
        return True
    is_idle = not (result.served or result.served_tools or result.served_exchanges)
    return not is_idle or any(
        divergence.kind != "missing_call" for divergence in result.divergences
    )


def exit_status(sessions: Iterable[VerifiedSession]) -> int:
    """The exit status: 0 all passed, 1 any failed, 3 any is unverified, or nothing ran."""
    statuses = [(s.status, s.failed) for s in sessions if s.status != "not_replayed"]
    if any(failed for _, failed in statuses):
        return 1
    is_passed = statuses and all(status == "passed" for status, _ in statuses)
    return 0 if is_passed else 3


# Kinds of values with a JSON form that varies or does not show the value.
_VAGUE = ('"$opaque"', '"$instance"', '"$set"', '"$frozenset"', '"$float"')


@dataclass(frozen=True, slots=True)
class ReturnedJson:
    """The result of a target for a turn.

    Attributes:
        value: The value as plain JSON.
        is_exact: Whether `value` equals the result; otherwise it is the JSON form of the result.
        is_known: Whether the JSON form has the whole content of the result.
    """

    value: Any = None
    is_exact: bool = False
    is_known: bool = True


def returned_json(values: Iterable[Any]) -> tuple[ReturnedJson, ...]:
    """The values that a target returned as plain JSON."""
    return tuple(map(_returned_json, values))


def _returned_json(value: Any) -> ReturnedJson:
    try:
        if form_of(value) is not None:
            return ReturnedJson(value, is_exact=True)
        text = typed_text(encoded(value))
        if not any(tag in text for tag in _VAGUE):
            return ReturnedJson(to_jsonable(value))
    except (TooManyParts, RecursionError, ValueError):
        pass
    return ReturnedJson(is_known=False)
