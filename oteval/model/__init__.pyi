"""The names of `oteval.model` for other rooms; `__init__.py` loads them on first use."""

from . import (
    semconv as semconv,
)
from .cases import (
    CASE_ATTRIBUTES as CASE_ATTRIBUTES,
    LONGEST_CASE as LONGEST_CASE,
    case_text as case_text,
    first_attribute as first_attribute,
    normal_text as normal_text,
    turn_case_id as turn_case_id,
)
from .columns import (
    COLUMNS as COLUMNS,
    FIELDS as FIELDS,
    GROUPS as GROUPS,
    LISTED as LISTED,
    LONGEST_ASKED as LONGEST_ASKED,
    MEASURES as MEASURES,
    RowColumn as RowColumn,
    RunColumn as RunColumn,
    RunRow as RunRow,
    RunValues as RunValues,
    call_errors as call_errors,
    call_results as call_results,
    column_values as column_values,
    group_text as group_text,
    items_of as items_of,
)
from .experiment import (
    Dataset as Dataset,
    Example as Example,
    Experiment as Experiment,
    Feedback as Feedback,
    Run as Run,
    Vote as Vote,
    example_id as example_id,
    question_of as question_of,
)
from .finish_reasons import (
    ANSWERED as ANSWERED,
    normal_finish_reason as normal_finish_reason,
    unusual_reasons as unusual_reasons,
)
from .http_exchanges import (
    EVENT_NAME as EVENT_NAME,
    UnreadableExchange as UnreadableExchange,
    from_log as from_log,
    to_event as to_event,
)
from .identities import (
    IDENTITIES as IDENTITIES,
    IDENTITY_KEYS as IDENTITY_KEYS,
    conversation_id as conversation_id,
    identity as identity,
    identity_in as identity_in,
    name_attribute as name_attribute,
    own_attribute as own_attribute,
    own_attributes as own_attributes,
    own_names as own_names,
    own_value as own_value,
    user_of as user_of,
    version_of as version_of,
)
from .outline import (
    Fact as Fact,
    Outline as Outline,
    OutlineRequest as OutlineRequest,
)
from .prices import (
    Price as Price,
    Prices as Prices,
    list_version as list_version,
    make_prices as make_prices,
    require_price as require_price,
)
from .record_class import record as record
from .recording import (
    Chunk as Chunk,
    Exchange as Exchange,
    Fidelity as Fidelity,
    RecordedAnswer as RecordedAnswer,
    RecordedModelCall as RecordedModelCall,
    RecordedRequest as RecordedRequest,
    RecordedToolCall as RecordedToolCall,
    Recording as Recording,
)
from .score import (
    EvaluationResult as EvaluationResult,
    Label as Label,
    Reference as Reference,
    Score as Score,
    ScoredRun as ScoredRun,
    Status as Status,
    VerdictState as VerdictState,
    has_unknown_cost as has_unknown_cost,
    reported_cost as reported_cost,
)
from .selection import (
    EVERYTHING as EVERYTHING,
    Condition as Condition,
    Selection as Selection,
    parse_asked as parse_asked,
    parse_condition as parse_condition,
    select as select,
    time_of as time_of,
)
from .semconv import (
    INVOCATION_ID as INVOCATION_ID,
    PROCESS as PROCESS,
    THREAD as THREAD,
    first as first,
    named_event as named_event,
)
from .span_columns import (
    AttributeColumns as AttributeColumns,
    Slices as Slices,
    SpanColumns as SpanColumns,
    SpanOrigin as SpanOrigin,
)
from .tables import (
    TABLES as TABLES,
    CallRow as CallRow,
    ExperimentResultRow as ExperimentResultRow,
    MessageRow as MessageRow,
    TableName as TableName,
    cell as cell,
    is_list as is_list,
)
from .telemetry import (
    SCORE_ATTRIBUTES as SCORE_ATTRIBUTES,
    Attributes as Attributes,
    Event as Event,
    Link as Link,
    LogRecord as LogRecord,
    Span as Span,
    is_completed_by as is_completed_by,
)
from .trajectory import (
    ANSWER_ONLY as ANSWER_ONLY,
    CALL_GAPS as CALL_GAPS,
    CONTENT_GAPS as CONTENT_GAPS,
    DAMAGED_CONTENT_GAPS as DAMAGED_CONTENT_GAPS,
    FAILED_REQUEST as FAILED_REQUEST,
    FAILURE_GAPS as FAILURE_GAPS,
    FOLLOWS_ANSWER as FOLLOWS_ANSWER,
    PROVIDER as PROVIDER,
    RETRY_WAIT_NS as RETRY_WAIT_NS,
    UNREAD_MODEL_GAPS as UNREAD_MODEL_GAPS,
    Gap as Gap,
    Message as Message,
    RetrievedDocument as RetrievedDocument,
    Rewrite as Rewrite,
    Role as Role,
    SpanRef as SpanRef,
    ToolCall as ToolCall,
    Trajectory as Trajectory,
    gaps_of_calls as gaps_of_calls,
    trajectory_id as trajectory_id,
)
from .usage import (
    NO_TOKENS as NO_TOKENS,
    TokenCounts as TokenCounts,
    Usage as Usage,
    count_of as count_of,
    read_tokens as read_tokens,
    span_tokens as span_tokens,
)
from .write_result import (
    MAX_CONFLICTS as MAX_CONFLICTS,
    WriteResult as WriteResult,
)
