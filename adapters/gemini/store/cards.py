"""What a list shows of a session, from the first and last 64 KiB of its file."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.adapters.gemini.transcripts.heads import (
    BEGINNING,
    cut_prompt,
    ends_of,
    id_of,
    look_at,
    messages,
    prompt_of,
    started,
    summary_of,
)
from agentsdir.adapters.gemini.transcripts.speakers import names_command
from agentsdir.formats import times

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentsdir.adapters.gemini.transcripts.heads import (
        Ends,
        Head,
    )

TITLE = 200


class Card(NamedTuple):
    """A session's file. `modified` is in nanoseconds since 1970, `size` in bytes."""

    file: Path
    head: Head
    title: str
    created: str | None
    modified: int
    size: int


def read_card(path: Path, wanted: Callable[[str], bool] | None = None) -> Card | None:
    """Return what the file of a session says; None where none of ours is.

    Args:
        path: of the file.
        wanted: tells whether the session's id is one that is asked for; else None is returned.

    Raises `OSError` when it cannot be read.
    """
    # O_NONBLOCK: whatever else stands there must not hang us.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return None
        if wanted and not wanted(id_of(os.pread(descriptor, BEGINNING, 0)) or path.stem):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            ends = ends_of(stream)
    finally:
        os.close(descriptor)
    head = look_at(ends)
    family = head.family
    if family is None:
        return None
    if not head.session_id:  # a log without its header is named by its file
        head = head._replace(session_id=path.stem)
    title = _title(ends, family) if head.talks else ""
    created = times.native(started(ends))
    return Card(path, head, title, created, status.st_mtime_ns, ends.size)


def _title(ends: Ends, family: str) -> str:
    """Return the client's own title, failing that what a person typed first, or a command."""
    title = summary_of(ends, family)
    command = ""
    if not title.strip():
        for message in messages(ends, family):
            typed = prompt_of(message).strip()
            if typed and not (typed.startswith("?") or names_command(typed)):
                title = typed
                break
            command = command or typed
    return _one_line(title or command or cut_prompt(ends, family))


def _one_line(title: str) -> str:
    line = " ".join(title.encode(errors="replace").decode().split())
    return line if len(line) <= TITLE else line[: TITLE - 1] + "…"
