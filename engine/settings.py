"""Changing an agent: its working directory, its name and its tags (D27).

See docs/behaviour.md, "Names, tags and settings".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.engine import lookup
from agentsdir.engine.providers import find_provider, session_spec
from agentsdir.engine.recovery import close_crashed_turn
from agentsdir.engine.sync import sync_with_client
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats import ids
from agentsdir.formats.errors import AgentsdirError, ProviderError, SessionStateError
from agentsdir.formats.store.agent import all_synced, write_agent
from agentsdir.formats.store.index import Identity
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentsdir.engine.services import Services
    from agentsdir.formats.store.agent import AgentWriter
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState


def set_folder(
    services: Services, paths: AgentPaths, folder: str, *, wait: float = 0
) -> AgentState:
    """Change the working directory of an agent; nothing is recorded if it has that one.

    The session is synced with the client first: the client's store depends on the folder, and the
    next turn looks under the new one.

    Args:
        folder: the real path of a folder that exists.
        wait: seconds to wait for a turn to end; negative waits for ever.

    Raises `SessionStateError` (kind ``closed``) for a closed agent, `Busy` while a turn runs,
    and, for a provider that runs a program, what `check_trust` and `sync_with_client` raise.
    """
    with hold_turn(paths, wait=wait), services.disk.synced_at_end():
        state = close_crashed_turn(services, paths)
        if state.session.state is SessionState.TERMINATED:
            raise SessionStateError(f"agent {paths.id} is closed", kind="closed")
        if state.cwd == folder:
            return state
        if all_synced(paths, state):
            state = _synced(services, paths, state)
        with write_agent(paths, disk=services.disk, known=state) as writer:
            writer.append("agent.set", {"values": {"cwd": folder}}, services.now())
            return writer.state


def _synced(services: Services, paths: AgentPaths, state: AgentState) -> AgentState:
    try:
        architecture, provider = find_provider(state)
    except ProviderError:
        return state  # without a provider there is no store to sync with
    if not provider.runs_program:
        return state
    services.check_trust()
    spec = session_spec(services, paths, state, provider)
    return sync_with_client(services, paths, state, architecture, provider, spec)[0]


def rename(services: Services, paths: AgentPaths, name: str) -> AgentState:
    """Rename an agent, also while its turn runs; nothing is recorded if it has that name.

    Raises `UsageError` (kind ``bad-name``), `SessionStateError` for a closed agent, and
    `AgentsdirError` (kind ``already-exists``) when a live sibling has the name.
    """
    ids.check_name(name)
    with (
        lookup.hold_create_lock(services.layout) as index,
        services.disk.synced_at_end(),
        write_agent(paths, disk=services.disk) as writer,
    ):
        _check_open(writer)
        if writer.state.name != name:
            key = lookup.name_key(writer.state.parent, name)
            if (found := lookup.find_by_key(services.layout, [key])) is not None:
                raise AgentsdirError(
                    f"agent {found[0].paths.id} already is {lookup.describe_key(key)}",
                    kind="already-exists",
                )
            state = writer.state
            # First the index: a name that it has in vain costs a look, one that it lacks is lost.
            who = Identity(paths.id, state.session.id, state.parent, name)
            index.rename(who, services.disk)
            writer.append("agent.renamed", {"name": name}, services.now())
        return writer.state


def tag(
    services: Services, paths: AgentPaths, add: Sequence[str], remove: Sequence[str]
) -> AgentState:
    """Add and remove tags of an agent; nothing is recorded if that changes nothing.

    Raises `UsageError` (kind ``bad-tag``), and `SessionStateError` for a closed agent.
    """
    for one in (*add, *remove):
        ids.check_tag(one)
    with services.disk.synced_at_end(), write_agent(paths, disk=services.disk) as writer:
        _check_open(writer)
        tags = sorted({*writer.state.tags, *add} - {*remove})
        if tags != writer.state.tags:
            writer.append("agent.tagged", {"tags": tags}, services.now())
        return writer.state


def _check_open(writer: AgentWriter) -> None:
    if writer.state.session.state is SessionState.TERMINATED:
        message = f"agent {writer.paths.id} is closed, and keeps its name and tags"
        raise SessionStateError(message, kind="closed")
