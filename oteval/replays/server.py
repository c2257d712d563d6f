"""An HTTP endpoint that answers model requests from recordings, for agents in any language.

It speaks the APIs of `oteval.reconstruct.apis` (chat completions, responses and others) at any path
prefix, as JSON and as streams. With several sessions, a request belongs to the session that its
path names (``/sessions/ID/v1/...``), else to the first session that expects it.
``/sessions/ID/mcp`` and ``/mcp`` answer recorded tools, where the package `mcp` is installed.

Recordings contain the texts of users. Without a token, only programs of this machine are answered,
but not pages in browsers; see `oteval.base.web_guard`.

If the recording does not have a request, the answer is an HTTP error that clients do not retry.
Errors of the transport that were recorded have no HTTP form: a timeout is answered 504, others 502.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from ..base.errors import ConfigError, ReplayDiverged
from ..base.web_guard import (
    LocalRequests,
    RequiredToken,
    listening_socket,
    require_local,
    shown_host,
)
from .http_answers import HttpAnswer, HttpRequest, refusal
from .player import Player
from .replay_result import ReplayResult

__all__ = ["TOKEN_VARIABLE", "ReplayServer", "client_environment", "signals_end_the_server"]

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_SECONDS = 10.0
TOKEN_VARIABLE = "OTEVAL_REPLAY_TOKEN"  # noqa: S105  the name of a variable
"""The environment variable with the token of the endpoint."""
# The state of the server, without content of recordings.
_HEALTH = "/healthz"


class ReplayServer:
    """Answers requests from recordings over HTTP.

    Attributes:
        url: The address of the endpoint, without a path.
    """

    def __init__(
        self,
        players: Mapping[str, Player],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        is_timed: bool = False,
        token: str = "",
    ) -> None:
        """Bind the address.

        Args:
            players: The players, by the id of their session.
            host: The address to listen on; without a token, a loopback address of this machine.
            port: The port; 0 for any free one.
            is_timed: Whether chunks of a stream are sent at their recorded times.
            token: The API key or bearer token that clients must send; "" for none.

        Raises:
            ConfigError: The address cannot be used, or needs a token.
        """
        if not token:
            require_local("--host", host, f": set {TOKEN_VARIABLE}, and send it as the API key")
        self._players = dict(players)
        self._is_timed = is_timed
        try:
            self._socket = listening_socket(host, port)
        except OSError as error:
            raise ConfigError(f"{host}:{port}: cannot listen: {error.strerror}") from error
        self.url = f"http://{shown_host(host)}:{self._socket.getsockname()[1]}"
        application = RequiredToken(self.app(), token, TOKEN_VARIABLE, [_HEALTH])
        config = uvicorn.Config(
            LocalRequests(application, lambda _: bool(token)),
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            proxy_headers=False,
        )
        self._server = uvicorn.Server(config)

    def app(self) -> Starlette:
        """Make the ASGI application."""
        routes: list[BaseRoute] = [
            Route(_HEALTH, _healthz),
            Route("/result", self._result),
            Route("/v1/models", self._models),
            Route("/sessions/{session}/v1/models", self._models),
        ]
        mcp_apps = []
        if find_spec("mcp") is not None:
            from .mcp_server import mcp_app

            for session, player in self._players.items():
                mcp_apps.append(mcp_app(player, f"/sessions/{session}/mcp"))
            if len(self._players) == 1:
                mcp_apps.append(mcp_app(next(iter(self._players.values())), "/mcp"))
            routes += [route for app in mcp_apps for route in app.routes]
        routes += [
            Route("/sessions/{session}/{path:path}", self._answer, methods=_METHODS),
            Route("/{path:path}", self._answer, methods=_METHODS),
        ]

        @asynccontextmanager
        async def lifespan(_app: Starlette) -> AsyncIterator[None]:
            async with AsyncExitStack() as stack:
                for app in mcp_apps:
                    await stack.enter_async_context(app.router.lifespan_context(app))
                yield

        return Starlette(routes=routes, lifespan=lifespan)

    def serve(self) -> None:
        """Answer requests until SIGINT or SIGTERM."""
        with signals_end_the_server():
            self._server.run(sockets=[self._socket])

    @contextmanager
    def running(self) -> Iterator[ReplayServer]:
        """Answer requests in a thread while the block runs."""
        thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        thread.start()
        try:
            # The socket listens already: requests wait until the server takes them.
            yield self
        finally:
            self._server.should_exit = True
            thread.join(_SECONDS)
            self._socket.close()

    def results(self, *, is_complete: bool = True) -> list[ReplayResult]:
        """The result of each session's replay.

        Args:
            is_complete: Whether the agents ran to their end. Then calls that they did not make are
                divergences.
        """
        return [player.finish(is_complete=is_complete) for player in self._players.values()]

    async def _result(self, _request: Request) -> Response:
        return JSONResponse([result.as_dict() for result in self.results(is_complete=False)])

    async def _models(self, _request: Request) -> Response:
        calls = [call for player in self._players.values() for call in player.recording.model_calls]
        names = dict.fromkeys(call.request.model for call in calls if call.request.model)
        models = [{"id": name, "object": "model", "owned_by": "oteval"} for name in names]
        return JSONResponse({"object": "list", "data": models})

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        path, query = request.url.path, request.url.query
        http_request = HttpRequest(
            method=request.method,
            # The address is this endpoint's, not the address that the agent would call.
            url=f"{path}?{query}" if query else path,
            headers={key.lower(): value for key, value in request.headers.items()},
            body=body,
        )
        session = request.path_params.get("session")
        if session is not None and session not in self._players:
            sessions = ", ".join(self._players)
            message = f"oteval replay: no session {session}; this endpoint has {sessions}"
            return JSONResponse({"error": {"message": message, "code": "no_session"}}, 404)
        player = self._players[session] if session else self._player_of(http_request)
        try:
            # Comparing long histories takes a while; other requests are answered meanwhile.
            answer = await asyncio.to_thread(player.answer, http_request)
        except ReplayDiverged:
            answer = refusal(player.divergences[0])
        return self._response(answer)

    def _player_of(self, request: HttpRequest) -> Player:
        """The player of the session that expects a request; else the first unfinished."""
        players: Sequence[Player] = list(self._players.values())
        if len(players) > 1:
            for player in players:
                if player.expects(request):
                    return player
        return next((player for player in players if not player.is_finished), players[0])

    def _response(self, answer: HttpAnswer) -> Response:
        if answer.status == 0:
            status = 504 if "Timeout" in answer.error else 502
            message = f"oteval replay: recorded error: {answer.error}"
            return JSONResponse({"error": {"message": message, "code": "recorded_error"}}, status)
        return StreamingResponse(
            self._chunks(answer), status_code=answer.status, headers=dict(answer.headers)
        )

    async def _chunks(self, answer: HttpAnswer) -> AsyncIterator[bytes]:
        before = 0
        for chunk in answer.chunks:
            if self._is_timed and chunk.offset_ns > before:
                await asyncio.sleep((chunk.offset_ns - before) / 1e9)
                before = chunk.offset_ns
            yield chunk.data
        if answer.error:
            raise ConnectionAbortedError(answer.error)


@contextmanager
def signals_end_the_server() -> Iterator[None]:
    """Let signals end only the server; otherwise, uvicorn raises them again for the process."""
    before = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def client_environment(url: str, environment: Mapping[str, str], token: str = "") -> dict[str, str]:
    """The environment variables that lead the usual clients to the endpoint.

    Args:
        url: The address of the endpoint.
        environment: The present environment: its keys are kept, because the endpoint never forwards
            them.
        token: The token of the endpoint, which becomes the key; "" for none.
    """
    variables: dict[str, Any] = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "ANTHROPIC_BASE_URL": url,
        "OTEVAL_REPLAY_MCP_URL": f"{url}/mcp",
    }
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        variables[name] = token or environment.get(name) or "replay"
    return variables
