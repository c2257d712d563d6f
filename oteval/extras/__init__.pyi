"""The names of `oteval.extras` for other rooms; `__init__.py` loads them on first use."""

from . import spark as spark
from .backends.connections import (
    SOURCES as SOURCES,
    TARGETS as TARGETS,
    open_source as open_source,
    open_target as open_target,
)
from .backends.transfer import (
    PullReport as PullReport,
    pull as pull,
    push as push,
)
from .spark import (
    FileProblems as FileProblems,
)
from .spark.job import (
    score_files as score_files,
)
from .spark.output import (
    local_results as local_results,
    require_free as require_free,
)
from .spark.session import (
    parse_settings as parse_settings,
    spark_session as spark_session,
)
