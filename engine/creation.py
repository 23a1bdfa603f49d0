"""Making an agent: who it is, written first and once (seed agent-types; decision D27)."""

from __future__ import annotations

import os
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.contract import RECORDABLE_MODES
from agentsdir.adapters.sides import ProgramProvider
from agentsdir.engine.agents import find_agent
from agentsdir.engine.routing import routes
from agentsdir.formats.directory import documents, ids, locks
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.directory.derived import encode_document
from agentsdir.formats.directory.layout import FORMAT, TEMPORARY, VERSION
from agentsdir.formats.directory.publishing import publish_agent
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import AgentsdirError, SessionStateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentsdir.adapters.contract import Architecture
    from agentsdir.adapters.sides import Provider
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import Layout
    from agentsdir.formats.reading.findings import Finding

KINDS = ("user", "cron", "heartbeat", "subagent")


class NewAgent(NamedTuple):
    """What `new` was asked for; empty strings mean "not given"."""

    kind: str = "user"
    provider: str = "echo"
    model: str = ""
    system_prompt: str = ""
    profile: str = ""
    permission_mode: str = ""
    cwd: str = ""
    name: str = ""
    login: str = ""
    connector: str = ""
    user: str = ""
    channel: str = ""
    cron: str = ""
    parent: str = ""
    options: Mapping[str, str] = MappingProxyType({})
    ephemeral: bool = False
    fallbacks: tuple[str, ...] = ()
    max_ticks: int = 0


class Made(NamedTuple):
    """An agent that was made of something, and what was wrong with that."""

    agent_id: str
    findings: list[Finding]


def create_agent(world: World, wanted: NewAgent) -> str:
    """Create an agent and return its id.

    Raises `UsageError` for contradictory or missing fields, `NoSuchAgent` for an unknown parent,
    `AgentsdirError` (kind ``already-exists``) when a live agent has the same key or name.
    """
    check_wanted(world.layout, wanted)
    with root_held(world):
        return make_agent(world, wanted)


def check_wanted(layout: Layout, wanted: NewAgent) -> None:
    """Raise `UsageError` for an agent that could run no turn, or whose fields contradict."""
    architecture = registry.get(wanted.provider)
    _check_runs(architecture)
    check_options(layout, architecture, wanted)


def _check_runs(architecture: Architecture) -> None:
    if architecture.provider is None:
        raise UsageError(
            f"the adapter {architecture.name!r} reads transcripts, but runs no sessions yet",
            kind="no-provider",
        )


@contextmanager
def root_held(world: World) -> Iterator[None]:
    """Hold the create lock of an agents directory, which is made if it is not there."""
    documents.make_folder(world.layout.root, world.disk)
    world.layout.check_version(writing=True)
    with locks.hold(world.layout.create_lock, brief=True, what="the agents directory"):
        open_root(world)
        yield


def make_agent(world: World, wanted: NewAgent) -> str:
    """Make an agent that `check_wanted` lets pass, under the create lock; return its id."""
    agent_id = fresh_id(world, wanted)
    session_id, data = begin_identity(world, wanted, agent_id)
    publish_agent(world.layout, agent_id, data, world.now(), session_id, world.disk)
    return agent_id


def begin_identity(world: World, wanted: NewAgent, agent_id: str) -> tuple[str, dict[str, Any]]:
    """Return the session id and `session.created` data of an agent that begins anew.

    Raises what `identity_of` raises; `check_wanted` has let the agent pass.
    """
    architecture = registry.get(wanted.provider)
    assert architecture.provider is not None
    session_id = world.ids.session()
    native = {
        "architecture": architecture.architecture,
        "id": ids.dashed(session_id),
        "cwd": wanted.cwd,
    }
    model = wanted.model or architecture.provider.default_model
    return session_id, identity_of(world, wanted._replace(model=model), agent_id, native)


def _check_mode(wanted: NewAgent, provider: Provider | None) -> None:
    """Refuse what a log must not grant (decision D33), and what nobody would heed."""
    if provider is None or not provider.runs_program:
        raise UsageError(f"the provider {wanted.provider!r} runs no program that would heed a mode")
    if wanted.permission_mode not in RECORDABLE_MODES:
        raise UsageError(
            f"no log can grant the permission mode {wanted.permission_mode!r}",
            hint="default and plan can stand there; `send --permission-mode` and config.toml say "
            "more",
            kind="permission-mode",
        )


def check_options(layout: Layout, architecture: Architecture, wanted: NewAgent) -> None:
    """Raise `UsageError` for fields that contradict each other, or mean nothing here."""
    known = architecture.provider.option_names if architecture.provider else ()
    if unknown := sorted(set(wanted.options) - set(known)):
        raise UsageError(f"the provider {architecture.name!r} has no option {unknown[0]!r}")
    if wanted.name:
        ids.check_name(wanted.name)
    if wanted.permission_mode:
        _check_mode(wanted, architecture.provider)
    check_fields(wanted)
    for name in wanted.fallbacks:
        _check_runs(registry.get(name))
    if wanted.max_ticks < 0:
        raise UsageError("--max-ticks is a number above 0")
    # Where no workspace is written, a profile is but a word that is remembered.
    if wanted.profile and isinstance(architecture.provider, ProgramProvider):
        from agentsdir.engine.profiles import load_profile

        load_profile(layout, wanted.profile)


def identity_of(
    world: World, wanted: NewAgent, agent_id: str, native: dict[str, Any]
) -> dict[str, Any]:
    """Return the data of a new agent's `session.created` event.

    The caller holds the create lock. Raises `NoSuchAgent` for an unknown parent, `AgentsdirError`
    (kind ``already-exists``) when a live agent has the same key or name.
    """
    descriptor = _descriptor(world, wanted, agent_id)
    check_unused(world.layout, agent_id)
    check_unique(world.layout, descriptor, wanted.name, agent_id)
    data: dict[str, Any] = {
        "agent_id": agent_id,
        "descriptor": descriptor,
        "provider": wanted.provider,
        "model": wanted.model,
        "system_prompt": wanted.system_prompt,
        "profile": wanted.profile,
        "cwd": wanted.cwd,
        "permission_mode": wanted.permission_mode or None,
        "limits": {"max_ticks": wanted.max_ticks} if wanted.max_ticks else {},
        "options": dict(wanted.options),
        "native": native,
    }
    if wanted.name:
        data["name"] = wanted.name
    if wanted.fallbacks:
        data["fallbacks"] = list(wanted.fallbacks)
    if wanted.ephemeral:
        data["ephemeral"] = True
    if "parentAgentId" in descriptor:
        data["parentAgentId"] = descriptor["parentAgentId"]
    return data


def open_root(world: World) -> None:
    """Make the folder an agents directory, or check that it may be written.

    The caller holds the create lock. A new one is kept out of git, and is the user's own to run
    agents in where it holds nothing that another has put there.
    """
    layout = world.layout
    if layout.check_version(writing=True):
        return
    is_empty = all(_is_made_with_it(path.name) for path in layout.root.iterdir())
    if (is_empty or layout.is_hidden) and not os.path.lexists(layout.ignored):
        documents.replace_file(layout.ignored, b"*\n", world.disk)
    document = {"format": FORMAT, "version": VERSION, "features": []}
    documents.replace_file(layout.document, encode_document(document), world.disk)
    if is_empty:
        world.root_made()


def _is_made_with_it(name: str) -> bool:
    return name in (".lock", ".gitignore") or name.startswith(TEMPORARY)


_FIELDS = {
    "user": ("connector", "user", "channel"),
    "cron": ("cron",),
    "heartbeat": (),
    "subagent": ("parent",),
}


def check_fields(wanted: NewAgent) -> None:
    """Raise `UsageError` for fields that do not belong to the agent's kind, or are missing."""
    if wanted.kind not in KINDS:
        raise UsageError(
            f"there is no agent type {wanted.kind!r}", hint=f"one of {', '.join(KINDS)}"
        )
    for kind, names in _FIELDS.items():
        for name in names:
            if getattr(wanted, name) and kind != wanted.kind:
                raise UsageError(f"--{name} belongs to --type {kind}, not {wanted.kind}")
    given = [name for name in _FIELDS["user"] if getattr(wanted, name)]
    if given and len(given) < 3:
        raise UsageError("--connector, --user and --channel go together")
    if wanted.kind == "cron" and not wanted.cron:
        raise UsageError("--type cron needs --cron UID")
    if wanted.kind == "subagent" and not (wanted.parent and wanted.name):
        raise UsageError("--type subagent needs --parent AGENT and --name NAME")


def fresh_id(world: World, wanted: NewAgent) -> str:
    """Return the id of an agent that is to be made."""
    # A task uid in the grammar is the agent id too, so that cron routing needs no index; but no id
    # is used twice, and a task whose agent was closed goes on with another.
    if ids.is_agent_id(wanted.cron) and not world.layout.is_taken(wanted.cron):
        return wanted.cron
    return world.ids.agent()


def _descriptor(world: World, wanted: NewAgent, agent_id: str) -> dict[str, Any]:
    if wanted.kind == "cron":
        return {"type": "cron", "id": wanted.cron}
    if wanted.kind == "heartbeat":
        return {"type": "heartbeat"}
    if wanted.kind == "subagent":
        parent = find_agent(world.layout, wanted.parent)
        if read_agent(parent).state.session.state is SessionState.TERMINATED:
            # Whoever closes an agent closes those below it, and waits for the create lock first.
            message = f"agent {parent.id} is closed, and has no subagents any more"
            raise SessionStateError(message, kind="closed")
        return {
            "type": "subagent",
            "id": agent_id,
            "parentAgentId": parent.id,
            "name": wanted.name,
        }
    return {
        "type": "user",
        "connector": wanted.connector or "cli",
        "userId": wanted.user or wanted.login,
        "channelId": wanted.channel or agent_id,
    }


def check_unused(layout: Layout, agent_id: str, *, archived: bool = False) -> None:
    """Refuse a second agent with the same id (`AgentsdirError` of kind ``already-exists``)."""
    if os.path.lexists(layout.folder(archived=archived) / agent_id):
        which = "an archived agent" if archived else "an agent"
        raise AgentsdirError(f"there already is {which} {agent_id}", kind="already-exists")


def check_unique(layout: Layout, descriptor: dict[str, Any], name: str, agent_id: str) -> None:
    """Refuse a second live agent with the same routing key, or sibling with the same name.

    Raises `AgentsdirError` (kind ``already-exists``) naming the agent that stands in the way, and
    `Invalid` of that kind where it cannot be read.
    """
    key = routes.key_of(descriptor)
    keys = [] if key is None or key.get("channelId") == agent_id else [key]
    if name:
        keys.append(routes.name_key(descriptor.get("parentAgentId"), name))
    found = routes.search(layout, keys) if keys else None
    if found is not None:
        paths, key = found[0].paths, found[1]
        raise AgentsdirError(
            f"agent {paths.id} already is {routes.says(key)}", kind="already-exists"
        )
