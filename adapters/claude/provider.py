"""The running side of Claude Code, which imports what it needs when a session is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

OPTIONS = ("append-system-prompt", "disallowed-tools", "fallback-model", "max-turns")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agentsdir.adapters.claude.running import ClaudeSession
    from agentsdir.adapters.contract import NativeFile, Profile, SessionSpec
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.source import Source


class ClaudeProvider:
    """Opens sessions of Claude Code, each under an id that we choose.

    The options are the client's own long options; none of them loosens a permission or names
    something to run (decision D33).
    """

    option_names: tuple[str, ...] = OPTIONS
    default_model = ""
    runs_program = True

    def create(self, spec: SessionSpec) -> ClaudeSession:
        """Open a new session. Raises `ProviderError`."""
        from agentsdir.adapters.claude.running import ClaudeSession

        return ClaudeSession(spec, "--session-id")

    def restore(self, spec: SessionSpec, state: bytes) -> ClaudeSession:
        """Reopen one, from its transcript alone, which is put in place if it is not there.

        Without one of its own it begins anew. Raises as `place` does.
        """
        from agentsdir.adapters.claude.placing import role_at
        from agentsdir.adapters.claude.running import ClaudeSession

        del state
        self.place(spec)
        known = any(role_at(path, spec.native_id) == "main" for path in spec.transcripts)
        return ClaudeSession(spec, "--resume" if known else "--session-id")

    def fork(
        self,
        transcripts: Mapping[str, Source],
        old_id: str,
        new_id: str,
        report: Callable[[Finding], None],
    ) -> Iterator[NativeFile]:
        """Yield the transcripts of a session under another id, as the client forks one."""
        from agentsdir.adapters.claude import forking

        return forking.fork(transcripts, old_id, new_id, report)

    def native_files(self, spec: SessionSpec) -> list[NativeFile]:
        """Return the session's files as they stand in the client's store."""
        from agentsdir.adapters.claude.native_files import session_files

        return session_files(spec)

    def place(self, spec: SessionSpec) -> list[Path]:
        """Put saved transcripts where the client finds them (see `placing`)."""
        from agentsdir.adapters.claude import placing
        from agentsdir.adapters.claude.running import check_closed

        check_closed(spec)
        return placing.place(spec)

    def goes_on(self, saved: Source, present: Source, *, ours: bool) -> bool:
        """Return whether a turn of ours wrote the file anew; else the client only appends."""
        del saved, present
        return ours

    def workspace_files(self, profile: Profile) -> Mapping[str, bytes]:
        """Return what a profile puts into a workspace."""
        from agentsdir.adapters.claude import workspace

        return workspace.workspace_files(profile)
