"""``monitors`` and ``notify`` of oteval.yaml: when to alert, and whom.

A monitor watches one measure of runs or of an evaluator's scores, separately for each group. Its
notifications go to the destinations of ``notify`` that it names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from ...base.text import seconds, shown_url
from ...base.times import ns_of_iso
from ...evaluators import CHECK_MEASURES
from ...model import GROUPS, MEASURES
from .base import Strict, Where
from .live import Endpoint, EndpointOrUrl, Seconds, check_headers, check_host

__all__ = [
    "EVALUATOR_MEASURES",
    "RUN_MEASURES",
    "Alertmanager",
    "BaselineSettings",
    "EDetectorSettings",
    "FalseAlarms",
    "MonitorSettings",
    "NoData",
    "NotifyDestination",
    "ThresholdSettings",
    "TwoWindowsSettings",
    "Webhook",
]

EVALUATOR_MEASURES = ("pass_rate", "score", "error_rate", "not_evaluated_rate")
_MORE_IS_BETTER = ("pass_rate", "score")
_VARIANTS = ("new_variants", "variant_shift")
# The cost depends on prices, variants depend on the baseline: neither is a value of one run.
RUN_MEASURES = (*MEASURES, *CHECK_MEASURES, "cost", *_VARIANTS)
_MEASURES: Any = Literal.__getitem__((*EVALUATOR_MEASURES, *RUN_MEASURES))
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:per|/|in)\s*(\d*(?:\.\d+)?\s*(?:ms|s|m|h|d|w))")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_LONGEST_DAYS = 3650
_LATEST_NS = 2**63 - 1
_APPRISE_URL = re.compile(r"\$\{\w+\}\S*|[A-Za-z][A-Za-z0-9+.-]*://\S+")


def _not_too_long(value: float) -> float:
    if value > _LONGEST_DAYS * 86400:
        raise ValueError(f"must be at most {_LONGEST_DAYS}d")
    return value


Period = Annotated[Seconds, AfterValidator(_not_too_long)]
"""A duration in seconds, of at most ten years."""


class FalseAlarms(Strict):
    """A budget of false alarms: so many in a time, for all groups of a monitor together."""

    alarms: float = Field(1.0, gt=0, le=1e6, allow_inf_nan=False, description="How many.")
    per: Period = Field(30 * 86400.0, gt=0, description="In this time.")


def _false_alarms(value: Any) -> Any:
    if isinstance(value, (Mapping, FalseAlarms)):
        return value
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a rate; write for instance '1 per 30d'")
    time = match[2].replace(" ", "")
    if time[0].isalpha():
        time = f"1{time}"
    per = 7 * seconds(f"{time[:-1]}d") if time.endswith("w") else seconds(time)
    return {"alarms": float(match[1]), "per": per}


class EDetectorSettings(Strict):
    """The default detector: evidence against the baseline's floor, with a false-alarm budget."""

    type: Literal["e_detector"] = "e_detector"
    block: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="How many observations are averaged; by default chosen from the baseline.",
    )


class ThresholdSettings(Strict):
    """Alerts while the mean of a time window is below a limit, or above one.

    The limits are in the measure's unit: a share of runs, seconds, tokens or US dollars.
    """

    type: Literal["threshold"]
    below: float | None = Field(
        None, ge=-1e15, le=1e15, allow_inf_nan=False, description="Alert below this mean."
    )
    above: float | None = Field(
        None, ge=-1e15, le=1e15, allow_inf_nan=False, description="Alert above this mean."
    )
    window: Period = Field(3600.0, gt=0, description="The time over which the mean is taken.")
    min_observations: int = Field(
        10, ge=1, le=1_000_000, description="The least number of observations in the window."
    )

    @model_validator(mode="after")
    def _one_limit(self) -> ThresholdSettings:
        if (self.below is None) == (self.above is None):
            raise ValueError("give either below or above")
        return self


class TwoWindowsSettings(Strict):
    """Alerts when a recent window differs from the one before it (Fisher's exact test)."""

    type: Literal["two_windows"]
    window: Period = Field(3600.0, gt=0, description="The length of the recent window.")
    reference: Period = Field(86400.0, gt=0, description="The length of the window before it.")
    p: float = Field(0.001, gt=0, lt=1, description="Alert below this p-value.")


def _detector(value: Any) -> Any:
    value = {"type": value} if isinstance(value, str) else value
    if isinstance(value, Mapping) and value.get("type") not in _DETECTORS:
        raise ValueError(f"write a detector's type: {', '.join(_DETECTORS)}")
    return value


_DETECTORS: dict[str, type[Strict]] = {
    "e_detector": EDetectorSettings,
    "threshold": ThresholdSettings,
    "two_windows": TwoWindowsSettings,
}


def _detector_kind(value: Any) -> str:
    if isinstance(value, Strict):
        return type(value).__name__
    kind = value.get("type") if isinstance(value, Mapping) else "e_detector"
    return _DETECTORS[str(kind)].__name__


_Detector = Annotated[
    Annotated[EDetectorSettings, Tag("EDetectorSettings")]
    | Annotated[ThresholdSettings, Tag("ThresholdSettings")]
    | Annotated[TwoWindowsSettings, Tag("TwoWindowsSettings")],
    Discriminator(_detector_kind),
]


def _time(value: Any) -> Any:
    """An ISO date or time, UTC by default, in nanoseconds since the Unix epoch."""
    if not isinstance(value, str):
        raise ValueError("write a date or a time, for instance 2026-11-20 or 2026-11-20T08:00")
    try:
        time_ns = ns_of_iso(value)
    except ValueError:
        raise ValueError(
            f"{value!r} is not a time; write for instance 2026-11-20 or 2026-11-20T08:00"
        ) from None
    if not 0 <= time_ns <= _LATEST_NS:
        raise ValueError(f"{value!r} is not between 1970 and 2262")
    return time_ns


_Time = Annotated[int, BeforeValidator(_time, json_schema_input_type=str)]


class BaselineSettings(Strict):
    """The observations that a group is compared with; after them the baseline is frozen."""

    scores: int = Field(
        300,
        ge=20,
        le=1_000_000,
        description="The least number of effective observations; dependent ones count in part.",
    )
    span: Period = Field(
        86400.0, description="The least time they span, so that hourly variation is in them."
    )
    from_: _Time | None = Field(
        None, alias="from", description="Learn from runs since this time, and from these only."
    )
    until: _Time | None = Field(None, description="The end of that time.")

    @model_validator(mode="after")
    def _whole_period(self) -> BaselineSettings:
        if (self.from_ is None) != (self.until is None):
            raise ValueError("give both from and until, or neither")
        if self.from_ is not None and self.until is not None and self.until <= self.from_:
            raise ValueError("until must be after from")
        return self


class NoData(Strict):
    """When a group without new observations has the state ``no_data``."""

    after: Period | None = Field(
        None,
        gt=0,
        description="The time without observations; by default twice the longest silence in the "
        "baseline, at least an hour.",
    )
    notify: bool = Field(False, description="Whether silence is notified like an alert.")


def _no_data(value: Any) -> Any:
    return {"after": value} if isinstance(value, (str, int, float)) else value


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Names = Annotated[list[str], BeforeValidator(_one_or_more, json_schema_input_type=str | list[str])]


def _measure(value: Any) -> Any:
    if value not in (*EVALUATOR_MEASURES, *RUN_MEASURES):
        near = difflib.get_close_matches(str(value), (*EVALUATOR_MEASURES, *RUN_MEASURES), 1)
        hint = f", perhaps {near[0]!r}" if near else ""
        raise ValueError(
            f"{value!r} is not a measure{hint}; of an evaluator: {', '.join(EVALUATOR_MEASURES)}; "
            f"of runs: {', '.join(RUN_MEASURES)}"
        )
    return value


class MonitorSettings(Strict):
    """A measure that is watched in each group, and who is notified of a change."""

    name: str = Field(
        "",
        max_length=200,
        description="Unique; by default the evaluator's name and the measure.",
    )
    evaluator: str | None = Field(
        None, description="The name of one of the evaluators; without it the measure is of runs."
    )
    measure: Annotated[str, BeforeValidator(_measure, json_schema_input_type=_MEASURES)] = Field(
        "pass_rate", description="The figure that is watched."
    )
    where: Where = Field(Where(), description="Which runs it looks at.")
    group_by: _Names = Field(
        default_factory=list,
        description=f"Watch each value separately: {', '.join(GROUPS)}, attributes.KEY.",
    )
    max_groups: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="The most groups; observations of later ones are watched together.",
    )
    detector: Annotated[
        _Detector, BeforeValidator(_detector, json_schema_input_type=_Detector | str)
    ] = Field(EDetectorSettings(), description="How a change is detected.")
    false_alarms: Annotated[
        FalseAlarms, BeforeValidator(_false_alarms, json_schema_input_type=FalseAlarms | str)
    ] = Field(FalseAlarms(), description="The budget of false alarms, such as '1 per 30d'.")
    baseline: BaselineSettings = Field(
        BaselineSettings(), description="How normal behaviour is learned."
    )
    direction: Literal["worse", "better", "both"] | None = Field(
        None, description="Which changes alert; by default worse, for variant_shift both."
    )
    no_data: Annotated[
        NoData, BeforeValidator(_no_data, json_schema_input_type=NoData | str | float)
    ] = Field(NoData(), description="When silence is reported, such as 6h.")
    notify: _Names = Field(
        default_factory=list, description="Destinations by their names in `notify`."
    )

    @field_validator("group_by")
    @classmethod
    def _known_groups(cls, value: list[str]) -> list[str]:
        for name in value:
            key = name.removeprefix("attributes.")
            if name not in GROUPS and (key == name or not key):
                raise ValueError(f"{name!r}: there are {', '.join(GROUPS)}, attributes.KEY")
        if len(set(value)) < len(value):
            raise ValueError("a name is given twice")
        return value

    @model_validator(mode="after")
    def _measure_of(self) -> MonitorSettings:
        if self.evaluator is None and self.measure in EVALUATOR_MEASURES:
            if "measure" in self.model_fields_set:
                raise ValueError(f"{self.measure} is a measure of an evaluator; name the evaluator")
            raise ValueError(f"give an evaluator, or a measure of runs: {', '.join(RUN_MEASURES)}")
        if self.evaluator is not None and self.measure in RUN_MEASURES:
            raise ValueError(
                f"{self.measure} is a measure of runs; leave out the evaluator, or write one of "
                f"{', '.join(EVALUATOR_MEASURES)}"
            )
        return self

    @model_validator(mode="after")
    def _detector_of(self) -> MonitorSettings:
        if isinstance(self.detector, ThresholdSettings):
            if self.measure in _VARIANTS:
                raise ValueError(f"{self.measure} has no threshold; use e_detector or two_windows")
            if self.direction is not None:
                raise ValueError("a threshold has a direction already; leave out direction")
        return self

    @property
    def title(self) -> str:
        """Its name, or else one made of the evaluator and the measure."""
        if self.name:
            return self.name
        if self.evaluator is None:
            return self.measure
        is_plain = self.measure == "pass_rate"
        return self.evaluator if is_plain else f"{self.evaluator} {self.measure}"

    @property
    def sides(self) -> tuple[Literal["worse", "better"], ...]:
        """The directions of changes that raise an alert."""
        if isinstance(self.detector, ThresholdSettings):
            is_low = self.detector.below is not None
            return ("worse",) if is_low == (self.measure in _MORE_IS_BETTER) else ("better",)
        direction = self.direction or ("both" if self.measure == "variant_shift" else "worse")
        if direction == "both":
            return ("worse", "better")
        return (direction,)


class Webhook(Strict):
    """A URL that notifications are posted to as JSON."""

    url: str = Field(description="The URL.")
    secret: str | None = Field(
        None,
        description="Signs the requests (HMAC-SHA256); ${NAME} is taken from the environment.",
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="Headers; ${NAME} is taken from the environment."
    )
    timeout: Period = Field(10.0, gt=0, description="How long a request may take.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        return _http_url(value)

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        return check_headers(value)

    @field_validator("secret")
    @classmethod
    def _from_environment(cls, value: str | None) -> str | None:
        if value is not None and not _VARIABLE.fullmatch(value):
            # Not the value, which may be the secret.
            raise ValueError("write ${NAME} and set the variable NAME, so that no file holds it")
        return value


class Alertmanager(Strict):
    """A Prometheus Alertmanager."""

    url: str = Field(description="Its base URL; /api/v2/alerts is added.")
    headers: dict[str, str] = Field(
        default_factory=dict, description="Headers; ${NAME} is taken from the environment."
    )
    labels: dict[str, str] = Field(
        default_factory=dict, description="Labels that are added to each alert."
    )
    resolve_timeout: Period = Field(
        4 * 3600.0,
        gt=0,
        description="Alertmanager ends an alert that is not repeated for this long; more than the "
        "time between two checks.",
    )
    timeout: Period = Field(10.0, gt=0, description="How long a request may take.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        return _http_url(value).rstrip("/")

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        return check_headers(value)

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, value: dict[str, str]) -> dict[str, str]:
        if "" in value:
            raise ValueError("a label has no name")
        return value


def _http_url(value: str) -> str:
    if not re.match(r"https?://[^/\s]+", value):
        raise ValueError(f"{shown_url(value)!r} is not a URL; write http://HOST:PORT/PATH")
    check_host(value)
    return value


def _from_url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


class NotifyDestination(Strict):
    """Where notifications go; one of the four."""

    apprise: _Names | None = Field(
        None,
        description="Apprise URLs, such as slack://... or mailto://...; ${NAME} is taken from the "
        "environment.",
    )
    alertmanager: (
        Annotated[
            Alertmanager,
            BeforeValidator(_from_url, json_schema_input_type=Alertmanager | str),
        ]
        | None
    ) = Field(None, description="A Prometheus Alertmanager, or its URL.")
    webhook: (
        Annotated[Webhook, BeforeValidator(_from_url, json_schema_input_type=Webhook | str)] | None
    ) = Field(None, description="A URL that receives JSON.")
    log_event: EndpointOrUrl | None = Field(
        None, description="An OTLP endpoint that receives log events."
    )

    @model_validator(mode="after")
    def _one(self) -> NotifyDestination:
        if sum(part is not None for part in self.parts) != 1:
            raise ValueError("give one of apprise, alertmanager, webhook and log_event")
        if self.apprise == []:
            raise ValueError("apprise has no URL and would notify no one; add one")
        for number, url in enumerate(self.apprise or (), 1):
            if not _APPRISE_URL.fullmatch(url):
                # Not the URL, which may have a password.
                raise ValueError(
                    f"apprise: number {number} is not a URL; write for instance mailto://... or "
                    "${NAME}"
                )
        return self

    @property
    def parts(self) -> tuple[list[str] | Alertmanager | Webhook | Endpoint | None, ...]:
        """The settings of the four kinds; one is set."""
        return (self.apprise, self.alertmanager, self.webhook, self.log_event)

    @property
    def variables(self) -> list[str]:
        """The names of the environment's variables that it needs, each once."""
        texts = list(self.apprise or ())
        for part in (self.alertmanager, self.webhook, self.log_event):
            if part is not None:
                texts += part.headers.values()
        if self.webhook is not None and self.webhook.secret is not None:
            texts.append(self.webhook.secret)
        return list(dict.fromkeys(name for text in texts for name in _VARIABLE.findall(text)))
