"""Clients that are adapters of their own: a turn is rows that stand in a file all at once.

Their store is in the folder that is the first argument of the program.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import claude_rows
import gemini_rows

from agentsdir.adapters.claude.reader import ClaudeReader
from agentsdir.adapters.gemini.reader import GeminiReader
from agentsdir.adapters.protocol import Architecture, NativeFile
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Sequence as Files

    from agentsdir.adapters.protocol import Content, Profile, SessionSpec
    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.findings import Finding

STORE = Path(sys.argv[1]) / "store"


class Rows(Protocol):
    """Writes the rows of one session."""

    def turn(self) -> Iterator[bytes]:
        """Yield the rows of one turn."""


def main_file(native_id: str) -> Path:
    """Return where the client has the transcript of a session."""
    return STORE / f"{native_id}.jsonl"


def files_of(spec: SessionSpec) -> list[NativeFile]:
    """Return the files of a session."""
    path = main_file(spec.native_id)
    return [NativeFile(path.name, "main", Source(path.name, path=path))] if path.exists() else []


class Session:
    """A session whose turns are rows that stand in the file all at once."""

    def __init__(self, spec: SessionSpec, rows: Rows) -> None:
        self._spec = spec
        self._rows = rows

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Append a turn."""
        del content
        with main_file(self._spec.native_id).open("ab") as stream:
            stream.writelines(self._rows.turn())
        yield from ()

    def interrupt(self) -> Iterator[StreamEvent]:
        """Do nothing."""
        yield from ()

    def suspend(self) -> bytes:
        """Return nothing."""
        return b""

    def stop(self) -> None:
        """Do nothing."""

    def transcripts(self) -> Files[NativeFile]:
        """Return the files."""
        return files_of(self._spec)


class Provider:
    """The client."""

    option_names = ()
    default_model = ""
    runs_program = True

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def create(self, spec: SessionSpec) -> Session:
        """Open a session."""
        return Session(spec, self.rows)

    def restore(self, spec: SessionSpec, state: bytes) -> Session:
        """Open a session again."""
        del state
        return Session(spec, self.rows)

    def fork(
        self,
        transcripts: Mapping[str, Source],
        old_id: str,
        new_id: str,
        report: Callable[[Finding], None],
    ) -> Iterator[NativeFile]:
        """Copy nothing."""
        del transcripts, old_id, new_id, report
        return iter(())

    def native_files(self, spec: SessionSpec) -> list[NativeFile]:
        """Return the files."""
        return files_of(spec)

    def materialize(self, spec: SessionSpec) -> list[Path]:
        """Write nothing."""
        del spec
        return []

    def is_continuation(self, saved: Source, present: Source, *, ours: bool) -> bool:
        """Refuse what was rewritten."""
        del saved, present, ours
        return False

    def workspace_files(self, profile: Profile) -> Mapping[str, bytes]:
        """Return none."""
        del profile
        return {}


def _architecture(name: str, reader: ClaudeReader | GeminiReader, rows: Rows) -> Architecture:
    return Architecture(name, name, "rows", reader, Provider(rows))


CLAUDE_ROWS = claude_rows.Rows(11)
GEMINI_ROWS = gemini_rows.Log(gemini_rows.Session("turns", 11), resumes=True)
CLAUDE = _architecture("rows-claude", ClaudeReader(), CLAUDE_ROWS)
GEMINI = _architecture("rows-gemini", GeminiReader(), GEMINI_ROWS)
