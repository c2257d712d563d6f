"""The names of `oteval.messages` for other rooms; `__init__.py` loads them on first use."""

from .body import (
    NO_SOURCE as NO_SOURCE,
    MessageSource as MessageSource,
    as_list as as_list,
    of_span as of_span,
    stamped as stamped,
)
from .call_outcome import (
    RULE_VERSION as RULE_VERSION,
    CallOutcome as CallOutcome,
    decided as decided,
    near_miss_of as near_miss_of,
    outcome_of as outcome_of,
    outcome_of_message as outcome_of_message,
    recorded_outcome as recorded_outcome,
)
from .direct import (
    read_direct as read_direct,
)
from .facts import (
    FEW_MESSAGES as FEW_MESSAGES,
    facts_of as facts_of,
    is_glued as is_glued,
    is_without_content as is_without_content,
    separated as separated,
)
from .forms import (
    ROLE_NAMES as ROLE_NAMES,
    ROLES as ROLES,
    SYSTEM_ROLES as SYSTEM_ROLES,
    fields_of as fields_of,
    forms_of as forms_of,
    role_of as role_of,
)
from .genai import (
    write_messages as write_messages,
)
from .kinds import (
    first_of as first_of,
    is_missing_text as is_missing_text,
    is_reasoning as is_reasoning,
    reasoning_text as reasoning_text,
    unknown_kind as unknown_kind,
)
from .langchain import (
    messages as messages,
)
from .parts import (
    is_explicit as is_explicit,
    read_call as read_call,
)
from .provider_calls import (
    ModelAnswer as ModelAnswer,
    ModelRequest as ModelRequest,
    answer_of as answer_of,
    call_part as call_part,
    definitions as definitions,
    from_blocks as from_blocks,
    from_candidate as from_candidate,
    last_message_in as last_message_in,
    last_message_of as last_message_of,
    request_of as request_of,
    response_id_of as response_id_of,
    result_of as result_of,
    result_part as result_part,
    system_messages as system_messages,
    system_prompt_of as system_prompt_of,
)
from .python_objects import (
    field_of as field_of,
    literal_of as literal_of,
    object_of as object_of,
    plain_data as plain_data,
)
from .read_cache import (
    active as active,
    folded as folded,
    reading_once as reading_once,
)
from .reader import (
    EVENT_ROLES as EVENT_ROLES,
    MessageCollector as MessageCollector,
    choices as choices,
    from_event as from_event,
    from_messages as from_messages,
    join_neighbours as join_neighbours,
    repeated_message as repeated_message,
    text_message as text_message,
    tool_definitions as tool_definitions,
)
from .tool_results import content_of as content_of, returned_value as returned_value
from .values import (
    decoded as decoded,
    decoded_text as decoded_text,
    hidden as hidden,
    list_of as list_of,
    mapping_of as mapping_of,
    mappings_of as mappings_of,
    parse as parse,
    parse_arguments as parse_arguments,
    text_of as text_of,
)
