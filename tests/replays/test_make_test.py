"""`oteval replay make-test`: the written test passes, and fails when the agent changes."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oteval.model import Message, Recording
from oteval.replays.python_literals import block_text, literal, text_literal
from oteval.replays.recording_files import save

from ..commands import Run, oteval
from .desk import DESK, EDITS, desk_recording
from .testing.conftest import Project, project

__all__ = ["oteval", "project"]

NAME = "refund_order_17_please"


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """A recording of the agent `desk`, which is forgotten after the test."""
    yield desk_recording(monkeypatch)
    sys.modules.pop("desk", None)


@pytest.fixture
def written(desk: Recording, oteval: Run) -> Path:
    """The folder of the agent ``desk.py`` with the test that was written for it."""
    folder = Path.cwd()
    (folder / "desk.py").write_text(DESK)
    save(desk, folder / "session.jsonl")
    done = oteval("replay", "make-test", "session.jsonl", "--target", "desk:ask", "--no-run")
    assert done.status == 0, done.err
    return folder


def written_test(folder: Path, name: str = NAME) -> Callable[[Any], None]:
    """Return the function of a written test."""
    sys.modules.pop("desk", None)
    test_function: Callable[[Any], None] = runpy.run_path(
        str(folder / "tests" / f"test_{name}.py")
    )[f"test_{name}"]
    return test_function


def test_the_written_test_reads_like_a_persons(written: Path) -> None:
    """The question, the tools with their arguments and the answer are literals in the test."""
    assert (written / "tests" / f"test_{NAME}.py").read_text().splitlines()[16:] == [
        f"def test_{NAME}(oteval_replay):",
        '    """The agent calls find_customer, recent_orders, lookup, refund, then answers."""',
        f'    with oteval_replay(HERE / "recordings" / "{NAME}.jsonl") as replay:',
        '        ask("Refund order 17, please")',
        "",
        "    assert replay.tool_calls == [",
        '        ("find_customer", {"email": "ada@example.com"}),',
        '        ("recent_orders", {"email": "ada@example.com"}),',
        '        ("lookup", {"order": 17}),',
        '        ("refund", {"order": 17}),',
        "    ]",
        '    assert replay.answer == "Refunded."',
        "",
        f'    path = HERE / "references" / "{NAME}.json"',
        '    reference = json.loads(path.read_text("utf-8"))',
        "    match = trajectory_strict_match(outputs=replay.messages, reference_outputs=reference)",
        '    assert match["score"], match["comment"]',
    ]


def test_the_written_test_passes(written: Path, oteval_replay: Any) -> None:
    """The test needs neither a server nor a key, and gets each tool's result, not the model's."""
    recordings = []

    def opened(path: Path) -> Any:
        recordings.append(path.relative_to(written))
        return oteval_replay(path)

    written_test(written)(opened)

    assert recordings == [Path(f"tests/recordings/{NAME}.jsonl")]


@pytest.mark.parametrize("edit", EDITS)
def test_the_written_test_fails_when_the_agent_changes(
    written: Path, oteval_replay: Any, edit: str
) -> None:
    """The failure is that of a test, and shows the difference."""
    old, new, difference = EDITS[edit]
    assert old in DESK
    (written / "desk.py").write_text(DESK.replace(old, new))

    with pytest.raises((pytest.fail.Exception, AssertionError)) as failed:
        written_test(written)(oteval_replay)

    # The message of a plain assertion is pytest's, which rewrites the test; see the test below.
    assert isinstance(failed.value, AssertionError) or difference in str(failed.value)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_written_tests_in_a_pytest_of_their_own(
    desk: Recording,
    project: Project,
    oteval: Run,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
) -> None:
    """Each changed agent fails its test with the difference; the unchanged ones pass."""
    monkeypatch.chdir(project.path)
    save(desk, project.path / "session.jsonl")
    agents = {
        "same": DESK,
        **{
            name.replace(" ", "_").replace("'", ""): DESK.replace(old, new)
            for name, (old, new, _) in EDITS.items()
        },
    }
    project.write(**{f"desk_{name}": text for name, text in agents.items()})
    for name in agents:
        flags = ("--target", f"desk_{name}:ask", "--name", name, "--no-run")
        assert oteval("replay", "make-test", "session.jsonl", *flags).status == 0
    flags = ("--target", "desk_same:aask", "--name", "same_async", "--no-run")
    assert oteval("replay", "make-test", "session.jsonl", *flags).status == 0

    printed = project.run("-q", "-rA", *options, "tests")

    assert f"{len(EDITS)} failed, 2 passed" in printed, printed
    assert "INTERNALERROR" not in printed
    for name in ("same", "same_async"):
        assert f"PASSED tests/test_{name}.py::test_{name}\n" in printed, printed
    for _, _, difference in EDITS.values():
        assert difference in printed


def test_the_agent_is_replayed_once(desk: Recording, oteval: Run) -> None:
    """A changed agent gives the exit status 1, and the difference."""
    Path("desk.py").write_text(DESK.replace("You refund", "You never refund"))
    save(desk, "session.jsonl")

    done = oteval("replay", "make-test", "session.jsonl", "--target", "desk:ask")

    assert done.status == 1
    assert "actual:   You never refund orders." in done.out
    assert Path(f"tests/test_{NAME}.py").exists()


RETURNS = {
    "text": ("return message.content", 'assert answer == "Refunded."'),
    "number": ("return 7", "assert answer == 7"),
    "flag": ("return True", "assert answer is True"),
    "JSON": ('return {"text": message.content}', 'assert answer == {"text": "Refunded."}'),
    "dataclass": (
        "return dataclasses.make_dataclass('Reply', ['text'])(message.content)",
        'assert to_jsonable(answer) == {"text": "Refunded."}',
    ),
    "tuple": ("return message.content, 1", 'assert to_jsonable(answer) == ["Refunded.", 1]'),
    "nothing": ("return None", 'assert replay.answer == "Refunded."'),
    "object": ("return object()", 'assert replay.answer == "Refunded."'),
}


@pytest.mark.parametrize("name", RETURNS)
@pytest.mark.slow
def test_the_written_test_asserts_what_the_agent_returns(
    desk: Recording, oteval: Run, oteval_replay: Any, name: str
) -> None:
    """The answer is the target's return value, if known, not the model's last answer."""
    code, assertion = RETURNS[name]
    text = DESK.replace("return message.content", code).replace(
        "import json\n", "import dataclasses\nimport json\n", 1
    )
    Path("desk.py").write_text(text)
    save(desk, "session.jsonl")

    done = oteval("replay", "make-test", "session.jsonl", "--target", "desk:ask")

    assert done.status == 0, done.out
    assert assertion in Path(f"tests/test_{NAME}.py").read_text()
    written_test(Path.cwd())(oteval_replay)


@pytest.mark.parametrize(
    ("code", "calls", "assertion"),
    [
        ("return ask(question)", 'answer = stream("', 'answer == "Refunded."'),
        ("yield ask(question)\n    yield 1", "answer = list(stream(", 'answer == ["Refunded.", 1]'),
    ],
    ids=["function", "generator"],
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.slow
def test_chunks_and_awaited_values_are_asserted(
    desk: Recording,
    oteval: Run,
    oteval_replay: Any,
    code: str,
    calls: str,
    assertion: str,
    is_async: bool,
) -> None:
    """Coroutines are awaited, and generators are read to their end."""
    head = "async def" if is_async else "def"
    Path("desk.py").write_text(f"{DESK}\n\n{head} stream(question):\n    {code}\n")
    save(desk, "session.jsonl")

    done = oteval("replay", "make-test", "session.jsonl", "--target", "desk:stream")

    assert done.status == 0, done.out
    text = Path(f"tests/test_{NAME}.py").read_text()
    assert f"assert {assertion}" in text
    assert is_async or calls in text
    written_test(Path.cwd())(oteval_replay)
    wrong = code.replace("ask(question)", "(ask(question), 'ERROR')[1]")
    Path("desk.py").write_text(f"{DESK}\n\n{head} stream(question):\n    {wrong}\n")
    with pytest.raises(AssertionError):
        written_test(Path.cwd())(oteval_replay)


def test_existing_files_are_kept(written: Path, oteval: Run) -> None:
    """Only --force overwrites existing files."""
    arguments = ("replay", "make-test", "session.jsonl", "--target", "desk:aask", "--no-run")
    path = written / "tests" / f"test_{NAME}.py"
    before = path.read_text()

    refused = oteval(*arguments)

    assert (refused.status, path.read_text()) == (2, before)
    assert f"tests/test_{NAME}.py" in refused.err
    assert oteval(*arguments, "--force").status == 0
    assert "asyncio.run(aask(" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give the agent, which the test calls, as --target"),
        (("--target", "desk:nothing"), "desk has no function"),
        (("--target", "desk:ask", "--name", "no name"), "use letters, digits and underscores"),
    ],
)
def test_errors_name_the_option(
    desk: Recording, oteval: Run, arguments: tuple[str, ...], message: str
) -> None:
    """A missing or wrong option is one line."""
    Path("desk.py").write_text(DESK)
    save(desk, "session.jsonl")

    done = oteval("replay", "make-test", "session.jsonl", *arguments)

    assert done.status == 2
    assert message in done.err
    assert not Path("tests").exists()


def test_no_file_has_a_secret(desk: Recording, oteval: Run) -> None:
    """Known forms of keys, values that are named secrets, and rules of oteval.yaml are applied."""
    key, password, name = "sk-proj-abcdefghijklmnopqrstuvwx0123456789", "correct-horse-7", "Ada"
    question = f"My key is {key}"
    lookup = replace(desk.tool_calls[2], arguments={"order": 17, "password": password})
    refund = replace(desk.tool_calls[3], result=f"{password} for {name}", own_result=key)
    tools = (*desk.tool_calls[:2], lookup, refund)
    save(replace(desk, inputs=(question,), tool_calls=tools), "session.jsonl")
    Path("desk.py").write_text("def ask(question): ...")
    Path("oteval.yaml").write_text(
        "evaluators: [{name: e, type: tool_errors}]\nredact: [{pattern: Ada}]\n"
    )

    done = oteval("replay", "make-test", "session.jsonl", "--target", "desk:ask", "--no-run")

    assert done.status == 0, done.err
    files = [path for path in Path("tests").rglob("*") if path.is_file()]
    assert len(files) == 3
    for path in files:
        text = path.read_text()
        assert not [secret for secret in (key, password, name) if secret in text], path
        assert "sk-proj" not in str(path)
    assert "[redacted]" in (Path("tests") / f"{files[0].name}").read_text()


def test_written_tests_are_clean_for_ruff(desk: Recording, oteval: Run) -> None:
    """Long, multi-line and odd texts, conversations and options give formatted code."""
    Path("desk.py").write_text(
        "async def ask(text, *, session, turn):\n    yield text\ndef run(messages): ...\n"
    )
    texts = (
        "Dear shop,\n\nmy order 17 is broken.\nPlease refund it.\n\n  Ada",
        "A long question " * 20,
        'She said: "It\'s broken", \\ and left\ttabs\n',
        "x" * 120,
    )
    answer = Message("assistant", "One line.\n" * 12)
    calls = (*desk.model_calls[:1], replace(desk.model_calls[1], answer=answer))
    save(replace(desk, inputs=texts, model_calls=calls), "long.jsonl")
    save(desk, "short.jsonl")
    more = ("--no-run", "--freeze", "clock,uuid", "--normalize", r"\d{4}-\d\d-\d\d")

    for arguments in (
        ("long.jsonl", "--target", "desk:ask", *more),
        ("short.jsonl", "--target", "desk:run", "--input", "messages", "--no-run"),
        ("short.jsonl", "--target", "desk:run", "--input", "none", "--name", "n", "--no-run"),
        ("short.jsonl", "--command", "python desk.py {input}", "--name", "program", *more),
    ):
        done = oteval("replay", "make-test", *arguments)
        assert done.status == 0, done.err

    for command in (
        ["check", "--isolated", "--select", "E,F,I,W,UP,B,SIM,PT,RUF", "--line-length", "140"],
        ["format", "--check", "--diff", "--isolated", "--line-length", "100"],
    ):
        checked = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "tests"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout
    module = ast.parse(Path("tests/test_dear_shop_my_order_17_is_broken_please.py").read_text())
    assigned = {
        node.targets[0].id: node.value for node in module.body if isinstance(node, ast.Assign)
    }
    namespace = {"dedent": textwrap.dedent}
    values = {
        name: eval(compile(ast.Expression(value), "test", "eval"), namespace)
        for name, value in assigned.items()
        if name != "HERE"
    }
    assert [values.get(f"QUESTION_{at}", text) for at, text in enumerate(texts, 1)] == list(texts)
    assert values["ANSWER"] == answer.content


@given(st.text())
def test_texts_survive_as_literals(text: str) -> None:
    """Every text is the value of its literal, in each form."""
    assert ast.literal_eval(literal(text)) == text
    assert ast.literal_eval(text_literal(text, column=60)) == text
    code = block_text(text)
    if code is not None:
        assert eval(code, {"dedent": textwrap.dedent}) == text


@pytest.mark.slow
def test_a_command_becomes_a_test(desk: Recording, oteval: Run, oteval_replay_command: Any) -> None:
    """The command runs with the replay in its process; a dropped tool fails the test."""
    main = "\n\nif __name__ == '__main__':\n    import sys\n\n    ask(sys.argv[1])\n"
    Path("desk.py").write_text(DESK + main)
    save(desk, "session.jsonl")
    command = f"{sys.executable} desk.py {{input}}"

    done = oteval("replay", "make-test", "session.jsonl", "--command", command)

    assert done.status == 0, done.out
    test = runpy.run_path(f"tests/test_{NAME}.py")[f"test_{NAME}"]
    test(oteval_replay_command)
    Path("desk.py").write_text(DESK.replace(*EDITS["a dropped tool"][:2]) + main)
    with pytest.raises(AssertionError):
        test(oteval_replay_command)
    Path("desk.py").write_text(DESK.replace("You refund", "You never refund") + main)
    with pytest.raises(pytest.fail.Exception, match="You never refund orders"):
        test(oteval_replay_command)
