"""The commands of ``oteval``: their names, summaries and modules.

A test compares the summaries with the help of the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from .lazy_group import LazyCommand

__all__ = ["commands"]

_Commands = Sequence[click.Command]


def commands() -> Sequence[LazyCommand]:
    """Return all commands, not imported yet, in the order of docs/reference/cli.md."""
    return tuple(LazyCommand(name, load, summary) for name, load, summary in _TABLE)


def _demo() -> _Commands:
    from .demo import demo

    return (demo,)


def _ingest() -> _Commands:
    from .ingest import ingest

    return (ingest,)


def _pull() -> _Commands:
    from .pull import pull

    return (pull,)


def _push() -> _Commands:
    from .push import push

    return (push,)


def _pages() -> _Commands:
    from .pages import view

    return (view,)


def _view() -> _Commands:
    from .view import diff, explain, show, trajectories, variants

    return (diff, explain, show, trajectories, variants)


def _score() -> _Commands:
    from .score import score, scores

    return (score, scores)


def _rescore() -> _Commands:
    from .rescore import rescore

    return (rescore,)


def _reference() -> _Commands:
    from .reference import reference

    return (reference,)


def _report() -> _Commands:
    from .report import report

    return (report,)


def _config() -> _Commands:
    from .config import config

    return (config,)


def _export() -> _Commands:
    from .export import export

    return (export,)


def _serve() -> _Commands:
    from .serve import serve

    return (serve,)


def _experiments() -> _Commands:
    from .experiments import eval_, experiments

    return (eval_, experiments)


def _compare() -> _Commands:
    from .compare import compare, pairwise

    return (compare, pairwise)


def _dataset() -> _Commands:
    from .dataset import dataset

    return (dataset,)


def _judge() -> _Commands:
    from .judge import judge

    return (judge,)


def _replay() -> _Commands:
    from .replay import replay
    from .replay_cassette import cassette
    from .replay_serve import serve_replay
    from .replay_test import make_test
    from .replay_whatif import what_if

    for command in (serve_replay, make_test, cassette, what_if):
        replay.add_command(command)
    return (replay,)


def _status() -> _Commands:
    from .status import status

    return (status,)


def _maintain() -> _Commands:
    from .maintain import archive, backup, compact

    return (archive, backup, compact)


def _delete() -> _Commands:
    from .delete import audit, delete

    return (audit, delete)


def _resend() -> _Commands:
    from .resend import resend

    return (resend,)


def _doctor() -> _Commands:
    from .doctor import doctor

    return (doctor,)


def _monitor() -> _Commands:
    from .monitor import monitor
    from .monitor_compare import compare
    from .monitor_past import backtest, simulate

    monitor.add_command(backtest)
    monitor.add_command(simulate)
    monitor.add_command(compare)
    return (monitor,)


def _mcp() -> _Commands:
    from .mcp import mcp

    return (mcp,)


def _run() -> _Commands:
    from .run import run

    return (run,)


_TABLE: Sequence[tuple[str, Callable[[], _Commands], str]] = (
    ("demo", _demo, "Load, reconstruct and score bundled traces, without a server or a key."),
    (
        "ingest",
        _ingest,
        'Load files with traces and conversations, and folders of them; "-" is standard input.',
    ),
    ("pull", _pull, "Load the traces of a backend that arrived there since the last pull."),
    ("trajectories", _view, "List the trajectories, one for each agent run."),
    ("show", _view, "Show trajectories: messages, calls, results, errors, gaps and scores."),
    ("explain", _view, "Explain how each span of a trace was read, and how to close gaps."),
    (
        "score",
        _score,
        "Score trajectories with the evaluators of oteval.yaml, and check its gates.",
    ),
    (
        "rescore",
        _rescore,
        "Run new evaluators over stored sessions, and compare with their earlier scores.",
    ),
    (
        "scores",
        _score,
        "List the current scores: the newest by each evaluator on each trajectory as it is.",
    ),
    ("diff", _view, "Compare trajectories with the first one and mark where they diverge."),
    ("reference", _reference, "Add, list and check reference trajectories."),
    (
        "report",
        _report,
        "Write a report with figures, a matrix of runs and verdicts, and the details of each run.",
    ),
    ("variants", _view, "Group runs by their sequence of tool calls, most frequent first."),
    ("view", _pages, "Look at runs, their scores and their spans in the browser."),
    ("config", _config, "Check oteval.yaml, or print its JSON schema."),
    ("export", _export, "Export the database; the filters apply to all but --parquet."),
    ("push", _push, "Write scores as the backend's annotations on the judged spans."),
    (
        "serve",
        _serve,
        "Receive traces over OTLP, store and score them, publish the scores, and check monitors.",
    ),
    (
        "eval",
        _experiments,
        "Run an experiment: evaluate a target on examples, or stored trajectories.",
    ),
    ("compare", _compare, "Compare the scores of two experiments by statistics, without a judge."),
    ("pairwise", _compare, "Ask which experiment has the better output for each example."),
    ("experiments", _experiments, "List the stored experiments and comparisons."),
    ("dataset", _dataset, "Add, list and show datasets."),
    ("judge", _judge, "Measure agreement between judges and people."),
    ("replay", _replay, "Replay recorded sessions: the agent runs, and the recording answers it."),
    ("status", _status, "Show how much the database contains, and how much space it takes."),
    ("archive", _maintain, "Move old spans and log records into Parquet files."),
    ("compact", _maintain, "Reclaim disk space from deleted rows."),
    (
        "backup",
        _maintain,
        "Copy the current state of the database to FILE, even while a server runs.",
    ),
    ("delete", _delete, "Delete traces with everything derived from them."),
    (
        "audit",
        _delete,
        "List deletions, and changes made on the pages, with their time and author.",
    ),
    (
        "resend",
        _resend,
        "Send requests again that the endpoints of `oteval serve` refused permanently.",
    ),
    ("monitor", _monitor, "Watch scores and runs, and alert when behaviour changes."),
    ("mcp", _mcp, "Serve runs, scores and alerts over MCP to agents that write code."),
    ("doctor", _doctor, "Check that agents in this environment would be recorded."),
    ("run", _run, "Run a program, and record its agents without a change of its code."),
)
"""The name, the loader and the summary of each command, in the order of docs/reference/cli.md."""
