"""``oteval delete`` and ``oteval audit``: delete traces, and list deletions."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from ..base.errors import ConfigError, NotFound
from ..base.machine import user_name
from ..base.text import counted, listed
from ..model import EVERYTHING
from ..scoring import DeletionPlan, delete_traces, plan_deletion
from ..store import Store
from ..views import audit_table, deleted_text
from .common import (
    databases_option,
    db_option,
    filters,
    json_option,
    open_store,
    out,
    print_json,
    print_rows,
    progress,
    select as selection_of,
    warn,
)

__all__ = ["audit", "delete"]


@click.command()
@click.option("--trace", multiple=True, metavar="ID", help="Delete this trace; may be repeated.")
@db_option
@filters
@click.option("--dry-run", is_flag=True, help="List the traces without deleting them.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def delete(
    trace: tuple[str, ...], db: str, dry_run: bool, yes: bool, as_json: bool, **filter_options: Any
) -> int:
    """Delete traces with everything derived from them.

    This deletes their spans, log records, trajectories, scores, labels, cached judgements and
    archived rows, and records the deletion in the audit log. --conversation selects all traces of
    a conversation; the other filters select the traces of the matching runs. Later turns of a chat
    repeat earlier ones in their own spans, so delete a person's chat by --conversation, not by
    --trace.

    Deleted rows occupy the file until `oteval compact`. Backups and forwarded copies keep their
    data.
    """
    conversations = tuple(filter_options.pop("conversation", ()) or ())
    chosen = {name: value for name, value in filter_options.items() if value}
    selection = selection_of(**filter_options) if chosen else None
    if selection == EVERYTHING or not (trace or conversations or selection):
        raise ConfigError("nothing selected: give --trace, --conversation or another filter")
    all_options = {"trace": list(trace), "conversation": list(conversations), **chosen}
    used_options = {name: value for name, value in all_options.items() if value}
    with open_store(db) as store:
        plan = plan_deletion(
            store,
            trace_ids=[_full_id(store, name) for name in trace],
            conversations=conversations,
            selection=selection,
        )
        if dry_run or not plan.traces:
            _print_plan(plan, as_json)
            return 0
        if not yes:
            _confirm(plan)
        with progress("deleting", " traces") as update:
            total = len(plan.traces)
            done = delete_traces(
                store,
                plan,
                actor=user_name(),
                chosen=used_options,
                on_progress=lambda count: update(count, total),
            )
        unlinked = store.deletion.unlinked_judge_calls()
    if as_json:
        print_json({"deleted": asdict(done), "copies": dict(plan.copies)})
    else:
        out().print(deleted_text(done))
    _warn_remaining(plan, unlinked)
    return 0


def _full_id(store: Store, prefix: str) -> str:
    """Return the only trace id that starts with a prefix.

    Raises:
        NotFound: No trace, or more than one, has the prefix.
    """
    trace_ids = store.deletion.find_traces(prefix)
    if prefix in trace_ids:
        return prefix
    if len(trace_ids) == 1:
        return trace_ids[0]
    if trace_ids:
        raise NotFound(f"--trace {prefix!r} is ambiguous: {', '.join(trace_ids)}")
    raise NotFound(f"--trace {prefix!r}: no such trace")


def _print_plan(plan: DeletionPlan, as_json: bool) -> None:
    if as_json:
        print_json({"traces": list(plan.traces), "copies": dict(plan.copies)})
        return
    for trace_id in plan.traces:
        out().print(trace_id)
    count = counted(len(plan.traces), "trace")
    warn(f"{count} would be deleted" if plan.traces else "no trace matches; nothing was deleted")


def _confirm(plan: DeletionPlan) -> None:
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{counted(len(plan.traces), 'trace')} would be deleted; pass --yes to do it, or "
            "--dry-run to list them"
        )
    question = f"Delete {counted(len(plan.traces), 'trace')} ({listed(plan.traces)})?"
    click.confirm(question, abort=True, err=True)


def _warn_remaining(plan: DeletionPlan, unlinked: int) -> None:
    for kind, count in plan.copies.items():
        if count:
            warn(f"{counted(count, kind.removesuffix('s'))} made from these runs keep their copies")
    if plan.neighbours:
        others = counted(len(plan.neighbours), "other trace")
        warn(f"{others} of the same conversations may repeat their content")
    if unlinked:
        warn(f"{counted(unlinked, 'cached judgement')} not linked to a run: kept")
    warn("run `oteval compact` to erase the deleted rows from the file")


@click.command()
@databases_option
@json_option
def audit(db: tuple[str, ...], as_json: bool) -> int:
    """List deletions, and changes made on the pages.

    All have their time and author; deletions also the selection and the number of rows, changes
    the run.
    """
    with open_store(db) as store:
        entries = store.audit.entries()
    rows = [entry.as_dict() for entry in entries]
    print_rows(rows, "entry", partial(audit_table, entries), as_json=as_json)
    return 0
