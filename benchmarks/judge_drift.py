"""The effect of hardening on verdicts of harmless runs: a scripted judge, with and without it.

Each run is a refund: a customer names an order and an amount, the agent calls a tool, the tool
answers, the agent reports. Half of the runs have a fault: another order or amount in the call or
the report, or a failed call. The texts are of the kinds that hardening touches: markup, code,
quotes, JSON in JSON, emoji joined by invisible characters, right-to-left and other scripts.

The judge is a program that reads its prompt as it stands, undoing JSON's escapes as a model does in
reading: a run is good if one order and one amount are named in it and no result is an error. It
knows nothing of delimiters. **Drift** is the share of runs whose verdict differs with hardening;
beside it stand the share of right verdicts each way, and how much longer prompts get.

    python -m benchmarks.judge_drift
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

from . import parts
from .checks import check
from .report import Row, below

FULL = {"runs": 2000}
QUICK = {"runs": 200}

AT_MOST = 0.0

_TEXTS = (
    "Please refund order {order}, I paid {amount}.",
    'My order <b>{order}</b> cost <span class="price">{amount}</span>; refund it & tell me "when".',
    "```python\nif order == '{order}' and paid > 0:\n    refund({amount})  # [TODO]\n```",
    "Bestellung {order} für {amount} € — bitte zurückerstatten, schöne Grüße 👩‍👩‍👧‍👦🏳️‍🌈",
    "请退款订单 {order}，金额 {amount} 元。谢谢！",
    "أرجو استرداد مبلغ {amount} للطلب {order} ‏شكرا",
    "refund:\r\n\t- order: {order}\r\n\t- amount: {amount}\r\n\u2028thanks\u200b",
    '{{"request": {{"order": "{order}", "note": "it said \\"paid {amount}\\" twice"}}}}',
    "| order | amount |\n|---|---|\n| {order} | {amount} |\n\n[SEE] the [[data]] above",
)
_PROMPT = "Was the refund made as the customer asked?\n\nThe run:\n\n{outputs}"
_ESCAPE = re.compile(r'\\(u[0-9a-f]{4}|["\\/bfnrt])')
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": " ", "f": " "}


def make(chance: random.Random) -> tuple[list[dict[str, Any]], bool]:
    """Return a run, and whether it is good."""
    order, amount = f"W{chance.randrange(10_000):04d}", f"{chance.randrange(100, 99999) / 100:.2f}"
    fault = chance.choice(["", "", "", "order", "amount", "error"])
    wrong_order = f"W{chance.randrange(10_000):04d}" if fault == "order" else order
    reported = f"{chance.randrange(100, 99999) / 100:.2f}" if fault == "amount" else amount
    arguments = json.dumps({"order_id": wrong_order, "amount": amount})
    result = "Error: the order is locked" if fault == "error" else '{"status": "refunded"}'
    text = chance.choice(_TEXTS)
    messages = [
        {"role": "user", "content": text.format(order=order, amount=amount)},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "refund", "arguments": arguments}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": result},
        {"role": "assistant", "content": f"I refunded {reported} for {order}."},
    ]
    is_good = not fault or ((wrong_order, reported) == (order, amount) and fault != "error")
    return messages, is_good


def read(text: str) -> str:
    """Return a text with its escapes undone, also those inside of escaped texts."""
    for _ in range(3):
        text = _ESCAPE.sub(_undone, text)
    return text


def _undone(match: re.Match[str]) -> str:
    mark = match[1]
    return chr(int(mark[1:], 16)) if mark[0] == "u" else _PLAIN.get(mark, mark)


class Judge:
    """The scripted judge.

    Attributes:
        length: How many characters its prompts had.
        prompts: How many prompts there were.
    """

    def __init__(self) -> None:
        self.length = self.prompts = 0

    def __call__(self, messages: list[dict[str, Any]], _schema: Any) -> dict[str, Any]:
        """Read the prompt as it stands."""
        prompt = messages[-1]["content"]
        self.length += len(prompt)
        self.prompts += 1
        text = read(prompt)
        orders = set(re.findall(r"W\d{4}(?!\d)", text))
        amounts = set(re.findall(r"(?<![\d.])\d+\.\d\d(?!\d)", text))
        is_good = len(orders) == len(amounts) == 1 and "Error:" not in text
        return {"reasoning": f"{orders} {amounts}", "score": is_good}


def measure(*, runs: int) -> dict[str, Any]:
    """Measure the drift.

    Args:
        runs: How many runs are judged, each both ways.

    Returns:
        ``runs``, ``differ`` (verdicts that hardening changes), ``right_plain`` and
        ``right_hardened`` (right verdicts), ``characters_plain`` and ``characters_hardened`` a
        prompt.
    """
    from oteval import create_trajectory_llm_as_judge

    chance = random.Random(7)
    cases = [make(chance) for _ in range(runs)]
    verdicts: dict[bool, list[Any]] = {}
    lengths = {}
    for harden in (False, True):
        judge = Judge()
        evaluate = create_trajectory_llm_as_judge(prompt=_PROMPT, judge=judge, harden=harden)
        verdicts[harden] = [evaluate(outputs=messages)["score"] for messages, _ in cases]
        check(judge.prompts == runs, "the judge is asked about each run once", judge.prompts)
        is_verdict = all(type(verdict) is bool for verdict in verdicts[harden])
        check(is_verdict, "each run has a verdict", verdicts[harden][:3])
        lengths[harden] = judge.length / runs
    truth = [is_good for _, is_good in cases]
    check(len(set(truth)) == 2 or runs < 20, "some runs are good, and some are not")
    plain, hardened = verdicts[False], verdicts[True]
    return {
        "runs": runs,
        "differ": sum(a != b for a, b in zip(plain, hardened, strict=True)),
        "right_plain": sum(a == b for a, b in zip(plain, truth, strict=True)),
        "right_hardened": sum(a == b for a, b in zip(hardened, truth, strict=True)),
        "characters_plain": lengths[False],
        "characters_hardened": lengths[True],
    }


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    runs = figures["runs"]
    longer = figures["characters_hardened"] - figures["characters_plain"]
    return [
        below(f"{runs:,} harmless runs: drift", figures["differ"] / runs, "{:.2%}", AT_MOST),
        Row("right verdicts without hardening", f"{figures['right_plain'] / runs:.2%}"),
        Row("right verdicts with hardening", f"{figures['right_hardened'] / runs:.2%}"),
        Row("characters that hardening adds to a prompt", f"{longer:.0f}"),
    ]


if __name__ == "__main__":
    parts.main("judge_drift")
