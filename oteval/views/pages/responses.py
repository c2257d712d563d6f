"""Responses: pages from templates, texts, and the style and script, loaded by their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...base.jsontext import encodable
from ..report.page import template_environment
from ..run_texts import alignment_of
from ..text import ago, clean, clock, one_line
from .access import VISITOR

__all__ = [
    "POLICY",
    "Asset",
    "assets",
    "conversation_link",
    "error_page",
    "named_link",
    "near_parts",
    "page",
    "text_page",
    "with_query",
]

POLICY = "; ".join(
    [
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
"""The Content-Security-Policy of every page: nothing inline, nothing from another host."""
_DAY_NS = 86_400 * 10**9
_SECTIONS = (
    ("overview", "/", "Overview"),
    ("runs", "/runs", "Runs"),
    ("conversations", "/conversations", "Conversations"),
    ("variants", "/variants", "Variants"),
    ("evaluators", "/evaluators", "Evaluators"),
    ("experiments", "/experiments", "Experiments"),
    ("labels", "/labels", "Labels"),
    ("alerts", "/alerts", "Alerts"),
)
# How many parts of a page before and after a part have links.
_NEAR = 5
# The longest value in an address: a search, or a name out of a trace.
_LONGEST_VALUE = 2000
_NAMES = {"pages.css": "text/css", "pages.js": "text/javascript", "icon.svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages load.

    Attributes:
        path: Its path, which changes with its content.
        kind: Its media type.
        body: Its content.
    """

    path: str
    kind: str
    body: bytes


@cache
def assets() -> Mapping[str, Asset]:
    """The files that pages load, by name. The style begins with the style of reports."""
    folder = resources.files(__package__ or "").joinpath("static")
    files = {}
    for name, kind in _NAMES.items():
        body = folder.joinpath(name).read_bytes()
        if name == "pages.css":
            body = resources.files("oteval.views.report").joinpath("style.css").read_bytes() + body
        digest = hashlib.sha256(body).hexdigest()[:16]
        files[name] = Asset(f"/static/{digest}/{name}", kind, body)
    return files


def page(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page.

    Args:
        template: The name of its template.
        status: The HTTP status.
        values: The values that the template shows.
    """
    text = _environment().get_template(template).render(visitor=VISITOR.get(), **values)
    return HTMLResponse(encodable(text), status)


def error_page(request: Request, status: int, reason: str) -> HTMLResponse:
    """The page for an error. After a form it leads back, and has the text that was sent.

    Args:
        request: The request.
        status: The HTTP status.
        reason: The reason.
    """
    path = request.url.path
    return page(
        "error.html.j2",
        status,
        section="",
        search=request.query_params.get("q", "") if path == "/runs" else "",
        code=status,
        reason=clean(reason),
        back=_page_of_form(path) if request.method == "POST" or status == 405 else "",
        written=clean(getattr(request.state, "written", "")),
    )


def _page_of_form(path: str) -> str:
    """The path of the page with the form for an action, or "" for another path."""
    parts = path.split("/")
    if len(parts) != 4 or parts[1] not in ("runs", "alerts"):
        return ""
    name = quote(parts[2], safe="")
    return f"/alerts#{name}" if parts[1] == "alerts" else f"/runs/{name}"


def text_page(text: str) -> Response:
    """A text of a trace as plain text, with its control characters made visible."""
    return Response(encodable(clean(text)), media_type="text/plain; charset=utf-8")


def near_parts(parts: Sequence[int], current: int) -> Sequence[int]:
    """Which parts of a page to link to: the first, the last, and the parts near the current one."""
    at = parts.index(current) if current in parts else 0
    last = len(parts) - 1
    return [part for i, part in enumerate(parts) if i in (0, last) or abs(i - at) <= _NEAR]


def conversation_link(name: str) -> str:
    """The path of a conversation's page; for an id that no path can contain, the path of all."""
    return named_link("/conversations", name)


def named_link(folder: str, name: str) -> str:
    """The path of a name's page in a folder; the folder for a name that no path can contain."""
    # Browsers take "." and ".." for folders, also where they are escaped.
    can_be_path = 0 < len(name) < _LONGEST_VALUE // 2 and "\n" not in name and name.strip(".")
    return f"{folder}/{quote(name, safe='')}" if can_be_path else folder


def with_query(path: str, **values: str | None) -> str:
    """A path with a query of the values that are neither empty nor too long for a search."""
    query = urlencode(
        {name: value for name, value in values.items() if value and len(value) <= _LONGEST_VALUE}
    )
    return f"{path}?{query}" if query else path


def _when(time_ns: int, now_ns: int) -> str:
    """A time of the last day as an age, and an earlier time to the minute."""
    is_recent = abs(now_ns - time_ns) < _DAY_NS
    return ago(time_ns, now_ns) if is_recent else clock(time_ns)[:16]


@cache
def _environment() -> Environment:
    loaders = [PackageLoader("oteval.views.pages"), PackageLoader("oteval.views.report")]
    environment = template_environment(ChoiceLoader(loaders))
    environment.filters.update(
        ago=ago, when=_when, clean=clean, line=one_line, alignment=alignment_of
    )
    environment.globals.update(assets=assets(), with_query=with_query, sections=_SECTIONS)
    return environment
