"""Every public name, once: `__init__.py` loads them from here, and type checkers read it."""

from .base.errors import BudgetSpent as BudgetSpent
from .base.errors import ConfigError as ConfigError
from .base.errors import InputError as InputError
from .base.errors import JudgeError as JudgeError
from .base.errors import NotAStore as NotAStore
from .base.errors import NotFound as NotFound
from .base.errors import NothingEvaluated as NothingEvaluated
from .base.errors import OtevalError as OtevalError
from .base.errors import ReplayDiverged as ReplayDiverged
from .base.errors import StoreError as StoreError
from .base.errors import StoreLocked as StoreLocked
from .base.errors import StoreTooNew as StoreTooNew
from .base.errors import VariableMissing as VariableMissing
from .evaluators import (
    AnyOf as AnyOf,
)
from .evaluators import (
    MatchSpec as MatchSpec,
)
from .evaluators import (
    Verdict as Verdict,
)
from .evaluators import (
    acompare as acompare,
)
from .evaluators import (
    compare as compare,
)
from .evaluators import (
    create_async_trajectory_match_evaluator as create_async_trajectory_match_evaluator,
)
from .evaluators import (
    create_trajectory_match_evaluator as create_trajectory_match_evaluator,
)
from .evaluators import (
    make_spec as make_spec,
)
from .evaluators import (
    to_messages as to_messages,
)
from .evaluators import (
    trajectory_strict_match as trajectory_strict_match,
)
from .evaluators import (
    trajectory_strict_match_async as trajectory_strict_match_async,
)
from .evaluators import (
    trajectory_subset as trajectory_subset,
)
from .evaluators import (
    trajectory_subset_async as trajectory_subset_async,
)
from .evaluators import (
    trajectory_superset as trajectory_superset,
)
from .evaluators import (
    trajectory_superset_async as trajectory_superset_async,
)
from .evaluators import (
    trajectory_unordered_match as trajectory_unordered_match,
)
from .evaluators import (
    trajectory_unordered_match_async as trajectory_unordered_match_async,
)
from .evaluators.answers import (
    create_async_embedding_similarity_evaluator as create_async_embedding_similarity_evaluator,
)
from .evaluators.answers import (
    create_async_json_match_evaluator as create_async_json_match_evaluator,
)
from .evaluators.answers import (
    create_embedding_similarity_evaluator as create_embedding_similarity_evaluator,
)
from .evaluators.answers import (
    create_json_match_evaluator as create_json_match_evaluator,
)
from .evaluators.answers import (
    exact_match as exact_match,
)
from .evaluators.answers import (
    exact_match_async as exact_match_async,
)
from .evaluators.answers import (
    levenshtein_distance as levenshtein_distance,
)
from .evaluators.answers import (
    levenshtein_distance_async as levenshtein_distance_async,
)
from .evaluators.checks.budget import (
    create_budget_evaluator as create_budget_evaluator,
)
from .evaluators.checks.final_answer import (
    create_final_answer_evaluator as create_final_answer_evaluator,
)
from .evaluators.checks.finish_reason import (
    create_finish_reason_evaluator as create_finish_reason_evaluator,
)
from .evaluators.checks.forbidden_tools import (
    create_forbidden_tools_evaluator as create_forbidden_tools_evaluator,
)
from .evaluators.checks.latency import (
    create_latency_evaluator as create_latency_evaluator,
)
from .evaluators.checks.loops import (
    create_loop_evaluator as create_loop_evaluator,
)
from .evaluators.checks.required_text import (
    create_required_text_evaluator as create_required_text_evaluator,
)
from .evaluators.checks.tool_errors import (
    create_tool_error_evaluator as create_tool_error_evaluator,
)
from .evaluators.checks.tool_order import (
    create_tool_order_evaluator as create_tool_order_evaluator,
)
from .evaluators.checks.tool_schema import (
    create_tool_schema_evaluator as create_tool_schema_evaluator,
)
from .evaluators.graph import (
    aextract_langgraph_trajectory_from_thread as aextract_langgraph_trajectory_from_thread,
)
from .evaluators.graph import (
    create_async_graph_trajectory_llm_as_judge as create_async_graph_trajectory_llm_as_judge,
)
from .evaluators.graph import (
    create_async_graph_trajectory_match_evaluator as create_async_graph_trajectory_match_evaluator,
)
from .evaluators.graph import (
    create_graph_trajectory_llm_as_judge as create_graph_trajectory_llm_as_judge,
)
from .evaluators.graph import (
    create_graph_trajectory_match_evaluator as create_graph_trajectory_match_evaluator,
)
from .evaluators.graph import (
    extract_langgraph_trajectory_from_snapshots as extract_langgraph_trajectory_from_snapshots,
)
from .evaluators.graph import (
    extract_langgraph_trajectory_from_thread as extract_langgraph_trajectory_from_thread,
)
from .evaluators.graph import (
    graph_of as graph_of,
)
from .evaluators.graph import (
    graph_trajectory_strict_match as graph_trajectory_strict_match,
)
from .evaluators.graph import (
    graph_trajectory_strict_match_async as graph_trajectory_strict_match_async,
)
from .evaluators.judge import (
    ANSWER_RELEVANCE_PROMPT as ANSWER_RELEVANCE_PROMPT,
)
from .evaluators.judge import (
    CONCISENESS_PROMPT as CONCISENESS_PROMPT,
)
from .evaluators.judge import (
    CORRECTNESS_PROMPT as CORRECTNESS_PROMPT,
)
from .evaluators.judge import (
    GRAPH_TRAJECTORY_ACCURACY_PROMPT as GRAPH_TRAJECTORY_ACCURACY_PROMPT,
)
from .evaluators.judge import (
    HALLUCINATION_PROMPT as HALLUCINATION_PROMPT,
)
from .evaluators.judge import (
    PII_LEAKAGE_PROMPT as PII_LEAKAGE_PROMPT,
)
from .evaluators.judge import (
    PLAN_ADHERENCE_PROMPT as PLAN_ADHERENCE_PROMPT,
)
from .evaluators.judge import (
    PROMPT_INJECTION_PROMPT as PROMPT_INJECTION_PROMPT,
)
from .evaluators.judge import (
    TASK_COMPLETION_PROMPT as TASK_COMPLETION_PROMPT,
)
from .evaluators.judge import (
    TOOL_SELECTION_PROMPT as TOOL_SELECTION_PROMPT,
)
from .evaluators.judge import (
    TOXICITY_PROMPT as TOXICITY_PROMPT,
)
from .evaluators.judge import (
    TRAJECTORY_ACCURACY_PROMPT as TRAJECTORY_ACCURACY_PROMPT,
)
from .evaluators.judge import (
    TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE as TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
)
from .evaluators.judge import (
    USER_SATISFACTION_PROMPT as USER_SATISFACTION_PROMPT,
)
from .evaluators.judge import (
    MemoryCache as MemoryCache,
)
from .evaluators.judge import (
    create_async_llm_as_judge as create_async_llm_as_judge,
)
from .evaluators.judge import (
    create_async_trajectory_llm_as_judge as create_async_trajectory_llm_as_judge,
)
from .evaluators.judge import (
    create_llm_as_judge as create_llm_as_judge,
)
from .evaluators.judge import (
    create_trajectory_llm_as_judge as create_trajectory_llm_as_judge,
)
from .evaluators.judge.pairwise import (
    PAIRWISE_PROMPT as PAIRWISE_PROMPT,
)
from .evaluators.judge.pairwise import (
    create_pairwise_llm_as_judge as create_pairwise_llm_as_judge,
)
from .evaluators.types import (
    ChatCompletionMessage as ChatCompletionMessage,
)
from .evaluators.types import (
    EvaluatorResult as EvaluatorResult,
)
from .evaluators.types import (
    ExtractedLangGraphThreadTrajectory as ExtractedLangGraphThreadTrajectory,
)
from .evaluators.types import (
    FewShotExample as FewShotExample,
)
from .evaluators.types import (
    GraphTrajectory as GraphTrajectory,
)
from .evaluators.types import (
    MultiturnSimulationResult as MultiturnSimulationResult,
)
from .evaluators.types import (
    SimpleAsyncEvaluator as SimpleAsyncEvaluator,
)
from .evaluators.types import (
    SimpleEvaluator as SimpleEvaluator,
)
from .evaluators.types import (
    ToolArgsMatchMode as ToolArgsMatchMode,
)
from .evaluators.types import (
    ToolArgsMatchOverrides as ToolArgsMatchOverrides,
)
from .model import (
    Dataset as Dataset,
)
from .model import (
    Event as Event,
)
from .model import (
    Example as Example,
)
from .model import (
    Gap as Gap,
)
from .model import (
    Link as Link,
)
from .model import (
    LogRecord as LogRecord,
)
from .model import (
    Message as Message,
)
from .model import (
    Reference as Reference,
)
from .model import (
    Rewrite as Rewrite,
)
from .model import (
    Score as Score,
)
from .model import (
    Span as Span,
)
from .model import (
    SpanRef as SpanRef,
)
from .model import (
    ToolCall as ToolCall,
)
from .model import (
    Trajectory as Trajectory,
)
from .model import (
    Usage as Usage,
)
from .model.selection import Selection as Selection
from .record.instrument import Instrumentation as Instrumentation
from .record.instrument import instrument as instrument
from .replays.replay_result import (
    ReplayResult as ReplayResult,
)
from .replays.session import (
    replay as replay,
)
from .scoring import load as load
from .scoring import refresh as refresh
from .scoring import score as score
from .scoring.config import Config as Config
from .scoring.config import load_config as load_config
from .scoring.experiments import ComparativeResults as ComparativeResults
from .scoring.experiments import Comparison as Comparison
from .scoring.experiments import ExperimentResults as ExperimentResults
from .scoring.experiments import aevaluate as aevaluate
from .scoring.experiments import aevaluate_comparative as aevaluate_comparative
from .scoring.experiments import compare_experiments as compare_experiments
from .scoring.experiments import evaluate as evaluate
from .scoring.experiments import evaluate_comparative as evaluate_comparative
from .scoring.experiments import load_experiment as load_experiment
from .scoring.experiments import make_dataset as make_dataset
from .scoring.experiments import read_dataset as read_dataset
from .scoring.experiments.simulated_users import (
    create_async_llm_simulated_user as create_async_llm_simulated_user,
)
from .scoring.experiments.simulated_users import (
    create_llm_simulated_user as create_llm_simulated_user,
)
from .scoring.experiments.simulation import run_multiturn_simulation as run_multiturn_simulation
from .scoring.experiments.simulation import (
    run_multiturn_simulation_async as run_multiturn_simulation_async,
)
from .serve.capture import capture as capture
from .serve.inprocess import InProcess as InProcess
from .store import (
    Store as Store,
)

__version__: str
from .record.context import attach_environ as attach_environ
from .record.context import context_environ as context_environ
from .record.context import conversation as conversation
from .record.context import tool_call as tool_call
from .record.context_carriers import carry_context as carry_context
from .record.decorators import agent as agent
from .record.decorators import tool as tool
from .record.model_calls import model_call as model_call
