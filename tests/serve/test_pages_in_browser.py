"""From a run that fails to a reference, in Chromium, against a server that an agent sends to."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode

from benchmarks.served import Served
from oteval.model import Message, ToolCall
from oteval.store import Store

from ..views.pages.test_pages_browser import Visit, browser

__all__ = ["browser"]

pytestmark = pytest.mark.browser

RULES = """
evaluators:
  - {name: tools, type: tool_errors}
  - {name: calls, type: trajectory_match, mode: unordered, reference: {name: refund}}
completion: {quiet: 200ms}
"""
TOKENS = {"OTEVAL_INGEST_TOKEN": "in", "OTEVAL_WRITE_TOKEN": "the token of Ann"}
Start = Callable[..., Served]


def answer_refund(served: Served, question: str, tools: Sequence[str], failing: str = "") -> None:
    """Run an agent that calls tools, with OpenTelemetry's SDK.

    Args:
        served: The server that gets its spans.
        question: The question of the user.
        tools: The tools that it calls.
        failing: The tool that fails.
    """
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    url = f"http://127.0.0.1:{served.http}/v1/traces"
    exporter = OTLPSpanExporter(url, headers={"authorization": "Bearer in"})
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("agent")

    def say(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "parts": list(parts)}

    history = [say("user", {"type": "text", "content": question})]
    with tracer.start_as_current_span("invoke_agent shop") as root:
        root.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"})
        for at, name in enumerate([*tools, ""]):
            call = {"type": "tool_call", "id": f"call{at}", "name": name, "arguments": {"id": 7}}
            answer = say("assistant", call if name else {"type": "text", "content": "Done."})
            with tracer.start_as_current_span("chat m") as chat:
                chat.set_attribute("gen_ai.operation.name", "chat")
                chat.set_attribute("gen_ai.input.messages", json.dumps(history))
                chat.set_attribute("gen_ai.output.messages", json.dumps([answer]))
            if not name:
                break
            result = "the order is locked" if name == failing else "ok"
            with tracer.start_as_current_span(f"execute_tool {name}") as tool:
                tool.set_attribute("gen_ai.operation.name", "execute_tool")
                tool.set_attribute("gen_ai.tool.name", name)
                tool.set_attribute("gen_ai.tool.call.id", f"call{at}")
                if name == failing:
                    tool.set_status(Status(StatusCode.ERROR, result))
            part = {"type": "tool_call_response", "id": f"call{at}", "response": result}
            history += [answer, say("tool", part)]
    provider.shutdown()


@pytest.fixture
def shop(start: Start, tmp_path: Path) -> Iterator[Served]:
    """Return a server whose reference for refunds only looks at the order."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    looks = Message("assistant", tool_calls=(ToolCall("look", {"id": 7}),))
    with Store(tmp_path / "traces.duckdb") as store:
        store.references.add("refund", [looks], "test", 1)
    served = start(tmp_path, environment=TOKENS)
    yield served
    assert served.stop() == 0


def enter(browser: Any, served: Served) -> Visit:
    """Log in with the token in a browser, and return its tab."""
    visit = Visit(browser, f"http://127.0.0.1:{served.http}")
    page = visit.open("/runs")
    page.fill("#token", TOKENS["OTEVAL_WRITE_TOKEN"])
    page.click("text=Log in >> visible=true >> nth=-1")
    page.wait_for_url("**/runs")
    return visit


def test_a_run_is_explained_labelled_and_made_the_reference_of_the_next(
    browser: Any, shop: Served, tmp_path: Path
) -> None:
    """Two browsers see each run without a reload; the next run fails by the new reference."""
    ann, ben = enter(browser, shop), enter(browser, shop)
    page = ann.page

    answer_refund(shop, "Refund order 7", ["look", "refund"], failing="refund")
    for visit in (ann, ben):
        visit.page.wait_for_selector("li.item.fail >> text=Refund order 7")
    page.click("li.item.fail a.to")
    assert "the order is locked" in page.inner_text("main")
    page.check("input[name=verdict][value=fail]")
    page.fill("#label-note", "the order was locked")
    page.click("form.label-form button")
    page.wait_for_selector(".labels-list >> text=the order was locked")

    page.goto(f"{ann.url}/runs")
    answer_refund(shop, "Refund order 8", ["look", "refund"])
    page.click("li.item a.to >> text=Refund order 8")
    page.click("summary >> text=Make it a reference")
    page.fill("#reference-name", "refund")
    page.click("form[action$=reference] button")
    page.wait_for_selector("summary >> text=is refund")
    page.click("summary >> text=Make it a regression test")
    page.fill("#test-agent", "shop.agent:ask")
    with page.expect_download() as download:
        page.click("form[action$=test] button")
    download.value.save_as(tmp_path / "test.zip")
    with zipfile.ZipFile(tmp_path / "test.zip") as archive:
        assert any(name.endswith(".py") for name in archive.namelist())

    answer_refund(shop, "Refund order 9", ["look"])
    ben.page.wait_for_selector("li.item.fail >> text=missing 1 call: refund")
    ben.page.click("li.item a.to >> text=Refund order 9")
    ben.page.click("text=with the reference of calls")
    assert "First divergence" in ben.page.inner_text("main")
    for visit in (ann, ben):
        visit.context.close()
    assert (ann.faults, ben.faults) == ([], [])
