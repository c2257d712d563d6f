"""The names of `oteval.scoring` for other rooms; `__init__.py` loads them on first use."""

from .annotations import (
    IDENTIFIER as IDENTIFIER,
    Annotation as Annotation,
    AnnotationTarget as AnnotationTarget,
    PushReport as PushReport,
    annotation_of as annotation_of,
    open_target as open_target,
    withdrawal_of as withdrawal_of,
)
from .config import (
    DEFAULT_PATH as DEFAULT_PATH,
    BaselineSettings as BaselineSettings,
    Completion as Completion,
    Config as Config,
    EDetectorSettings as EDetectorSettings,
    EvaluatorSettings as EvaluatorSettings,
    Forward as Forward,
    Gate as Gate,
    Limits as Limits,
    MonitorSettings as MonitorSettings,
    Push as Push,
    Retention as Retention,
    ThresholdSettings as ThresholdSettings,
    TwoWindowsSettings as TwoWindowsSettings,
    is_in_store as is_in_store,
    load_config as load_config,
    load_tokens as load_tokens,
    parse_config as parse_config,
    read_config as read_config,
    read_yaml as read_yaml,
    require_evaluators as require_evaluators,
)
from .config.live import (
    Endpoint as Endpoint,
    resolved as resolved,
)
from .config.monitors import (
    Alertmanager as Alertmanager,
    NotifyDestination as NotifyDestination,
    Webhook as Webhook,
)
from .conversation_files import (
    Verdicts as Verdicts,
    export_atif as export_atif,
    export_sft as export_sft,
)
from .decide import (
    DecidedRuns as DecidedRuns,
    Decider as Decider,
)
from .deletion import (
    DeletionPlan as DeletionPlan,
    delete_traces as delete_traces,
    plan_deletion as plan_deletion,
)
from .evaluation import (
    AlignedPair as AlignedPair,
    align as align,
    first_divergence as first_divergence,
    score as score,
)
from .experiments import (
    ComparativeResults as ComparativeResults,
    Comparison as Comparison,
    Difference as Difference,
    Feedback as Feedback,
    Figure as Figure,
    Pair as Pair,
    Progress as Progress,
    ResultRow as ResultRow,
    Standing as Standing,
    aevaluate as aevaluate,
    compare as compare,
    configured as configured,
    dataset_from_references as dataset_from_references,
    dataset_from_trajectories as dataset_from_trajectories,
    dataset_with_run as dataset_with_run,
    evaluate as evaluate,
    evaluate_comparative as evaluate_comparative,
    is_dataset_file as is_dataset_file,
    read_dataset as read_dataset,
)
from .experiments.calibration import (
    Calibration as Calibration,
    Consistency as Consistency,
    Disagreement as Disagreement,
    GrowthPoint as GrowthPoint,
    agreement_growth as agreement_growth,
    calibrate as calibrate,
)
from .experiments.comparison import (
    VERDICTS as VERDICTS,
)
from .experiments.datasets import (
    read_json_lines as read_json_lines,
)
from .experiments.labels import (
    read_labels as read_labels,
    repeat_verdicts as repeat_verdicts,
)
from .experiments.observation import (
    Observation as Observation,
    observing as observing,
    whole_runs as whole_runs,
)
from .experiments.paired_examples import (
    SESSIONS as SESSIONS,
    paired_rows as paired_rows,
    with_common_examples as with_common_examples,
)
from .experiments.results import (
    ExperimentResults as ExperimentResults,
    load_experiment as load_experiment,
)
from .experiments.run_changes import (
    FigureChange as FigureChange,
    RunChange as RunChange,
    RunChanges as RunChanges,
    Unevaluated as Unevaluated,
)
from .experiments.run_options import (
    OnProgress as OnProgress,
)
from .experiments.votes import (
    pairs_of as pairs_of,
)
from .exporter import (
    export_jsonl as export_jsonl,
    export_parquet as export_parquet,
    scored_trajectories as scored_trajectories,
)
from .file_reports import (
    FileReport as FileReport,
    LoadReport as LoadReport,
)
from .loader import (
    load as load,
)
from .opened_databases import (
    database_paths as database_paths,
    open_databases as open_databases,
    store_in_turn as store_in_turn,
)
from .otlp_export import (
    SendReport as SendReport,
    send_events as send_events,
    send_logs as send_logs,
    send_spans as send_spans,
)
from .prepared import (
    PreparedEvaluator as PreparedEvaluator,
    prepare as prepare,
)
from .previews import (
    preview as preview,
)
from .proposals import (
    PROPOSED_NAME as PROPOSED_NAME,
    FewLabels as FewLabels,
    LearnedRule as LearnedRule,
    Proposal as Proposal,
    ProposedConfig as ProposedConfig,
    ReferenceSource as ReferenceSource,
    entry_lines as entry_lines,
    labels_of_runs as labels_of_runs,
    learn_rule as learn_rule,
    propose_config as propose_config,
    propose_first_config as propose_first_config,
    read_evidence as read_evidence,
    recorded_references as recorded_references,
    reference_source as reference_source,
    with_counts as with_counts,
    with_learned as with_learned,
    write_files as write_files,
)
from .reconstruction import (
    Explanation as Explanation,
    RefreshResult as RefreshResult,
    SpanAccount as SpanAccount,
    TraceLocator as TraceLocator,
    explain as explain,
    reconstruct_all as reconstruct_all,
    refresh as refresh,
    refresh_traces as refresh_traces,
)
from .references import (
    References as References,
    compared_reference as compared_reference,
    read_messages as read_messages,
    reference_of_run as reference_of_run,
    references_of as references_of,
)
from .resources import (
    JobLimits as JobLimits,
)
from .retention import (
    archive_before as archive_before,
    archive_due as archive_due,
    delete_expired as delete_expired,
)
from .run_scorer import (
    RunScorer as RunScorer,
)
from .score_counts import (
    GateResult as GateResult,
    ScoreCounts as ScoreCounts,
    Tally as Tally,
    check_gates as check_gates,
    worst_first as worst_first,
)
from .score_events import (
    OWN_SCOPE as OWN_SCOPE,
    EventRun as EventRun,
    event_request as event_request,
    is_own as is_own,
)
from .score_pages import (
    StoredPage as StoredPage,
)
from .span_attributes import (
    as_fields as as_fields,
    as_json as as_json,
    key_values as key_values,
    score_attributes as score_attributes,
)
from .trace_folder import (
    MAX_IDS as MAX_IDS,
    TraceFolder as TraceFolder,
    TransferReport as TransferReport,
    open_patiently as open_patiently,
)
from .trace_scores import (
    scored_runs as scored_runs,
    telemetry_of as telemetry_of,
)
from .variant_list import (
    VariantList as VariantList,
    variants as variants,
)
