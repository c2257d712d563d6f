"""Every public name, once: `__init__.py` loads them from here, and type checkers read it."""

from .base.errors import (
    BudgetSpent as BudgetSpent,
    ConfigError as ConfigError,
    InputError as InputError,
    JudgeError as JudgeError,
    NotAStore as NotAStore,
    NotFound as NotFound,
    NothingEvaluated as NothingEvaluated,
    OtevalError as OtevalError,
    ReplayDiverged as ReplayDiverged,
    StoreError as StoreError,
    StoreLocked as StoreLocked,
    StoreTooNew as StoreTooNew,
    VariableMissing as VariableMissing,
)
from .evaluators import (
    PAIRWISE_PROMPT as PAIRWISE_PROMPT,
    AnyOf as AnyOf,
    ChatCompletionMessage as ChatCompletionMessage,
    EvaluatorResult as EvaluatorResult,
    MatchSpec as MatchSpec,
    MultiturnSimulationResult as MultiturnSimulationResult,
    Verdict as Verdict,
    compare as compare,
    create_async_trajectory_match_evaluator as create_async_trajectory_match_evaluator,
    create_pairwise_llm_as_judge as create_pairwise_llm_as_judge,
    create_trajectory_match_evaluator as create_trajectory_match_evaluator,
    make_spec as make_spec,
    to_messages as to_messages,
    trajectory_strict_match as trajectory_strict_match,
    trajectory_strict_match_async as trajectory_strict_match_async,
    trajectory_subset as trajectory_subset,
    trajectory_subset_async as trajectory_subset_async,
    trajectory_superset as trajectory_superset,
    trajectory_superset_async as trajectory_superset_async,
    trajectory_unordered_match as trajectory_unordered_match,
    trajectory_unordered_match_async as trajectory_unordered_match_async,
)
from .evaluators.answers import (
    create_async_embedding_similarity_evaluator as create_async_embedding_similarity_evaluator,
    create_async_json_match_evaluator as create_async_json_match_evaluator,
    create_embedding_similarity_evaluator as create_embedding_similarity_evaluator,
    create_json_match_evaluator as create_json_match_evaluator,
    exact_match as exact_match,
    exact_match_async as exact_match_async,
    levenshtein_distance as levenshtein_distance,
    levenshtein_distance_async as levenshtein_distance_async,
)
from .evaluators.checks.budget import (
    create_budget_evaluator as create_budget_evaluator,
    create_latency_evaluator as create_latency_evaluator,
)
from .evaluators.checks.final_answer import (
    create_final_answer_evaluator as create_final_answer_evaluator,
    create_finish_reason_evaluator as create_finish_reason_evaluator,
)
from .evaluators.checks.loops import (
    create_loop_evaluator as create_loop_evaluator,
)
from .evaluators.checks.recovered import (
    create_recovered_evaluator as create_recovered_evaluator,
)
from .evaluators.checks.required_text import (
    create_required_text_evaluator as create_required_text_evaluator,
)
from .evaluators.checks.tool_errors import (
    create_tool_error_evaluator as create_tool_error_evaluator,
)
from .evaluators.checks.tool_order import (
    create_forbidden_tools_evaluator as create_forbidden_tools_evaluator,
    create_tool_order_evaluator as create_tool_order_evaluator,
)
from .evaluators.checks.tool_schema import (
    create_tool_schema_evaluator as create_tool_schema_evaluator,
)
from .evaluators.graph import (
    aextract_langgraph_trajectory_from_thread as aextract_langgraph_trajectory_from_thread,
    create_async_graph_trajectory_llm_as_judge as create_async_graph_trajectory_llm_as_judge,
    create_async_graph_trajectory_match_evaluator as create_async_graph_trajectory_match_evaluator,
    create_graph_trajectory_llm_as_judge as create_graph_trajectory_llm_as_judge,
    create_graph_trajectory_match_evaluator as create_graph_trajectory_match_evaluator,
    extract_langgraph_trajectory_from_snapshots as extract_langgraph_trajectory_from_snapshots,
    extract_langgraph_trajectory_from_thread as extract_langgraph_trajectory_from_thread,
    graph_of as graph_of,
    graph_trajectory_strict_match as graph_trajectory_strict_match,
    graph_trajectory_strict_match_async as graph_trajectory_strict_match_async,
)
from .evaluators.judge import (
    ANSWER_RELEVANCE_PROMPT as ANSWER_RELEVANCE_PROMPT,
    CONCISENESS_PROMPT as CONCISENESS_PROMPT,
    CORRECTNESS_PROMPT as CORRECTNESS_PROMPT,
    GRAPH_TRAJECTORY_ACCURACY_PROMPT as GRAPH_TRAJECTORY_ACCURACY_PROMPT,
    HALLUCINATION_PROMPT as HALLUCINATION_PROMPT,
    PII_LEAKAGE_PROMPT as PII_LEAKAGE_PROMPT,
    PLAN_ADHERENCE_PROMPT as PLAN_ADHERENCE_PROMPT,
    PROMPT_INJECTION_PROMPT as PROMPT_INJECTION_PROMPT,
    TASK_COMPLETION_PROMPT as TASK_COMPLETION_PROMPT,
    TOOL_SELECTION_PROMPT as TOOL_SELECTION_PROMPT,
    TOXICITY_PROMPT as TOXICITY_PROMPT,
    TRAJECTORY_ACCURACY_PROMPT as TRAJECTORY_ACCURACY_PROMPT,
    TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE as TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
    USER_SATISFACTION_PROMPT as USER_SATISFACTION_PROMPT,
    MemoryCache as MemoryCache,
    create_async_llm_as_judge as create_async_llm_as_judge,
    create_async_trajectory_llm_as_judge as create_async_trajectory_llm_as_judge,
    create_llm_as_judge as create_llm_as_judge,
    create_trajectory_llm_as_judge as create_trajectory_llm_as_judge,
)
from .evaluators.types import (
    ExtractedLangGraphThreadTrajectory as ExtractedLangGraphThreadTrajectory,
    FewShotExample as FewShotExample,
    GraphTrajectory as GraphTrajectory,
    SimpleAsyncEvaluator as SimpleAsyncEvaluator,
    SimpleEvaluator as SimpleEvaluator,
    ToolArgsMatchMode as ToolArgsMatchMode,
    ToolArgsMatchOverrides as ToolArgsMatchOverrides,
)
from .model import (
    Dataset as Dataset,
    Event as Event,
    Example as Example,
    Gap as Gap,
    Link as Link,
    LogRecord as LogRecord,
    Message as Message,
    Reference as Reference,
    Rewrite as Rewrite,
    Score as Score,
    Selection as Selection,
    Span as Span,
    SpanRef as SpanRef,
    ToolCall as ToolCall,
    Trajectory as Trajectory,
    Usage as Usage,
)
from .record.instrument import Instrumentation as Instrumentation, instrument as instrument
from .replays import ReplayResult as ReplayResult
from .replays.session import (
    replay as replay,
)
from .scoring import (
    ComparativeResults as ComparativeResults,
    Comparison as Comparison,
    Config as Config,
    ExperimentResults as ExperimentResults,
    evaluate_comparative as evaluate_comparative,
    load as load,
    load_config as load_config,
    load_experiment as load_experiment,
    read_dataset as read_dataset,
    refresh as refresh,
    score as score,
)
from .scoring.experiments import (
    aevaluate_comparative as aevaluate_comparative,
    compare_experiments as compare_experiments,
    make_dataset as make_dataset,
)
from .scoring.experiments.simulated_users import (
    create_async_llm_simulated_user as create_async_llm_simulated_user,
    create_llm_simulated_user as create_llm_simulated_user,
)
from .scoring.experiments.simulation import (
    run_multiturn_simulation as run_multiturn_simulation,
    run_multiturn_simulation_async as run_multiturn_simulation_async,
)
from .serve import InProcess as InProcess
from .store import (
    Store as Store,
)
from .views import (
    Database as Database,
    Frame as Frame,
    open as open,  # noqa: A004  read as oteval.open
)

__version__: str
from .extras import spark as spark
from .record.context import (
    attach_environ as attach_environ,
    context_environ as context_environ,
    conversation as conversation,
    tool_call as tool_call,
)
from .record.context_carriers import carry_context as carry_context
from .record.decorators import agent as agent, tool as tool
from .record.model_calls import model_call as model_call
from .record.observed_targets import aevaluate as aevaluate, evaluate as evaluate
from .record.span_capture import capture as capture
from .replays import testing as testing
