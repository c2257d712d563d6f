"""The names of `oteval.model`; `__init__.py` loads them from here, and type checkers read it."""

from .cases import CASE_ATTRIBUTES as CASE_ATTRIBUTES
from .cases import LONGEST_CASE as LONGEST_CASE
from .cases import case_text as case_text
from .cases import first_attribute as first_attribute
from .cases import normal_text as normal_text
from .cases import turn_case_id as turn_case_id
from .experiment import (
    Dataset as Dataset,
)
from .experiment import (
    Example as Example,
)
from .experiment import (
    Experiment as Experiment,
)
from .experiment import (
    Feedback as Feedback,
)
from .experiment import (
    Run as Run,
)
from .experiment import (
    Vote as Vote,
)
from .experiment import (
    example_id as example_id,
)
from .experiment import (
    question_of as question_of,
)
from .finish_reasons import (
    ANSWERED as ANSWERED,
)
from .finish_reasons import (
    normal_finish_reason as normal_finish_reason,
)
from .finish_reasons import (
    unusual_reasons as unusual_reasons,
)
from .outline import (
    Fact as Fact,
)
from .outline import (
    Outline as Outline,
)
from .outline import (
    OutlineRequest as OutlineRequest,
)
from .recording import (
    Chunk as Chunk,
)
from .recording import (
    Exchange as Exchange,
)
from .recording import (
    Fidelity as Fidelity,
)
from .recording import (
    RecordedAnswer as RecordedAnswer,
)
from .recording import (
    RecordedModelCall as RecordedModelCall,
)
from .recording import (
    RecordedRequest as RecordedRequest,
)
from .recording import (
    RecordedToolCall as RecordedToolCall,
)
from .recording import (
    Recording as Recording,
)
from .score import (
    EvaluationResult as EvaluationResult,
)
from .score import (
    Label as Label,
)
from .score import (
    Reference as Reference,
)
from .score import (
    Score as Score,
)
from .score import (
    ScoredRun as ScoredRun,
)
from .score import (
    Status as Status,
)
from .score import (
    has_unknown_cost as has_unknown_cost,
)
from .score import (
    reported_cost as reported_cost,
)
from .span_columns import (
    AttributeColumns as AttributeColumns,
)
from .span_columns import (
    Slices as Slices,
)
from .span_columns import (
    SpanColumns as SpanColumns,
)
from .span_columns import (
    SpanOrigin as SpanOrigin,
)
from .telemetry import (
    SCORE_ATTRIBUTES as SCORE_ATTRIBUTES,
)
from .telemetry import (
    Attributes as Attributes,
)
from .telemetry import (
    Event as Event,
)
from .telemetry import (
    Link as Link,
)
from .telemetry import (
    LogRecord as LogRecord,
)
from .telemetry import (
    Span as Span,
)
from .telemetry import (
    is_completed_by as is_completed_by,
)
from .trajectory import (
    ANSWER_ONLY as ANSWER_ONLY,
)
from .trajectory import (
    CALL_GAPS as CALL_GAPS,
)
from .trajectory import (
    CONTENT_GAPS as CONTENT_GAPS,
)
from .trajectory import (
    DAMAGED_CONTENT_GAPS as DAMAGED_CONTENT_GAPS,
)
from .trajectory import (
    FAILED_REQUEST as FAILED_REQUEST,
)
from .trajectory import (
    FAILURE_GAPS as FAILURE_GAPS,
)
from .trajectory import (
    FOLLOWS_ANSWER as FOLLOWS_ANSWER,
)
from .trajectory import (
    PROVIDER as PROVIDER,
)
from .trajectory import (
    RETRY_WAIT_NS as RETRY_WAIT_NS,
)
from .trajectory import (
    UNREAD_MODEL_GAPS as UNREAD_MODEL_GAPS,
)
from .trajectory import (
    Gap as Gap,
)
from .trajectory import (
    Message as Message,
)
from .trajectory import (
    RetrievedDocument as RetrievedDocument,
)
from .trajectory import (
    Rewrite as Rewrite,
)
from .trajectory import (
    Role as Role,
)
from .trajectory import (
    SpanRef as SpanRef,
)
from .trajectory import (
    ToolCall as ToolCall,
)
from .trajectory import (
    Trajectory as Trajectory,
)
from .trajectory import (
    gaps_of_calls as gaps_of_calls,
)
from .trajectory import (
    trajectory_id as trajectory_id,
)
from .usage import (
    NO_TOKENS as NO_TOKENS,
)
from .usage import (
    TokenCounts as TokenCounts,
)
from .usage import (
    Usage as Usage,
)
from .usage import (
    count_of as count_of,
)
from .usage import (
    read_tokens as read_tokens,
)
from .usage import (
    span_tokens as span_tokens,
)
from .write_result import WriteResult as WriteResult
