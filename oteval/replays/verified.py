"""The result of verifying one session, and its JSON form, in which processes exchange it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal, cast

from ..evaluators import to_messages
from ..model import Fidelity
from .divergence import Divergence
from .replay_result import ReplayResult
from .target_returns import ReturnedJson

__all__ = ["VerifiedSession", "VerifyStatus", "combined", "exit_status"]

_MISSING: Final = "missing_call"

VerifyStatus = Literal[
    "passed", "diverged", "error", "timeout", "crashed", "unverified", "not_replayed"
]
"""How a replay ended: ``error`` if the agent raised, ``not_replayed`` if it could not start.

``unverified`` is a replay that stopped before a tool ran, or that could not guard something.
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
        """Return the JSON form."""
        result = self.result.as_dict() if self.result else {}
        return {
            "session": self.session,
            "status": self.status,
            "detail": self.detail,
            "fidelity": self.fidelity,
            "reasons": result.get("reasons", []),
            "divergences": result.get("divergences", []),
            "model_calls": result.get("model_calls"),
            "tool_calls": result.get("tool_calls"),
            "exchanges": result.get("exchanges"),
            "flagged": result.get("flagged", 0),
            "live": result.get("live", 0),
            "executed": result.get("executed", []),
            "missing": result.get("missing", []),
            "unguarded": result.get("unguarded", []),
            "tools": result.get("tools", {}),
            "output": self.output,
            "seconds": round(self.seconds, 3),
            "returned": list(map(asdict, self.returned)),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> VerifiedSession:
        """Return the session of a JSON form."""
        return cls(
            session=value["session"],
            status=value["status"],
            detail=value["detail"],
            result=_result(value) if value["fidelity"] else None,
            output=value["output"],
            seconds=value["seconds"],
            returned=tuple(ReturnedJson(**one) for one in value.get("returned", ())),
        )


def _result(value: Mapping[str, Any]) -> ReplayResult:
    counts = {
        f"{prefix}{name}": value[name][key]
        for name in ("model_calls", "tool_calls", "exchanges")
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
    known = {field.name for field in fields(Divergence)}
    given = {key: item for key, item in value.items() if key in known and item is not None}
    for side in ("recorded", "actual"):
        item = given.get(side)
        if isinstance(item, Mapping) and "role" in item:
            given[side] = to_messages([item])[0]
    return Divergence(**given)


def combined(processes: Iterable[VerifiedSession]) -> VerifiedSession | None:
    """Return the result of a command from those of its processes; None if there are none.

    Each process replays the whole recording, so a call that one of them misses may have been made
    by another.
    """
    all_of_them = list(processes)
    active = [one for one in all_of_them if _took_part(one)] or all_of_them[:1]
    if len(active) < 2:
        return active[0] if active else None
    first = max(active, key=lambda one: one.result.served if one.result else 0)
    results = [one.result for one in active if one.result]
    served = sum(each.served for each in results)
    wanted = results[0].model_calls
    missing = _missing_in_all(results)
    divergences = [one for each in results for one in each.divergences if one.kind != _MISSING]
    if missing:
        summary = f"none of {len(active)} processes made {missing[0]}"
        divergences.append(Divergence(_MISSING, summary))
    note = f"{len(active)} processes replayed the session; each had all of the recording"
    result = replace(
        results[0],
        served=min(served, wanted - sum(name.startswith("model call") for name in missing)),
        served_tools=min(sum(each.served_tools for each in results), results[0].tool_calls),
        divergences=tuple(divergences),
        missing=missing,
        executed=max((each.executed for each in results), key=len),
        unguarded=tuple(dict.fromkeys(line for each in results for line in each.unguarded)),
        tools={name: line for each in results for name, line in each.tools.items()},
        reasons=(*results[0].reasons, note),
    )
    problem = max(
        (one for one in active if one.status not in ("passed", "diverged")),
        key=lambda one: one.status != "unverified",
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
    """Return the names of the recorded calls that no process made."""
    others = [set(each.missing) for each in results[1:]]
    return tuple(name for name in results[0].missing if all(name in one for one in others))


def _took_part(one: VerifiedSession) -> bool:
    result = one.result
    if result is None or result.unguarded or one.status not in ("passed", "diverged"):
        return True
    is_idle = not (result.served or result.served_tools or result.served_exchanges)
    return not is_idle or any(each.kind != "missing_call" for each in result.divergences)


def exit_status(sessions: Iterable[VerifiedSession]) -> int:
    """Return the exit status: 0 all passed, 1 one failed, 3 one is unverified, or nothing ran."""
    statuses = [(one.status, one.failed) for one in sessions if one.status != "not_replayed"]
    if any(failed for _, failed in statuses):
        return 1
    is_passed = statuses and all(status == "passed" for status, _ in statuses)
    return 0 if is_passed else 3
