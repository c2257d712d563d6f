"""Delivery by the kind of destination: Apprise, Alertmanager, webhook or log event.

Rendering is pure and in the module of each kind; here, secrets come from the environment and
requests are sent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...base.clients.otlp_client import open_client
from ...scoring import Alertmanager, Endpoint, NotifyDestination, Webhook, resolved
from .apprise import send_by_apprise
from .delivery import (
    WRONG_HEADER,
    WRONG_URL,
    DeliveryResult,
    post,
    result_of,
    with_variables,
)
from .formats import alert_body, alerts_url, log_event_request, webhook_body, webhook_headers
from .text import Payload, message

__all__ = ["deliver", "destination_parts"]


def destination_parts(
    destinations: Mapping[str, NotifyDestination],
) -> dict[str, list[tuple[str, NotifyDestination]]]:
    """The destinations by name, each as a list of destinations that are sent to separately.

    A list of Apprise URLs becomes ``NAME[1]``, ``NAME[2]``; the other kinds stay as they are.

    Args:
        destinations: The setting ``notify``.
    """
    parts_by_name = {}
    for name, destination in destinations.items():
        urls = destination.apprise or []
        parts_by_name[name] = [(name, destination)]
        if len(urls) > 1:
            parts_by_name[name] = [
                (f"{name}[{number}]", NotifyDestination(apprise=[url]))
                for number, url in enumerate(urls, 1)
            ]
    return parts_by_name


def deliver(
    payload: Payload,
    destination: NotifyDestination,
    *,
    key: str,
    now_ns: int,
    environment: Mapping[str, str] | None = None,
    version: str = "",
) -> DeliveryResult:
    """Send a notification to a destination.

    Args:
        payload: The payload of the notification.
        destination: The destination.
        key: The id of the notification, which is sent with it.
        now_ns: The time (ns).
        environment: The variables that settings name; by default this process's variables.
        version: The version of oteval.

    Returns:
        The result; also for errors of the network and of settings, since a later attempt may
        succeed.
    """
    variables = os.environ if environment is None else environment
    try:
        if destination.apprise is not None:
            return _to_apprise(payload, destination.apprise, variables)
        if destination.alertmanager is not None:
            return _to_alertmanager(payload, destination.alertmanager, key, now_ns, variables)
        if destination.webhook is not None:
            return _to_webhook(payload, destination.webhook, key, now_ns, variables)
        assert destination.log_event is not None
        body = log_event_request(payload, key=key, now_ns=now_ns, version=version)
        return _to_otlp(body, destination.log_event, variables)
    except ValueError as error:
        return DeliveryResult(False, str(error))


def _to_apprise(
    payload: Payload, urls: list[str], environment: Mapping[str, str]
) -> DeliveryResult:
    for url in urls:
        resolved_url = with_variables(url, environment, quoted=True)
        result = send_by_apprise(
            resolved_url, message(payload), is_alert=payload["event"] == "alert"
        )
        if not result.is_delivered:
            return result
    return DeliveryResult(True)


def _to_alertmanager(
    payload: Payload, settings: Alertmanager, key: str, now_ns: int, environment: Mapping[str, str]
) -> DeliveryResult:
    body = alert_body(
        payload,
        key=key,
        now_ns=now_ns,
        resolve_timeout=settings.resolve_timeout,
        labels=settings.labels,
    )
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": key,
        **resolved(settings.headers, environment),
    }
    return post(alerts_url(settings.url), body, headers, timeout=settings.timeout)


def _to_webhook(
    payload: Payload, settings: Webhook, key: str, now_ns: int, environment: Mapping[str, str]
) -> DeliveryResult:
    body = webhook_body(payload, key)
    secret = None if settings.secret is None else with_variables(settings.secret, environment)
    signed = webhook_headers(body, key=key, now_ns=now_ns, secret=secret)
    headers = {**resolved(settings.headers, environment), **signed}
    return post(settings.url, body, headers, timeout=settings.timeout)


def _to_otlp(body: bytes, settings: Endpoint, environment: Mapping[str, str]) -> DeliveryResult:
    headers = resolved(settings.headers, environment)
    try:
        client = open_client(
            settings.url, headers, compress=settings.gzip, timeout=settings.timeout
        )
    except ValueError:
        return DeliveryResult(False, WRONG_URL, is_refused=True)
    try:
        response = client.export("logs", body)
    except ValueError:
        return DeliveryResult(False, WRONG_HEADER)
    finally:
        client.close()
    rejected, reason = response.rejected("logs") if response.is_accepted else (0, "")
    if rejected:
        return DeliveryResult(False, f"the endpoint rejected it: {reason}"[:200], is_refused=True)
    return result_of(response, settings.url)
