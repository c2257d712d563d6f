"""``oteval resend``: send requests again that an endpoint refused."""

from __future__ import annotations

from pathlib import Path

import click

from ..base.errors import ConfigError
from ..scoring import DEFAULT_PATH, Config, load_config
from .common import db_option, out, warn

__all__ = ["resend"]

_MAX_SHOWN = 5


@click.command()
@click.option(
    "-c",
    "--config",
    "config_path",
    help="The file with the endpoints.  [default: oteval.yaml]",
)
@click.option(
    "--forward", metavar="URL", help="Send traces to this endpoint instead of the file's."
)
@db_option
def resend(config_path: str | None, forward: str | None, db: str) -> int:
    """Send requests again that an endpoint refused.

    If an endpoint permanently refuses a request (status 400 and the like), `oteval serve` moves it
    to a folder beside the queue and continues with the next one. After the endpoint is fixed, this
    sends the refused requests, oldest first, and deletes each one that is accepted. A server may
    run at the same time. The exit status is 2 if requests remain.
    """
    # Imported only when sending.
    from ..serve import ServerConfig, refused_folders, resend as resend_requests

    queues = ServerConfig(db=str(Path(db).absolute())).queues
    folders = refused_folders(_config(config_path), queues, forward_url=forward)
    if not folders:
        raise ConfigError(
            "no endpoint: give --forward URL, or -c FILE with `forward`, `events` or `push`"
        )
    status, is_empty = 0, True
    for folder, client in folders:
        sent, refused = 0, 0
        for path, result in resend_requests(folder, client):
            is_empty = False
            if result.is_accepted:
                sent += 1
                continue
            status, refused = 2, refused + result.is_refused
            if refused <= _MAX_SHOWN:
                again = "refused again" if result.is_refused else "not accepted; stopping here"
                warn(f"{path}: {again}: {result.status or 'no answer'} {result.reason}")
        client.close()
        if sent or refused:
            out().print(f"{client.url}: {sent} sent, {refused} refused again")
    if is_empty:
        out().print("nothing was refused")
    return status


def _config(path: str | None) -> Config:
    if path is None and not Path(DEFAULT_PATH).exists():
        return Config.model_construct(evaluators=[])
    return load_config(path or DEFAULT_PATH)
