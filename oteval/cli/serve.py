"""``oteval serve``: receive traces over OTLP and score them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ..base.errors import ConfigError, OtevalError
from ..base.web_guard import require_local, split_address
from ..monitor import require_packages, unset_variables
from ..scoring import load_config, load_tokens
from .common import db_option, warn
from .options import config_option, duration

if TYPE_CHECKING:
    from ..ingest import Access
    from ..serve import Tls

__all__ = ["serve"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?$", re.IGNORECASE)
_REMEDY = (
    ": set OTEVAL_INGEST_TOKEN and OTEVAL_READ_TOKEN, give --tokens for both, or give --insecure"
)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@click.command()
@config_option()
@db_option
@click.option(
    "--http",
    default="127.0.0.1:4318",
    show_default=True,
    help="The address for OTLP/HTTP and the API.",
)
@click.option(
    "--grpc",
    default="127.0.0.1:4317",
    show_default=True,
    help='The address for OTLP/gRPC; "" turns it off.',
)
@click.option(
    "--forward",
    metavar="URL",
    default="",
    help="Forward everything to this OTLP endpoint: http, https, grpc or grpcs (TLS) ://HOST:PORT.",
)
@click.option("--insecure", is_flag=True, help="Allow other machines to connect without tokens.")
@click.option(
    "--tls-cert", type=click.Path(dir_okay=False), help="The server's certificate chain, PEM."
)
@click.option("--tls-key", type=click.Path(dir_okay=False), help="The server's private key, PEM.")
@click.option(
    "--tls-client-ca",
    type=click.Path(dir_okay=False),
    help="Accept only clients with a certificate of these authorities, PEM.",
)
@click.option(
    "--tokens",
    "tokens_path",
    type=click.Path(dir_okay=False),
    help="A YAML file with named tokens; reloaded when it changes.",
)
@click.option(
    "--quota", default="4GB", show_default=True, help="The maximum size of the spool on disk."
)
@click.option(
    "--max-request", default="64MB", show_default=True, help="The maximum size of a request."
)
@click.option(
    "--grace", type=click.FloatRange(min=0), default=10.0, show_default=True,
    help="How long the server keeps storing spooled data when it stops, in seconds.",
)  # fmt: skip
@click.option(
    "--monitor-interval",
    default="60s",
    show_default=True,
    metavar="TIME",
    help="The time between checks of the monitors in the configuration.",
)
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="The format of log lines on standard error.",
)
@click.pass_context
def serve(
    context: click.Context,
    /,
    config_path: str,
    db: str,
    http: str,
    grpc: str,
    forward: str,
    insecure: bool,
    tls_cert: str | None,
    tls_key: str | None,
    tls_client_ca: str | None,
    tokens_path: str | None,
    quota: str,
    max_request: str,
    grace: float,
    monitor_interval: str,
    log_format: str,
) -> int:
    """Receive traces over OTLP; store and score them.

    Point any OTLP exporter or Collector at the server. Acknowledged data is on disk. Scores are
    published on spans, as log events and as metrics. The monitors of the configuration are
    checked, and their notifications delivered. Other commands work while the server runs. Senders
    and readers authenticate with OTEVAL_INGEST_TOKEN and OTEVAL_READ_TOKEN, people who label runs
    with OTEVAL_WRITE_TOKEN, or each with a token of --tokens; without tokens the server listens on
    this machine only. SIGHUP reloads the configuration and the tokens; SIGTERM stops the server.
    """
    from ..serve import ServerConfig, serve as run

    tls = _tls(tls_cert, tls_key, tls_client_ca)
    access = _access(tokens_path, {} if insecure else {"--http": http, "--grpc": grpc})
    is_given = context.get_parameter_source("config_path") is not ParameterSource.DEFAULT
    if not is_given and not Path(config_path).exists():
        warn(f"no {config_path}: traces are stored, and scored once that file exists")
    _check_monitors(config_path)
    config = ServerConfig(
        db=str(Path(db).absolute()),
        config=str(Path(config_path).absolute()) if config_path else "",
        may_lack_config=not is_given,
        http=http,
        grpc=grpc,
        forward=forward,
        quota=_bytes("--quota", quota, 16 << 20),
        limit=_bytes("--max-request", max_request, 1 << 10),
        grace=grace,
        log_format=log_format,
        monitor_interval=duration("--monitor-interval", monitor_interval, least=0.001),
        tokens=str(Path(tokens_path).absolute()) if tokens_path else "",
    )
    if config.limit > config.quota // 4:
        raise ConfigError("--max-request must be at most a quarter of --quota")
    run(config, access, tls, lambda line: warn(f"listening on {line}"))
    return 0


def _check_monitors(config_path: str) -> None:
    try:
        config = load_config(config_path)
    except OtevalError:
        return  # the storage process reports it, or uses the last valid configuration
    require_packages(config)
    for text in unset_variables(config, os.environ):
        warn(text)


def _tls(cert: str | None, key: str | None, client_ca: str | None) -> Tls | None:
    """Return the certificates of the server, or None for plain text."""
    from ..serve import Tls

    if bool(cert) != bool(key):
        raise ConfigError("give both --tls-cert and --tls-key, or neither")
    if client_ca and not cert:
        raise ConfigError("--tls-client-ca needs --tls-cert and --tls-key")
    return Tls(cert, key, client_ca or "") if cert and key else None


def _access(tokens_path: str | None, addresses: Mapping[str, str]) -> Access:
    """Return the tokens of the environment.

    Args:
        tokens_path: The file with more tokens.
        addresses: The addresses by option; they must be local unless there are tokens.

    Raises:
        ConfigError: An address is open to other machines, and a token is missing.
    """
    from ..ingest import Access

    access = Access.of(
        ingest=os.environ.get("OTEVAL_INGEST_TOKEN", ""),
        read=os.environ.get("OTEVAL_READ_TOKEN", ""),
        write=os.environ.get("OTEVAL_WRITE_TOKEN", ""),
    )
    entries = load_tokens(tokens_path) if tokens_path else []
    permissions = {token.may for token in access.tokens} | {entry.may for entry in entries}
    if "ingest" not in permissions or not permissions & {"read", "write"}:
        for option, address in addresses.items():
            if address:
                require_local(option, split_address(address)[0], _REMEDY)
    return access


def _bytes(option: str, text: str, least: int) -> int:
    match = _SIZE.match(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size < least:
        raise ConfigError(f"{option} {text!r}: write a size such as 64MB, at least {least} bytes")
    return size
