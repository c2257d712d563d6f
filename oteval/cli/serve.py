"""``oteval serve``: traces in over OTLP, scores back on them."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import re
from pathlib import Path

import click
from click.core import ParameterSource

from ..config import DEFAULT_PATH, load_tokens
from ..errors import ConfigError
from .common import db_option, warn

__all__ = ["serve"]

_PACKAGES = ("grpc", "httptools", "prometheus_client", "starlette", "uvicorn")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?$", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@click.command()
@click.option(
    "-c", "--config", "config_path", default=DEFAULT_PATH, show_default=True, help="What to score."
)
@db_option
@click.option("--http", default="127.0.0.1:4318", show_default=True, help="OTLP/HTTP and the rest.")
@click.option("--grpc", default="127.0.0.1:4317", show_default=True, help='OTLP/gRPC; "" for none.')
@click.option(
    "--forward",
    metavar="URL",
    default="",
    help="Send all on to this OTLP endpoint: http, https, grpc or grpcs (TLS) before ://HOST:PORT.",
)
@click.option("--insecure", is_flag=True, help="Listen beyond this machine without tokens.")
@click.option("--tls-cert", type=click.Path(dir_okay=False), help="The certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(dir_okay=False), help="Its key, PEM.")
@click.option(
    "--tls-client-ca",
    type=click.Path(dir_okay=False),
    help="Take only clients with a certificate of these authorities, PEM.",
)
@click.option(
    "--tokens",
    "tokens_path",
    type=click.Path(dir_okay=False),
    help="A YAML file of tokens by name; read again when it changes.",
)
@click.option("--quota", default="4GB", show_default=True, help="The most that may wait on disk.")
@click.option("--max-request", default="64MB", show_default=True, help="The most of one request.")
@click.option(
    "--grace", type=click.FloatRange(min=0), default=10.0, show_default=True,
    help="Seconds to store what is spooled when the server stops.",
)  # fmt: skip
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="How log lines are written to standard error.",
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
    log_format: str,
) -> int:
    """Receive traces over OTLP, store and score them, and give the scores back.

    Point any OTLP exporter or Collector at it. What is acknowledged is on disk. The other commands
    work while it runs. OTEVAL_INGEST_TOKEN and OTEVAL_READ_TOKEN are the tokens that senders and
    readers must have, beside those of --tokens; without them it listens on this machine only.
    SIGHUP has it read the configuration and the tokens again, SIGTERM ends it.
    """
    for name in _PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f'oteval serve needs more packages: pip install "oteval[serve]" ({name})'
            )
    from ..ingest.receiver.auth import Access
    from ..live.listener_process import Tls, split_address
    from ..live.listener_process import serve as run
    from ..live.server_config import ServerConfig

    access = Access.of(
        ingest=os.environ.get("OTEVAL_INGEST_TOKEN", ""),
        read=os.environ.get("OTEVAL_READ_TOKEN", ""),
    )
    entries = load_tokens(tokens_path) if tokens_path else []
    permissions = {token.may for token in access.tokens} | {entry.may for entry in entries}
    if bool(tls_cert) != bool(tls_key):
        raise ConfigError("give both --tls-cert and --tls-key, or neither")
    if tls_client_ca and not tls_cert:
        raise ConfigError("--tls-client-ca needs --tls-cert and --tls-key")
    for option, address in (("--http", http), ("--grpc", grpc)):
        if address and not insecure and permissions != {"ingest", "read"}:
            _refuse_open(option, split_address(address)[0])
    given = context.get_parameter_source("config_path") is not ParameterSource.DEFAULT
    if not given and not Path(config_path).exists():
        warn(f"no {config_path}: traces are stored, and scored as soon as that file is there")
    config = ServerConfig(
        db=str(Path(db).absolute()),
        config=str(Path(config_path).absolute()) if config_path else "",
        may_lack_config=not given,
        http=http,
        grpc=grpc,
        forward=forward,
        quota=_bytes("--quota", quota, 16 << 20),
        limit=_bytes("--max-request", max_request, 1 << 10),
        grace=grace,
        log_format=log_format,
        tokens=str(Path(tokens_path).absolute()) if tokens_path else "",
    )
    if config.limit > config.quota // 4:
        raise ConfigError("--max-request may be a quarter of --quota at most")
    tls = Tls(tls_cert, tls_key, tls_client_ca or "") if tls_cert and tls_key else None
    run(config, access, tls, lambda line: warn(f"listening on {line}"))
    return 0


def _refuse_open(option: str, host: str) -> None:
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local:
        raise ConfigError(
            f"{option} {host or '*'} can be reached from elsewhere: set OTEVAL_INGEST_TOKEN and "
            "OTEVAL_READ_TOKEN or give --tokens for both, or give --insecure"
        )


def _bytes(option: str, text: str, least: int) -> int:
    found = _SIZE.match(text.strip())
    size = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if size < least:
        raise ConfigError(f"{option} {text!r}: write a size such as 64MB; {least} bytes at least")
    return size
