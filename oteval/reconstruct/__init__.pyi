"""The names of `oteval.reconstruct` for other rooms; `__init__.py` loads them on first use."""

from .apis import (
    ModelApi as ModelApi,
    api_named as api_named,
    api_of as api_of,
)
from .apis.model_api import (
    is_event_stream as is_event_stream,
    json_object as json_object,
    offered_tools as offered_tools,
    read_events as read_events,
)
from .conversation import (
    TracedTrajectory as TracedTrajectory,
    trajectories_of as trajectories_of,
)
from .dialect import (
    AgentRun as AgentRun,
    ModelCall as ModelCall,
    ToolRun as ToolRun,
)
from .dialects import (
    DIALECTS as DIALECTS,
)
from .entries import (
    key_of as key_of,
)
from .exchange_calls import (
    recorded_call as recorded_call,
)
from .gaps import (
    CODES as CODES,
)
from .readers.spans import (
    error_text as error_text,
)
from .reconstruction import (
    explain as explain,
    failed_trajectory as failed_trajectory,
    reconstruct as reconstruct,
    reconstruct_with_runs as reconstruct_with_runs,
)
from .runs import (
    TracedRun as TracedRun,
)
from .span_accounts import (
    Explanation as Explanation,
    SpanAccount as SpanAccount,
    accounts_of_some as accounts_of_some,
    in_order as in_order,
)
from .tree import (
    Node as Node,
)
