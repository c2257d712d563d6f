"""Who may read the pages and act: tokens, the login page, cookies and links."""

from __future__ import annotations

import pytest

from oteval.base.web_guard import is_own_origin
from oteval.ingest.receiver.auth import Access, Token, digest_of
from oteval.store import Store
from oteval.views.pages.access import PageAccess, Visitor, cookie_name

from .conftest import ShowPages

READ, WRITE = "a token to read with", "a token to write with"
ORIGIN = {"origin": "http://127.0.0.1"}
PAGE = {"accept": "text/html"}


def tokens() -> Access:
    """Return a token of each kind."""
    return Access(
        [
            Token("eve", digest_of(READ), "read"),
            Token("ada", digest_of(WRITE), "write"),
            Token("sender", digest_of("a token to send with"), "ingest"),
        ]
    )


def test_a_page_leads_to_the_login_page_and_back(shop: Store, pages: ShowPages):
    """Without a session, a page redirects to the login page, which leads to it with a token."""
    client = pages(shop, access=PageAccess(tokens()))
    answer = client.get("/runs?q=agent%3Dshop", headers=PAGE)
    assert answer.status_code == 303
    form = client.get(answer.headers["location"])
    assert 'type="password"' in form.text
    entered = client.post(answer.headers["location"], data={"token": READ}, headers=ORIGIN)
    assert entered.headers["location"] == "/runs?q=agent%3Dshop"
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "Secure" not in cookie
    assert READ not in cookie
    shown = client.get("/runs")
    assert shown.status_code == 200
    assert "eve" in shown.text


def test_events_end_with_the_token(shop: Store, pages: ShowPages, monkeypatch: pytest.MonkeyPatch):
    """The answer that was begun before the token was revoked ends."""
    monkeypatch.setattr("oteval.views.pages.events._CHECK_INTERVAL", 0.0)
    access = tokens()
    client = pages(shop, access=PageAccess(access))
    client.post("/login", data={"token": READ}, headers=ORIGIN)
    asked = []

    def visitor(self: PageAccess, cookie: str) -> Visitor:
        asked.append(cookie)
        if len(asked) == 5:  # in the middle of the answer
            access.replace(one for one in tokens().tokens if one.name != "eve")
        return found(self, cookie)

    found = PageAccess.visitor
    monkeypatch.setattr(PageAccess, "visitor", visitor)
    assert client.get("/events").text.startswith("retry: 3000")  # a stream that ends
    assert len(asked) >= 5
    assert client.get("/events").status_code == 401


def test_nothing_is_shown_without_a_session(shop: Store, pages: ShowPages):
    """Scripts get 401 for pages, events and messages; the style and the login page are open."""
    client = pages(shop, access=PageAccess(tokens()))
    for path in ("/", "/runs", f"/runs/{1:016x}", "/events", f"/runs/{1:016x}/messages/0"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert "order" not in answer.text
    assert client.get("/login").status_code == 200


@pytest.mark.parametrize("token", ["a wrong token", "a token to send with", "\0", "x" * 10_000])
def test_a_token_that_may_not_read_does_not_log_in(shop: Store, pages: ShowPages, token: str):
    """The page says so, and sets no cookie; the token of a sender is none for people."""
    client = pages(shop, access=PageAccess(tokens()))
    answer = client.post("/login", data={"token": token}, headers=ORIGIN)
    assert answer.status_code == 403
    assert "token is unknown" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers", [{}, {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": ""}]
)
def test_only_our_own_page_can_log_in(shop: Store, pages: ShowPages, headers: dict[str, str]):
    """A form of another origin, or of none, is refused even with the right token."""
    client = pages(shop, access=PageAccess(tokens()))
    answer = client.post("/login", data={"token": READ}, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "wanted", ["https://evil.example", "//evil.example", "/\\evil.example", "/a\nb", "runs"]
)
def test_the_login_page_leads_to_our_own_pages_only(shop: Store, pages: ShowPages, wanted: str):
    """A link with another address as the next page leads to the first page."""
    client = pages(shop, access=PageAccess(tokens()))
    answer = client.post("/login", params={"next": wanted}, data={"token": READ}, headers=ORIGIN)
    assert answer.headers["location"] == "/"


def test_a_session_ends_with_its_token_its_time_or_the_visitor(shop: Store, pages: ShowPages):
    """A revoked token, a week, a changed cookie, and logging out end a session."""
    time, access = [1_000_000.0], tokens()
    guard = PageAccess(access, clock=lambda: time[0])
    cookie = guard.log_in(WRITE)
    assert guard.visitor(cookie).may_act
    assert not guard.visitor("9" + cookie).may_read
    assert not guard.visitor(cookie[:-1] + ("0" if cookie[-1] != "0" else "1")).may_read
    assert not PageAccess(access).visitor(cookie).may_read
    time[0] += 8 * 24 * 3600
    assert not guard.visitor(cookie).may_read
    cookie = guard.log_in(WRITE)
    access.replace([Token("eve", digest_of(READ), "read")])
    assert not guard.visitor(cookie).may_read

    client = pages(shop, access=PageAccess(tokens()))
    client.post("/login", data={"token": READ}, headers=ORIGIN)
    assert client.get("/runs").status_code == 200
    assert client.post("/logout", data={"leave": "1"}).status_code == 403
    client.post("/logout", data={"leave": "1"}, headers=ORIGIN)
    assert client.get("/runs").status_code == 401


def test_pages_without_tokens_are_open_and_cannot_be_acted_on(shop: Store, pages: ShowPages):
    """A server without tokens for reading shows its pages to everybody, without a login."""
    client = pages(shop, access=PageAccess(Access.of(ingest="only for senders")))
    shown = client.get("/runs")
    assert shown.status_code == 200
    assert "log in" not in shown.text
    assert PageAccess(Access()).visitor("").may_act is False


def test_the_link_of_one_user_logs_in(shop: Store, pages: ShowPages):
    """The link that the command opens sets the cookie and leads on; without it nothing shows."""
    access = PageAccess.for_one_user("ada")
    client = pages(shop, access=access)
    assert "address that <code>oteval view</code>" in client.get("/login?code=wrong").text
    assert client.get("/runs").status_code == 401
    entered = client.get(f"/login?code={access.link_code()}")
    assert 'content="0;url=/"' in entered.text
    assert 'rel="icon"' in entered.text  # or browsers ask for another one, and log that
    assert client.get("/runs").status_code == 200
    other = pages(shop, access=access)
    assert other.get("/runs").status_code == 401


def test_a_link_works_once(shop: Store, pages: ShowPages):
    """A link from a history or a command line is used up, except for the browser that used it."""
    access = PageAccess.for_one_user("ada")
    used: list[str] = []
    link = f"/login?code={access.link_code(lambda: used.append('yes'))}"
    browser, thief = pages(shop, access=access), pages(shop, access=access)

    browser.head(link)
    entered, again, stolen = browser.get(link), browser.get(link), thief.get(link)

    assert 'content="0;url=/"' in entered.text
    assert 'content="0;url=/"' in again.text
    assert "was used already" in stolen.text
    assert "set-cookie" not in stolen.headers
    assert thief.get("/runs").status_code == 401
    assert used == ["yes"]


def test_a_token_in_a_link_does_not_log_in_to_a_server(shop: Store, pages: ShowPages):
    """Addresses are kept in logs and histories, so a server takes tokens by its form only."""
    client = pages(shop, access=PageAccess(tokens()))
    assert "set-cookie" not in client.get(f"/login?token={WRITE}&code={WRITE}").headers


def test_a_cookie_is_of_one_port_and_secure_over_tls(shop: Store, pages: ShowPages):
    """Servers on other ports have their own cookies; behind TLS it is not sent in the clear."""
    assert cookie_name("127.0.0.1:4318") == "oteval_4318"
    assert cookie_name("[::1]:80") == "oteval_80"
    assert cookie_name("traces.example") == "oteval"
    client = pages(shop, access=PageAccess(tokens()))
    answer = client.post(
        "/login", data={"token": READ}, headers={**ORIGIN, "x-forwarded-proto": "https"}
    )
    assert "Secure" in answer.headers["set-cookie"]


def test_an_origin_is_compared_whole():
    """A host that contains ours, another port and other schemes are foreign."""
    assert is_own_origin("http://127.0.0.1:80", "127.0.0.1:80")
    assert is_own_origin("https://traces.example", "traces.example")
    for origin in ("http://127.0.0.1:81", "http://127.0.0.1:80.evil", "file://127.0.0.1:80", ""):
        assert not is_own_origin(origin, "127.0.0.1:80")
    assert not is_own_origin("http://", "")
