"""Which tool calls started a subagent, by all the marks that clients left over the years."""

from __future__ import annotations

from typing import Any, NamedTuple

from agentsdir.adapters.gemini.transcripts.shapes import dict_of, parts_of, response_output, text_of

INVOKE = "invoke_agent"
_DELEGATING = "Delegating to agent "
_FINISHED = "Subagent '"
_ASKED = ("prompt", "request", "objective", "question", "query")


class Spawn(NamedTuple):
    """What a call says about its child: the agent's name, the child's id, when the call ended."""

    name: str
    agent_id: str | None
    ended: Any


def spawn_of(record: dict[str, Any]) -> Spawn | None:
    """Return what a tool call record says about the subagent it ran; None if it ran none.

    A call of an agent that does not exist is an ordinary failed call.
    """
    get = record.get
    name, agent_id, display = text_of(get("name")), get("agentId"), get("resultDisplay")
    if not isinstance(agent_id, str):
        agent_id = None
    if not (
        agent_id
        or (isinstance(display, dict) and display.get("isSubagentProgress") is True)
        or text_of(get("description")).startswith(_DELEGATING)
        or _says_so(name, get("result"))
    ):
        return None
    called = text_of(dict_of(record.get("args")).get("agent_name"))
    shown = text_of(display.get("agentName")) if isinstance(display, dict) else ""
    return Spawn(called or shown or name, agent_id, record.get("timestamp"))


def _says_so(name: str, result: Any) -> bool:
    for part in parts_of(result):
        output = response_output(dict_of(part.get("functionResponse")).get("response"))
        if isinstance(output, str):
            if output.startswith(_FINISHED):
                return True
            if output.startswith('Tool "') and output.startswith(f'Tool "{name}" not found'):
                return False
    return name == INVOKE


def asked_of(args: Any) -> str | None:
    """Return the task in the arguments of a call that started a subagent."""
    given = dict_of(args)
    for key in _ASKED:
        if isinstance(given.get(key), str):
            return str(given[key])
    return None
