"""Changing an agent: what its turns run with, its name and its tags (D27).

See docs/behaviour.md, "Names, tags and settings".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import settings_of
from agentsdir.engine import lookup
from agentsdir.engine.handoff import fallback_providers
from agentsdir.engine.providers import find_provider, provider_of, recorded_prompt, session_spec
from agentsdir.engine.recovery import close_crashed_turn
from agentsdir.engine.sync import sync_with_client
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats import ids
from agentsdir.formats.errors import (
    AgentsdirError,
    ProviderError,
    SessionStateError,
    UsageError,
)
from agentsdir.formats.store.agent import all_synced, recorded_creation, write_agent
from agentsdir.formats.store.index import Identity
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentsdir.engine.services import Services
    from agentsdir.formats.store.agent import AgentWriter
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState


class Changes(NamedTuple):
    """Settings to change; None leaves one as it is.

    Attributes:
        cwd: the real path of a folder that exists.
        model: empty for the provider's default.
        system_prompt: empty for none.
        permission_mode: one that a log may request, or empty for none.
        fallbacks: providers; empty for those of the root.
        budget: as `parse_budget` returns it; empty for none.
    """

    cwd: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    permission_mode: str | None = None
    fallbacks: tuple[str, ...] | None = None
    budget: dict[str, float] | None = None


def change_settings(
    services: Services, paths: AgentPaths, changes: Changes, *, wait: float = 0
) -> AgentState:
    """Change settings of an agent, in force from its next turn; nothing is recorded for no change.

    For another folder the session is synced with the client first: the client's store depends on
    the folder, and the next turn looks under the new one. All else can be changed while a turn
    runs.

    Args:
        wait: seconds to wait for a turn to end, for another folder; negative waits for ever.

    Raises `SessionStateError` (kind ``closed``) for a closed agent, `UsageError` for what its
    provider does not heed, `Busy` while a turn runs, and, for a provider that runs a program, what
    `check_trust` and `sync_with_client` raise.
    """
    if changes.cwd is None:
        with services.disk.synced_at_end():
            return _append(services, paths, changes, None)
    with hold_turn(paths, wait=wait), services.disk.synced_at_end():
        state = close_crashed_turn(services, paths)
        _check(services, paths, state, changes)
        if state.cwd != changes.cwd and all_synced(paths, state):
            state = _synced(services, paths, state)
        return _append(services, paths, changes, state)


def _append(
    services: Services, paths: AgentPaths, changes: Changes, known: AgentState | None
) -> AgentState:
    with write_agent(paths, disk=services.disk, known=known) as writer:
        state = writer.state
        _check(services, paths, state, changes)
        if values := _new_values(paths, state, changes):
            writer.append("agent.set", {"values": values}, services.now())
        return writer.state


def _new_values(paths: AgentPaths, state: AgentState, changes: Changes) -> dict[str, Any]:
    """Return the values of the record, without those that the agent has."""
    has = current_settings(paths, state)
    values: dict[str, Any] = {
        name: value for name, value in changes._asdict().items() if value is not None
    }
    if values.get("model") == "":
        values["model"] = find_provider(state)[1].default_model
    if "fallbacks" in values:
        values["fallbacks"] = list(values["fallbacks"])
    return {name: value for name, value in values.items() if value != getattr(has, name)}


class CurrentSettings(NamedTuple):
    """The settings of an agent as its log has them (see `Changes`)."""

    cwd: str
    model: str
    system_prompt: str
    permission_mode: str
    fallbacks: list[str]
    budget: dict[str, Any]


def current_settings(paths: AgentPaths, state: AgentState) -> CurrentSettings:
    """Return the settings of an agent as its log has them, also a mode that no log can grant."""
    created = recorded_creation(paths)
    mode = created.data.get("permission_mode") if created else None
    return CurrentSettings(
        state.cwd,
        state.session.model,
        recorded_prompt(created, state),
        state.settings.get("permissionMode", mode if isinstance(mode, str) else ""),
        state.fallbacks,
        state.budget,
    )


def _check(services: Services, paths: AgentPaths, state: AgentState, changes: Changes) -> None:
    """Raise what `change_settings` does for what cannot be changed so."""
    if state.session.state is SessionState.TERMINATED:
        raise SessionStateError(f"agent {paths.id} is closed", kind="closed")
    for name in changes.fallbacks or ():
        if registry.get(name).provider is None:
            raise UsageError(f"the adapter {name!r} runs no sessions", kind="no-provider")
    provider = state.session.provider_name
    if changes.model and not settings_of(find_provider(state)[1]).model:
        raise UsageError(f"the provider {provider!r} has no model to choose", kind=NOT_HEEDED)
    if changes.system_prompt and not settings_of(find_provider(state)[1]).system_prompt:
        raise UsageError(f"the provider {provider!r} heeds no system prompt", kind=NOT_HEEDED)
    if changes.permission_mode:
        check_mode(state, changes.permission_mode)
    _check_costs(services, state, changes)


NOT_HEEDED = "not-heeded"
"""The kind of a refusal of a setting that the agent's provider does not heed."""


def check_mode(state: AgentState, mode: str) -> str:
    """Return what an agent does in a permission mode, in words; empty where that is not known.

    Raises `UsageError` for a mode that its provider does not have, as far as that is known.
    """
    name, provider = state.session.provider_name, find_provider(state)[1]
    modes = settings_of(provider).modes
    if not (provider.runs_program or modes):
        raise UsageError(
            f"the provider {name!r} runs no program that would heed a permission mode",
            kind=NOT_HEEDED,
        )
    if modes is not None and mode not in modes:
        raise UsageError(
            f"the provider {name!r} has no permission mode {mode!r}",
            hint=f"it has {', '.join(modes)}",
            kind="permission-mode",
        )
    return modes[mode] if modes else ""


def _check_costs(services: Services, state: AgentState, changes: Changes) -> None:
    """Raise `UsageError` (kind ``no-cost``) for a limit of money that could not be kept."""
    budget = state.budget if changes.budget is None else changes.budget
    if "cost" not in budget or (changes.budget is None and changes.fallbacks is None):
        return
    fallbacks = state.fallbacks if changes.fallbacks is None else list(changes.fallbacks)
    stand_ins = fallback_providers(services, replace(state, fallbacks=fallbacks))
    for name in (state.session.provider_name, *stand_ins):
        if not settings_of(provider_of(name)[1]).reports_cost:
            stands_in = ", which may stand in for it," if name in stand_ins else ""
            raise UsageError(
                f"the provider {name!r}{stands_in} reports no cost, so that money has no limit "
                "that could be kept",
                hint="budget=tokens:…, turns:… and seconds:… can be",
                kind="no-cost",
            )


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
