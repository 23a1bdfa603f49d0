"""The running side of Gemini CLI, which imports what it needs when a session is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agentsdir.adapters.contract import NativeFile, Profile, SessionSpec
    from agentsdir.adapters.gemini.running.session import GeminiSession
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.source import Source


class GeminiProvider:
    """Opens sessions of Gemini CLI, under an id of our choice where the version takes one.

    There are no options: what the client can be told besides a model loosens what it may do
    (decision D33).
    """

    option_names: tuple[str, ...] = ()
    default_model = ""
    runs_program = True

    def create(self, spec: SessionSpec) -> GeminiSession:
        """Open a new session. Raises `ProviderError`."""
        from agentsdir.adapters.gemini.running.session import GeminiSession

        return GeminiSession(spec, is_known=False)

    def restore(self, spec: SessionSpec, state: bytes) -> GeminiSession:
        """Reopen one, from its chat file alone, which is put in place if it is not there.

        Without one of its own it begins anew. Raises as `place` does.
        """
        from agentsdir.adapters.gemini.running.session import GeminiSession
        from agentsdir.adapters.gemini.store.own_files import own_files

        del state
        self.place(spec)
        return GeminiSession(spec, is_known=bool(own_files(spec.transcripts, spec.native_id)))

    def fork(
        self,
        transcripts: Mapping[str, Source],
        old_id: str,
        new_id: str,
        report: Callable[[Finding], None],
    ) -> Iterator[NativeFile]:
        """Yield the transcripts of a session under another id."""
        from agentsdir.adapters.gemini.store import forking

        return forking.fork(transcripts, old_id, new_id, report)

    def native_files(self, spec: SessionSpec) -> list[NativeFile]:
        """Return the session's files as they stand in the client's store."""
        from agentsdir.adapters.gemini.running.versions import names_by_hash
        from agentsdir.adapters.gemini.store.native_files import session_files

        return session_files(spec, by_hash=names_by_hash(spec.host))

    def place(self, spec: SessionSpec) -> list[Path]:
        """Put saved transcripts where the client finds them (see `placing`)."""
        from agentsdir.adapters.gemini.running.session import check_closed
        from agentsdir.adapters.gemini.running.versions import names_by_hash
        from agentsdir.adapters.gemini.store import placing

        check_closed(spec)
        return placing.place(spec, by_hash=names_by_hash(spec.host))

    def goes_on(self, saved: Source, present: Source, *, ours: bool) -> bool:
        """Tell whether a chat file that was written anew still has all that the saved one has."""
        from agentsdir.adapters.gemini.store.continuing import goes_on

        del ours  # who wrote it makes no difference: what is gone is gone
        return goes_on(saved, present)

    def workspace_files(self, profile: Profile) -> Mapping[str, bytes]:
        """Return what a profile puts into a workspace."""
        from agentsdir.adapters.gemini.store import workspace

        return workspace.workspace_files(profile)
