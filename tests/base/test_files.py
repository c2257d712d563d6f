"""Durable writes and exclusive locks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from oteval.base import files


def test_on_macos_the_drive_is_asked_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS fdatasync is missing, and fsync would leave the data in the drive's buffers."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(files, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda *arguments: asked.append(arguments))
    monkeypatch.delattr(os, "fdatasync")

    files.sync(7)

    assert asked == [(7, 51)]


def test_the_folder_itself_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor that is synced is the folder's."""
    synced: list[tuple[int, int]] = []

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced.append((found.st_dev, found.st_ino))

    monkeypatch.setattr(os, "fsync", fsync)

    files.sync_folder(tmp_path)

    expected = tmp_path.stat()
    assert synced == [(expected.st_dev, expected.st_ino)]


def test_a_lock_is_exclusive_until_its_block_ends(tmp_path: Path) -> None:
    """A second holder is refused, and may take the lock once the first has released it."""
    path = tmp_path / ".lock"
    with (
        files.exclusive_lock(path),
        pytest.raises(BlockingIOError),
        files.exclusive_lock(path),
    ):
        pass

    with files.exclusive_lock(path):
        assert path.exists()


def test_a_file_is_taken_away_between_whole_lines(tmp_path: Path) -> None:
    """While threads append, the file is taken away again and again, and no line is lost."""
    path, lines = tmp_path / "spans.jsonl", 300

    def write(number: int) -> None:
        for line in range(lines):
            files.append_shared(path, f"{number} {line} {'x' * 500}\n".encode())

    writers = [Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    taken = 0
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            assert files.take_shared(path, tmp_path / f"taken{taken}")
            taken += 1

    found = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert sorted(found) == sorted(f"{n} {k} {'x' * 500}" for n in range(3) for k in range(lines))
    assert path.stat().st_mode & 0o777 == 0o600 if path.exists() else True


def test_a_file_that_a_stopped_process_holds_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is moved, and may be read once that process lets go of it."""
    monkeypatch.setattr(files, "_PATIENCE", 0.0)
    path, taken = tmp_path / "spans.jsonl", tmp_path / "taken"
    files.append_shared(path, b"1\n")
    with path.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        assert not files.take_shared(path, taken)

    assert files.is_complete(taken)
