"""The names of `oteval.serve` for other rooms; `__init__.py` loads them on first use."""

from .announced_scores import (
    AnnouncedVerdict as AnnouncedVerdict,
    config_and_folder as config_and_folder,
    score_and_announce as score_and_announce,
)
from .destinations import (
    refused_folders as refused_folders,
)
from .inprocess import (
    InProcess as InProcess,
)
from .listener_process import (
    Tls as Tls,
    serve as serve,
)
from .publish.request_log import resend as resend
from .server_config import (
    ServerConfig as ServerConfig,
    configure_logging as configure_logging,
)
