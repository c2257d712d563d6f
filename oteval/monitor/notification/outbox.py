"""The outbox: takes waiting notifications from the store, and tries until each is delivered.

Delivery is at least once: if a process is killed between a delivery and its note, the notification
is repeated with the same id, so that receivers recognise it. Nothing else repeats a notification:
if two programs deliver at once, the program that claims a notification first sends it.

Notifications about the same group of a monitor go to a destination in the order of the queue, so a
resolution never arrives before its alert. After a failure, the delay doubles from 10 seconds to an
hour, with jitter; attempts never end. A destination's Retry-After counts for all notifications that
wait for it. A notification that a destination refuses is not tried again.

An alert that an Alertmanager has accepted is repeated every minute while its episode lasts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...scoring import NotifyDestination
from ...store import Notification, NotificationOutbox
from .delivery import MAX_WAIT, DeliveryResult
from .kinds import deliver, destination_parts
from .text import Payload

__all__ = ["Outbox", "retry_delay", "streams"]

_FIRST_DELAY = 10.0
_MOST_DELAY = 3600.0
_REPEAT_NS = 60 * 10**9
# A time later than this was set before the clock stepped back; the outbox does not wait for it.
_LONGEST_NS = round(MAX_WAIT * 1e9) + 60 * 10**9
# For this time, others do not try a notification; it is longer than an attempt.
_CLAIM_NS = 60 * 10**9

Send = Callable[[Payload, NotifyDestination, str, int], DeliveryResult]


class Outbox:
    """Delivers the notifications of a store; used by one thread.

    Args:
        store: The store where they wait.
        destinations: The setting ``notify``.
        version: The version of oteval.
        send: Delivers a payload with an id to a destination, at a time (ns).
        chance: Returns a random number in [0, 1), for jitter.
    """

    def __init__(
        self,
        store: NotificationOutbox,
        destinations: Mapping[str, NotifyDestination],
        *,
        version: str = "",
        send: Send | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        parts = destination_parts(destinations)
        self._split = {
            name: [part for part, _ in listed] for name, listed in parts.items() if len(listed) > 1
        }
        self._destinations = {
            part: destination for listed in parts.values() for part, destination in listed
        }
        self._version = version
        self._send = send or self._deliver
        self._chance = chance
        self._held: dict[str, int] = {}
        self._repeated: dict[tuple[str, str], int] = {}

    def reopen(self, store: NotificationOutbox) -> None:
        """Continue with the same store, which was closed and opened again."""
        self._store = store

    def pump(
        self, now_ns: int, should_stop: Callable[[], bool] = lambda: False
    ) -> list[tuple[Notification, DeliveryResult]]:
        """Send the notifications that are due, and return the attempts.

        A destination that fails is left alone until the next call.

        Args:
            now_ns: The time (ns).
            should_stop: Returns whether to leave the rest for another call.
        """
        done: list[tuple[Notification, DeliveryResult]] = []
        failing: set[str] = set()
        for stream in streams(self._separated()):
            for notification in stream:
                name = notification.destination
                is_held = name in failing or _is_later(self._held.get(name, 0), now_ns)
                if is_held or _is_later(notification.next_ns, now_ns) or should_stop():
                    break
                if not self._store.claim(notification, now_ns + _CLAIM_NS):
                    break
                result = self._attempt(notification, now_ns)
                done.append((notification, result))
                if not result.is_delivered and not result.is_refused:
                    failing.add(name)
                    break
        if not should_stop():
            self._repeat(now_ns, failing)
        return done

    def _separated(self) -> Sequence[Notification]:
        """The waiting notifications, after splitting notifications for several URLs."""
        waiting = self._store.waiting()
        several = [
            notification for notification in waiting if notification.destination in self._split
        ]
        for notification in several:
            self._store.split(notification, self._split[notification.destination])
        return self._store.waiting() if several else waiting

    def _attempt(self, notification: Notification, now_ns: int) -> DeliveryResult:
        destination = self._destinations.get(notification.destination)
        if destination is None:
            error = f"notify has no {notification.destination!r} any more"
            result = DeliveryResult(False, error, is_refused=True)
        else:
            result = self._send(
                json.loads(notification.payload),
                destination,
                notification.notification_id,
                now_ns,
            )
        if result.is_delivered:
            self._store.sent(notification, now_ns)
            self._repeated[_row_key(notification)] = now_ns
        elif result.is_refused:
            self._store.failed(notification, result.error, None)
        else:
            wait = retry_delay(notification.attempts, self._chance())
            if result.retry_after:
                self._held[notification.destination] = now_ns + _ns(result.retry_after)
            next_ns = now_ns + _ns(max(wait, result.retry_after))
            self._store.failed(notification, result.error, next_ns)
        return result

    def _repeat(self, now_ns: int, failing: set[str]) -> None:
        """Repeat the alerts that an Alertmanager would otherwise end."""
        names = {
            name
            for name, destination in self._destinations.items()
            if destination.alertmanager is not None
        }
        if not names:
            return
        firing = [
            notification
            for notification in self._store.firing()
            if notification.destination in names
        ]
        times = {
            _row_key(notification): self._repeated.get(_row_key(notification), 0)
            for notification in firing
        }
        for notification in firing:
            name = notification.destination
            if name in failing or _is_later(self._held.get(name, 0), now_ns):
                continue
            if 0 <= now_ns - times[_row_key(notification)] < _REPEAT_NS:
                continue
            result = self._send(
                json.loads(notification.payload),
                self._destinations[name],
                notification.notification_id,
                now_ns,
            )
            times[_row_key(notification)] = now_ns
            if not result.is_delivered:
                failing.add(name)
        self._repeated = times

    def _deliver(
        self, payload: Payload, destination: NotifyDestination, key: str, now_ns: int
    ) -> DeliveryResult:
        return deliver(payload, destination, key=key, now_ns=now_ns, version=self._version)


def streams(waiting: Iterable[Notification]) -> list[list[Notification]]:
    """Notifications by destination and group of a monitor, each list in order.

    Args:
        waiting: The notifications, in any order.
    """
    waiting = list(waiting)
    alerts = {
        notification.episode_id: notification.created_ns
        for notification in waiting
        if notification.event == "alert"
    }

    def rank(notification: Notification) -> tuple[int, bool]:
        # The clock may have stepped back between an alert and its resolution.
        return max(
            notification.created_ns, alerts.get(notification.episode_id, 0)
        ), notification.event != "alert"

    stream_by_key: dict[tuple[str, str], list[Notification]] = {}
    for notification in sorted(waiting, key=rank):
        payload = json.loads(notification.payload)
        about = [payload.get(name) for name in ("monitor", "group", "side")]
        stream_by_key.setdefault(
            (notification.destination, json.dumps(about, sort_keys=True)), []
        ).append(notification)
    return list(stream_by_key.values())


def retry_delay(attempts: int, chance: float) -> float:
    """The seconds until the next attempt.

    Args:
        attempts: The number of failed attempts before this one.
        chance: A number in [0, 1); the delay is between half and all of its step.
    """
    step = min(_FIRST_DELAY * 2.0 ** min(attempts, 30), _MOST_DELAY)
    return step * (0.5 + chance / 2)


def _is_later(due_ns: int, now_ns: int) -> bool:
    """Whether a time is in the future, and was not set by a clock that was wrong."""
    return now_ns < due_ns <= now_ns + _LONGEST_NS


def _row_key(notification: Notification) -> tuple[str, str]:
    return notification.notification_id, notification.destination


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
