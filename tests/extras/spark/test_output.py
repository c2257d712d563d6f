"""The folder of results while jobs begin, fail and finish, without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from oteval.base.errors import InputError, StoreError
from oteval.extras.spark import Output
from oteval.store import read_result_folder


def fill(output: Output) -> None:
    """Write a file of each table; its content does not matter here."""
    for table in ("trajectories", "scores"):
        file = output.data / table / "date=2026-11-20" / "part.parquet"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")


def test_a_folder_is_unfinished_until_the_job_ends(tmp_path: Path):
    """Readers fail, a job that runs again removes the files of the one that failed."""
    failed = Output.begin(tmp_path / "out")
    fill(failed)
    with pytest.raises(StoreError, match="has not finished"):
        read_result_folder(tmp_path / "out")

    output = Output.begin(tmp_path / "out")
    assert output.resumes
    assert not failed.resumes
    assert not failed.data.exists()
    fill(output)
    output.finish()

    found = read_result_folder(tmp_path / "out")
    assert found.data == output.data
    assert [len(files) for files in found.files.values()] == [1, 1]


def test_results_are_replaced_only_when_the_new_ones_are_complete(tmp_path: Path):
    """Without `overwrite` they are refused; with it, they can be read until the end."""
    first = Output.begin(tmp_path)
    fill(first)
    first.finish()
    with pytest.raises(InputError, match="has results already; give --overwrite"):
        Output.begin(tmp_path)

    failed = Output.begin(tmp_path, overwrite=True)
    fill(failed)
    assert read_result_folder(tmp_path).data == first.data
    second = Output.begin(tmp_path, overwrite=True)
    fill(second)
    second.finish()

    assert read_result_folder(tmp_path).data == second.data
    assert not first.data.exists()
    assert not failed.data.exists()


def test_other_folders_and_addresses_are_refused(tmp_path: Path):
    """Nothing of a folder with other files is touched."""
    (tmp_path / "letter.txt").write_text("dear")

    with pytest.raises(InputError, match=r"has other files, such as letter\.txt"):
        Output.begin(tmp_path)
    with pytest.raises(InputError, match="needs a Spark session"):
        Output.begin("s3://bucket/out")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
