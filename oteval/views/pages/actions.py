"""The actions on a run: label it, score it again, keep it as a reference, example or test.

Each is a form of the run's page, which is answered with a redirect to the page. Changes are in the
audit log with the name of the visitor's token, without content.

A test is a zip file with the files that ``oteval replay make-test`` writes. The command imports the
agent and replays it once. A server does neither, so the visitor chooses how the agent is called,
and the test is not checked.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import shlex
import zipfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, get_args

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...base.errors import ConfigError, NothingEvaluated, OtevalError
from ...base.redaction import RedactionRule
from ...base.redaction.secrets import SecretRedactor
from ...model import Label, Recording, Selection
from ...replays import (
    AgentCall,
    InputForm,
    WrittenTest,
    pytest_file,
    read_recording,
    recording_bytes,
    redacted_recording,
    reference_text,
    session_name,
    turn_inputs,
    unreplayable,
)
from ...scoring import Config, dataset_with_run, score as score_runs
from ...store import AuditEntry, Store
from ..text import clean, one_line, shorten
from .access import VISITOR
from .login import acting_form
from .responses import with_query
from .search import stored_run
from .site import Site

__all__ = [
    "DONE",
    "AgentChoice",
    "action_routes",
    "agent_choice",
    "label_of",
    "regression_test_zip",
    "run_actions",
]

_log = logging.getLogger(__name__)
_NAME, _NOTE = 100, 10_000  # characters
# Seconds that a page waits for new scores, and runs that are scored one after the other.
_PATIENCE, _MOST_WAITING = 20.0, 20

_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)

_Form = Mapping[str, str]
_Action = Callable[[Site, str, _Form, str], Awaitable[Response | str]]
DONE = {
    "label": "The label is stored.",
    "labelled": "The label of the run before is stored.",
    "reference": "The run is a reference now.",
    "dataset": "The run is an example of the dataset now.",
    "in-dataset": "The run is an example of the dataset already.",
    "score": "The run has been scored again.",
    "scoring": "The run is being scored; reload the page for its scores.",
}
"""The message of the page after each action."""

_MOST_LABELS, _MOST_NAMES = 50, 200
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_DATE = (1980, 1, 1, 0, 0, 0)


def action_routes(site: Site) -> list[Route]:
    """The routes of the actions on a run."""
    scoring: set[asyncio.Task[None]] = set()

    async def score(site: Site, run_id: str, form: _Form, actor: str) -> str:
        return await _score(site, run_id, form, actor, scoring)

    actions: dict[str, _Action] = {
        "label": _label,
        "reference": _reference,
        "dataset": _dataset,
        "test": _test,
        "score": score,
    }
    return [_route(site, name, action) for name, action in actions.items()]


def _route(site: Site, name: str, action: _Action) -> Route:
    async def act(request: Request) -> Response:
        form = await acting_form(request)
        run_id = request.path_params["name"]
        done = await action(site, run_id, form, VISITOR.get().name)
        if isinstance(done, Response):
            return done
        path = with_query(
            f"/runs/{run_id}", q=form.get("q"), columns=form.get("columns"), done=done
        )
        path += "#done"
        if name == "label" and form.get("next", "").startswith("/labels/next?"):
            path = f"{form['next']}&done=label"
        return RedirectResponse(path, 303)

    return Route(f"/runs/{{name}}/{name}", act, methods=["POST"])


async def _label(site: Site, run_id: str, form: _Form, actor: str) -> str:
    label = label_of(form, run_id, actor)
    noted: dict[str, Any] = {"label": "pass" if label.passed else "fail"}
    if label.evaluator:
        noted["evaluator"] = label.evaluator

    def store_label(store: Store) -> None:
        _require(store, run_id)
        with store.transaction():
            store.labels.add([label], site.clock())
            _note(store, site, actor, "label", run_id, **noted)

    await site.write(store_label)
    return "label"


def label_of(form: _Form, run_id: str, person: str) -> Label:
    """The label of a form.

    Raises:
        ConfigError: The verdict is missing, the score is not a number, or a text is too long.
    """
    verdict, score = form.get("verdict", ""), form.get("score", "")
    if verdict not in ("pass", "fail"):
        raise ConfigError("choose pass or fail")
    note = form.get("note", "")
    if len(note) > _NOTE:
        raise ConfigError(f"the reason is too long: write less than {_NOTE:,} characters")
    number = _number(score) if score else None
    evaluator = _name(form, "evaluator") if form.get("evaluator") else ""
    return Label(run_id, verdict == "pass", evaluator, person, note, number)


def _number(text: str) -> float:
    """The score that a person wrote, with a point or a comma before the decimals.

    Raises:
        ConfigError: The text is not a number, or its comma may separate thousands.
    """
    shown_text = clean(text[:60])
    if not _NUMBER.fullmatch(text):
        raise ConfigError(f"score {shown_text}: write a number, such as 0.7")
    if _THOUSANDS.fullmatch(text):
        raise ConfigError(
            f"score {shown_text}: write a point before decimals, and nothing in thousands"
        )
    number = float(text.replace(",", ".")) + 0.0  # not -0
    if not math.isfinite(number):
        raise ConfigError(f"score {shown_text}: write a finite number")
    return number


async def _reference(site: Site, run_id: str, form: _Form, actor: str) -> str:
    name = _name(form, "name")

    def add(store: Store) -> None:
        run = stored_run(store, run_id)
        with store.transaction():
            store.references.add(name, run.own_messages, run.id, site.clock())
            _note(store, site, actor, "reference", run_id, name=name)

    await site.write(add)
    return "reference"


async def _dataset(site: Site, run_id: str, form: _Form, actor: str) -> str:
    name = _name(form, "name")

    def add(store: Store) -> str:
        run = stored_run(store, run_id)
        dataset = dataset_with_run(store, name, run)
        if dataset is None:
            return "in-dataset"
        store.datasets.add(dataset)
        _note(store, site, actor, "dataset", run_id, name=name, version=dataset.version)
        return "dataset"

    return await site.write(add)


async def _test(site: Site, run_id: str, form: _Form, actor: str) -> Response:
    agent = agent_choice(
        form.get("agent", ""), form.get("input", "text"), is_async=form.get("is_async") == "yes"
    )
    config, problem = site.config()
    if problem:
        raise ConfigError(f"its rules of redaction are unknown: {problem}")
    rules = [redaction.rule() for redaction in (config.redact if config else ())]

    def make(store: Store) -> tuple[str, bytes]:
        run = stored_run(store, run_id)
        archive = regression_test_zip(store, run.id, agent, rules, run.agent or run.service)
        _note(store, site, actor, "test", run_id, file=archive[0])
        return archive

    name, content = await site.write(make)
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/zip", headers=headers)


async def _score(
    site: Site, run_id: str, form: _Form, actor: str, scoring: set[asyncio.Task[None]]
) -> str:
    config, problem = site.config()
    if config is None or not config.evaluators:
        raise ConfigError(problem or "oteval.yaml with evaluators to score by is missing")
    if len(scoring) >= _MOST_WAITING:
        raise HTTPException(503, "many runs are being scored; try again when they are done")
    again = form.get("again") == "yes"

    def score(store: Store) -> None:
        for _ in score_runs(store, config, site.base, Selection(ids=(run_id,)), again=again):
            pass

    def note(store: Store) -> None:
        _require(store, run_id)
        _note(store, site, actor, "score", run_id, again=again)

    await site.write(note)
    task = asyncio.create_task(site.score(score))
    scoring.add(task)
    task.add_done_callback(lambda done: _finish(done, scoring))
    done, _ = await asyncio.wait({task}, timeout=_PATIENCE)
    if not done:
        return "scoring"
    task.result()
    return "score"


def _finish(task: asyncio.Task[None], scoring: set[asyncio.Task[None]]) -> None:
    scoring.discard(task)
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("a run could not be scored again: %s", clean(str(error)))
        if not isinstance(error, OtevalError):
            _log.debug("the reason", exc_info=error)


def _require(store: Store, run_id: str) -> None:
    """Check that a run is stored.

    Raises:
        HTTPException: The run is not stored.
    """
    if store.run_list.find(run_id) is None:
        raise HTTPException(404, "this run is not stored any more")


def _note(store: Store, site: Site, actor: str, action: str, run_id: str, **more: Any) -> None:
    chosen = {"run": run_id, **more}
    store.audit.add(AuditEntry(site.clock(), actor, action, {"chosen": chosen}))


def _name(form: _Form, field: str) -> str:
    """A name that a visitor gave.

    Raises:
        ConfigError: It is missing, too long or has control characters.
    """
    text = form.get(field, "")
    if not text:
        raise ConfigError(f"{field}: give a name")
    if len(text) > _NAME or not text.isprintable():
        raise ConfigError(f"{field}: use at most {_NAME} characters, and no control characters")
    return text


def run_actions(
    store: Store, run_id: str, scored_by: Sequence[str], config: Config | None, chosen: str = ""
) -> Mapping[str, Any]:
    """The actions on a run.

    Args:
        store: The store.
        run_id: The run.
        scored_by: The evaluators that scored the run.
        config: The configuration, if it is known.
        chosen: The evaluator that the form for labels begins with.
    """
    labels = store.labels.on(run_id)[:_MOST_LABELS]
    references = store.references.sources()
    configured = [rule.name for rule in config.evaluators] if config else []
    labelled = [label.evaluator for label in labels if label.evaluator]
    return {
        "labels": tuple(map(_shown, labels)),
        "evaluators": tuple(
            dict.fromkeys([*scored_by, *configured, *labelled, *filter(None, [chosen])])
        ),
        "chosen": chosen,
        "references": _names(references),
        "own_references": _names(name for name, source in references.items() if source == run_id),
        "datasets": _names(store.datasets.names()),
        "can_score": bool(configured),
    }


def _shown(label: Label) -> Label:
    """A label with the texts that pages show."""
    return replace(
        label,
        evaluator=shorten(one_line(label.evaluator), 60),
        person=shorten(one_line(label.person), 40),
        note=clean(label.note),
    )


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names))[:_MOST_NAMES])


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """How a test calls the agent.

    Attributes:
        function: The function, as ``package.module:function``, or "".
        is_async: Whether the function is a coroutine.
        form: The argument of the function.
        command: The words of a command instead of the function.
    """

    function: str = ""
    is_async: bool = False
    form: InputForm = "text"
    command: tuple[str, ...] = ()


def agent_choice(called: str, form: str, *, is_async: bool) -> AgentChoice:
    """How a test calls the agent that a visitor named.

    Args:
        called: A function as ``package.module:function``, or a command.
        form: The argument of a function: text, messages or none.
        is_async: Whether a function is a coroutine.

    Raises:
        ConfigError: `called` is neither.
    """
    if _FUNCTION.fullmatch(called):
        for input_form in get_args(InputForm):
            if input_form == form:
                return AgentChoice(called, is_async, input_form)
        raise ConfigError(f"input: choose one of {', '.join(get_args(InputForm))}")
    try:
        words = tuple(shlex.split(called))
    except ValueError as error:
        raise ConfigError(f"the command cannot be read: {error}") from None
    if len(words) < 2 or not called.isprintable():
        raise ConfigError(
            "name the agent: a function as package.module:function, or a command such as "
            "python agent.py {input}"
        )
    return AgentChoice(command=words)


def regression_test_zip(
    store: Store, run_id: str, agent: AgentChoice, rules: Sequence[RedactionRule], name: str = ""
) -> tuple[str, bytes]:
    """The name and the content of a zip file with a test, its recording and its reference.

    Args:
        store: The store that has the run's spans.
        run_id: The run.
        agent: How the test calls the agent.
        rules: The rules of redaction, in addition to the rules for known forms of secrets.
        name: The name of the agent, for the test's description.

    Raises:
        NothingEvaluated: The run cannot be replayed.
    """
    recording = read_recording(store, run_id)
    problem = unreplayable(recording)
    if problem:
        raise NothingEvaluated(f"this run cannot become a test: {problem}")
    recording = redacted_recording(recording, SecretRedactor(list(rules)))
    test = WrittenTest(
        name=session_name(recording),
        recording=recording,
        agent_call=_agent_call(recording, agent),
        command=agent.command,
        agent=name,
    )
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in (
            (f"test_{test.name}.py", pytest_file(test).encode()),
            (test.recording_file, recording_bytes(test.recording)),
            (test.reference_file, reference_text(test.recording).encode()),
        ):
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, text)
    return f"test_{test.name}.zip", content.getvalue()


def _agent_call(recording: Recording, agent: AgentChoice) -> AgentCall:
    if agent.command:
        return AgentCall("", "", ())
    turns = turn_inputs(recording, agent.form)
    if not turns:
        raise NothingEvaluated("the recording has no message of a user; choose no input")
    module, _, function = agent.function.partition(":")
    return AgentCall(module, function, tuple(turns), is_async=agent.is_async)
