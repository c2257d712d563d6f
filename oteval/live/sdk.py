"""OpenTelemetry's SDK, as far as it is installed: oteval is imported without it, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LogRecordProcessor as LogProcessorBase
    from opentelemetry.sdk.trace import SpanProcessor as SpanProcessorBase

    HAS_SDK = True
else:
    # Inherited from where they are there, so that a hook which a newer SDK calls is there as well.
    try:
        from opentelemetry.sdk._logs import LogRecordProcessor as LogProcessorBase
        from opentelemetry.sdk.trace import SpanProcessor as SpanProcessorBase

        HAS_SDK = True
    except ImportError:
        LogProcessorBase = SpanProcessorBase = object
        HAS_SDK = False

__all__ = ["LogProcessorBase", "SpanProcessorBase", "require_sdk"]


def require_sdk() -> None:
    """Do nothing where the SDK is there.

    Raises:
        ConfigError: It is not; the message says what to install.
    """
    if not HAS_SDK:
        raise ConfigError("recording spans takes OpenTelemetry's SDK: pip install 'oteval[sdk]'")
