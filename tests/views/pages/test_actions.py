"""Acting on runs in the browser: labels, references, datasets, tests, new scores, and who may."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oteval.base.files import KeptFile
from oteval.ingest.receiver.auth import Access, Token, digest_of
from oteval.scoring import load, refresh
from oteval.store import Store
from oteval.views.pages.access import PageAccess
from oteval.views.pages.app import create_app
from oteval.views.pages.site import Site

from .conftest import START, ShowPages, put, run
from .test_overview import episode

READ, WRITE, OTHER = "a token to read with", "a token to write with", "another one to write with"
ORIGIN = {"origin": "http://127.0.0.1"}
RUN = f"{2:016x}"
DEMO = Path(__file__).parents[3] / "oteval" / "cli" / "bundled_demo"
HOSTILE = '"><script>alert(1)</script>\u202eevil'

Enter = Callable[..., TestClient]
FORMS: Mapping[str, dict[str, str]] = {
    "label": {"verdict": "fail", "note": "wrong order"},
    "reference": {"name": "refund"},
    "dataset": {"name": "returns"},
    "test": {"agent": "shop.agent:ask"},
    "score": {"again": ""},
}


@pytest.fixture
def access() -> PageAccess:
    """Return tokens of a reader and two writers."""
    return PageAccess(
        Access(
            [
                Token("eve", digest_of(READ), "read"),
                Token("ada", digest_of(WRITE), "write"),
                Token("bob", digest_of(OTHER), "write"),
            ]
        )
    )


@pytest.fixture
def enter(pages: ShowPages, access: PageAccess) -> Enter:
    """Return a function that returns a browser that has logged in."""

    def log_in(store: Store, token: str = WRITE, config: Path | None = None) -> TestClient:
        client = pages(store, config, access)
        client.post("/login", data={"token": token}, headers=ORIGIN)
        return client

    return log_in


def form_token(client: TestClient, path: str = f"/runs/{RUN}") -> str:
    """Return the token that the forms of a page carry."""
    found = re.search(r'name="form_token" value="(\w+)"', client.get(path).text)
    assert found
    return found[1]


def send(client: TestClient, action: str, run: str = RUN, **fields: str):
    """Send a form of a run's page, as the page would."""
    data = {"form_token": form_token(client, f"/runs/{run}"), **FORMS[action], **fields}
    return client.post(f"/runs/{run}/{action}", data=data, headers=ORIGIN)


def test_a_label_is_stored_with_the_name_of_the_token(shop: Store, enter: Enter):
    """It has the verdict, score and reason for an evaluator, and the page shows it to others."""
    client = enter(shop)
    answer = send(client, "label", evaluator="calls", score="0,4", q="passed=false")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/runs/{RUN}?q=passed%3Dfalse&done=label#done"
    labels = client.get(answer.headers["location"]).text.partition('id="labels"')[2]
    assert 'id="done"' in labels.partition("</section>")[0]
    assert "The label is stored" in labels

    [label] = shop.labels.of("calls")
    assert (label.trajectory_id, label.passed, label.evaluator) == (RUN, False, "calls")
    assert (label.person, label.note, label.score) == ("ada", "wrong order", 0.4)
    assert shop.labels.of("tone") == []
    seen = enter(shop, READ).get(f"/runs/{RUN}").text
    assert "wrong order" in seen
    assert "by ada" in seen
    assert "<form" not in seen.partition('id="labels"')[2].partition("</section>")[0]


def test_the_newest_label_of_a_person_counts_beside_those_of_others(shop: Store, enter: Enter):
    """Two people label a run in two browsers; one of them changes the verdict."""
    ada, bob = enter(shop), enter(shop, OTHER)
    send(ada, "label", verdict="fail")
    send(bob, "label", verdict="pass", note="fine by me")
    send(ada, "label", verdict="pass", note="on second thoughts")

    found = {one.person: (one.passed, one.note) for one in shop.labels.of("calls")}
    assert found == {"ada": (True, "on second thoughts"), "bob": (True, "fine by me")}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"verdict": "maybe"}, "choose pass or fail"),
        ({"score": "much"}, "write a number"),
        ({"score": "nan"}, "write a number"),
        ({"score": "1e999"}, "finite"),
        ({"score": "1_0"}, "write a number"),
        ({"score": "1,000"}, "nothing in thousands"),
        ({"note": "x" * 10_001}, "too long"),
        ({"evaluator": "a\0b"}, "control characters"),
        ({"evaluator": "x" * 101}, "at most 100"),
    ],
)
def test_a_label_that_cannot_be_read_is_refused(
    shop: Store, enter: Enter, fields: dict[str, str], message: str
):
    """The page says why, and nothing is stored."""
    answer = send(enter(shop), "label", **fields)
    assert answer.status_code == 400
    assert message in answer.text
    assert not shop.labels.on(RUN)


def test_a_refused_form_leads_back_and_keeps_what_was_written(shop: Store, enter: Enter):
    """The page of the refusal has the reason that a person wrote, as text, and a link."""
    answer = send(enter(shop), "label", verdict="", note=f"a long thought {HOSTILE}")
    assert answer.status_code == 400
    assert f'href="/runs/{RUN}">Back to the form</a>' in answer.text
    assert "a long thought" in answer.text
    assert "<script>alert" not in answer.text


def test_after_the_end_of_a_session_a_form_keeps_what_was_written(shop: Store, enter: Enter):
    """A visitor who is not logged in any more gets the text back, and the way to the login."""
    client = enter(shop)
    data = {"form_token": form_token(client), "verdict": "fail", "note": "a long thought"}
    client.cookies.clear()
    answer = client.post(f"/runs/{RUN}/label", data=data, headers=ORIGIN)
    assert answer.status_code == 401
    assert "a long thought" in answer.text
    assert f'href="/login?next=%2Fruns%2F{RUN}"' in answer.text
    foreign = client.post(
        f"/runs/{RUN}/label", data=data, headers={"origin": "http://evil.example"}
    )
    assert foreign.status_code == 401
    assert "a long thought" not in foreign.text
    assert not shop.labels.on(RUN)


def test_the_address_of_a_form_leads_to_its_page(shop: Store, enter: Enter):
    """Somebody who opens it is told that it is no page."""
    answer = enter(shop).get(f"/runs/{RUN}/label")
    assert answer.status_code == 405
    assert "takes the form of a page" in answer.text
    assert f'href="/runs/{RUN}"' in answer.text
    assert 'href="/alerts#a%20b"' in enter(shop).get("/alerts/a%20b/snooze").text


def test_a_run_becomes_a_reference(shop: Store, enter: Enter):
    """Its own messages are stored under the name, and the page names it."""
    client = enter(shop)
    answer = send(client, "reference")
    assert answer.status_code == 303
    kept = client.get(answer.headers["location"]).text.partition("Keep this run")[2]
    assert "The run is a reference now" in kept
    reference = shop.references.get("refund")
    assert [message.role for message in reference.messages][:2] == ["user", "assistant"]
    assert "is refund</span>" in client.get(f"/runs/{RUN}").text


def test_runs_become_examples_of_a_dataset(shop: Store, enter: Enter):
    """Each run is added once, with a new version, and equal questions are separate examples."""
    client = enter(shop)
    first, third = f"{1:016x}", f"{3:016x}"
    for name in (RUN, first, third):
        assert "done=dataset" in send(client, "dataset", name).headers["location"]
    assert "done=in-dataset" in send(client, "dataset", RUN).headers["location"]

    examples = shop.datasets.get("returns").examples
    assert [one.metadata["trajectory_id"] for one in examples] == [RUN, first, third]
    assert len({one.id for one in examples}) == 3
    assert len(shop.datasets.list()) == 3


def test_a_run_is_downloaded_as_a_test(store: Store, enter: Enter):
    """The archive has the test, which calls the named agent, the recording and the reference."""
    load(store, sorted((DEMO / "traces").iterdir()))
    refresh(store)
    run = next(one for one in store.trajectories.read() if not one.gaps and not one.parent_id)
    answer = send(enter(store), "test", run.id, is_async="yes")
    assert answer.headers["content-type"] == "application/zip"
    name = re.search(r'filename="(test_\w+)\.zip"', answer.headers["content-disposition"])
    assert name
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = archive.namelist()
        text = archive.read(f"{name[1]}.py").decode()
    stem = name[1].removeprefix("test_")
    assert names == [f"{name[1]}.py", f"recordings/{stem}.jsonl", f"references/{stem}.json"]
    assert "from shop.agent import ask" in text
    assert "asyncio.run(ask(" in text
    compile(text, "test.py", "exec")


def test_a_downloaded_test_can_run_a_command(store: Store, enter: Enter):
    """The test runs the words of the command."""
    load(store, sorted((DEMO / "traces").iterdir()))
    refresh(store)
    run = next(one for one in store.trajectories.read() if not one.gaps and not one.parent_id)
    answer = send(enter(store), "test", run.id, agent="python 'my agent.py' {input}")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        text = archive.read(archive.namelist()[0]).decode()
    assert '"my agent.py"' in text
    compile(text, "test.py", "exec")


@pytest.mark.parametrize(
    "agent", ["", "ask", "shop:ask; import os", "shop.agent:", "python 'agent", "a b\nc"]
)
def test_a_test_needs_an_agent(shop: Store, enter: Enter, agent: str):
    """A text that is neither a function nor a command is refused with an example."""
    answer = send(enter(shop), "test", agent=agent)
    assert answer.status_code == 400


def test_a_run_without_spans_cannot_become_a_test(shop: Store, enter: Enter):
    """The page says so."""
    answer = send(enter(shop), "test")
    assert answer.status_code in (400, 404)
    assert "oteval failed" not in answer.text


def test_a_run_is_scored_again(shop: Store, enter: Enter, tmp_path: Path):
    """The evaluators of the configuration score the run, and no other one."""
    config = tmp_path / "oteval.yaml"
    config.write_text(
        "evaluators:\n- {name: careful, type: forbidden_tools, forbidden: [get_order]}\n"
    )
    client = enter(shop, config=config)
    assert "done=score" in send(client, "score").headers["location"]
    [score] = [one for one in shop.scores.of([RUN])[RUN] if one.evaluator == "careful"]
    assert score.passed is False
    assert all(one.evaluator != "careful" for one in shop.scores.of([f"{1:016x}"])[f"{1:016x}"])


def test_scoring_needs_a_configuration(shop: Store, enter: Enter):
    """Without one there is no form, and the request says so."""
    client = enter(shop)
    assert "Score it again" not in client.get(f"/runs/{RUN}").text
    answer = send(client, "score")
    assert answer.status_code == 400
    assert "oteval.yaml" in answer.text


def test_every_change_is_in_the_audit_log(shop: Store, enter: Enter):
    """An entry has the time, the name of the token, the action and the run, and no content."""
    client = enter(shop)
    send(client, "label", evaluator="calls", note="a secret reason")
    send(client, "reference")
    send(client, "dataset")
    entries = shop.audit.entries()
    assert [(one.actor, one.action) for one in entries] == [
        ("ada", "label"),
        ("ada", "reference"),
        ("ada", "dataset"),
    ]
    assert all(one.detail["chosen"]["run"] == RUN for one in entries)
    assert entries[0].detail["chosen"] == {"run": RUN, "label": "fail", "evaluator": "calls"}
    assert "secret" not in str(entries)
    assert entries[0].time_ns > START


@pytest.mark.parametrize("action", FORMS)
def test_nobody_acts_without_a_token(
    shop: Store, pages: ShowPages, access: PageAccess, action: str
):
    """Without a login the request is refused, with or without access control, by any method."""
    data = FORMS[action]
    for client in (pages(shop, access=access), pages(shop)):
        answer = client.post(f"/runs/{RUN}/{action}", data=data, headers=ORIGIN)
        assert answer.status_code in (401, 403)
    open_access = PageAccess(Access())
    answer = pages(shop, access=open_access).post(
        f"/runs/{RUN}/{action}", data={**data, "form_token": ""}, headers=ORIGIN
    )
    assert answer.status_code == 403
    assert not shop.audit.entries()


@pytest.mark.parametrize("action", FORMS)
def test_a_reader_does_not_act(shop: Store, enter: Enter, action: str):
    """A token for reading sees no forms, and its requests are refused."""
    client = enter(shop, READ)
    assert "form_token" not in client.get(f"/runs/{RUN}").text
    answer = client.post(f"/runs/{RUN}/{action}", data=FORMS[action], headers=ORIGIN)
    assert answer.status_code == 403
    assert "may write" in answer.text
    assert not shop.audit.entries()


@pytest.mark.parametrize("action", FORMS)
def test_a_form_needs_its_token(shop: Store, enter: Enter, action: str):
    """A form without the token, or with the one of another session, is refused."""
    client = enter(shop)
    for token in ("", "0" * 64, form_token(enter(shop)), "é"):
        answer = client.post(
            f"/runs/{RUN}/{action}", data={"form_token": token, **FORMS[action]}, headers=ORIGIN
        )
        assert answer.status_code == 403
    assert not shop.audit.entries()


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "null"}, {"origin": "http://127.0.0.1:9"}, {"origin": "http://evil.example"}],
)
def test_a_form_must_come_from_our_own_page(shop: Store, enter: Enter, headers: dict[str, str]):
    """Even with cookie and token, another origin is refused; another host has no cookie."""
    client = enter(shop)
    data = {"form_token": form_token(client), **FORMS["label"]}
    assert client.post(f"/runs/{RUN}/label", data=data, headers=headers).status_code == 403
    client.cookies.clear()
    rebound = {"host": "evil.example", "origin": "http://evil.example"}
    assert client.post(f"/runs/{RUN}/label", data=data, headers=rebound).status_code == 401
    assert not shop.audit.entries()


def test_a_form_is_a_short_post_of_its_own_kind(shop: Store, enter: Enter):
    """GET changes nothing; JSON, too long bodies and too many fields are refused."""
    client = enter(shop)
    token = form_token(client)
    path = f"/runs/{RUN}/label"
    assert client.get(path, params={"form_token": token, "verdict": "pass"}).status_code == 405
    assert client.post(path, json={"form_token": token}, headers=ORIGIN).status_code == 415
    long = {"form_token": token, "verdict": "pass", "note": "x" * 300_000}
    assert client.post(path, data=long, headers=ORIGIN).status_code == 413
    many = {"form_token": token, **{f"f{number}": "" for number in range(60)}}
    assert client.post(path, data=many, headers=ORIGIN).status_code == 400
    assert not shop.audit.entries()


def test_hostile_text_is_shown_as_text(shop: Store, enter: Enter):
    """Names and reasons of labels are escaped, and bidirectional characters made visible."""
    client = enter(shop)
    send(client, "label", note=HOSTILE)
    assert send(client, "reference", name="<b>&\"'").status_code == 303
    assert send(client, "reference", name="a\u202eb").status_code == 400
    text = client.get(f"/runs/{RUN}").text
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "<b>&" not in text


def test_an_unknown_run_cannot_be_acted_on(shop: Store, enter: Enter):
    """Each action answers 404, and the audit log stays empty."""
    client = enter(shop)
    token = form_token(client)
    for action in ("label", "reference", "dataset", "test"):
        data = {"form_token": token, **FORMS[action]}
        answer = client.post(f"/runs/{9:016x}/{action}", data=data, headers=ORIGIN)
        assert answer.status_code == 404
    assert not shop.audit.entries()


def send_to_alert(client: TestClient, action: str, **fields: str):
    """Send a form of the page of alerts."""
    found = re.search(r'name="form_token" value="(\w+)"', client.get("/alerts").text)
    data = {"form_token": found[1] if found else "", **fields}
    return client.post(f"/alerts/e1/{action}", data=data, headers=ORIGIN)


def test_an_alert_is_acknowledged_once(shop: Store, enter: Enter):
    """The page shows who did it, others see it, and the form is gone."""
    shop.monitors.put_episodes([episode()])
    client = enter(shop)
    assert send_to_alert(client, "acknowledge").headers["location"] == "/alerts#e1"
    text = enter(shop, READ).get("/alerts").text
    assert "acknowledged by ada" in text
    assert ">Acknowledge<" not in client.get("/alerts").text
    [entry] = shop.audit.entries()
    assert (entry.actor, entry.action) == ("ada", "acknowledge")
    assert entry.detail["chosen"] == {"episode": "e1", "monitor": "rates"}


def test_an_alert_is_snoozed_and_woken(shop: Store, enter: Enter):
    """A snooze is for the monitor and the group of the alert, and can be ended."""
    shop.monitors.put_episodes([episode()])
    client = enter(shop)
    now = START + 60 * 10**9
    assert send_to_alert(client, "snooze", time="8h").status_code == 303
    assert shop.monitors.snoozes(now) == {("rates", '["shop"]'): now + 8 * 3600 * 10**9}
    assert "snoozed until" in client.get("/alerts").text
    send_to_alert(client, "snooze", time="0")
    assert shop.monitors.snoozes(now) == {}
    assert send_to_alert(client, "snooze", time="9y").status_code == 400
    assert [one.action for one in shop.audit.entries()] == ["snooze", "snooze"]


def test_an_alert_is_acted_on_by_those_who_may(shop: Store, pages: ShowPages, enter: Enter):
    """Readers and strangers are refused, and so is an alert that has ended."""
    shop.monitors.put_episodes([episode()])
    for action in ("acknowledge", "snooze"):
        assert send_to_alert(enter(shop, READ), action, time="1h").status_code == 403
        assert send_to_alert(pages(shop), action, time="1h").status_code == 403
    client = enter(shop)
    token = form_token(client)
    shop.monitors.put_episodes([episode(ended_ns=START, end_reason="recovered")])
    data = {"form_token": token, "time": "1h"}
    for action in ("acknowledge", "snooze"):
        answer = client.post(f"/alerts/e1/{action}", data=data, headers=ORIGIN)
        assert answer.status_code == 404
    assert not shop.audit.entries()


def test_nothing_is_changed_in_a_database_that_is_gone(tmp_path: Path):
    """After the file was replaced, a label is refused instead of being lost with the old file."""
    path = tmp_path / "traces.duckdb"
    with Store(path) as store:
        put(store, run(2))
        access = PageAccess.for_one_user("ada")
        site = Site("test", store.sibling, check=KeptFile(path).require)
        client = TestClient(create_app(site, access), base_url="http://127.0.0.1")
        client.get(f"/login?code={access.link_code()}")
        assert send(client, "label").status_code == 200
        path.rename(tmp_path / "old.duckdb")
        path.touch()
        answer = send(client, "label", note="a long thought")
        assert answer.status_code == 503
        assert "was deleted, moved or replaced" in answer.text
        assert "a long thought" in answer.text
        site.close()
        assert len(store.labels.on(RUN)) == 1


def test_pages_say_how_to_act(shop: Store, pages: ShowPages, access: PageAccess):
    """Without tokens, with one for reading, and where nothing may be changed, the way differs."""
    client = pages(shop, access=PageAccess(Access()))
    for path in ("/labels", f"/runs/{RUN}", "/login"):
        assert "OTEVAL_WRITE_TOKEN" in client.get(path).text
    reader = pages(shop, access=access)
    reader.post("/login", data={"token": READ}, headers=ORIGIN)
    assert "Log in</a> with a token that may write" in reader.get("/labels").text
    fixed = PageAccess.for_one_user("ada", may_act=False)
    viewer = pages(shop, access=fixed)
    viewer.get(f"/login?code={fixed.link_code()}")
    assert "can only be read" in viewer.get(f"/runs/{RUN}").text
    refused = viewer.post(f"/runs/{RUN}/label", data=FORMS["label"], headers=ORIGIN)
    assert "can only be read" in refused.text


def test_rules_stay_in_force_while_their_file_is_invalid(shop: Store, enter: Enter, tmp_path: Path):
    """A run is scored by the rules from before, and its page names the problem."""
    config = tmp_path / "oteval.yaml"
    config.write_text("evaluators:\n- {name: careful, type: tool_errors}\n")
    client = enter(shop, config=config)
    assert "Score it again" in client.get(f"/runs/{RUN}").text
    config.write_text("evaluators: [")
    assert "The configuration cannot be read" in client.get(f"/runs/{RUN}").text
    assert "done=score" in send(client, "score").headers["location"]
