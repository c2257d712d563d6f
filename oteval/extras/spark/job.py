"""The job of ``oteval score --engine spark``: files in, a folder of results out."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError
from ...evaluators import CostBudget
from ...model import EVERYTHING, Selection
from ...scoring import Config, JobLimits, prepare
from .files import SourceFile, list_files
from .judges import JudgeTask, begin_limits, judge_scores, split_judges
from .output import Output, require_free, write_judge_scores, write_results
from .result_places import is_address
from .scores import Scored, require_files, score
from .sources import FileProblems, Traces, damage_of, find_damage, read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["score_files"]


def score_files(
    session: SparkSession,
    paths: Sequence[str | Path],
    config: Config,
    out: str | Path,
    *,
    base: Path = Path(),
    selection: Selection = EVERYTHING,
    overwrite: bool = False,
    again: bool = False,
    max_judge_calls: int | None = None,
    time_ns: int | None = None,
) -> list[FileProblems]:
    """Score files of traces, and write the trajectories and scores to a folder.

    The folder is marked as unfinished until all results are written. If the job fails, run it again
    with the same folder: answers of judges that were written are not requested again.

    Args:
        session: The Spark session.
        paths: The files, as for `oteval.extras.spark.read_traces`.
        config: The configuration.
        out: The folder of results, which the driver and all executors have under the same path. If
            no evaluator is a judge, it may be an address that Spark writes to, such as
            ``s3a://...``.
        base: The folder that paths of the configuration are relative to.
        selection: The runs to score. Its limit does not apply.
        overwrite: Whether to replace results that the folder has.
        again: Whether to call judges again, ignoring the answers in the folder.
        max_judge_calls: The most requests to judges by all tasks together; None without a limit.
        time_ns: The time of the scores (ns); now by default.

    Returns:
        The parts of the files that could not be read, by file.

    Raises:
        InputError: A file or the configuration cannot be used, the folder has results or other
            files, or nothing could be read.
    """
    now = time.time_ns() if time_ns is None else time_ns
    require_files(config)
    judges, others = split_judges(config)
    if judges.evaluators and is_address(out):
        raise InputError(
            f"{out}: evaluator {judges.evaluators[0].name!r} asks a model, and judges share their "
            "answers in a folder that all executors have; give such a folder as --out"
        )
    require_free(out, overwrite=overwrite, session=session)
    # Wrong references, prompts and prices are found before Spark begins.
    for prepared in prepare(config, None, base, job=_UNUSED):
        prepared.close()
    # This comes before the folder of results is begun, because it may be among the paths.
    files = list_files(session, paths)
    output = Output.begin(out, overwrite=overwrite, session=session)
    traces, results, problems = _scored_files(
        session,
        files,
        lambda spans, logs: score(spans, others, logs, base=base, selection=selection, time_ns=now),
    )
    try:
        write_results(results, output)
    finally:
        with suppress(Exception):
            results.release()
            traces.release()
    if judges.evaluators:
        if again and not output.resumes:
            shutil.rmtree(output.calls, ignore_errors=True)
        begin_limits(output.calls, resumes=output.resumes)
        task = JudgeTask(
            judges, base.absolute(), output.preview(), output.calls, selection, max_judge_calls, now
        )
        write_judge_scores(judge_scores(session, task), output)
    output.finish()
    return problems


def _scored_files(
    session: SparkSession,
    files: Sequence[SourceFile],
    score_rows: Callable[[DataFrame, DataFrame | None], Scored],
) -> tuple[Traces, Scored, list[FileProblems]]:
    """Score the files, and again without their damaged parts, if damage ended the first pass.

    Raises:
        InputError: No span could be read.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    damaged: dict[str, str] = {}
    while True:
        traces = read_files(session, files, damaged)
        try:
            problems = traces.problems()
            if problems and traces.spans.isEmpty():
                raise InputError(f"no span could be read; {problems[0].file}: {problems[0].reason}")
            return traces, score_rows(traces.spans, traces.logs), problems
        except (PySparkException, Py4JError) as error:
            with suppress(Exception):
                traces.release()
            new_damage = damage_of(error, files)
            if not new_damage.keys() - damaged.keys():
                raise
            damaged |= new_damage if damaged else {**new_damage, **find_damage(session, files)}
        except BaseException:
            with suppress(Exception):
                traces.release()
            raise


class _NoCalls:
    """Calls of judges that are prepared to check their options, without any request."""

    def of(self, evaluator: str, kind: type[Any], *, again: bool = False) -> None:
        del evaluator, kind, again


_UNUSED = JobLimits(_NoCalls(), None, lambda evaluator, limit: CostBudget(limit, evaluator))
