"""What `oteval serve` is told: by its command line, for both of its processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..ingest.spool import QUOTA

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """How a server runs; secrets are not among it.

    Attributes:
        db: The database.
        config: oteval.yaml, "" to score nothing.
        may_lack_config: Whether that file may come later; nothing is scored until then.
        http: ``host:port`` of the HTTP server; port 0 takes any.
        grpc: That of the gRPC server, "" for none.
        forward: Where traces go on to; "" for what the configuration says.
        quota: How many bytes may wait to be stored.
        limit: The most bytes of one request, decompressed.
        grace: How many seconds are given to what is not stored yet when the server stops.
        log_format: ``json`` or ``text``.
        memory: How many MB the database may take; doubled when they do not suffice.
        tokens: The file of tokens, "" for none.
        notice: What the file beside the database says of the server.
    """

    db: str
    config: str = ""
    may_lack_config: bool = False
    http: str = "127.0.0.1:4318"
    grpc: str = "127.0.0.1:4317"
    forward: str = ""
    quota: int = QUOTA
    limit: int = 64 << 20
    grace: float = 10.0
    log_format: str = "text"
    memory: int = 256
    tokens: str = ""
    notice: dict[str, Any] = field(default_factory=dict)

    @property
    def spool(self) -> Path:
        """The folder of what is not stored yet."""
        return Path(f"{self.db}.spool")

    @property
    def config_copy(self) -> Path:
        """The last configuration that could be read, for a storing process that starts again."""
        return self.spool / "oteval.yaml"

    @property
    def queues(self) -> Path:
        """The folder of what is not sent on yet."""
        return Path(f"{self.db}.forward")

    def text(self) -> str:
        """Return them for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Settings:
        """Return the settings of `text`."""
        return cls(**json.loads(text))
