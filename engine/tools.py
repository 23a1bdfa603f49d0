"""Tools whose handlers run in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class ToolOutput(NamedTuple):
    """What a tool call gave: any value of JSON for the model, and whether it is an error."""

    output: Any
    is_error: bool = False


class ToolContext(NamedTuple):
    """What a handler gets beside its input.

    Attributes:
        agent_id: whose turn it is.
        session_id: the session's id.
        turn_id: the turn's id, which is the execution's.
        tool_use_id: which call it is.
        spawn: makes an ephemeral child session and runs it, as `Session.spawn` does; raises
            `UsageError` where the turn is not one of an app's session.
        emit: shows fields of the call's block, such as ``{"status": "running"}``, on the live
            stream. They are not in the log.
        signal: its `is_set` tells whether the turn is to end now.
    """

    agent_id: str
    session_id: str
    turn_id: str
    tool_use_id: str
    spawn: Callable[..., Any]
    emit: Callable[[dict[str, Any]], None]
    signal: Any


@dataclass(frozen=True)
class Tool:
    """A tool that the model may call.

    Attributes:
        name: what the model calls it.
        description: for the model.
        input_schema: a JSON Schema of an object.
        handler: called with the input and a `ToolContext`.
        requires_confirmation: whether each call needs permission.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    handler: Callable[[Any, ToolContext], Any]
    requires_confirmation: bool = False
