"""Creating a subagent: its agent file, its name, what it inherits, its first prompt.

See docs/behaviour.md, "Spawning". A subagent is created with its prompt in its inbox before the log
of its parent names it. A crash in between leaves an agent that no log names.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import registry
from agentsdir.engine.create import NewAgent, check_wanted, hold_root, new_identity
from agentsdir.engine.hooks import session_created
from agentsdir.engine.in_turn import turn_writer
from agentsdir.engine.inbox import Message
from agentsdir.engine.limits import configured_limit
from agentsdir.engine.lookup import check_depth
from agentsdir.engine.notices import Subagent
from agentsdir.engine.providers import check_imported, recorded_mode
from agentsdir.formats import ids, toml
from agentsdir.formats.errors import Invalid, SessionStateError, Uncertain, UsageError
from agentsdir.formats.store import files
from agentsdir.formats.store.agent import (
    making_agent,
    read_agent,
    recorded_creation,
    withdraw_agent,
    write_agent,
)
from agentsdir.formats.store.layout import AgentPaths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from agentsdir.engine.services import Services
    from agentsdir.formats.store.agent import AgentWriter, Reading
    from agentsdir.formats.store.state import AgentState

# An agent file describes a subagent in TOML. A placeholder ``{{name}}`` in a text stands for the
# prop of that name. The values of props are not searched for placeholders.

MAX_SIZE = 256 * 1024
"""Bytes that an agent file may have."""
_TEXTS = ("provider", "model", "system", "prompt", "profile")
_KEYS = (*_TEXTS, "max_ticks", "props")
_PLACEHOLDER = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_-]*)[ \t]*\}\}")

BASE_NAME = "subagent"
_OF_ID = 6  # characters of its id that an automatic name ends in


class AgentFile(NamedTuple):
    """The fields of an agent file with its placeholders filled in; empty if not given."""

    provider: str = ""
    model: str = ""
    system: str = ""
    prompt: str = ""
    profile: str = ""
    max_ticks: int | None = None


def read_agent_file(path: Path, given: Mapping[str, str]) -> AgentFile:
    """Read an agent file and fill in its props.

    Args:
        path: the file, or a pipe.
        given: props that override those of the file.

    Raises `Invalid` (kind ``bad-agent-file``) naming file and reason; `UsageError` for a file that
    cannot be read, a prop that is missing (kind ``missing-prop``), and one that nothing asks for.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_SIZE + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        said = toml.decode(data, MAX_SIZE)
    except ValueError as error:
        raise _bad(path, str(error)) from error
    if unknown := sorted(said.keys() - set(_KEYS)):
        raise _bad(path, f"has {unknown[0]!r}, which is none of {', '.join(_KEYS)}")
    for key in _TEXTS:
        if not isinstance(said.get(key, ""), str):
            raise _bad(path, f"says {key} = {said[key]!r}, which is no text")
    ticks = said.get("max_ticks")
    if ticks is not None and (type(ticks) is not int or ticks < 1):
        raise _bad(path, f"says max_ticks = {ticks!r}, which is no number above 0")
    props = {**_own_props(path, said.get("props", {})), **given}
    texts = {key: said[key] for key in _TEXTS if key in said}
    wanted = {name for text in texts.values() for name in _PLACEHOLDER.findall(text)}
    if missing := sorted(wanted - props.keys()):
        raise UsageError(
            f"{path} asks for the prop {missing[0]!r}",
            hint=f"give it by --prop {missing[0]}=TEXT",
            kind="missing-prop",
        )
    if idle := sorted(given.keys() - wanted - said.get("props", {}).keys()):
        raise UsageError(f"{path} asks for no prop {idle[0]!r}")
    filled = {
        key: _PLACEHOLDER.sub(lambda found: props[found[1]], text) for key, text in texts.items()
    }
    return AgentFile(**filled, max_ticks=ticks)


def _own_props(path: Path, said: Any) -> dict[str, str]:
    if not isinstance(said, dict):
        raise _bad(path, "has props that are no table")
    props = {}
    for name, value in said.items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, str | int | float):
            raise _bad(path, f"says {name} = {value!r}, which is neither text nor number")
        props[name] = str(value)
    return props


def _bad(path: Path, reason: str) -> Invalid:
    return Invalid(
        f"{path} {reason}", hint="`agentsdir spawn --help` shows one", kind="bad-agent-file"
    )


class SpawnRequest(NamedTuple):
    """The fields of a subagent that is to be created; empty ones are inherited from the parent.

    `content` is the first prompt, `message_id` the id of its message; empty for a new one. `base`
    is the prefix of a generated name.
    """

    content: list[dict[str, Any]]
    name: str = ""
    base: str = BASE_NAME
    provider: str = ""
    model: str = ""
    system_prompt: str = ""
    profile: str = ""
    cwd: str = ""
    options: Mapping[str, str] = MappingProxyType({})
    max_ticks: int | None = None
    ephemeral: bool = False
    message_id: str = ""


class SpawnedChild(NamedTuple):
    """A subagent that was created, and the id of the message in its inbox."""

    paths: AgentPaths
    name: str
    parent: AgentPaths
    message_id: str


def create_child(
    services: Services, parent: AgentPaths, wanted: SpawnRequest, *, turn_id: str | None, sync: bool
) -> SpawnedChild:
    """Create a subagent with its first prompt, and log it in its parent.

    Args:
        turn_id: the parent's turn that requests it; the subagent runs after that turn.
        sync: put the answer into the parent's inbox.

    Raises `SessionStateError` for a closed parent, one too deep (kind ``spawn-depth``) or with too
    many (kind ``spawn-children``), or a turn that is over (kind ``turn-over``); what `check_wanted`
    and `new_identity` raise; and what `making_agent` and `write_agent` raise. There is no
    subagent then, unless that is uncertain.
    """
    layout = services.layout
    with hold_root(services) as index:
        reading = read_agent(parent)
        with _log_of(services, parent, turn_id):
            pass  # raises for a turn that is over
        check_depth(layout, reading.state)
        _check_number(services, reading.state)
        child_id, created_at = services.ids.agent(), services.now()
        one = Subagent(child_id, _name(wanted, child_id), created_at, wanted.content)
        paths = AgentPaths(layout.agents / child_id, child_id)
        child = SpawnedChild(paths, one.name, parent, wanted.message_id or services.ids.agent())
        session_id, created = _creation(services, reading, wanted, child)
        with making_agent(layout, child_id, session_id, services.disk) as made:
            made.append("session.created", created, created_at)
            task = Message(wanted.content, parent.id, sync=sync, spawn=True)
            made.append("message.enqueued", task.as_data(child.message_id), services.now())
        _log_in_parent(services, child, one, turn_id)
        index.add(child_id)
    session_created(services, paths, "spawned")
    return child


def _check_number(services: Services, parent: AgentState) -> None:
    most = services.settings.max_children
    if len(parent.children) >= most:
        raise SessionStateError(
            f"agent {parent.agent_id} has {len(parent.children)} subagents that have not ended: "
            f"Maximum number of children ({most}) exceeded",
            hint="max_children in settings.toml allows more",
            kind="spawn-children",
        )


def _name(wanted: SpawnRequest, child_id: str) -> str:
    if wanted.name:
        return ids.check_name(wanted.name)
    # From the id: no search for a free number, and no name of a removed sibling.
    base = wanted.base[:100] if ids.may_be_name(wanted.base) else BASE_NAME
    return f"{base}-{child_id[-_OF_ID:]}"


def _creation(
    services: Services, reading: Reading, wanted: SpawnRequest, child: SpawnedChild
) -> tuple[str, dict[str, Any]]:
    """Return the subagent's session id, and the data of its `session.created` event."""
    parent, state = child.parent, reading.state
    record = recorded_creation(parent) or reading.rebuilt
    if record is None:
        raise Invalid(f"{parent.log} does not say how the agent was made")
    own = wanted.provider or state.session.provider_name
    # Another provider would know neither the model nor the options.
    same = own == state.session.provider_name
    inherited = record.data.get("options", {}) if same else {}
    if not isinstance(inherited, dict):
        raise Invalid(f"{parent.log} has options of the provider that are no object")
    provider = registry.get(own).provider
    if provider is not None:
        check_imported(state, provider, inherited)
    new = NewAgent(
        kind="subagent",
        parent=parent.id,
        name=child.name,
        provider=own,
        model=wanted.model or (state.session.model if same else ""),
        system_prompt=wanted.system_prompt,
        profile=wanted.profile or state.profile,
        permission_mode=recorded_mode(record, state) if provider and provider.runs_program else "",
        cwd=wanted.cwd or state.cwd,
        options={**inherited, **wanted.options},
        fallbacks=tuple(state.fallbacks) if same else (),
        max_ticks=wanted.max_ticks or configured_limit(state.limits) or 0,
        # The child of an ephemeral agent would stay without its parent.
        ephemeral=wanted.ephemeral or state.ephemeral,
    )
    check_wanted(services.layout, new)
    return new_identity(services, new, child.paths.id)


def _log_of(
    services: Services, parent: AgentPaths, turn_id: str | None
) -> AbstractContextManager[AgentWriter]:
    return (
        turn_writer(services, parent, turn_id)
        if turn_id
        else write_agent(parent, disk=services.disk)
    )


def _log_in_parent(
    services: Services, child: SpawnedChild, one: Subagent, turn_id: str | None
) -> None:
    """Log the subagent in its parent; if that fails, remove it."""
    is_named = False
    try:
        with _log_of(services, child.parent, turn_id) as writer:
            said = {"child": one.id, "name": one.name}
            if turn_id is None:
                writer.append("agent.spawned", {**said, "status": "running"}, services.now())
            else:
                writer.append("spawn.requested", {**said, "turn_id": turn_id}, services.now())
            is_named = True
            block = {"turn_id": turn_id, "block": one.block(writer.state, "pending")}
            writer.append("block", block, services.now())
    except BaseException as error:
        # After `Uncertain` the log may name it.
        if not is_named and not isinstance(error, Uncertain):
            files.remove(withdraw_agent(services.layout, child.paths, services.disk))
        raise
