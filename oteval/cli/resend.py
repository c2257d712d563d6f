"""``oteval resend``: what an endpoint refused for good, sent again."""

from __future__ import annotations

from pathlib import Path

import click

from ..config import DEFAULT_PATH, Config, load_config
from ..errors import ConfigError
from .common import db_option, out, warn

__all__ = ["resend"]

_MOST_NAMED = 5


@click.command()
@click.option(
    "-c", "--config", "config_path", help="The file with the endpoints; else oteval.yaml."
)
@click.option("--forward", metavar="URL", help="Send traces here, whatever the file says.")
@db_option
def resend(config_path: str | None, forward: str | None, db: str) -> int:
    """Send again what the endpoints of `oteval serve` refused for good.

    A request that an endpoint will never take (status 400 and the like) is kept in a folder beside
    the queue, and what comes after it goes on. Once the endpoint is changed, this sends the kept
    ones, the oldest first, and deletes each that is taken; a server may run meanwhile. Exit
    status 2 when something stays.
    """
    # Only who sends pays for the imports.
    from ..attach import resend as resend_requests
    from ..live.publisher import refused_folders
    from ..live.server_config import ServerConfig

    queues = ServerConfig(db=str(Path(db).absolute())).queues
    folders = refused_folders(_config(config_path), queues, forward_url=forward)
    if not folders:
        raise ConfigError("no endpoint: give --forward URL, or -c FILE with forward or events")
    status, is_empty = 0, True
    for folder, client in folders:
        sent, refused = 0, 0
        for path, result in resend_requests(folder, client):
            is_empty = False
            if result.is_accepted:
                sent += 1
                continue
            status, refused = 2, refused + result.is_refused
            if refused <= _MOST_NAMED:
                again = "refused again" if result.is_refused else "not taken, the rest is not tried"
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
