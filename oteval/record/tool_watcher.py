"""Plain functions that run the tools of a hand-written loop, watched while the agent is recorded.

Without the watcher, a recording has the result of a plain function only as the text that the loop
sent to the model. A replay returns the function's result to the loop, so it needs the value itself,
or the exception, with its type.

The watcher sees each request to a model and its answer. It looks for the functions of the tools
that the request offers or the answer calls, once for each name, and watches their calls. A call
with the name and the arguments in an answer gets a span like a tool of `@oteval.tool`. All other
calls run unchanged. So do functions that `@oteval.tool` or a framework calls: these record their
tools themselves. Errors in this module are counted and never reach the agent.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from ..base.errors import InputError
from ..base.import_hook import ModuleWatch
from ..base.jsontext import loads
from ..messages import parse_arguments
from ..reconstruct import api_of, offered_tools
from .agent_files import installed_package, is_agent_file
from .context import take_call_id
from .conventions import TOOL_FUNCTION
from .faults import guarded
from .function_wrappers import with_invocation
from .hooks import current_tool_hook
from .parameters import Parameters, is_requested_call
from .tool_functions import ToolFunction, functions_of_tools, has_function_of
from .tool_spans import ToolRecorder

if TYPE_CHECKING:
    from .wire.open_exchange import OpenExchange

__all__ = ["ToolWatcher"]

# Texts of requests that offer tools, and of answers that call some.
_OFFERS = (b'"tools"', b'"functions"', b'"toolConfig"', b'"tool_config"')
_REQUESTS = (b'"tool_calls"', b'"function_call"', b"tool_use", b'"toolUse"', b'"functionCall"')
_ARGUMENT_KEYS = ("arguments", "input", "args", "parameters")
# Packages that only call the functions that are passed to them. Frameworks of agents are not here.
_PASSING = frozenset(
    {"anyio", "asgiref", "backoff", "decorator", "gevent", "greenlet", "joblib", "oteval"}
    | {"opentelemetry", "pydantic", "pydantic_core", "tenacity", "trio", "uvloop", "wrapt"}
)
# Attributes with the name of a tool, in the spans of several instrumentations.
_TOOL_NAMES = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name", "tool_call.function.name")
_MOST_REQUESTED = 512
_MOST_OPEN = 64
_MOST_OFFERS, _LONGEST_OFFER = 64, 1 << 20
_MOST_SEARCHES = 8
# Frames from a call of the watcher to the caller of the function: through `answer_call` and the new
# code.
_FRAMES_TO_CALLER = 4


@dataclass(frozen=True, eq=False, slots=True)
class _PendingCall:
    """A call that a model has requested and that has not run yet.

    Attributes:
        name: The tool.
        arguments: The arguments.
        id: The provider's call id, or "".
        exchange: The exchange with the answer, by the id of its object.
    """

    name: str
    arguments: Any
    id: str = ""
    exchange: int = 0


class _OpenAnswer:
    """An answer that may still be arriving, and how many of its calls are noted already."""

    __slots__ = ("exchange", "noted", "size")

    def __init__(self, exchange: OpenExchange) -> None:
        self.exchange = exchange
        self.noted = 0
        self.size = -1


class ToolWatcher:
    """Watches the plain functions of tools, and records the calls that models have requested."""

    def __init__(self) -> None:
        self._searching = threading.RLock()
        self._undo = ExitStack()
        # By tool, how many modules were loaded at each search for its functions.
        self._searched: defaultdict[str, set[int]] = defaultdict(set)
        # Tools whose functions are watched.
        self._watched: set[str] = set()
        self._parameters: dict[CodeType, Parameters] = {}
        # The tools of requests, by the last part of their bodies: it takes time to parse them.
        self._offers: dict[bytes, list[str]] = {}
        # Changed by single steps, which need no lock: calls come from many threads.
        self._requested: deque[_PendingCall] = deque(maxlen=_MOST_REQUESTED)
        self._open: dict[int, _OpenAnswer] = {}
        self._is_closed = False
        # The tools that a model has requested and that no function of the agent runs yet.
        self._missing: set[str] = set()
        self._imports = ModuleWatch(
            lambda code: has_function_of(self._missing, code), self._imported
        )
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._searching = threading.RLock()

    def close(self) -> None:
        """Watch no function any more."""
        self._is_closed = True
        self._imports.remove()
        with self._searching:
            self._undo.close()
        self._requested.clear()
        self._open.clear()

    def requested(self, exchange: OpenExchange) -> None:
        """Take note of a request that is about to be sent."""
        if self._is_closed or exchange.method != "POST":
            return
        names = self._offered(exchange.sent_body())
        if names:
            self._search(names)
            if not self._watched.isdisjoint(names):
                while len(self._open) >= _MOST_OPEN:
                    self._open.pop(next(iter(self._open)), None)
                self._open[id(exchange)] = _OpenAnswer(exchange)

    def _offered(self, body: bytes) -> list[str]:
        """The names of the tools that a request offers."""
        starts = [start for text in _OFFERS if (start := body.find(text)) >= 0]
        if not starts:
            return []
        offer = body[min(starts) :]
        names = self._offers.get(offer)
        if names is None:
            names = offered_tools(body)
            if len(self._offers) >= _MOST_OFFERS or len(offer) > _LONGEST_OFFER:
                self._offers.clear()
            self._offers[offer] = names
        return names

    def answered(self, exchange: OpenExchange) -> None:
        """Take note of a response that has arrived."""
        answer = self._open.pop(id(exchange), None)
        if self._is_closed or exchange.method != "POST" or not 200 <= exchange.status < 300:
            return
        if exchange.error:  # the agent repeats the request, and gets other calls
            self._forget(id(exchange))
            return
        self._note(answer or _OpenAnswer(exchange), is_whole=True)

    def _note(self, answer: _OpenAnswer, *, is_whole: bool) -> None:
        """Take note of the calls of an answer, each once."""
        body = answer.exchange.received_body()
        if len(body) == answer.size or not any(text in body for text in _REQUESTS):
            return
        answer.size = len(body)
        calls = list(_calls_in(answer.exchange, body))
        if is_whole:
            names = {call.name for call in calls}
            self._search(names)
            if not names <= self._watched:
                self._missing |= names - self._watched
                self._imports.install()
        else:
            calls = [call for call in calls if isinstance(call.arguments, Mapping)]
        new, answer.noted = calls[answer.noted :], max(answer.noted, len(calls))
        self._requested.extend(new)

    def _forget(self, exchange: int) -> None:
        """Drop the calls of an answer that broke off."""
        for call in tuple(self._requested):
            if call.exchange == exchange:
                with suppress(ValueError):  # another thread has taken it
                    self._requested.remove(call)

    def _imported(self, _module: ModuleType) -> None:
        """Look for functions again, after a module that may have some was imported."""
        with guarded("looking for the functions of tools"):
            self._search(self._missing)
            self._missing -= self._watched

    def _search(self, names: Iterable[str]) -> None:
        """Watch the functions of tools, unless they are watched already.

        A tool without a function is looked for again when further modules have been imported.
        """
        modules = len(sys.modules)
        missing = [
            name
            for name in names
            if name not in self._watched
            and modules not in self._searched[name]
            and len(self._searched[name]) < _MOST_SEARCHES
        ]
        if not missing:
            return
        with self._searching:
            missing = [name for name in missing if name not in self._watched]
            for name, candidates in functions_of_tools(missing, collects=False).items():
                self._searched[name].add(modules)
                for function in candidates:
                    if not (function.is_declaration or function.is_generator):
                        self._watch(name, function)

    def _watch(self, name: str, function: ToolFunction) -> None:
        self._watched.add(name)
        self._undo.callback(function.observe(partial(self._called, name, function.path)))

    def _called(
        self, name: str, path: str, function: FunctionType, arguments: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Wrap a function so that it also records the call; None if no model requested it."""
        if not (self._requested or self._open) or current_tool_hook() is not None:
            return None
        span = trace.get_current_span()
        if _is_span_of(span, name):
            return None
        if not _is_called_by_agent(sys._getframe(_FRAMES_TO_CALLER)):
            return None
        call = self._take(name, arguments)
        if call is None:
            return None
        parameters = self._parameters.get(function.__code__)
        if parameters is None:
            parameters = self._parameters[function.__code__] = Parameters(function)
        recorder = ToolRecorder(
            name=name,
            description="",
            parameters=parameters,
            attributes={TOOL_FUNCTION: path},
        )
        begin = partial(
            recorder.started,
            call_id=take_call_id(name) or call.id,
            # In a loop without a span, the spans below a tool stay in separate traces.
            is_current=span.get_span_context().is_valid,
        )
        return with_invocation(function, begin)

    def _take(self, name: str, arguments: Mapping[str, Any]) -> _PendingCall | None:
        """Use up the model's call that a function call fulfils; None if no model requested it."""
        call = self._take_noted(name, arguments)
        if call is None and self._open:
            self._read_open()
            call = self._take_noted(name, arguments)
        return call

    def _take_noted(self, name: str, arguments: Mapping[str, Any]) -> _PendingCall | None:
        for call in tuple(self._requested):
            if call.name == name and is_requested_call(call.arguments, arguments):
                with suppress(ValueError):  # another thread has taken it
                    self._requested.remove(call)
                    return call
        return None

    def _read_open(self) -> None:
        """Take note of the calls in answers that are arriving, or were not read to the end."""
        for answer in tuple(self._open.values()):
            if answer.exchange.status == 200:
                self._note(answer, is_whole=False)


def _calls_in(exchange: OpenExchange, body: bytes) -> Iterator[_PendingCall]:
    """Yield the calls of an answer."""
    api = api_of(exchange.method, exchange.url)
    if api is None:
        offered = frozenset(offered_tools(exchange.sent_body()))
        for name, arguments in _calls_of_unknown_api(body, offered):
            yield _PendingCall(name, arguments, exchange=id(exchange))
        return
    try:
        answer = api.parse_response(body)
    except InputError:
        return
    for message in (answer.message, *answer.choices):
        for call in message.tool_calls if message is not None else ():
            yield _PendingCall(call.name, call.arguments, call.id, id(exchange))


def _calls_of_unknown_api(body: bytes, offered: frozenset[str]) -> Iterator[tuple[str, Any]]:
    try:
        waiting: list[Any] = [loads(body)] if offered else []
    except ValueError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(reversed(value))
        elif isinstance(value, Mapping):
            if value.get("name") in offered:
                arguments = (value[key] for key in _ARGUMENT_KEYS if key in value)
                yield str(value["name"]), parse_arguments(next(arguments, None))
            waiting.extend(reversed(list(value.values())))


def _is_span_of(span: Any, name: str) -> bool:
    """Whether a span records this tool."""
    attributes = getattr(span, "attributes", None) or {}
    return any(attributes.get(key) == name for key in _TOOL_NAMES)


def _is_called_by_agent(frame: FrameType | None) -> bool:
    """Whether the agent's own code, not a framework, has called a function."""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_agent_file(file):
            return True
        package = installed_package(file)
        if package and package not in _PASSING:
            return False
        frame = frame.f_back
    return True
