"""``oteval compare`` and ``oteval pairwise``: compare experiments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

from ..base.errors import ConfigError, NothingEvaluated
from ..base.text import counted
from ..evaluators import PAIRWISE_PROMPT, JudgeCall, create_pairwise_llm_as_judge, load_function
from ..scoring import compare as compare_experiments, evaluate_comparative
from ..store import Store
from ..views import (
    comparative_junit,
    comparative_markdown,
    comparative_view,
    comparison_junit,
    comparison_markdown,
    comparison_view,
)
from .common import (
    databases_option,
    db_option,
    json_option,
    open_store,
    out,
    print_json,
    warn,
    write_report,
)
from .experiments import (
    experiment_progress,
    import_from_cwd,
    print_comparison,
    warn_regressed,
)
from .options import FUNCTION_METAVAR, report_options, run_options

__all__ = ["compare", "pairwise"]


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--alpha",
    type=float,
    default=0.05,
    show_default=True,
    help="The false discovery rate over all scores.",
)
@click.option(
    "--margin",
    type=float,
    help="The smallest difference that matters.  [default: 0.05, or 5% "
    "of the mean for scores beyond 0 to 1]",
)
@click.option(
    "--lower-is-better",
    multiple=True,
    metavar="SCORE",
    help="A score that is better if lower; may be repeated.",
)
@databases_option
@report_options
@json_option
def compare(
    a: str,
    b: str,
    alpha: float,
    margin: float | None,
    lower_is_better: tuple[str, ...],
    db: tuple[str, ...],
    junit: str | None,
    md: str | None,
    as_json: bool,
) -> int:
    """Compare the scores of two experiments by statistics.

    B is compared with A, example by example. The runs that broke come first, each with the first
    message that differs and the evaluator's reason; the statistics of each score follow. A and B
    are names, or prefixes that mean the newest match. The exit status is 1 if a score regressed by
    the statistics, or has no verdict in B though its evaluator ran.
    """
    with open_store(db) as store:
        comparison = compare_experiments(
            a, b, alpha=alpha, margin=margin, lower_is_better=lower_is_better, store=store
        )
    write_report(junit, lambda: comparison_junit(comparison))
    write_report(md, lambda: comparison_markdown(comparison))
    if as_json:
        print_comparison(comparison)
    else:
        out().print(comparison_view(comparison))
    a_only, b_only = (comparison.a, comparison.only_a), (comparison.b, comparison.only_b)
    for experiment, keys in (a_only, b_only):
        if keys:
            warn(f"only {experiment.name} has {', '.join(keys)}")
    return 1 if warn_regressed(comparison) else 0


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="A B [C]...")
@click.option(
    "--judge",
    "judges",
    multiple=True,
    metavar="openai:MODEL",
    help="A language model to ask; may be repeated.",
)
@click.option(
    "--prompt",
    type=click.Path(exists=True, dir_okay=False),
    help="A file with the judge's prompt, which has {inputs}, {output_a} and {output_b}.",
)
@click.option(
    "--call",
    "calls",
    multiple=True,
    metavar=FUNCTION_METAVAR,
    help="A function that compares the outputs; may be repeated.",
)
@click.option(
    "--order",
    type=click.Choice(["both", "random", "fixed"]),
    default="both",
    show_default=True,
    help="The order in which a judge sees the outputs.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="The random seed of the order."
)
@run_options
@db_option
@report_options
@json_option
def pairwise(
    names: tuple[str, ...],
    judges: tuple[str, ...],
    prompt: str | None,
    calls: tuple[str, ...],
    order: Literal["both", "random", "fixed"],
    seed: int,
    name: str | None,
    concurrency: int,
    timeout: float,
    resume: bool,
    db: str,
    junit: str | None,
    md: str | None,
    as_json: bool,
) -> int:
    """Ask which experiment has the better outputs.

    Judges (--judge) and functions (--call) compare the outputs of each example. A function
    (--call) may have the parameters inputs, outputs (a list), reference_outputs, runs and example,
    and returns a score for each output. The exit status is 1 if A, the first experiment, is better
    than another.
    """
    import_from_cwd()
    evaluators: list[Any] = [load_function(call) for call in calls]
    if not evaluators and not judges:
        raise ConfigError("give --judge openai:MODEL or --call PKG.MODULE:FUNCTION")
    with open_store(db) as store, experiment_progress("comparing") as update:
        evaluators += [_judge(model, prompt, store) for model in judges]
        results = evaluate_comparative(
            names,
            evaluators,
            order=order,
            seed=seed,
            max_concurrency=concurrency,
            name=name,
            resume=resume,
            timeout=timeout,
            store=store,
            on_progress=update,
        )
    write_report(junit, lambda: comparative_junit(results))
    write_report(md, lambda: comparative_markdown(results))
    if as_json:
        for row in results.to_dicts():
            print_json(row)
        print_json(results.summary())
    else:
        out().print(comparative_view(results))
    warn(
        f"comparison {results.name}: {counted(len(results), 'example')}, "
        f"{counted(results.errors, 'answer')} failed, "
        f"{counted(results.unpaired, 'run')} without a counterpart"
    )
    pairs = results.pairs()
    if not any(pair.examples for pair in pairs):
        raise NothingEvaluated("no comparison succeeded; --json gives the reasons")
    return 1 if any(pair.a == results.names[0] and pair.verdict() == "a" for pair in pairs) else 0


def _judge(model: str, prompt: str | None, store: Store) -> Callable[..., Any]:
    """Return a judge that caches its answers in the store, for all comparisons."""
    text = PAIRWISE_PROMPT if prompt is None else Path(prompt).read_text("utf-8")
    cache = store.judge_calls.of("pairwise", JudgeCall)
    return create_pairwise_llm_as_judge(model=model, prompt=text, cache=cache)
