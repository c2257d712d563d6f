"""The names of `oteval.replays` for other rooms; `__init__.py` loads them on first use."""

from . import testing as testing
from .cassettes import (
    CASSETTE_FILES as CASSETTE_FILES,
    cassette_exchanges as cassette_exchanges,
    write_cassette as write_cassette,
)
from .command_runner import (
    CommandRunner as CommandRunner,
)
from .divergence import (
    Divergence as Divergence,
)
from .frozen import (
    FREEZABLE as FREEZABLE,
)
from .mcp_server import (
    serve_stdio as serve_stdio,
)
from .player import (
    MISSES as MISSES,
    Miss as Miss,
    Player as Player,
    Tools as Tools,
)
from .recording_files import (
    load as load,
    recording_bytes as recording_bytes,
    save as save,
)
from .recordings import (
    read_recording as read_recording,
    recordings_in as recordings_in,
)
from .redacted_recordings import (
    redacted_recording as redacted_recording,
)
from .replay_result import (
    ReplayResult as ReplayResult,
)
from .samples import (
    SampleCount as SampleCount,
    SampledOutcome as SampledOutcome,
)
from .server import (
    TOKEN_VARIABLE as TOKEN_VARIABLE,
    ReplayServer as ReplayServer,
    client_environment as client_environment,
    signals_end_the_server as signals_end_the_server,
)
from .target import (
    InputForm as InputForm,
    accepted_keywords as accepted_keywords,
    turn_inputs as turn_inputs,
    unreplayable as unreplayable,
)
from .tool_gate import (
    tool_functions as tool_functions,
)
from .tool_ladder import (
    TOOL_POLICIES as TOOL_POLICIES,
    Coverage as Coverage,
)
from .verification import (
    ReplayOptions as ReplayOptions,
    SessionRunner as SessionRunner,
    TargetRunner as TargetRunner,
    verify as verify,
)
from .verified import (
    VerifiedSession as VerifiedSession,
    exit_status as exit_status,
)
from .verify_worker import (
    default_keys as default_keys,
)
from .what_if_session import (
    WhatIfOptions as WhatIfOptions,
)
from .whatif import (
    AFTER_FAULT as AFTER_FAULT,
    WhatIf as WhatIf,
    WhatIfResults as WhatIfResults,
    WhatIfRow as WhatIfRow,
)
from .written_tests import (
    AgentCall as AgentCall,
    WrittenTest as WrittenTest,
    pytest_file as pytest_file,
    reference_text as reference_text,
    session_name as session_name,
)
