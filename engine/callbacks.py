"""What a program that uses the library wants to be called with (decision D34; docs/library.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentsdir.formats.errors import UsageError
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.adapters.protocol import Content, Decision, ToolRequest
    from agentsdir.engine.result import TurnResult
    from agentsdir.engine.runner import SessionRef
    from agentsdir.formats.blocks import StreamEvent, Usage
    from agentsdir.formats.store.layout import AgentPaths


@dataclass(frozen=True)
class Callbacks:
    """The lifecycle callbacks of an app or a session; one that is None is not called.

    Turns of other agents, subagents among them, have none of these.

    Attributes:
        on_event: gets each stream event.
        on_tick_start: gets the number of a model call, from 1, and the turn's id, before the call.
        on_tick_end: gets the number of a model call and its tokens, None if they are not known.
        on_complete: gets the result of a turn that was completed.
        on_error: gets the error of a turn that failed.
        on_before_send: gets a prompt before it is queued, and returns the prompt to send in its
            place; None changes nothing. What it raises cancels the send.
        on_after_send: gets the result of a send.
        on_tool_confirmation: gets a tool call that needs permission, and answers it; None leaves
            it to the user's hook and rules.
        on_session_create: gets a session that was made.
        on_session_close: gets a session that was closed.
        on_before_persist: gets a snapshot before it is saved, and returns the one to save in its
            place; None changes nothing, False cancels.
        on_after_persist: gets a snapshot that was saved.
        on_before_restore: gets a session's id and the snapshot that it is to be restored from, and
            returns the one to restore in its place; None changes nothing, False cancels.
        on_after_restore: gets a session that was restored, and its snapshot.
    """

    on_event: Callable[[StreamEvent], None] | None = None
    on_tick_start: Callable[[int, str], None] | None = None
    on_tick_end: Callable[[int, Usage | None], None] | None = None
    on_complete: Callable[[TurnResult], None] | None = None
    on_error: Callable[[BaseException], None] | None = None
    on_before_send: Callable[[SessionRef, Content], Content | None] | None = None
    on_after_send: Callable[[SessionRef, TurnResult], None] | None = None
    on_tool_confirmation: Callable[[ToolRequest], Decision | bool | None] | None = None
    on_session_create: Callable[[SessionRef], None] | None = None
    on_session_close: Callable[[SessionRef], None] | None = None
    on_before_persist: (
        Callable[[SessionRef, dict[str, Any]], dict[str, Any] | bool | None] | None
    ) = None
    on_after_persist: Callable[[SessionRef, dict[str, Any]], None] | None = None
    on_before_restore: Callable[[str, dict[str, Any]], dict[str, Any] | bool | None] | None = None
    on_after_restore: Callable[[SessionRef, dict[str, Any]], None] | None = None


class LoggedSession:
    """A session as its log has it, where it is no app's (`SessionRef`)."""

    def __init__(self, paths: AgentPaths) -> None:
        self._paths = paths
        self.current_tick = 0

    @property
    def id(self) -> str:
        """The id of its agent."""
        return self._paths.id

    @property
    def status(self) -> str:
        """It is idle, running or closed."""
        if read_agent(self._paths).state.session.state is SessionState.TERMINATED:
            return "closed"
        return "running" if locks.is_held(self._paths.turn) else "idle"

    def snapshot(self) -> dict[str, Any]:
        """Raise `UsageError`: an app's session has snapshots."""
        raise UsageError("this session has no app, so there is no snapshot", kind="no-snapshot")
