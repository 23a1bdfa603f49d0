"""The Claude Code transcript reader: what the adapter contract asks for, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.adapters.claude import discover, store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from agentsdir.adapters.protocol import (
        Adoptable,
        Follower,
        NativeSession,
        Paths,
        Refuse,
        SessionFiles,
        Translator,
    )
    from agentsdir.formats.sink import ParseSink
    from agentsdir.formats.source import Source


class ClaudeReader:
    """Reads transcripts of Claude Code and the Claude Agent SDK, 1.0 to 2.1, and their stdout."""

    def detect(self, head: bytes, name: str) -> bool:
        """Tell whether the bytes are Claude's."""
        return discover.detect(head)

    def paths(self, home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
        """Return where the client keeps transcripts made in `cwd`."""
        return store.claude_paths(home, cwd, env)

    def discover(self, sources: Sequence[Source]) -> list[SessionFiles]:
        """Group files into sessions."""
        return discover.discover(sources)

    def parse_transcripts(self, session: SessionFiles, sink: ParseSink) -> None:
        """Read the main transcript, then each subagent's, into `sink`."""
        # Most files that are asked about are another client's: they need not pay for this.
        from agentsdir.adapters.claude.sessions import read_session

        read_session(session, sink)

    def is_storage(self, folder: Path) -> bool:
        """Tell whether a folder is a client's root."""
        from agentsdir.adapters.claude import store

        return store.is_storage(folder)

    def transcripts(self, storage: Path, refuse: Refuse) -> Iterator[Path]:
        """Yield every transcript in the store."""
        from agentsdir.adapters.claude import store

        return store.transcripts(storage, refuse)

    def sessions(self, storage: Path, refuse: Refuse) -> Iterator[NativeSession]:
        """Yield the sessions in the store, the one written last first."""
        from agentsdir.adapters.claude import store

        return store.sessions(storage, refuse)

    def locate(self, storage: Path, native_id: str) -> list[Path]:
        """Return the transcripts of an id, or of ids that begin so."""
        from agentsdir.adapters.claude import store

        return store.locate(storage, native_id)

    def native_id(self, main: Path) -> str:
        """Return which session a main transcript is."""
        from agentsdir.adapters.claude.moving import native_id_of

        return native_id_of(main)

    def files(self, main: Path) -> SessionFiles:
        """Return a session with its children."""
        from agentsdir.adapters.claude import store

        return store.files(main)

    def adoptable(self, main: Path) -> Adoptable:
        """Return a session with every file that is its own."""
        from agentsdir.adapters.claude.moving import adoptable

        return adoptable(main)

    def follow(self, main: Path, *, hidden: bool = False, alone: bool = False) -> Follower:
        """Return a follower of one session."""
        from agentsdir.adapters.claude.follow import ClaudeFollower

        return ClaudeFollower(main, hidden=hidden, alone=alone)

    def translate_stream(self) -> Translator:
        """Return a translator for the standard output of one run."""
        from agentsdir.adapters.claude.stream import ClaudeTranslator

        return ClaudeTranslator()
