"""The names of `oteval.record` for other rooms; `__init__.py` loads them on first use."""

from .agent_files import (
    function_line as function_line,
    is_agent_file as is_agent_file,
    is_agent_module as is_agent_module,
    shown_file as shown_file,
)
from .bootstrap import (
    FOLDER as FOLDER,
    VARIABLE as VARIABLE,
    environment as environment,
    read_reports as read_reports,
)
from .class_kinds import (
    class_name as class_name,
    main_module as main_module,
)
from .conventions import (
    AGENT_RETURNED as AGENT_RETURNED,
    OF_OBJECTS as OF_OBJECTS,
    TOOL_FUNCTION as TOOL_FUNCTION,
    TOOL_RAISED as TOOL_RAISED,
    TOOL_RETURNED as TOOL_RETURNED,
)
from .doctor import (
    DoctorReport as DoctorReport,
    examine as examine,
)
from .exchanged_code import (
    RUN as RUN,
    LateResult as LateResult,
    nested_codes as nested_codes,
)
from .foreground_process import (
    CANNOT_START as CANNOT_START,
    NOT_FOUND as NOT_FOUND,
    run_foreground as run_foreground,
)
from .hooks import (
    AgentEnd as AgentEnd,
    AnswerDelay as AnswerDelay,
    ReturnedValue as ReturnedValue,
    ToolAnswer as ToolAnswer,
    ToolHook as ToolHook,
    adopt_tool_hook as adopt_tool_hook,
    current_tool_hook as current_tool_hook,
    give_answer as give_answer,
    recorded_error as recorded_error,
    reset_tool_hook as reset_tool_hook,
    set_tool_hook as set_tool_hook,
)
from .instrumented_command import (
    ChildSettings as ChildSettings,
    RunResult as RunResult,
    default_service as default_service,
    run_command as run_command,
    service_of as service_of,
)
from .observed_targets import (
    observed_targets as observed_targets,
)
from .parameters import (
    argument_forms as argument_forms,
)
from .span_capture import (
    Capture as Capture,
    capture as capture,
)
from .tool_functions import (
    ToolFunction as ToolFunction,
    functions_of_tools as functions_of_tools,
    has_function_of as has_function_of,
    live_objects as live_objects,
    named_function as named_function,
)
from .typed_values import (
    TooManyParts as TooManyParts,
    UnrestorableValue as UnrestorableValue,
    encoded as encoded,
    form_of as form_of,
    restored as restored,
    typed_text as typed_text,
)
from .value_kinds import (
    Awaited as Awaited,
    Cancelled as Cancelled,
    Generated as Generated,
)
from .wire.interception import (
    CLIENTS as CLIENTS,
    add as add,
    library_of as library_of,
)
from .wire.recorder import (
    ExchangeRecorder as ExchangeRecorder,
)
from .wire.request_headers import (
    compared_headers as compared_headers,
    is_checksum as is_checksum,
    is_same_header as is_same_header,
    recorded_headers as recorded_headers,
)
