"""Finding the files of a session's subagents as they appear beside its main transcript.

There may be hundreds of files, and they are looked for ten times a second: so a folder is listed
when it was changed, and a file is opened until it has said what it is.
"""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import TYPE_CHECKING

from agentsdir.adapters.gemini.transcripts.detection import DOCUMENT, LOG
from agentsdir.adapters.gemini.transcripts.discovery import group
from agentsdir.adapters.gemini.transcripts.heads import look_at, read_ends
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentsdir.adapters.gemini.transcripts.heads import Ends

_SUFFIXES = (".json", ".jsonl")
# A folder that is written twice within a tick of the system's clock looks changed once.
_LISTINGS = 3


class Nearby:
    """The files beside a main transcript, and what they were found to be."""

    def __init__(self) -> None:
        # By folder: when it was changed, and how often it has looked so.
        self._folders: dict[Path, tuple[int, int]] = {}
        # Files that have said what they are, by inode; and those that have not.
        self._known: dict[Path, int] = {}
        self._open: set[Path] = set()

    def children(self, main: Path, session_id: str, *, complete: bool) -> Iterator[Path]:
        """Yield the files of a session's subagents that were not yielded before, in order.

        Args:
            complete: a file that is still being written is taken for what it says by now.
        """
        folders = [main.parent]
        if PurePath(session_id).name == session_id and session_id.isprintable():
            folders.append(main.parent / session_id)
        for folder in folders:
            self._open.update(path for path in self._listed(folder) if path != main)
        for path in sorted(self._open):
            try:
                inode = path.stat().st_ino
                found = _is_own(main, session_id, path, complete=complete)
            except (OSError, AgentsdirError):  # gone since it was listed
                self._open.discard(path)
                continue
            if found is not None:
                self._open.discard(path)
                self._known[path] = inode
            if found:
                yield path

    def forget(self, path: Path) -> None:
        """Look at a file anew that is not what it was."""
        self._known.pop(path, None)
        self._open.add(path)

    def _listed(self, folder: Path) -> Iterator[Path]:
        try:
            modified = folder.stat().st_mtime_ns
            before, times = self._folders.get(folder, (0, 0))
            times = times + 1 if before == modified else 1
            self._folders[folder] = modified, times
            if times > _LISTINGS:
                return
            with os.scandir(folder) as entries:
                for entry in entries:
                    path = folder / entry.name
                    # Whatever else stands there must not hang us.
                    if not (path.suffix in _SUFFIXES and entry.is_file()):
                        continue
                    if self._known.get(path) != entry.inode():
                        yield path
        except OSError:
            return


def is_child(main: Path, path: Path) -> bool:
    """Tell whether a file is one of a session's subagents'. Raises `AgentsdirError`."""
    sources = [Source(str(one), path=one) for one in (main, path)]
    return len(group(sources)[0].transcripts) > 1


def _is_own(main: Path, session_id: str, path: Path, *, complete: bool) -> bool | None:
    """Tell whether a file is a child of `main`; None while it does not say."""
    ends = read_ends(Source(str(path), path=path))
    head = look_at(ends)
    if head.family == LOG and b"\n" not in ends.head and not complete:
        return None
    if head.may_be_child and session_id in (head.session_id, path.parent.name):
        # If not, the main transcript is just being written.
        return is_child(main, path) or None
    return False if _says_all(head.family, ends) else None


def _says_all(family: str | None, ends: Ends) -> bool:
    """Tell whether a file says what kind it is: a log in its first line, a document in its last."""
    if family == DOCUMENT:
        return ends.tail.rstrip().endswith(b"}")
    return family is not None
