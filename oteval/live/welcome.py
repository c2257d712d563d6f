"""The page at ``/``: where to send traces, and where to look."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["welcome"]


def welcome(addresses: Mapping[str, str], *, needs_token: bool) -> str:
    """Return the page, as plain text.

    Args:
        addresses: Where the server listens: ``http``, a URL, and perhaps ``grpc``.
        needs_token: Whether senders need a token.
    """
    url = addresses["http"]
    lines = [
        "oteval receives OpenTelemetry traces and logs here, and scores them.",
        "",
        f"OTLP/HTTP  {url}/v1/traces and {url}/v1/logs",
    ]
    if grpc := addresses.get("grpc"):
        lines.append(f"OTLP/gRPC  {grpc}")
    lines += [
        "",
        "Most OpenTelemetry SDKs take the address from their environment:",
        "",
        f"  OTEL_EXPORTER_OTLP_ENDPOINT={url}",
        "  OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    ]
    if needs_token:
        lines.append("  OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20INGEST_TOKEN")
    lines += [
        "",
        f"{url}/readyz   whether traces are taken and stored",
        f"{url}/metrics  figures for Prometheus",
        "",
        "On this machine `oteval trajectories` lists the runs and `oteval show ID` shows one.",
    ]
    return "\n".join(lines) + "\n"
