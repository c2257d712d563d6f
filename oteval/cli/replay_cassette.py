"""``oteval replay cassette``: sessions to vcrpy's cassettes, and cassettes to recordings."""

from __future__ import annotations

from pathlib import Path

import click

from ..base.errors import ConfigError, NothingEvaluated
from ..base.redaction.secrets import SecretRedactor
from ..base.text import counted
from ..model import EVERYTHING
from ..replays import CASSETTE_FILES, cassette_exchanges, redacted_recording, save, write_cassette
from .common import databases_option, say, warn
from .replay import recordings_of, replay
from .replay_test import redaction_config_option, redaction_rules

__all__ = ["cassette"]


@replay.command()
@click.argument("source", metavar="SESSION|FILE")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="The file to write: .yaml or .json for a cassette, .jsonl or .jsonl.gz for a recording.",
)
@click.option(
    "--base-url",
    default="",
    metavar="URL",
    help="The model's address in requests that are rebuilt.  [default: the provider's]",
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
@redaction_config_option
@databases_option
def cassette(
    source: str,
    output: str,
    base_url: str,
    force: bool,
    config_path: str | None,
    db: tuple[str, ...],
) -> int:
    """Convert a session to a cassette of vcrpy, or a cassette back.

    The source is the id of a session, the file of a recording, or a cassette (.yaml, .yml, .json).
    Secrets are removed. Commands and tests that take the file of a recording take a cassette as
    well.

    Exit status: 0 the file is written, 2 an error, 3 the source has no HTTP exchange.
    """
    path = Path(output)
    if not path.name.endswith((*CASSETTE_FILES, ".jsonl", ".jsonl.gz")):
        raise ConfigError(f"-o {output}: name a .yaml or .json cassette, or a .jsonl recording")
    if path.exists() and not force:
        raise ConfigError(f"{output}: exists; --force overwrites it")
    with recordings_of([source], db, EVERYTHING) as (recordings, _):
        recording = next(iter(recordings))
    recording = redacted_recording(recording, SecretRedactor(redaction_rules(config_path)))
    exchanges = cassette_exchanges(recording, base_url=base_url)
    if not exchanges:
        why = f": {recording.reasons[0]}" if recording.reasons else ""
        raise NothingEvaluated(f"{source}: nothing to write{why}")
    if path.name.endswith(CASSETTE_FILES):
        count = write_cassette(exchanges, path)
    else:
        save(recording, path)
        count = len(recording.model_calls) + len(recording.exchanges)
    say(f"{path}: {counted(count, 'exchange')}, fidelity {recording.fidelity}")
    for reason in recording.reasons:
        warn(reason)
    return 0
