"""The Claude Code transcript reader: what the adapter contract asks for, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.adapters.claude import discover, moving, store
from agentsdir.adapters.claude.follow import ClaudeFollower
from agentsdir.adapters.claude.opened import open_sessions
from agentsdir.adapters.claude.sessions import read_session, resume_session
from agentsdir.adapters.claude.stream import ClaudeTranslator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from agentsdir.adapters.protocol import (
        Adoptable,
        Follower,
        NativeSession,
        Paths,
        Process,
        ReaderState,
        Refuse,
        SessionFiles,
        Translator,
    )
    from agentsdir.formats.sink import ParseSink
    from agentsdir.formats.source import Source


class ClaudeReader:
    """Reads transcripts of Claude Code and the Claude Agent SDK, 1.0 to 2.1, and their stdout."""

    def detect(self, head: bytes, name: str) -> bool:
        return discover.detect(head)

    def paths(self, home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
        return store.claude_paths(home, cwd, env)

    def discover(self, sources: Sequence[Source]) -> list[SessionFiles]:
        return discover.discover(sources)

    def parse_transcripts(self, session: SessionFiles, sink: ParseSink) -> None:
        read_session(session, sink)

    def resume(
        self,
        session: SessionFiles,
        sink: ParseSink,
        reading: ReaderState | None,
        *,
        keeps: bool = True,
    ) -> ReaderState | None:
        return resume_session(session, sink, reading, keeps=keeps)

    def is_storage(self, folder: Path) -> bool:
        return store.is_storage(folder)

    def transcripts(self, storage: Path, refuse: Refuse) -> Iterator[Path]:
        return store.transcripts(storage, refuse)

    def sessions(self, storage: Path, refuse: Refuse) -> Iterator[NativeSession]:
        return store.sessions(storage, refuse)

    def open_sessions(self, storage: Path) -> Iterator[tuple[str, Process]]:
        return open_sessions(storage)

    def locate(self, storage: Path, native_id: str) -> list[Path]:
        return store.locate(storage, native_id)

    def native_id(self, main: Path) -> str:
        return moving.native_id_of(main)

    def files(self, main: Path) -> SessionFiles:
        return store.files(main)

    def adoptable(self, main: Path) -> Adoptable:
        return moving.adoptable(main)

    def follow(self, main: Path, *, hidden: bool = False, alone: bool = False) -> Follower:
        return ClaudeFollower(main, hidden=hidden, alone=alone)

    def translate_stream(self) -> Translator:
        return ClaudeTranslator()
