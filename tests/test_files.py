"""Durable writes and exclusive locks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from oteval import files


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
