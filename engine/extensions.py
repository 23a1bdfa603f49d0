"""What a program that uses the library adds to the turns of an agent."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from agentsdir.engine.callbacks import Callbacks
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentsdir.engine.runner import ExecutionRunner, SessionRef
    from agentsdir.engine.tools import Tool


def no_spawn(*_arguments: Any, **_options: Any) -> NoReturn:
    """Raise `UsageError` (kind ``no-spawn``): the turn is not one of an app's session."""
    raise UsageError("only the tools of an app's session can spawn", kind="no-spawn")


class Extensions(NamedTuple):
    """What is added to the turns of one agent.

    Attributes:
        callbacks: called while they run.
        tools: by their name, which the model may call.
        runner: around the model and its tool calls.
        session: what callbacks and the runner see of the session; None makes one of the log.
        spawn: what tools spawn with.
    """

    callbacks: Callbacks = Callbacks()
    tools: Mapping[str, Tool] = MappingProxyType({})
    runner: ExecutionRunner | None = None
    session: SessionRef | None = None
    spawn: Callable[..., Any] = no_spawn


NO_EXTENSIONS = Extensions()
