"""Notifications of monitors: rendered for people and programs, and delivered to destinations.

`deliver` sends one notification to one destination: to a service that Apprise knows, an
Alertmanager, a webhook, or an OTLP endpoint as a log event. `Outbox` takes waiting notifications
from the store, and retries them until they are delivered or refused.
"""

from __future__ import annotations

from .delivery import DeliveryResult
from .kinds import deliver, destination_parts
from .outbox import Outbox
from .text import NotificationText, message

__all__ = [
    "DeliveryResult",
    "NotificationText",
    "Outbox",
    "deliver",
    "destination_parts",
    "message",
]
