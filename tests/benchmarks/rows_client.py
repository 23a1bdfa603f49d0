"""A client that is an adapter of its own: a turn is rows that stand in its file all at once.

Its store is in the folder that is the first argument of the program.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from claude_rows import Rows

from agentsdir.adapters.claude.reader import ClaudeReader
from agentsdir.adapters.protocol import Architecture, NativeFile
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Sequence as Files

    from agentsdir.adapters.protocol import Content, Profile, SessionSpec
    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.findings import Finding

NAME = "rows-client"
STORE = Path(sys.argv[1]) / "store"
ROWS = Rows(11)


def main_file(native_id: str) -> Path:
    """Return where the client has the transcript of a session."""
    return STORE / f"{native_id}.jsonl"


def files_of(spec: SessionSpec) -> list[NativeFile]:
    """Return the files of a session."""
    path = main_file(spec.native_id)
    return [NativeFile(path.name, "main", Source(path.name, path=path))] if path.exists() else []


class Session:
    """A session whose turns are rows that stand in the file all at once."""

    def __init__(self, spec: SessionSpec) -> None:
        self._spec = spec

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Append a turn."""
        del content
        with main_file(self._spec.native_id).open("ab") as stream:
            stream.writelines(ROWS.turn())
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

    def create(self, spec: SessionSpec) -> Session:
        """Open a session."""
        return Session(spec)

    def restore(self, spec: SessionSpec, state: bytes) -> Session:
        """Open a session again."""
        del state
        return Session(spec)

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


ARCHITECTURE = Architecture(NAME, NAME, "rows", ClaudeReader(), Provider())
