"""Log in and out, and check that a form was sent from a page by a visitor who may act."""

from __future__ import annotations

import hmac
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ...base.web_guard import is_own_origin
from .access import VISITOR, PageAccess, cookie_name
from .responses import error_page, page, with_query

__all__ = ["Doorkeeper", "acting_form", "login_routes"]

_LONGEST_FORM = 256 * 1024  # bytes
_MOST_FIELDS = 50
_LONGEST_PATH = 2000
# Paths that are open to everybody: the login page, its style and the icon.
_OPEN = ("/login", "/static/", "/favicon.ico")


class Doorkeeper:
    """Middleware that finds out who the visitor is, and shows pages only to visitors who may read.

    Args:
        application: The application.
        access: Decides who may read and act.
    """

    def __init__(self, application: ASGIApp, access: PageAccess) -> None:
        self._application, self._access = application, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its visitor, or refuse it."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        cookie = _cookie(Headers(scope=scope))
        visitor = self._access.visitor(cookie)
        # For responses that go on after the token may have been revoked.
        scope.setdefault("state", {})["may_read"] = lambda: self._access.visitor(cookie).may_read
        before = VISITOR.set(visitor)
        try:
            application = self._application
            if not visitor.may_read and not scope["path"].startswith(_OPEN):
                application = _refuse
            await application(scope, receive, send)
        finally:
            VISITOR.reset(before)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Redirect to the login page, or refuse a request that is not for a page.

    The text of a form that is sent after the end of a session is shown, so that it is not lost.
    """
    request = Request(scope, receive)
    if scope["method"] == "GET" and "text/html" in request.headers.get("accept", ""):
        query = scope["query_string"].decode("latin-1")
        path = scope["path"] + (f"?{query}" if query else "")
        answer: Response = RedirectResponse(with_query("/login", next=path[:_LONGEST_PATH]), 303)
    else:
        if scope["method"] == "POST":
            with suppress(HTTPException, ClientDisconnect):
                await _own_form(request)
        answer = error_page(request, 401, "log in to see this")
    await answer(scope, receive, send)


def _cookie(headers: Headers) -> str:
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(headers.get("cookie", ""))
    except CookieError:
        return ""
    morsel = cookies.get(cookie_name(headers.get("host", "")))
    return morsel.value if morsel else ""


async def acting_form(request: Request) -> dict[str, str]:
    """The fields of a form that changes something.

    Raises:
        HTTPException: The visitor may not act, or the form was not sent by one of our pages.
    """
    fields = await _own_form(request)
    visitor = VISITOR.get()
    if not visitor.may_act:
        if visitor.name and not visitor.can_log_in:
            raise HTTPException(403, "these pages can only be read")
        raise HTTPException(403, "this needs a token that may write")
    form_token = fields.pop("form_token", "")
    if not hmac.compare_digest(form_token.encode(), visitor.form_token.encode()):
        raise HTTPException(403, "the form is of an earlier session; reload its page")
    return fields


async def _own_form(request: Request) -> dict[str, str]:
    """The fields of a form that a page of ours sent, without outer white space.

    The text that a person wrote is noted for `error_page`.
    """
    headers = request.headers
    if not is_own_origin(headers.get("origin", ""), headers.get("host", "")):
        raise HTTPException(403, "forms are accepted from these pages only")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "send the form of the page")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            raise HTTPException(413, "the form is too long: write less than 200 KB")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None
    fields = {name: value.replace("\r\n", "\n").strip() for name, value in pairs}
    request.state.written = fields.get("note", "")
    return fields


def login_routes(access: PageAccess | None) -> list[Route]:
    """The routes of the login page; none without access control."""
    if access is None:
        return []
    page_access = access

    async def login(request: Request) -> Response:
        code = request.query_params.get("code", "") if page_access.accepts_links else ""
        token, cookie = "", ""
        if request.method == "POST":
            token = (await _own_form(request)).get("token", "")
            cookie = page_access.log_in(token, _peer(request)) if token else ""
        elif code and VISITOR.get().name:
            # The same link again, in the browser that used it.
            return _entrance(request)
        elif code and request.method == "GET":
            cookie = page_access.redeem(code, _peer(request))
        if cookie:
            answer = _entrance(request)
            _set_cookie(request, answer, cookie)
            return answer
        return _login_page(request, page_access, is_refused=bool(token or code))

    async def logout(request: Request) -> Response:
        await _own_form(request)
        answer = RedirectResponse("/login", 303)
        _set_cookie(request, answer, "")
        return answer

    return [
        Route("/login", login, methods=["GET", "POST"]),
        Route("/logout", logout, methods=["POST"]),
    ]


def _entrance(request: Request) -> Response:
    """The way to the page that the visitor wanted.

    After a link on another site, browsers send no strict cookie with a redirect. They send it when
    our own page leads on.
    """
    path = _own_path(request)
    if request.method == "POST":
        return RedirectResponse(path, 303)
    return page("entrance.html.j2", section="", path=path)


def _login_page(request: Request, access: PageAccess, *, is_refused: bool) -> Response:
    return page(
        "login.html.j2",
        403 if is_refused else 200,
        section="",
        is_refused=is_refused,
        is_link=access.accepts_links,
        has_tokens=access.has_tokens,
        action=with_query("/login", next=request.query_params.get("next")),
    )


def _peer(request: Request) -> str:
    """The address of the visitor.

    Behind a Unix socket there is none. Only the listening process can send there, and it names the
    visitor's address.
    """
    return request.client.host if request.client else request.headers.get("x-forwarded-for", "")


def _set_cookie(request: Request, answer: Response, value: str) -> None:
    is_secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
    answer.set_cookie(
        cookie_name(request.headers.get("host", "")),
        value,
        max_age=None if value else 0,
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )


def _own_path(request: Request) -> str:
    """The page that the visitor wanted, if it is one of ours."""
    path = request.query_params.get("next", "")
    is_own = path.startswith("/") and not path.startswith("//") and path.isprintable()
    return path if is_own and "\\" not in path else "/"
