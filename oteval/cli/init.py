"""``oteval init`` and ``oteval learn``: an oteval.yaml that fits the runs that are here."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.table import Table

from ..base.errors import InputError, NothingEvaluated
from ..base.text import counted
from ..model import Trajectory
from ..scoring import (
    DEFAULT_PATH,
    PROPOSED_NAME,
    FewLabels,
    LearnedRule,
    Proposal,
    ProposedConfig,
    ReferenceSource,
    entry_lines,
    labels_of_runs,
    learn_rule,
    load_config,
    parse_config,
    propose_config,
    propose_first_config,
    read_config,
    read_evidence,
    read_json_lines,
    recorded_references,
    reference_source,
    with_counts,
    with_learned,
    write_files,
)
from ..views import one_line
from .agent_programs import agent_programs
from .common import (
    db_option,
    filters,
    json_option,
    open_store,
    out,
    print_json,
    refresh_runs,
    say,
    select,
    store_in_turn,
    warn,
)
from .loaded_files import database_for, load_files
from .options import config_option, with_options

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["init", "learn"]

_MOST_RUNS = 3000
_NAMED = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
_COUNTS = ("pass", "fail", "not evaluated")
_case_options = with_options(
    click.option(
        "--key",
        metavar="ATTRIBUTE",
        help="The attribute that names a run's case, or 'question'; found by itself if its name "
        "is like task_id.",
    ),
    click.option(
        "--reference",
        "reference_path",
        type=click.Path(dir_okay=False),
        help="References by case: a JSON-lines file of {ATTRIBUTE: value, messages: [...]}.",
    ),
    click.option(
        "--evaluator",
        default="",
        help="The evaluator that the labels are for, or the name of a score in loaded files; by "
        "default labels for all evaluators, and the score 'reward'.",
    ),
)


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@config_option("The file to write.")
@db_option
@filters
@_case_options
@click.option("--force", is_flag=True, help="Replace the file.")
@click.option("--print", "prints", is_flag=True, help="Print the file instead of writing it.")
@json_option
@click.pass_context
def init(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    config_path: str,
    db: str,
    key: str | None,
    reference_path: str | None,
    evaluator: str,
    force: bool,
    prints: bool,
    as_json: bool,
    **filter_options: Any,
) -> int:
    """Write an oteval.yaml that fits the runs that are here.

    It looks at the database, after loading PATHs (traces, as for oteval ingest) into it, and
    proposes checks, budgets, references and gates, each with its evidence and with its verdicts on
    the stored runs. Without runs it looks for an agent's program, and shows how to record it.
    It never replaces a file without --force.
    """
    target = Path(config_path)
    if target.exists() and not (force or prints):
        raise InputError(
            f"{target}: exists already; --print shows the proposals, --force replaces it"
        )
    if paths:
        _load(db, paths)
    chosen = context.get_parameter_source("db") in _NAMED
    if not (chosen or Path(db).exists()):
        config = propose_first_config()
        steps = _first_steps(config_path)
    else:
        with open_store(db) as store:
            runs = _LookedAtRuns(store, filter_options, db)
            labels = labels_of_runs(store, runs.ids, evaluator)
            references, about = _reference_source(reference_path, key, target, store), ""
            case_key = key or (references.entry.get("key") if references else None)
            if references is None:
                references, about = recorded_references(paths)
            if not runs.ids:
                warn(f"{db}: no runs, or none that the filters select")
            config = propose_config(
                runs.read,
                labels.by_run,
                source=" ".join(filter(None, [runs.source, _about_labels(labels.origin), about])),
                key=case_key,
                references=references,
            )
            steps = _next_steps(config_path) if runs.ids else _first_steps(config_path)
    if not prints:
        _write(config, target, replaces=force)
    _show(config, target, steps, prints=prints, as_json=as_json)
    return 0


@click.command()
@config_option("The configuration that --write adds the rule to.")
@db_option
@filters
@_case_options
@click.option("--write", is_flag=True, help="Add the rule to the configuration.")
@json_option
def learn(
    config_path: str,
    db: str,
    key: str | None,
    reference_path: str | None,
    evaluator: str,
    write: bool,
    as_json: bool,
    **filter_options: Any,
) -> int:
    """Find the rule that agrees best with labels.

    Labels are people's (oteval judge label, the pages), or the rewards of loaded sessions. A rule
    is a match or a check, or up to three that must all pass. Its agreement is measured by
    cross-validation on questions that it was not chosen by. The exit status is 1 if no rule agrees
    better than the same verdict for all runs, and 3 if there are too few labels.
    """
    target = Path(config_path)
    with open_store(db) as store:
        runs = _LookedAtRuns(store, filter_options, db)
        labels = labels_of_runs(store, runs.ids, evaluator)
        source = _reference_source(reference_path, key, target, store) or _configured(target, store)
        case_key = key or (source.entry.get("key") if source else None)
        evidence = read_evidence(runs.read(), labels.by_run, case_key)
        try:
            rule = learn_rule(evidence, runs.read, source)
        except FewLabels as reason:
            raise NothingEvaluated(f"{runs.source} {reason}") from None
        proposals = with_counts(rule.proposals(), rule.files(), runs.read(), source)
    _show_rule(rule, proposals, f"{runs.source} {_about_labels(labels.origin)}", as_json=as_json)
    if rule.is_useful and write:
        text = with_learned(_text_of(target), proposals, str(target))
        _write_all({**rule.files(), target.name: text}, target.parent)
        warn(f"{target}: the rule was added")
    return 0 if rule.is_useful else 1


class _LookedAtRuns:
    """The runs that are looked at: read anew each time, so that they never are in memory at once.

    Attributes:
        ids: Their ids.
        source: Which runs these are, a sentence.
    """

    def __init__(self, store: Store, filter_options: dict[str, Any], db: str) -> None:
        self._store = store
        limit = filter_options.get("limit") or _MOST_RUNS
        self._selection = select(**{**filter_options, "limit": limit})
        self.ids = [
            name
            for page in store.trajectories.keys(self._selection)
            for name in page["trajectory_id"].to_pylist()
        ]
        total = store.trajectories.count(select(**{**filter_options, "limit": None}))
        latest = f"the latest {len(self.ids):,} of " if len(self.ids) < total else ""
        self.source = f"Made of {latest}{counted(total, 'run')} in {db}."

    def read(self) -> Iterator[Trajectory]:
        """Yield the runs, the oldest first."""
        yield from self._store.trajectories.read(self._selection)


def _load(db: str, paths: tuple[str, ...]) -> None:
    """Load files into the database, as oteval ingest does."""
    with store_in_turn(database_for(paths, db)) as store, store.loading():
        report = load_files(store, paths)
        refresh_runs(store)
    if any(file.error for file in report.files):
        raise InputError("nothing was proposed, because a file could not be read")
    warn(f"{db}: {counted(report.stored, 'span or session', 'spans and sessions')} loaded")


def _reference_source(
    path: str | None, key: str | None, target: Path, store: Store
) -> ReferenceSource | None:
    """The references of ``--reference``."""
    if path is None:
        return None
    beside = os.path.relpath(path, target.parent)
    case_key = key or _only_key(path)
    entry = {"dataset": beside, **({"key": case_key} if case_key else {})}
    return reference_source(entry, target.parent, store)


def _only_key(path: str) -> str:
    """The key that names the cases of a dataset, if its lines have only one key but messages."""
    for value, _ in read_json_lines(Path(path)):
        keys = [key for key in value if key != "messages"] if isinstance(value, dict) else []
        return str(keys[0]) if len(keys) == 1 else ""
    return ""


def _configured(target: Path, store: Store) -> ReferenceSource | None:
    """The references by case of the configuration, unless oteval proposed them itself."""
    for settings in load_config(target).evaluators if target.exists() else ():
        entry = getattr(settings.reference, "dataset", None)
        if entry and not PROPOSED_NAME.match(settings.name):
            key = getattr(settings.reference, "key", None)
            return reference_source({"dataset": entry, "key": key}, target.parent, store)
    return None


def _about_labels(origin: str) -> str:
    return f"Labels: {origin}." if origin else ""


def _text_of(target: Path) -> str:
    return read_config(target) if target.exists() else ""


def _first_steps(config_path: str) -> list[tuple[str, str]]:
    """The commands that record an agent, and their purposes."""
    programs = agent_programs(Path.cwd())
    program = programs[0] if programs else "your_agent.py"
    return [
        (f"oteval run -- python {shlex.quote(program)}", "runs your agent and records it"),
        (
            f"oteval init --force{_config_argument(config_path)}",
            "proposes checks, references and gates from its runs",
        ),
    ]


def _next_steps(config_path: str) -> list[tuple[str, str]]:
    return [
        (f"oteval score{_config_argument(config_path)}", "scores the runs, and checks the gates"),
        ("oteval learn", "chooses a better rule once runs are labelled (oteval judge label)"),
    ]


def _config_argument(config_path: str) -> str:
    return "" if config_path == DEFAULT_PATH else f" -c {shlex.quote(config_path)}"


def _write(config: ProposedConfig, target: Path, *, replaces: bool) -> None:
    """Write the file and its references, if the file loads.

    Raises:
        InputError: A file exists already, or cannot be written.
    """
    parse_config(config.text, str(target))
    for name, text in config.files.items():
        path = target.parent / name
        if not replaces and path.exists() and path.read_bytes() != text.encode():
            raise InputError(f"{path}: exists already with other content; --force replaces it")
    _write_all({**config.files, target.name: config.text}, target.parent)


def _write_all(files: Mapping[str, str], folder: Path) -> None:
    try:
        write_files(files, folder)
    except OSError as error:
        path = error.filename or folder
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def _show(
    config: ProposedConfig,
    target: Path,
    steps: Sequence[tuple[str, str]],
    *,
    prints: bool,
    as_json: bool,
) -> None:
    """Print the file, or list the proposals."""
    if as_json:
        if config.rule is not None:
            print_json(config.rule.as_dict())
        for proposal in config.proposals:
            print_json(proposal.as_dict())
        return
    if prints:
        say(config.text.rstrip("\n"))
        for path in config.files:
            warn(f"the file also needs {target.parent / path}, which is written without --print")
        return
    for note in config.notes[1:]:
        warn(note)
    out().print(_table(config.proposals))
    count = sum(proposal.is_active and not proposal.is_gate for proposal in config.proposals)
    warn(f"{target}: {counted(count, 'evaluator')} written; next:")
    for command, purpose in steps:
        say(f"   {command}   # {purpose}")


def _table(proposals: Sequence[Proposal]) -> Table:
    """The proposals with their verdicts on the stored runs."""
    table = Table(box=None, pad_edge=False)
    for head in ("proposal", "pass", "fail", "not evaluated", "because"):
        table.add_column(head, justify="right" if head in _COUNTS else "left")
    for proposal in proposals:
        name = f"gate {proposal.name}" if proposal.is_gate else proposal.name
        tally = proposal.counts.tally if proposal.counts else None
        counts = (
            (str(tally.passed), str(tally.failed), str(tally.not_evaluated)) if tally else ("",) * 3
        )
        name = name if proposal.is_active else f"# {name}"
        table.add_row(name, *counts, one_line(proposal.reasons[0] if proposal.reasons else ""))
    return table


def _show_rule(
    rule: LearnedRule, proposals: Sequence[Proposal], source: str, *, as_json: bool
) -> None:
    if as_json:
        print_json(rule.as_dict())
        return
    warn(source)
    for proposal in proposals:
        say("\n".join(entry_lines(proposal)))
    if rule.is_useful:
        folds = f"{rule.agreement.chosen} of {counted(rule.agreement.folds, 'fold')}"
        warn(f"{folds} choose this rule; --write adds it to the configuration")
    else:
        warn(rule.summary)
