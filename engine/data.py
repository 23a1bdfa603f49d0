"""Props and data that a program keeps with an agent.

See docs/behaviour.md, "Data, props and the timeline".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.formats import jsontext
from agentsdir.formats.errors import Invalid, UsageError
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.events import SCOPES, check_event, with_values

if TYPE_CHECKING:
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState

MAX_DATA = 1024 * 1024
"""The most bytes of JSON that props, the state of components and their data have each."""


def set_props(services: Services, paths: AgentPaths, props: dict[str, Any]) -> AgentState:
    """Set the props that an agent is rendered with, all of them; nothing is recorded for the same.

    Raises `SessionStateError` (kind ``closed``) for a closed agent, and `Invalid` for what is no
    JSON (kind ``value-refused``) or too much of it (``too-large``).
    """
    return _change(services, paths, "props.set", "props", {"props": props})


def set_data(
    services: Services, paths: AgentPaths, scope: str, values: dict[str, Any]
) -> AgentState:
    """Set values that a program keeps with an agent; nothing is recorded if all are the same.

    Args:
        scope: ``com`` for the state of components, ``data`` for data that they loaded.
        values: by name; None removes one. Those that are not named stay.

    Raises what `set_props` does, and `UsageError` for another scope.
    """
    if scope not in SCOPES:
        raise UsageError(f"data is kept as {' or '.join(SCOPES)}, not as {scope!r}")
    return _change(services, paths, "data.set", SCOPES[scope], {"scope": scope, "values": values})


def _change(
    services: Services, paths: AgentPaths, event: str, attribute: str, data: dict[str, Any]
) -> AgentState:
    # A copy: the state has what the log has, whatever the caller does with its objects.
    data = jsontext.decode(jsontext.encode(data))
    with services.disk.synced_at_end(), write_agent(paths, disk=services.disk) as writer:
        check_event(writer.state, event, data)
        before = getattr(writer.state, attribute)
        after = data["props"] if event == "props.set" else with_values(before, data["values"])
        encoded = jsontext.encode(after)
        if len(encoded) > MAX_DATA:
            raise Invalid(
                f"agent {paths.id} would keep {len(encoded)} bytes of {attribute}; the most is "
                f"{MAX_DATA}",
                hint="keep large data in a file, and its name here",
                kind="too-large",
            )
        if encoded != jsontext.encode(before):
            writer.append(event, data, services.now())
        return writer.state
