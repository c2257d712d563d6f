"""The names of `oteval.store` for other rooms; `__init__.py` loads them on first use."""

from .agent_figures import (
    AgentRuns as AgentRuns,
    AgentVerdicts as AgentVerdicts,
)
from .archive import (
    ArchiveReport as ArchiveReport,
)
from .arrow_rows import (
    table_of as table_of,
)
from .backup import (
    CopyReport as CopyReport,
)
from .column_sql import usage_of as usage_of, usages_of as usages_of
from .connection import (
    MEMORY as MEMORY,
)
from .database import (
    Store as Store,
    StoreContents as StoreContents,
)
from .deletion import (
    AuditEntry as AuditEntry,
    DeletedRows as DeletedRows,
)
from .evaluator_figures import (
    EvaluatorVerdicts as EvaluatorVerdicts,
    ScoreBin as ScoreBin,
    VerdictCounts as VerdictCounts,
)
from .experiments import (
    ExperimentState as ExperimentState,
    KeyCounts as KeyCounts,
    ListedExperiment as ListedExperiment,
)
from .exported_rows import (
    LOG_NAMES as LOG_NAMES,
    SPAN_NAMES as SPAN_NAMES,
    exported_logs as exported_logs,
    exported_spans as exported_spans,
)
from .label_queue import (
    QUEUES as QUEUES,
    LabelledEvaluator as LabelledEvaluator,
    Queue as Queue,
)
from .live_state import (
    CompletedTrace as CompletedTrace,
    EvaluationState as EvaluationState,
    EvaluatorProgress as EvaluatorProgress,
    JustEnded as JustEnded,
    TraceArrival as TraceArrival,
    is_store_failure as is_store_failure,
)
from .memory import (
    ONE_THREAD_ROW as ONE_THREAD_ROW,
    WIDE_MEMORY_FACTOR as WIDE_MEMORY_FACTOR,
    ReadLimit as ReadLimit,
    is_short_of_memory as is_short_of_memory,
    small_arrow as small_arrow,
)
from .monitors import (
    GroupRow as GroupRow,
    Monitors as Monitors,
    StoredEpisode as StoredEpisode,
    StoredMark as StoredMark,
    StoredMonitor as StoredMonitor,
    learning_rows as learning_rows,
)
from .observations import (
    ObservationReader as ObservationReader,
    ObservationSource as ObservationSource,
    ReadPosition as ReadPosition,
)
from .outbox import (
    Notification as Notification,
    NotificationOutbox as NotificationOutbox,
)
from .outlines import (
    Outlines as Outlines,
)
from .query import (
    is_conflict as is_conflict,
    is_exact as is_exact,
    repeated as repeated,
    rows_of as rows_of,
)
from .ranges import (
    EVERYWHERE as EVERYWHERE,
    MAX_WIDE_RANGES as MAX_WIDE_RANGES,
    ROW_GROUP as ROW_GROUP,
    Range as Range,
    merge_ranges as merge_ranges,
)
from .related_traces import (
    LooseRun as LooseRun,
)
from .remote_client import (
    ServerNotice as ServerNotice,
)
from .remote_server import (
    DatabaseServer as DatabaseServer,
)
from .result_folder import (
    FORMAT as FORMAT,
    RESULTS as RESULTS,
    UNFINISHED as UNFINISHED,
    ResultFolder as ResultFolder,
    is_result_folder as is_result_folder,
    read_result_folder as read_result_folder,
)
from .row_tables import (
    Relation as Relation,
    RowTables as RowTables,
)
from .run_fields import (
    RunExpression as RunExpression,
    RunFunction as RunFunction,
    RunGroups as RunGroups,
    split_at as split_at,
    split_by as split_by,
)
from .run_list import (
    ConversationRuns as ConversationRuns,
    RunKey as RunKey,
    StoreState as StoreState,
    VerdictFilter as VerdictFilter,
)
from .run_statistics import (
    CaseComparison as CaseComparison,
    SelectedRuns as SelectedRuns,
)
from .run_windows import (
    DIMENSIONS as DIMENSIONS,
    RunWindow as RunWindow,
    RunWindows as RunWindows,
)
from .scores import (
    SCORE_ROWS as SCORE_ROWS,
    Outcome as Outcome,
    score_rows as score_rows,
)
from .sessions import (
    StoredSession as StoredSession,
)
from .sharded import (
    PATIENCE as PATIENCE,
    ShardedStore as ShardedStore,
    SplitTrace as SplitTrace,
    is_up_to_date as is_up_to_date,
)
from .span_column_rows import (
    span_column_table as span_column_table,
)
from .spans import (
    SpanBatch as SpanBatch,
    WriteResult as WriteResult,
)
from .telemetry_rows import (
    LOG_SCHEMA as LOG_SCHEMA,
    SPAN_COLUMNS as SPAN_COLUMNS,
    SPAN_SCHEMA as SPAN_SCHEMA,
    log_of as log_of,
    log_table as log_table,
    span_table as span_table,
    spans_of as spans_of,
)
from .trajectories import (
    ReadPages as ReadPages,
    Trajectories as Trajectories,
)
from .trajectory_rows import (
    TRAJECTORY_SCHEMA as TRAJECTORY_SCHEMA,
    call_arguments as call_arguments,
    trajectory_row as trajectory_row,
)
from .variants import (
    Period as Period,
    VariantCounts as VariantCounts,
)
