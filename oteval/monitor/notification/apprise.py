"""Notifications by Apprise, which knows Slack, Teams, mail and a hundred other services.

One URL is one destination here; `kinds.destination_parts` splits a list of them, so that a retry
after the failure of one URL does not repeat the message at the others.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ...base.errors import ConfigError
from ...base.text import shown_url
from .delivery import DeliveryResult, with_variables
from .text import NotificationText, escaped

if TYPE_CHECKING:
    from apprise import AppriseResult

__all__ = ["check_urls", "send_by_apprise"]

# Apprise's services log the HTTP status so.
_STATUS = re.compile(r"error=(\d{3})\b")
_ACTIVE = re.compile(r"@|!(?=\w)|:(?=//)")
_TEMPORARY = frozenset({"408", "425", "429"})


def check_urls(urls: Mapping[str, Sequence[str]], environment: Mapping[str, str]) -> None:
    """Refuse URLs that Apprise does not know.

    Args:
        urls: The URLs by destination, as in oteval.yaml.
        environment: The environment's variables. URLs with other variables are not checked.

    Raises:
        ConfigError: A URL is wrong; the message has its scheme only.
    """
    for name, listed in urls.items():
        for number, url in enumerate(listed, 1):
            try:
                resolved_url = with_variables(url, environment, quoted=True)
            except ValueError:
                continue
            if not _is_known(resolved_url):
                scheme = f" ({_scheme(url)}://...)" if "://" in url else ""
                raise ConfigError(
                    f"notify.{name}: URL {number}{scheme} is not one that Apprise accepts; "
                    "https://github.com/caronc/apprise describes them"
                )


@lru_cache(maxsize=256)
def _is_known(url: str) -> bool:
    import apprise

    try:
        with warnings.catch_warnings():
            # Services import modules that Python has deprecated.
            warnings.simplefilter("ignore")
            return apprise.Apprise.instantiate(url) is not None
    except Exception:
        # A hundred services by many authors.
        return False


def _scheme(url: str) -> str:
    return url.partition("://")[0]


def send_by_apprise(url: str, message: NotificationText, *, is_alert: bool) -> DeliveryResult:
    """Send a message to a service.

    Apprise's own messages are not shown, because some name parts of the URL. Of a failure, only
    the HTTP status is shown.

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
    scheme = _scheme(shown_url(url))
    # In this thread, and without redirects, which requests would follow to other hosts.
    asset = apprise.AppriseAsset(
        app_id="oteval", http_redirects=False, async_mode=False, service_timeout=0
    )
    sender = apprise.Apprise(asset=asset)
    try:
        if not sender.add(url):
            error = f"{scheme}: not a URL that Apprise knows"
            return DeliveryResult(False, error, is_refused=True)
        # Without a line for titles, the title becomes a part of the Markdown.
        has_titles = all(service.title_maxlen > 0 for service in sender)
        title = message.title if has_titles else escaped(message.title)
        result = sender.notify(
            title=_harmless(title),
            body=_harmless(message.markdown),
            body_format="markdown",
            notify_type="warning" if is_alert else "success",
        )
    except Exception as error:
        # A hundred services by many authors: none of them may stop the others.
        return DeliveryResult(False, f"{scheme}: {type(error).__name__}")
    if result:
        return DeliveryResult(True)
    return _failure(scheme, result)


def _harmless(text: str) -> str:
    """Return text whose names, which come from agents, call nobody and link to nothing."""
    # A name such as @everyone or <!channel> calls people; a URL would be a link.
    return _ACTIVE.sub(lambda match: f"{match[0]}\u200b", text)


def _failure(scheme: str, result: AppriseResult) -> DeliveryResult:
    texts = [str(entry.message) for sent in result.results for entry in sent.logs()]
    status = next((match[1] for text in texts if (match := _STATUS.search(text))), "")
    is_refused = status.startswith("4") and status not in _TEMPORARY
    error = f"{scheme}: {f'HTTP status {status}' if status else 'not delivered'}"
    return DeliveryResult(False, error, is_refused=is_refused)
