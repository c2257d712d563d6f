"""Notifications by Apprise, which knows Slack, Teams, mail and a hundred other services.

One URL is one destination here; `kinds.destination_parts` splits a list of them, so that a retry
after the failure of one URL does not repeat the message at the others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...text import shown_url
from .delivery import DeliveryResult
from .text import NotificationText

if TYPE_CHECKING:
    from apprise import AppriseResult

__all__ = ["send_by_apprise"]

# Apprise's services log the HTTP status so.
_STATUS = re.compile(r"error=(\d{3})\b")
_TEMPORARY = frozenset({"408", "425", "429"})


def send_by_apprise(url: str, message: NotificationText, *, is_alert: bool) -> DeliveryResult:
    """Send a message to a service.

    Apprise's own messages are not shown, because some name parts of the URL; of a failure, only
    the HTTP status is.

    Args:
        url: An Apprise URL, with its secrets.
        message: The message.
        is_alert: Whether it is an alert and not a resolution.
    """
    try:
        # Imported when needed: it loads a hundred services.
        import apprise
    except ImportError:
        return DeliveryResult(False, 'apprise is missing; run pip install "oteval[monitor]"')
    scheme = shown_url(url).partition("://")[0]
    # In this thread, and without redirects, which requests would follow to other hosts.
    asset = apprise.AppriseAsset(
        app_id="oteval", http_redirects=False, async_mode=False, service_timeout=0
    )
    sender = apprise.Apprise(asset=asset)
    try:
        if not sender.add(url):
            error = f"{scheme}: not a URL that Apprise knows"
            return DeliveryResult(False, error, is_refused=True)
        found = sender.notify(
            title=_without_mentions(message.title),
            body=_without_mentions(message.markdown),
            body_format="markdown",
            notify_type="warning" if is_alert else "success",
        )
    except Exception as error:
        # A hundred services by many authors: none of them may stop the others.
        return DeliveryResult(False, f"{scheme}: {type(error).__name__}")
    if found:
        return DeliveryResult(True)
    return _failure(scheme, found)


def _without_mentions(text: str) -> str:
    """Return text in which a name such as @everyone, from an agent, calls nobody."""
    return text.replace("@", "@\u200b")


def _failure(scheme: str, found: AppriseResult) -> DeliveryResult:
    texts = [str(entry.message) for result in found.results for entry in result.logs()]
    status = next((match[1] for text in texts if (match := _STATUS.search(text))), "")
    is_refused = status.startswith("4") and status not in _TEMPORARY
    error = f"{scheme}: {f'HTTP status {status}' if status else 'not delivered'}"
    return DeliveryResult(False, error, is_refused=is_refused)
