"""The transcript reader of Gemini CLI: which files are its own, and how a session is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.adapters.gemini.discover import family_of, group
from agentsdir.adapters.gemini.projects import client_paths

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


class GeminiReader:
    """Reads sessions of every client version since 0.3, and recorded standard output."""

    def detect(self, head: bytes, name: str) -> bool:
        """Tell from the first bytes whether this is a session file or a recorded run."""
        return family_of(head) is not None

    def paths(self, home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
        """Say where the real client keeps the sessions of `cwd`."""
        return client_paths(home, cwd, env)

    def discover(self, sources: Sequence[Source]) -> list[SessionFiles]:
        """Group files into sessions, each with the threads of its subagents."""
        return group(sources)

    def parse_transcripts(self, session: SessionFiles, sink: ParseSink) -> None:
        """Read a session into `sink`: the main thread, then its subagents' in the order given."""
        # Most files that are asked about are another client's: they need not pay for this.
        from agentsdir.adapters.gemini.read import read_session

        read_session(session, sink)

    def is_storage(self, folder: Path) -> bool:
        """Tell whether a folder is a client's root."""
        from agentsdir.adapters.gemini import store

        return store.is_storage(folder)

    def transcripts(self, storage: Path, refuse: Refuse) -> Iterator[Path]:
        """Yield every transcript in the store."""
        from agentsdir.adapters.gemini import store

        return store.transcripts(storage, refuse)

    def sessions(self, storage: Path, refuse: Refuse) -> Iterator[NativeSession]:
        """Yield the sessions in the store, the one written last first."""
        from agentsdir.adapters.gemini import store

        return store.sessions(storage, refuse)

    def locate(self, storage: Path, native_id: str) -> list[Path]:
        """Return the transcripts of an id, or of ids that begin so."""
        from agentsdir.adapters.gemini import store

        return store.locate(storage, native_id)

    def native_id(self, main: Path) -> str:
        """Return which session a main transcript is."""
        from agentsdir.adapters.gemini import store

        return store.native_id(main)

    def files(self, main: Path) -> SessionFiles:
        """Return a session with its children."""
        from agentsdir.adapters.gemini import store

        return store.files(main)

    def adoptable(self, main: Path) -> Adoptable:
        """Return a session with every file that is its own."""
        from agentsdir.adapters.gemini.moving import adoptable

        return adoptable(main)

    def follow(self, main: Path, *, hidden: bool = False, alone: bool = False) -> Follower:
        """Return a follower of one session."""
        from agentsdir.adapters.gemini.follow import GeminiFollower

        return GeminiFollower(main, hidden=hidden, alone=alone)

    def translate_stream(self) -> Translator:
        """Return a translator for the standard output of one run."""
        from agentsdir.adapters.gemini.stream import GeminiTranslator

        return GeminiTranslator()
