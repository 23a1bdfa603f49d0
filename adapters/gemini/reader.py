"""The transcript reader of Gemini CLI: which files are its own, and how a session is read."""

from __future__ import annotations

from pathlib import Path

from agentsdir.adapters.contract import Paths, SessionFiles, Translator
from agentsdir.adapters.gemini.detection import family_of
from agentsdir.adapters.gemini.discovery import group
from agentsdir.adapters.gemini.locations import client_paths
from agentsdir.formats.reading.sink import ParseSink
from agentsdir.formats.reading.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
        from agentsdir.adapters.gemini.sessions import read_session

        read_session(session, sink)

    def translate_stream(self) -> Translator:
        """Return a translator for the standard output of one run."""
        from agentsdir.adapters.gemini.translate import StdoutTranslator

        return StdoutTranslator()
