"""oteval scores what agents really did, from the OpenTelemetry traces they already emit.

Everything of use is importable from here; a name is loaded when it is first asked for, so that
importing oteval costs next to nothing.

    from oteval import create_trajectory_match_evaluator

    evaluate = create_trajectory_match_evaluator(trajectory_match_mode="superset")
    evaluate(outputs=messages, reference_outputs=reference)

From spans to trajectories: `oteval.reconstruct`. From files to scores: `Store`, `load`, `refresh`,
`score`. The command line is ``oteval --help``.

PYTEST_DONT_REWRITE: pytest would warn where oteval was imported before its plugin is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import Config, load_config
    from .errors import (
        BudgetSpent,
        ConfigError,
        InputError,
        JudgeError,
        NotAStore,
        NotFound,
        NothingEvaluated,
        OtevalError,
        StoreError,
        StoreLocked,
        StoreTooNew,
        VariableMissing,
    )
    from .evaluate import (
        MatchSpec,
        Verdict,
        acompare,
        compare,
        create_async_trajectory_match_evaluator,
        create_trajectory_match_evaluator,
        make_spec,
        to_messages,
        trajectory_strict_match,
        trajectory_strict_match_async,
        trajectory_subset,
        trajectory_subset_async,
        trajectory_superset,
        trajectory_superset_async,
        trajectory_unordered_match,
        trajectory_unordered_match_async,
    )
    from .evaluate.answers import (
        create_async_embedding_similarity_evaluator,
        create_async_json_match_evaluator,
        create_embedding_similarity_evaluator,
        create_json_match_evaluator,
        exact_match,
        exact_match_async,
        levenshtein_distance,
        levenshtein_distance_async,
    )
    from .evaluate.checks import (
        create_budget_evaluator,
        create_final_answer_evaluator,
        create_forbidden_tools_evaluator,
        create_latency_evaluator,
        create_loop_evaluator,
        create_required_text_evaluator,
        create_tool_error_evaluator,
        create_tool_order_evaluator,
        create_tool_schema_evaluator,
    )
    from .evaluate.graph import (
        aextract_langgraph_trajectory_from_thread,
        create_async_graph_trajectory_llm_as_judge,
        create_async_graph_trajectory_match_evaluator,
        create_graph_trajectory_llm_as_judge,
        create_graph_trajectory_match_evaluator,
        extract_langgraph_trajectory_from_snapshots,
        extract_langgraph_trajectory_from_thread,
        graph_of,
        graph_trajectory_strict_match,
        graph_trajectory_strict_match_async,
    )
    from .evaluate.judge import (
        ANSWER_RELEVANCE_PROMPT,
        CONCISENESS_PROMPT,
        CORRECTNESS_PROMPT,
        GRAPH_TRAJECTORY_ACCURACY_PROMPT,
        HALLUCINATION_PROMPT,
        PII_LEAKAGE_PROMPT,
        PLAN_ADHERENCE_PROMPT,
        PROMPT_INJECTION_PROMPT,
        TASK_COMPLETION_PROMPT,
        TOOL_SELECTION_PROMPT,
        TOXICITY_PROMPT,
        TRAJECTORY_ACCURACY_PROMPT,
        TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
        USER_SATISFACTION_PROMPT,
        MemoryCache,
        create_async_llm_as_judge,
        create_async_trajectory_llm_as_judge,
        create_llm_as_judge,
        create_trajectory_llm_as_judge,
    )
    from .evaluate.judge.pairwise import PAIRWISE_PROMPT, create_pairwise_llm_as_judge
    from .evaluate.types import (
        ChatCompletionMessage,
        EvaluatorResult,
        ExtractedLangGraphThreadTrajectory,
        FewShotExample,
        GraphTrajectory,
        MultiturnSimulationResult,
        SimpleAsyncEvaluator,
        SimpleEvaluator,
        ToolArgsMatchMode,
        ToolArgsMatchOverrides,
    )
    from .experiments import (
        ComparativeResults,
        Comparison,
        ExperimentResults,
        aevaluate,
        aevaluate_comparative,
        compare_experiments,
        evaluate_comparative,
        load_experiment,
        make_dataset,
        read_dataset,
    )
    from .experiments.simulated_users import (
        create_async_llm_simulated_user,
        create_llm_simulated_user,
    )
    from .experiments.simulation import (
        run_multiturn_simulation,
        run_multiturn_simulation_async,
    )
    from .live.capture import capture
    from .live.inprocess import InProcess
    from .model import (
        Dataset,
        Event,
        Example,
        Gap,
        Link,
        LogRecord,
        Message,
        Reference,
        Rewrite,
        Score,
        Span,
        SpanRef,
        ToolCall,
        Trajectory,
        Usage,
    )
    from .pipeline import load, refresh, score
    from .selection import Selection
    from .store import Store

__version__ = "0.1.0"

_HOMES = {
    "config": ("Config", "load_config"),
    "errors": (
        *("BudgetSpent", "ConfigError", "InputError", "JudgeError"),
        *("NotAStore", "NotFound", "NothingEvaluated"),
        *("OtevalError", "StoreError", "StoreLocked", "StoreTooNew", "VariableMissing"),
    ),
    "evaluate": (
        *("MatchSpec", "Verdict", "acompare", "compare"),
        "evaluate",
        *("create_async_trajectory_match_evaluator", "create_trajectory_match_evaluator"),
        *("make_spec", "to_messages"),
        *("trajectory_strict_match", "trajectory_strict_match_async"),
        *("trajectory_subset", "trajectory_subset_async"),
        *("trajectory_superset", "trajectory_superset_async"),
        *("trajectory_unordered_match", "trajectory_unordered_match_async"),
    ),
    "experiments": (
        *("ComparativeResults", "Comparison", "ExperimentResults", "aevaluate"),
        *("aevaluate_comparative", "compare_experiments", "evaluate_comparative"),
        *("load_experiment", "make_dataset", "read_dataset"),
    ),
    "evaluate.judge.pairwise": ("PAIRWISE_PROMPT", "create_pairwise_llm_as_judge"),
    "evaluate.judge": (
        "ANSWER_RELEVANCE_PROMPT",
        "CONCISENESS_PROMPT",
        "CORRECTNESS_PROMPT",
        "HALLUCINATION_PROMPT",
        "PII_LEAKAGE_PROMPT",
        "PLAN_ADHERENCE_PROMPT",
        "PROMPT_INJECTION_PROMPT",
        "TASK_COMPLETION_PROMPT",
        "TOOL_SELECTION_PROMPT",
        "TOXICITY_PROMPT",
        "USER_SATISFACTION_PROMPT",
        *("GRAPH_TRAJECTORY_ACCURACY_PROMPT", "MemoryCache", "TRAJECTORY_ACCURACY_PROMPT"),
        "TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE",
        *("create_async_llm_as_judge", "create_async_trajectory_llm_as_judge"),
        *("create_llm_as_judge", "create_trajectory_llm_as_judge"),
    ),
    "evaluate.answers": (
        "create_async_embedding_similarity_evaluator",
        "create_async_json_match_evaluator",
        "create_embedding_similarity_evaluator",
        "create_json_match_evaluator",
        "exact_match",
        "exact_match_async",
        "levenshtein_distance",
        "levenshtein_distance_async",
    ),
    "evaluate.types": (
        "ChatCompletionMessage",
        "EvaluatorResult",
        "ExtractedLangGraphThreadTrajectory",
        "FewShotExample",
        "GraphTrajectory",
        "MultiturnSimulationResult",
        "SimpleAsyncEvaluator",
        "SimpleEvaluator",
        "ToolArgsMatchMode",
        "ToolArgsMatchOverrides",
    ),
    "experiments.simulated_users": (
        "create_async_llm_simulated_user",
        "create_llm_simulated_user",
    ),
    "experiments.simulation": (
        "run_multiturn_simulation",
        "run_multiturn_simulation_async",
    ),
    "evaluate.checks": (
        "create_budget_evaluator",
        "create_final_answer_evaluator",
        "create_forbidden_tools_evaluator",
        "create_latency_evaluator",
        "create_loop_evaluator",
        "create_required_text_evaluator",
        "create_tool_error_evaluator",
        "create_tool_order_evaluator",
        "create_tool_schema_evaluator",
    ),
    "evaluate.graph": (
        "aextract_langgraph_trajectory_from_thread",
        "create_async_graph_trajectory_llm_as_judge",
        "create_async_graph_trajectory_match_evaluator",
        "create_graph_trajectory_llm_as_judge",
        "create_graph_trajectory_match_evaluator",
        "extract_langgraph_trajectory_from_snapshots",
        "extract_langgraph_trajectory_from_thread",
        "graph_of",
        "graph_trajectory_strict_match",
        "graph_trajectory_strict_match_async",
    ),
    "live.capture": ("capture",),
    "live.inprocess": ("InProcess",),
    "model": (
        *(
            "Dataset",
            "Event",
            "Example",
            "Gap",
            "Link",
            "LogRecord",
            "Message",
            "Reference",
            "Rewrite",
            "Score",
        ),
        *("Span", "SpanRef", "ToolCall", "Trajectory", "Usage"),
    ),
    "pipeline": ("load", "refresh", "score"),
    "selection": ("Selection",),
    "store": ("Store",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ANSWER_RELEVANCE_PROMPT",
    "CONCISENESS_PROMPT",
    "CORRECTNESS_PROMPT",
    "GRAPH_TRAJECTORY_ACCURACY_PROMPT",
    "HALLUCINATION_PROMPT",
    "PAIRWISE_PROMPT",
    "PII_LEAKAGE_PROMPT",
    "PLAN_ADHERENCE_PROMPT",
    "PROMPT_INJECTION_PROMPT",
    "TASK_COMPLETION_PROMPT",
    "TOOL_SELECTION_PROMPT",
    "TOXICITY_PROMPT",
    "TRAJECTORY_ACCURACY_PROMPT",
    "TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE",
    "USER_SATISFACTION_PROMPT",
    "BudgetSpent",
    "ChatCompletionMessage",
    "ComparativeResults",
    "Comparison",
    "Config",
    "ConfigError",
    "Dataset",
    "EvaluatorResult",
    "Event",
    "Example",
    "ExperimentResults",
    "ExtractedLangGraphThreadTrajectory",
    "FewShotExample",
    "Gap",
    "GraphTrajectory",
    "InProcess",
    "InputError",
    "JudgeError",
    "Link",
    "LogRecord",
    "MatchSpec",
    "MemoryCache",
    "Message",
    "MultiturnSimulationResult",
    "NotAStore",
    "NotFound",
    "NothingEvaluated",
    "OtevalError",
    "Reference",
    "Rewrite",
    "Score",
    "Selection",
    "SimpleAsyncEvaluator",
    "SimpleEvaluator",
    "Span",
    "SpanRef",
    "Store",
    "StoreError",
    "StoreLocked",
    "StoreTooNew",
    "ToolArgsMatchMode",
    "ToolArgsMatchOverrides",
    "ToolCall",
    "Trajectory",
    "Usage",
    "VariableMissing",
    "Verdict",
    "__version__",
    "acompare",
    "aevaluate",
    "aevaluate_comparative",
    "aextract_langgraph_trajectory_from_thread",
    "capture",
    "compare",
    "compare_experiments",
    "create_async_embedding_similarity_evaluator",
    "create_async_graph_trajectory_llm_as_judge",
    "create_async_graph_trajectory_match_evaluator",
    "create_async_json_match_evaluator",
    "create_async_llm_as_judge",
    "create_async_llm_simulated_user",
    "create_async_trajectory_llm_as_judge",
    "create_async_trajectory_match_evaluator",
    "create_budget_evaluator",
    "create_embedding_similarity_evaluator",
    "create_final_answer_evaluator",
    "create_forbidden_tools_evaluator",
    "create_graph_trajectory_llm_as_judge",
    "create_graph_trajectory_match_evaluator",
    "create_json_match_evaluator",
    "create_latency_evaluator",
    "create_llm_as_judge",
    "create_llm_simulated_user",
    "create_loop_evaluator",
    "create_pairwise_llm_as_judge",
    "create_required_text_evaluator",
    "create_tool_error_evaluator",
    "create_tool_order_evaluator",
    "create_tool_schema_evaluator",
    "create_trajectory_llm_as_judge",
    "create_trajectory_match_evaluator",
    "evaluate",
    "evaluate_comparative",
    "exact_match",
    "exact_match_async",
    "extract_langgraph_trajectory_from_snapshots",
    "extract_langgraph_trajectory_from_thread",
    "graph_of",
    "graph_trajectory_strict_match",
    "graph_trajectory_strict_match_async",
    "levenshtein_distance",
    "levenshtein_distance_async",
    "load",
    "load_config",
    "load_experiment",
    "make_dataset",
    "make_spec",
    "read_dataset",
    "refresh",
    "run_multiturn_simulation",
    "run_multiturn_simulation_async",
    "score",
    "to_messages",
    "trajectory_strict_match",
    "trajectory_strict_match_async",
    "trajectory_subset",
    "trajectory_subset_async",
    "trajectory_superset",
    "trajectory_superset_async",
    "trajectory_unordered_match",
    "trajectory_unordered_match_async",
]


def __getattr__(name: str) -> Any:
    """Load a public name from the module it lives in."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'oteval' has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
