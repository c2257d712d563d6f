"""The names of `oteval.evaluators` for other rooms; `__init__.py` loads them on first use."""

from .accepted import (
    AnyOf as AnyOf,
    any_of as any_of,
)
from .alignment import (
    AlignedPair as AlignedPair,
    ComparedStep as ComparedStep,
    align as align,
    first_difference as first_difference,
    first_divergence as first_divergence,
    in_reference_form as in_reference_form,
)
from .call_changes import (
    CallChanges as CallChanges,
    call_changes as call_changes,
)
from .checks.recovered import (
    Recovered as Recovered,
)
from .checks.tool_schema import (
    definitions_by_name as definitions_by_name,
    schemas_of as schemas_of,
)
from .comparison import Verdict as Verdict, compare as compare
from .evaluator import (
    EvaluationContext as EvaluationContext,
    EvaluationResult as EvaluationResult,
    Evaluator as Evaluator,
    NotEvaluated as NotEvaluated,
    ReferenceOption as ReferenceOption,
    RequestLimit as RequestLimit,
    Resources as Resources,
    ReturnedResult as ReturnedResult,
)
from .functions import (
    FunctionEvaluator as FunctionEvaluator,
    code_version as code_version,
    load_function as load_function,
    load_target as load_target,
    result_of as result_of,
)
from .gates import (
    GateResult as GateResult,
    Tally as Tally,
    check_gate as check_gate,
    worst_first as worst_first,
)
from .graph.forms import (
    graph_of as graph_of,
    read_turns as read_turns,
)
from .judge.cache import (
    JudgeCall as JudgeCall,
)
from .judge.completions import (
    attribute as attribute,
    error_in_answer as error_in_answer,
    finish_reason as finish_reason,
)
from .judge.costs import (
    CostBudget as CostBudget,
)
from .judge.data_blocks import (
    data_lines as data_lines,
    encode_data as encode_data,
    new_nonce as new_nonce,
    without_nonces as without_nonces,
)
from .judge.evaluator import (
    missing_content as missing_content,
)
from .judge.output_modes import (
    COMPLETE_FINISH_REASONS as COMPLETE_FINISH_REASONS,
    unseen_text as unseen_text,
)
from .judge.pairwise import (
    PAIRWISE_PROMPT as PAIRWISE_PROMPT,
    PairwiseJudge as PairwiseJudge,
    create_pairwise_llm_as_judge as create_pairwise_llm_as_judge,
)
from .match import (
    TrajectoryMatch as TrajectoryMatch,
    create_async_trajectory_match_evaluator as create_async_trajectory_match_evaluator,
    create_trajectory_match_evaluator as create_trajectory_match_evaluator,
    trajectory_strict_match as trajectory_strict_match,
    trajectory_strict_match_async as trajectory_strict_match_async,
    trajectory_subset as trajectory_subset,
    trajectory_subset_async as trajectory_subset_async,
    trajectory_superset as trajectory_superset,
    trajectory_superset_async as trajectory_superset_async,
    trajectory_unordered_match as trajectory_unordered_match,
    trajectory_unordered_match_async as trajectory_unordered_match_async,
)
from .measures import (
    CHECK_MEASURES as CHECK_MEASURES,
    CheckMeasure as CheckMeasure,
)
from .messages import (
    gaps_beside as gaps_beside,
    is_message as is_message,
    passed_run as passed_run,
    to_messages as to_messages,
)
from .openai_client import (
    model_name as model_name,
    open_client as open_client,
)
from .options import (
    InConfig as InConfig,
    Option as Option,
    options_of as options_of,
)
from .outline import (
    CallArguments as CallArguments,
    Unread as Unread,
    has_outline_form as has_outline_form,
    run_of as run_of,
)
from .registry import (
    evaluator_class as evaluator_class,
    evaluator_types as evaluator_types,
    load_all as load_all,
)
from .result_listeners import listen as listen, observed as observed, unheard as unheard
from .same_calls import (
    SameCalls as SameCalls,
)
from .scorer import (
    Scorer as Scorer,
    is_drawn as is_drawn,
    version_of as version_of,
)
from .spec import (
    MatchSpec as MatchSpec,
    make_spec as make_spec,
)
from .stats import (
    Corrected as Corrected,
    ExampleVotes as ExampleVotes,
    Interval as Interval,
    Kappa as Kappa,
    PassRate as PassRate,
    benjamini_hochberg as benjamini_hochberg,
    clopper_pearson as clopper_pearson,
    cohen_kappa as cohen_kappa,
    detectable_difference as detectable_difference,
    difference_interval as difference_interval,
    difference_p_value as difference_p_value,
    fisher_exact as fisher_exact,
    mean_interval as mean_interval,
    minimal_detectable_share as minimal_detectable_share,
    more_pairs_needed as more_pairs_needed,
    pass_at_k as pass_at_k,
    pass_hat_k as pass_hat_k,
    pass_rate as pass_rate,
    ppi_mean as ppi_mean,
    rank as rank,
    selected_confidence as selected_confidence,
    sign_test as sign_test,
)
from .stats.rates import (
    FEWEST as FEWEST,
    mean as mean,
)
from .types import (
    ChatCompletionMessage as ChatCompletionMessage,
    EvaluatorResult as EvaluatorResult,
    MultiturnSimulationResult as MultiturnSimulationResult,
)
