"""Execution runners: how the prompt reaches the model, and how its tool calls are carried out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from agentsdir.formats.errors import AgentsdirError, Terminated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from agentsdir.adapters.protocol import ModelRequest, ToolCall
    from agentsdir.engine.tools import Tool, ToolOutput


class SessionRef(Protocol):
    """What a runner or a callback sees of a session."""

    @property
    def id(self) -> str:
        """The id of its agent."""

    @property
    def status(self) -> str:
        """It is idle, running or closed."""

    @property
    def current_tick(self) -> int:
        """The number of the model call that runs, from 1; of the last one where none runs."""

    def snapshot(self) -> dict[str, Any]:
        """Return the session as it stands now (schema ``session-snapshot``)."""


class ExecutionRunner:
    """A sandbox or an interpreter around the model: a base class, each method optional.

    `name` is what the log calls the runner: once it is there, the session's turns need a runner of
    that name. A method that is a coroutine function runs in an event loop of its own.
    """

    name: str = ""

    def prepare_model_input(
        self, model_input: ModelRequest, tools: Sequence[Tool]
    ) -> ModelRequest | Awaitable[ModelRequest]:
        """Return what the model is called with; called before each model call."""
        del tools
        return model_input

    def execute_tool_call(
        self,
        call: ToolCall,
        tool: Tool | None,
        next: Callable[[], ToolOutput],  # noqa: A002
    ) -> ToolOutput | Any:
        """Carry out a tool call; called for each, in a thread of its own.

        Args:
            call: the call, after it was confirmed.
            tool: the tool of its name; None where there is none.
            next: carries the call out as it is without a runner.

        Returns what a tool's handler may return, or what `next` returned.
        """
        del call, tool
        return next()

    def on_session_init(self, session: SessionRef) -> Awaitable[None] | None:
        """Set up; called once for each session, before its first model call."""
        del session
        return None

    def on_persist(self, session: SessionRef, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Return the snapshot to save, with the runner's own state; called after each send."""
        del session
        return snapshot

    def on_restore(self, session: SessionRef, snapshot: dict[str, Any]) -> None:
        """Take the runner's state back; called once where a session is restored from a snapshot."""

    def on_destroy(self, session: SessionRef) -> None:
        """Clean up; called once when the session is closed."""


METHODS = (
    "prepare_model_input",
    "execute_tool_call",
    "on_session_init",
    "on_persist",
    "on_restore",
    "on_destroy",
)


def overrides(runner: ExecutionRunner) -> frozenset[str]:
    """Return the methods of a runner that do more than those of `ExecutionRunner`."""
    return frozenset(
        name
        for name in METHODS
        if getattr(getattr(runner, name), "__func__", None) is not getattr(ExecutionRunner, name)
    )


@contextmanager
def runner_errors(name: str) -> Iterator[None]:
    """Turn what a runner raises into `AgentsdirError` (kind ``runner-failed``) with its name."""
    try:
        yield
    except (AgentsdirError, Terminated):
        raise
    except (Exception, SystemExit) as error:
        raise AgentsdirError(
            f"the runner {name!r} raised {type(error).__name__}: {error}", kind="runner-failed"
        ) from error
