"""Notifications of monitors: rendered for people and programs, and delivered to destinations.

`deliver` sends one notification to one destination: to a service that Apprise knows, an
Alertmanager, a webhook, or an OTLP endpoint as a log event. `Outbox` takes waiting notifications
from the store, and retries them until they are delivered or refused.
"""
