"""The application: routes, headers, errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...base.errors import ConfigError, NotFound, OtevalError, StoreError, TooLarge
from ..text import clean
from .access import PageAccess
from .actions import action_routes
from .alerts import alert_action_routes, alerts_routes
from .compare import compare_routes
from .conversations import conversations_routes
from .evaluators import evaluators_routes
from .events import events_routes
from .experiments import experiments_routes
from .labels import labels_routes
from .login import Doorkeeper, login_routes
from .overview import overview_routes
from .responses import POLICY, assets, error_page
from .run import run_routes
from .runs import runs_routes
from .site import Site
from .spans import spans_routes
from .variants import variants_routes

__all__ = ["create_app"]

_log = logging.getLogger(__name__)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # With "no-referrer", browsers send no Origin with forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_REASONS = {
    404: "this address has no page",
    405: "this address takes the form of a page, and is none itself",
}
_FOREVER = "public, max-age=31536000, immutable"
_Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(site: Site, access: PageAccess | None = None) -> ASGIApp:
    """The application that shows a store.

    Args:
        site: The store, and the configuration by which it was scored.
        access: Decides who may read and act; without it, everybody may read, and nobody may act.
    """
    routes = [
        *overview_routes(site),
        *runs_routes(site),
        *run_routes(site),
        *spans_routes(site),
        *compare_routes(site),
        *conversations_routes(site),
        *variants_routes(site),
        *evaluators_routes(site),
        *experiments_routes(site),
        *alerts_routes(site),
        *action_routes(site),
        *alert_action_routes(site),
        *events_routes(site),
        *labels_routes(site),
        *login_routes(access),
        Route("/static/{digest}/{name}", _static),
        # Browsers request it for a text page, which cannot name another icon.
        Route("/favicon.ico", _icon),
    ]
    safe = [
        Route(route.path, _guarded(route.endpoint, site), methods=route.methods) for route in routes
    ]
    handlers = {HTTPException: _failed, OtevalError: _failed}
    application: ASGIApp = Starlette(routes=safe, exception_handlers=handlers)
    return _SafeHeaders(application if access is None else Doorkeeper(application, access))


def _guarded(endpoint: _Endpoint, site: Site) -> _Endpoint:
    """An endpoint that answers any error with a page, and notes that the site is used."""

    async def guarded(request: Request) -> Response:
        site.note_use()
        try:
            return await endpoint(request)
        except Exception as error:
            return await _failed(request, error)

    return guarded


async def _static(request: Request) -> Response:
    asset = assets().get(request.path_params["name"])
    if asset is None or asset.path != request.url.path:
        raise HTTPException(404, "no such file")
    return Response(asset.body, media_type=asset.kind, headers={"cache-control": _FOREVER})


async def _icon(_: Request) -> Response:
    return RedirectResponse(assets()["icon.svg"].path, 308)


async def _failed(request: Request, error: Exception) -> Response:
    """The page for an error, with its reason."""
    status, reason = 500, "oteval failed on this page; the log has the details"
    if isinstance(error, HTTPException):
        status = error.status_code
        is_plain = error.detail == HTTPStatus(status).phrase
        reason = _REASONS.get(status, error.detail) if is_plain else error.detail
    elif isinstance(error, NotFound):
        status, reason = 404, str(error)
    elif isinstance(error, ConfigError):
        status, reason = 400, str(error)
    elif isinstance(error, TooLarge):
        status, reason = 413, str(error)
    elif isinstance(error, StoreError):
        status, reason = 503, str(error)
    elif isinstance(error, OtevalError):
        status, reason = 400, str(error)
    else:
        _log.error("cannot show %s", clean(request.url.path), exc_info=error)
    return error_page(request, status, reason)


class _SafeHeaders:
    """Middleware that sets the headers of security on every response."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *_HEADERS]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message["headers"] = headers
            await send(message)

        await self._application(scope, receive, send_with_headers)
