"""Random cases through agentevals and oteval: every difference must be an intended one.

Each case has two trajectories, in the message forms that both packages read, and the arguments of
an evaluator. Three verdicts are compared: of agentevals, of oteval, and of a model of
agentevals to which the intended changes can be switched on one by one.
docs/how-to/migrate-from-agentevals.md describes them.

- The model without changes must agree with agentevals: it is a faithful model.
- The model with all changes must agree with oteval: nothing else differs.

Where agentevals and oteval differ, the fewest changes that explain it are counted.

    python tests/conformance/differential.py --cases 20000 --seed 1

Prints a line for each change and exits with 1 when a case is not explained. The interpreter needs
agentevals and oteval (``pip install -e '.[peers]'``).
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from oteval.evaluators import create_trajectory_match_evaluator

CHANGES = {
    "types": "true and false differ from 1 and 0",
    "depth": "subset and superset go into nested objects and lists",
    "pairing": "calls are paired so that as many as possible match, not first come, first served",
    "direction": "arguments are compared as (output, reference) in every mode",
    "no fields": "an override of [] compares no fields",
    "null": "null differs from a missing field",
    "paths": "a dotted path finds keys that hold dots, and list items by index",
    "broken": "arguments that are not a JSON object are compared as they are, without an exception",
    "NaN": "NaN equals NaN",
    "unseen": "messages that show neither a question nor a call give no verdict",
}
"""The intended differences, by their names in docs/how-to/migrate-from-agentevals.md."""

MODES = ("strict", "unordered", "subset", "superset")
ARGS = ("exact", "ignore", "subset", "superset")
ERROR = "an exception"

Case = dict[str, Any]


# --- random cases ---------------------------------------------------------------------------

_VALUES = [
    *(0, 1, 1.0, 2, -1, 0.1, 1e22, 10**22, 2**63, 2**64, 10**30, 10**30 + 1, 1.5e300),
    *(
        True,
        False,
        None,
        "",
        "1",
        "a",
        "A",
        "é",
        "e\u0301",
        "ﬁ",
        "😀",
        "\ud83d",
        "\ude00",
        "\ufffd",
    ),
    *(float("inf"), float("nan"), [], {}, [1, 2], [2, 1], [1.0, 2], [True], [None], "line\n\0"),
]
_KEYS = ["a", "a", "a", "b", "b", "c", "a.b", "é", "0"]
_TOOLS = ["search", "search", "book", "日本"]
_PATHS = ["a", "a", "b", "b", "a.b", "a.b", "a.a", "a.0", "a.0.b", "c.a.b", "é", "missing"]


def value(chance: random.Random, depth: int = 0) -> Any:
    """Return a random JSON value."""
    kind = chance.random()
    if depth < 3 and kind < 0.15:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if depth < 3 and kind < 0.35:
        return arguments(chance, depth + 1)
    return copy.deepcopy(chance.choice(_VALUES))


def arguments(chance: random.Random, depth: int = 0) -> dict[str, Any]:
    """Return a random object."""
    keys = chance.sample(_KEYS, chance.choice([0, 1, 1, 2, 2, 3]))
    return {key: value(chance, depth) for key in keys}  # a key drawn twice is there once


def turn(chance: random.Random) -> Case:
    """Return a message in a neutral form, which `shaped` converts to those of the packages."""
    role = chance.choice(["user", "assistant", "assistant", "assistant", "tool", "system"])
    calls = []
    if role == "assistant":
        count = chance.choice([0, 1, 2, 2, 3])
        calls = [(chance.choice(_TOOLS), arguments(chance)) for _ in range(count)]
        if calls and chance.random() < 0.15:
            calls.append(copy.deepcopy(chance.choice(calls)))
    return {"role": role, "calls": calls, "empty": chance.choice(["absent", "none", "list"])}


def changed(turns: list[Case], chance: random.Random) -> list[Case]:
    """Return a trajectory that differs from another in a few places, or in none."""
    turns = copy.deepcopy(turns)
    for _ in range(chance.choice([0, 1, 1, 2, 2, 3])):
        at = chance.randrange(len(turns)) if turns else 0
        calls = turns[at]["calls"] if turns else []
        kind = chance.random()
        if kind < 0.06:
            turns.insert(at, turn(chance))
        elif kind < 0.1 and turns:
            del turns[at]
        elif kind < 0.18 and turns:
            chance.shuffle(turns)
        elif kind < 0.26 and calls:
            chance.shuffle(calls)
        elif kind < 0.32 and calls:
            calls.append(copy.deepcopy(chance.choice(calls)))
        elif kind < 0.38 and calls:
            calls.pop()
        elif calls:
            name, call_args = calls.pop(chance.randrange(len(calls)))
            calls.append((name, tweaked(call_args, chance)))
    return turns


def tweaked(json_value: Any, chance: random.Random) -> Any:
    """Return a value that differs a little."""
    if isinstance(json_value, dict):
        json_value = dict(chance.sample(list(json_value.items()), len(json_value)))
        if json_value and chance.random() < 0.6:
            key = chance.choice(list(json_value))
            kind = chance.random()
            if kind < 0.15:
                del json_value[key]
            elif kind < 0.3:
                json_value[key] = None
            else:
                json_value[key] = tweaked(json_value[key], chance)
        else:
            json_value[chance.choice(_KEYS)] = value(chance, 2)
        return json_value
    if isinstance(json_value, list) and json_value:
        return chance.choice(
            [list(reversed(json_value)), json_value[:-1], [*json_value, value(chance, 3)]]
        )
    if isinstance(json_value, bool):
        return int(json_value)
    if json_value in (0, 1) and chance.random() < 0.3:
        return bool(json_value)
    if isinstance(json_value, int):
        return chance.choice(
            [
                json_value + 1,
                float(json_value) if abs(json_value) < 2**1000 else json_value,
                str(json_value),
            ]
        )
    return value(chance, 2)


def shaped(turns: list[Case], chance: random.Random, broken: bool) -> Any:
    """Return a trajectory in one of the forms that both packages read."""
    form = chance.choice(["openai", "openai", "anthropic", "langchain", "mixed", "dict"])
    messages = []
    for at, neutral_turn in enumerate(turns):
        own = chance.choice(["openai", "anthropic", "langchain"]) if form == "mixed" else form
        make = {"langchain": langchain_message, "anthropic": anthropic_message}
        messages.append(make.get(own, openai_message)(neutral_turn, at, chance, broken))
    return {"messages": messages} if form == "dict" else messages


def openai_message(neutral_turn: Case, at: int, chance: random.Random, broken: bool) -> Case:
    """Return a message in OpenAI's form; with `broken`, arguments may be other than an object."""
    role = neutral_turn["role"]
    message: Case = {"role": role, "content": chance.choice(["", "text", None, "é"])}
    if role == "tool":
        message |= {"tool_call_id": f"c{at}", "content": "ok"}
    calls = []
    for number, (name, call_args) in enumerate(neutral_turn["calls"]):
        text = json.dumps(call_args, ensure_ascii=chance.random() < 0.5)
        if broken and chance.random() < 0.3:
            text = chance.choice(["{", "no json", '"text"', "[1]", "7", text])
        call_id = f"c{at}-{number}"
        function = {"name": name, "arguments": text}
        calls.append({"id": call_id, "type": "function", "function": function})
    if calls or (role == "assistant" and neutral_turn["empty"] != "absent"):
        message["tool_calls"] = calls or (None if neutral_turn["empty"] == "none" else [])
    return message


def anthropic_message(neutral_turn: Case, at: int, chance: random.Random, broken: bool) -> Case:
    """Return a message whose calls are Anthropic's blocks; others as OpenAI has them."""
    if not neutral_turn["calls"]:
        return openai_message(neutral_turn, at, chance, broken)
    blocks: list[Case] = [{"type": "text", "text": "so"}] if chance.random() < 0.5 else []
    for number, (name, call_args) in enumerate(neutral_turn["calls"]):
        call = {"type": "tool_use", "id": f"c{at}-{number}", "name": name}
        blocks.append({**call, "input": copy.deepcopy(call_args)})
    return {"role": neutral_turn["role"], "content": blocks}


def langchain_message(neutral_turn: Case, at: int, chance: random.Random, broken: bool) -> Any:
    """Return a message as LangChain's object."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    del broken
    if neutral_turn["role"] == "assistant":
        calls = [
            {"name": name, "args": copy.deepcopy(call_args), "id": f"c{at}-{number}"}
            for number, (name, call_args) in enumerate(neutral_turn["calls"])
        ]
        return AIMessage(chance.choice(["", "text"]), tool_calls=calls)
    if neutral_turn["role"] == "tool":
        return ToolMessage("ok", tool_call_id=f"c{at}")
    return {"user": HumanMessage, "system": SystemMessage}[neutral_turn["role"]]("text")


def same_query(out: Any, ref: Any) -> bool:
    """Compare as users' own functions do: one field, more or less."""
    return str(out.get("a", "")).lower() == str(ref.get("a", "")).lower()


def lenient(out: Any, ref: Any) -> bool:
    """Accept values in one direction only, so that pairing and direction matter."""
    return len(out) <= len(ref)


def override(chance: random.Random) -> Any:
    """Return a random override for the comparison of one tool's arguments."""
    kind = chance.random()
    if kind < 0.4:
        return chance.choice(ARGS)
    if kind < 0.75:
        return chance.sample(_PATHS, chance.choice([0, 1, 1, 2]))
    return chance.choice([same_query, lenient])


def cases(count: int, seed: int) -> Iterator[Case]:
    """Yield random cases; each depends on the seed and its number alone."""
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        turns = [turn(chance) for _ in range(chance.choice([0, 1, 1, 2, 3, 4]))]
        pair = [turns, changed(turns, chance)]
        chance.shuffle(pair)
        broken = chance.random() < 0.04
        options: Case = {
            "trajectory_match_mode": chance.choice(MODES),
            "tool_args_match_mode": chance.choice(ARGS),
        }
        if chance.random() < 0.5:
            tools = chance.sample(sorted({*_TOOLS}), chance.choice([1, 2, 3]))
            options["tool_args_match_overrides"] = {tool: override(chance) for tool in tools}
        sides = [shaped(side, chance, broken) for side in pair]
        yield {"number": number, "options": options, "sides": sides}


# --- the three verdicts ---------------------------------------------------------------------


def asked(make: Callable[..., Any], case: Case) -> bool | str:
    """Return the verdict of a package on a case."""
    outputs, reference = copy.deepcopy(case["sides"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = make(**case["options"])
            return bool(evaluator(outputs=outputs, reference_outputs=reference)["score"])
    except Exception:
        return ERROR


class Model:
    """Agentevals' rules on a case, with some of the intended changes."""

    def __init__(self, case: Case) -> None:
        self.options = case["options"]
        self.messages = [list(map(plain, entries(side))) for side in case["sides"]]
        texts = [text for side in self.messages for _, calls in side for _, text in calls]
        self.broken = not all(map(is_object, texts))

    def verdict(self, changes: frozenset[str]) -> bool | str:
        """Return the verdict under some changes."""
        if self.broken and "broken" not in changes:
            return ERROR
        try:
            return _Rules(self.options, changes).verdict(*self.messages)
        except Exception:
            return ERROR


Plain = tuple[str, list[tuple[str, str]]]
"""A message as both packages understand it: the role, and each call's tool and arguments."""


def entries(side: Any) -> list[Any]:
    """Return the messages of a trajectory."""
    messages: list[Any] = side["messages"] if isinstance(side, dict) else side
    return messages


def plain(message: Any) -> Plain:
    """Return the role and the calls of a message of a case."""
    if isinstance(message, dict):
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        pairs = [(call["name"], call["arguments"]) for call in calls]
        if isinstance(message["content"], list):
            uses = [block for block in message["content"] if block["type"] == "tool_use"]
            pairs += [(block["name"], json.dumps(block["input"])) for block in uses]
        return message["role"], pairs
    role = {"ai": "assistant", "human": "user"}.get(message.type, message.type)
    calls = getattr(message, "tool_calls", ())
    return role, [(call["name"], json.dumps(call["args"])) for call in calls]


def is_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


class _Rules:
    def __init__(self, options: Case, changes: frozenset[str]) -> None:
        self.mode = options["trajectory_match_mode"]
        self.args = options["tool_args_match_mode"]
        self.overrides = options.get("tool_args_match_overrides") or {}
        self.changes = changes

    def verdict(self, out: list[Plain], ref: list[Plain]) -> bool:
        is_seen = not out or any(calls or role == "user" for role, calls in out)
        if "unseen" in self.changes and not is_seen:
            return False  # the score is None
        if self.mode == "strict":
            return self._strict(out, ref)
        outs, refs = self._calls(out), self._calls(ref)
        if self.mode == "superset":
            return self._covers(outs, refs, turned=False)
        if self.mode == "subset":
            return self._covers(refs, outs, turned=True)
        return self._covers(outs, refs, turned=False) and self._covers(refs, outs, turned=True)

    def _strict(self, out: list[Plain], ref: list[Plain]) -> bool:
        if [role for role, _ in out] != [role for role, _ in ref]:
            return False
        return all(
            len(left) == len(right) and self._paired(left, right)
            for (_, left), (_, right) in zip(out, ref, strict=True)
        )

    def _calls(self, messages: list[Plain]) -> list[tuple[str, str]]:
        return [call for _, calls in messages for call in calls]

    def _covers(
        self,
        available_calls: list[tuple[str, str]],
        required_calls: list[tuple[str, str]],
        *,
        turned: bool,
    ) -> bool:
        """Return whether all required calls are among the available ones."""
        if "direction" not in self.changes:
            turned = False
        if "pairing" in self.changes:
            fits = lambda left, right: self._fits(right, left, turned=turned)  # noqa: E731
            return _most(required_calls, available_calls, fits) == len(required_calls)
        used: set[int] = set()
        for required in required_calls:
            for at, available in enumerate(available_calls):
                if at not in used and self._fits(available, required, turned=turned):
                    used.add(at)
                    break
            else:
                return False
        return True

    def _paired(self, outs: list[tuple[str, str]], refs: list[tuple[str, str]]) -> bool:
        """Return whether the calls of two messages fit, in any order."""
        if "pairing" in self.changes:
            return _most(outs, refs, self._fits) == len(outs)
        used: set[int] = set()
        for out in outs:
            for at, ref in enumerate(refs):
                if at not in used and self._fits(out, ref):
                    used.add(at)
                    break
            else:
                return False
        return True

    def _fits(
        self, first: tuple[str, str], second: tuple[str, str], *, turned: bool = False
    ) -> bool:
        (name, first_text), (other, second_text) = first, second
        if name != other:
            return False
        out, ref = self._read(first_text), self._read(second_text)
        if turned:
            out, ref = ref, out
        return self._args_match(self._rule(name), out, ref)

    def _read(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    def _rule(self, name: str) -> Any:
        rule = self.overrides.get(name, self.args)
        if not rule and "no fields" not in self.changes:
            return self.args
        return rule

    def _args_match(self, rule: Any, out: Any, ref: Any) -> bool:
        objects = isinstance(out, dict) and isinstance(ref, dict)
        if rule == "ignore" or rule == []:
            return True
        if not objects and "broken" in self.changes and not callable(rule):
            deep = rule in ("subset", "superset") and "depth" in self.changes
            return self._within(out, ref, rule) if deep else self._equal(out, ref)
        if callable(rule):
            try:
                return bool(rule(out, ref))
            except Exception:
                if objects or "broken" not in self.changes:
                    raise
                return False
        if isinstance(rule, list):
            return all(self._same_field(out, ref, path) for path in rule)
        if rule == "exact":
            return self._equal(out, ref)
        if "depth" in self.changes:
            return self._within(out, ref, rule)
        small, big = (out, ref) if rule == "subset" else (ref, out)
        return all(key in big and self._equal(big[key], item) for key, item in small.items())

    def _same_field(self, out: Any, ref: Any, path: str) -> bool:
        left, right = self._field(out, path), self._field(ref, path)
        if "null" not in self.changes:
            left, right = (None if side is _MISSING else side for side in (left, right))
        if left is _MISSING or right is _MISSING:
            return left is right
        return self._equal(left, right)

    def _field(self, node: Any, path: str) -> Any:
        if "paths" in self.changes:
            return _found(node, path)
        for part in path.split("."):
            if not isinstance(node, dict) or part not in node:
                return _MISSING
            node = node[part]
        return node

    def _equal(self, first: Any, second: Any) -> bool:
        return _typed(first, self.changes) == _typed(second, self.changes)

    def _within(self, out: Any, ref: Any, rule: str) -> bool:
        if isinstance(out, dict) and isinstance(ref, dict):
            small, big = (out, ref) if rule == "subset" else (ref, out)
            if not small.keys() <= big.keys():
                return False
            return all(self._within(out[key], ref[key], rule) for key in small)
        if isinstance(out, list) and isinstance(ref, list) and len(out) == len(ref):
            return all(self._within(a, b, rule) for a, b in zip(out, ref, strict=True))
        return self._equal(out, ref)


_MISSING = object()


def _found(node: Any, path: str) -> Any:
    """Return the value at a path, preferring the longest key that matches."""
    if isinstance(node, dict):
        if path in node:
            return node[path]
        parts = path.split(".")
        for size in range(len(parts) - 1, 0, -1):
            head = ".".join(parts[:size])
            if head in node:
                nested = _found(node[head], ".".join(parts[size:]))
                if nested is not _MISSING:
                    return nested
        return _MISSING
    if isinstance(node, list):
        head, _, rest = path.partition(".")
        if not head.isdecimal() or int(head) >= len(node):
            return _MISSING
        return _found(node[int(head)], rest) if rest else node[int(head)]
    return _MISSING


def _typed(json_value: Any, changes: frozenset[str]) -> Any:
    """Return a value whose equality is that of the changes."""
    if isinstance(json_value, bool) and "types" in changes:
        return ("a bool", json_value)
    if isinstance(json_value, float) and json_value != json_value and "NaN" in changes:
        return ("NaN",)
    if isinstance(json_value, dict):
        return {key: _typed(item, changes) for key, item in json_value.items()}
    if isinstance(json_value, list):
        return [_typed(item, changes) for item in json_value]
    return json_value


def _most(lefts: list[Any], rights: list[Any], fits: Callable[[Any, Any], bool]) -> int:
    """Return the size of a greatest matching, by augmenting paths."""
    taken: dict[int, int] = {}
    options = [[j for j, right in enumerate(rights) if fits(left, right)] for left in lefts]

    def augment(left: int, seen: set[int]) -> bool:
        for right in options[left]:
            if right not in seen:
                seen.add(right)
                if right not in taken or augment(taken[right], seen):
                    taken[right] = left
                    return True
        return False

    return sum(augment(left, set()) for left in range(len(lefts)))


# --- the comparison -------------------------------------------------------------------------


def fewest(model: Model, ours: bool | str) -> tuple[str, ...]:
    """Return the fewest changes under which the model agrees with oteval."""
    for size in range(1, 4):
        for names in combinations(CHANGES, size):
            if model.verdict(frozenset(names)) == ours:
                return names
    return tuple(CHANGES)


def compare(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Run cases; return the count of each known difference, and the unexplained cases."""
    from agentevals.trajectory.match import create_trajectory_match_evaluator as make_peer

    counts: Counter[str] = Counter()
    faults: list[str] = []
    for case in cases(count, seed):
        theirs = asked(make_peer, case)
        ours = asked(create_trajectory_match_evaluator, case)
        model = Model(case)
        counts["cases"] += 1
        counts[f"oteval says {ours}"] += 1
        if model.verdict(frozenset()) != theirs:
            faults.append(_told(case, f"the model is wrong: agentevals says {theirs}"))
        if model.verdict(frozenset(CHANGES)) != ours:
            faults.append(_told(case, f"not intended: oteval says {ours}, agentevals {theirs}"))
        elif ours != theirs:
            counts["differences"] += 1
            counts.update(fewest(model, ours))
    return counts, faults


def _told(case: Case, what: str) -> str:
    return f"case {case['number']}: {what}\n  {case['options']}\n  {case['sides']!r}"


def main() -> int:
    """Run the differential test from the command line."""
    parser = argparse.ArgumentParser(description="Compare oteval with agentevals on random cases.")
    parser.add_argument(
        "--cases", type=int, default=20_000, help="number of cases (default: 20,000)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random cases (default: 1)")
    options = parser.parse_args()
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    counts, faults = compare(options.cases, options.seed)
    verdicts = ", ".join(f"{n} {name}" for name, n in counts.items() if name.startswith("oteval"))
    print(f"{counts['cases']} cases ({verdicts}), {counts['differences']} intended differences")
    for name, text in CHANGES.items():
        print(f"  {counts[name]:6} {name}: {text}")
    for fault in faults[:5]:
        print(fault)
    if faults:
        print(f"{len(faults)} cases are not explained")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
