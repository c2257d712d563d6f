"""``oteval resend``: send requests again that an endpoint refused."""

from __future__ import annotations

from pathlib import Path

import click

from ..base.errors import ConfigError
from ..scoring import Config
from .common import db_option, out, warn
from .options import default_config, default_config_option

__all__ = ["resend"]

_MAX_SHOWN = 5


@click.command()
@default_config_option("The file with the endpoints.")
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

    config = default_config(config_path) or Config.model_construct(evaluators=[])
    queues = ServerConfig(db=str(Path(db).absolute())).queues
    folders = refused_folders(config, queues, forward_url=forward)
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
