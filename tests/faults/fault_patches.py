"""Ways to break the product in one child, which show that the rules can fail."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentsdir.formats.errors import NotRecorded, Uncertain
from agentsdir.formats.store import files, log

real_write = log._write_whole


def nothing() -> None:
    """Leave the product as it is."""


def join_lines() -> None:
    """Put nothing between a stub and the next record."""

    def write(descriptor: int, data: bytes, *rest: Any) -> None:
        real_write(descriptor, data.lstrip(b" \n"), *rest)

    log._write_whole = write


def acknowledge_anyway() -> None:
    """Say that a record is there before the disk has taken it."""

    def write(*arguments: Any) -> None:
        with suppress(NotRecorded):
            real_write(*arguments)

    log._write_whole = write


def write_in_place() -> None:
    """Write documents without a temporary file and a rename."""

    def replace_file(path: Path, data: bytes, *_options: Any) -> None:
        with path.open("r+b", buffering=0) as stream:
            stream.truncate(0)
            stream.write(data)

    files.replace_file = replace_file


def ignore_sync_errors() -> None:
    """Take no notice when the disk would not confirm."""
    real_sync = files._sync

    def sync(*arguments: Any) -> None:
        with suppress(Uncertain):
            real_sync(*arguments)

    files._sync = sync


def publish_in_pieces() -> None:
    """Copy a new agent to its place file by file, where it should appear by one rename."""

    def rename(source: Path, target: Path) -> None:
        shutil.copytree(source, target)
        shutil.rmtree(source)

    Path.rename = rename  # type: ignore[method-assign, assignment]
