"""Creating an agent: new, for a key, as a fork, or from a session of a client.

See decision D27; docs/behaviour.md, "Routing"; docs/moving.md, "Forks" and "Adopting a session".
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import (
    RECORDABLE_MODES,
    ProgramProvider,
    StoreReader,
    settings_of,
)
from agentsdir.engine import lookup
from agentsdir.engine.follow import session_of_agent
from agentsdir.engine.hooks import session_created
from agentsdir.engine.lookup import (
    FOREGROUND,
    ancestors,
    each_agent,
    find_agent,
    parent_id,
    resolve,
)
from agentsdir.engine.parse import FoundSession, find_native, find_sessions, parse_session, walk
from agentsdir.engine.providers import check_imported, find_provider, forked_files, load_profile
from agentsdir.engine.sync import log_block
from agentsdir.formats import ids, jsontext
from agentsdir.formats.errors import (
    AgentsdirError,
    Invalid,
    NoSuchAgent,
    NotATranscript,
    SessionStateError,
    UsageError,
)
from agentsdir.formats.source import Source
from agentsdir.formats.store import files, transcripts
from agentsdir.formats.store.agent import (
    create_agent_folder,
    making_agent,
    open_agent,
    read_agent,
    recorded_creation,
)
from agentsdir.formats.store.derived import encode_document
from agentsdir.formats.store.events import SET_TEXTS
from agentsdir.formats.store.layout import FORMAT, TEMPORARY, VERSION
from agentsdir.formats.store.log import Cursor, read_log
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from agentsdir.adapters.protocol import Architecture, NativeFile, Provider
    from agentsdir.engine.lookup import Key
    from agentsdir.engine.parse import ClientStore
    from agentsdir.engine.services import Services
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.store.agent import Reading, UnpublishedAgent
    from agentsdir.formats.store.index import IndexWriter
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.state import AgentState

KINDS = ("user", "cron", "heartbeat", "subagent")

_FIELDS = {
    "user": ("connector", "user", "channel"),
    "cron": ("cron",),
    "heartbeat": (),
    "subagent": ("parent",),
}
_READ = ("main", "subagent")
# Fields for the origin of the first agent, which is not that of its fork.
_ORIGINS = ("adopted_from", "imported_from")
_SHOWN = 5


class NewAgent(NamedTuple):
    """The fields of an agent that is to be created; empty strings mean "not given"."""

    kind: str = "user"
    provider: str = ""
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


class CreatedAgent(NamedTuple):
    """An agent that was created from a session, a bundle or an agent, and the findings in that."""

    agent_id: str
    findings: list[Finding]


def create_agent(services: Services, wanted: NewAgent) -> str:
    """Create an agent and return its id.

    Raises `UsageError` for contradictory or missing fields, `NoSuchAgent` for an unknown parent,
    `AgentsdirError` (kind ``already-exists``) when a live agent has the same key or name.
    """
    wanted = _checked(services, wanted)
    with hold_root(services) as index:
        agent_id = make_agent(services, wanted, index)
    session_created(services, services.layout.agent(agent_id), "new")
    return agent_id


def _checked(services: Services, wanted: NewAgent) -> NewAgent:
    """Return the fields with a provider, as `check_wanted` accepts them."""
    if not wanted.provider:
        chosen = services.settings.provider or services.default_provider()
        wanted = wanted._replace(provider=chosen)
    check_wanted(services.layout, wanted)
    return wanted


def check_wanted(layout: Layout, wanted: NewAgent) -> None:
    """Raise `UsageError` if the agent could not run turns, or its fields contradict."""
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
def hold_root(services: Services) -> Iterator[IndexWriter]:
    """Hold the create lock of an agents directory (`hold_create_lock`); make it if it is missing.

    A block that adds an agent names it to the writer of the index.
    """
    files.make_folder(services.layout.root, services.disk)
    services.layout.check_version(writing=True)
    with lookup.hold_create_lock(services.layout) as index:
        open_root(services)
        yield index


def make_agent(services: Services, wanted: NewAgent, index: IndexWriter) -> str:
    """Create an agent that `check_wanted` has accepted, under the create lock; return its id."""
    agent_id = new_agent_id(services, wanted)
    session_id, data = new_identity(services, wanted, agent_id)
    create_agent_folder(services.layout, agent_id, data, services.now(), session_id, services.disk)
    index.add(agent_id)
    return agent_id


def new_identity(services: Services, wanted: NewAgent, agent_id: str) -> tuple[str, dict[str, Any]]:
    """Return the session id and the `session.created` data of an agent without history.

    `check_wanted` has accepted it. Raises what `identity_of` raises.
    """
    architecture = registry.get(wanted.provider)
    assert architecture.provider is not None
    session_id = services.ids.session()
    native = {
        "architecture": architecture.architecture,
        "id": ids.dashed(session_id),
        "cwd": wanted.cwd,
    }
    model = wanted.model or architecture.provider.default_model
    return session_id, identity_of(services, wanted._replace(model=model), agent_id, native)


def _check_mode(wanted: NewAgent, provider: Provider | None) -> None:
    """Refuse a mode that a log must not grant (D33), or that the provider would ignore."""
    if provider is None or not provider.runs_program:
        raise UsageError(f"the provider {wanted.provider!r} runs no program that would heed a mode")
    if wanted.permission_mode not in RECORDABLE_MODES:
        modes = settings_of(provider).modes
        raise UsageError(
            f"no log can grant the permission mode {wanted.permission_mode!r}",
            hint="default and plan can stand there; `set AGENT permission-mode=MODE`, "
            "`send --permission-mode` and config.toml take "
            + (f"all: {', '.join(modes)}" if modes else "others, too"),
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
    # Other providers write no workspace files and only record the name of the profile.
    if wanted.profile and isinstance(architecture.provider, ProgramProvider):
        load_profile(layout, wanted.profile)


def identity_of(
    services: Services, wanted: NewAgent, agent_id: str, native: dict[str, Any]
) -> dict[str, Any]:
    """Return the data of a new agent's `session.created` event.

    The caller holds the create lock. Raises `NoSuchAgent` for an unknown parent, `AgentsdirError`
    (kind ``already-exists``) when a live agent has the same key or name.
    """
    descriptor = _descriptor(services, wanted, agent_id)
    check_unused(services.layout, agent_id)
    check_unique(services.layout, descriptor, wanted.name, agent_id)
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


def open_root(services: Services) -> None:
    """Make a folder an agents directory, or check that it may be written.

    The caller holds the create lock. A new one gets a .gitignore. It is trusted if it was empty.
    """
    layout = services.layout
    if layout.check_version(writing=True):
        return
    is_empty = all(_is_made_with_it(path.name) for path in layout.root.iterdir())
    if (is_empty or layout.is_hidden) and not os.path.lexists(layout.ignored):
        files.replace_file(layout.ignored, b"*\n", services.disk)
    document = {"format": FORMAT, "version": VERSION, "features": []}
    files.replace_file(layout.document, encode_document(document), services.disk)
    if is_empty:
        services.on_root_created()


def _is_made_with_it(name: str) -> bool:
    return name in (".lock", ".gitignore") or name.startswith(TEMPORARY)


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


def new_agent_id(services: Services, wanted: NewAgent) -> str:
    """Return an id for a new agent."""
    # A task uid in the grammar of ids is the agent id too, so that it is found without an index. If
    # the id is taken, as by a closed agent of the task, a new one is generated.
    if ids.is_agent_id(wanted.cron) and not services.layout.is_taken(wanted.cron):
        return wanted.cron
    return services.ids.agent()


def _descriptor(services: Services, wanted: NewAgent, agent_id: str) -> dict[str, Any]:
    if wanted.kind == "cron":
        return {"type": "cron", "id": wanted.cron}
    if wanted.kind == "heartbeat":
        return {"type": "heartbeat"}
    if wanted.kind == "subagent":
        parent = find_agent(services.layout, wanted.parent)
        if read_agent(parent).state.session.state is SessionState.TERMINATED:
            # `close` waits for the create lock before it closes the descendants.
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
    key = lookup.key_of(descriptor)
    keys = [] if key is None or key.get("channelId") == agent_id else [key]
    if name:
        keys.append(lookup.name_key(descriptor.get("parentAgentId"), name))
    found = lookup.find_by_key(layout, keys) if keys else None
    if found is not None:
        paths, key = found[0].paths, found[1]
        raise AgentsdirError(
            f"agent {paths.id} already is {lookup.describe_key(key)}", kind="already-exists"
        )


def copied_identity(
    layout: Layout,
    created: dict[str, Any],
    agent_id: str,
    name: str,
    login: str,
    *,
    keep: bool = False,
) -> dict[str, Any]:
    """Return the data of a `session.created` event, changed for a copy of the agent.

    A subagent keeps its parent and gets `name` or a free name. Any other agent becomes a user's
    agent of its own: a task, a heartbeat and a conversation have one agent each (D27). The caller
    holds the create lock.

    Args:
        keep: keep the key, if it is free.

    Raises `AgentsdirError` (kind ``already-exists``) when another agent has the key, or a sibling
    the name.
    """
    # The copy of an ephemeral agent is not ephemeral.
    others = ("name", "parentAgentId", "ephemeral")
    made = {key: value for key, value in created.items() if key not in others}
    made["agent_id"] = agent_id
    descriptor = created["descriptor"]
    parent = descriptor.get("parentAgentId")
    if descriptor["type"] == "subagent":
        name = name or _free_name(layout, parent, str(descriptor.get("name")))
        made["descriptor"] = {**descriptor, "id": agent_id, "name": name}
        made["parentAgentId"] = parent
    elif keep:
        was = created["agent_id"]
        same = {key: agent_id if value == was else value for key, value in descriptor.items()}
        made["descriptor"] = same
    else:
        keys = {"connector": "cli", "userId": login, "channelId": agent_id}
        made["descriptor"] = {"type": "user", **keys}
    if name:
        made["name"] = ids.check_name(name)
    check_unused(layout, agent_id)
    check_unique(layout, made["descriptor"], name, agent_id)
    return made


def _free_name(layout: Layout, parent: Any, name: str) -> str:
    taken = {
        listed.document["name"]
        for listed in each_agent(layout)
        if listed.document and parent_id(listed.document) == parent
    }
    number = 2
    while f"{name[:100]}-{number}" in taken:
        number += 1
    return f"{name[:100]}-{number}"


def check_native(layout: Layout, native_id: str) -> None:
    """Refuse a second live agent of one native session.

    Raises `AgentsdirError` (kind ``already-exists``): both would write to one transcript.
    """
    paths = agent_of_native(layout, native_id)
    if paths is not None:
        raise AgentsdirError(
            f"agent {paths.id} already goes on with the session {native_id}",
            kind="already-exists",
            hint=f"`--get` prints it; `agentsdir fork {paths.id}` makes another of it",
        )


def agent_of_native(layout: Layout, native_id: str) -> AgentPaths | None:
    """Return the live agent that goes on with a native session."""
    for listed in each_agent(layout):
        document = listed.document
        if (
            document is not None
            and listed.is_live
            and native_id in (document["native"]["id"], ids.dashed(document["sessionId"]))
        ):
            return listed.paths
    return None


def import_transcripts(
    made: UnpublishedAgent, architecture: Architecture, files: Iterable[NativeFile], ts: str
) -> list[Finding]:
    """Store transcripts in a new agent, and log their blocks; return the findings.

    The blocks belong to no turn and all have the time `ts`; replaced ones are logged as superseded.
    The transcripts are streamed, not held in memory.
    """
    stored, sources = [], []
    for file in files:
        stored.append(made.store(file.path, file.role, file.source).as_entry())
        if file.role in _READ:
            sources.append(Source(file.path, path=made.paths.transcripts / file.path))
    if stored:
        made.append("transcript.synced", {"files": stored}, ts)
    findings: list[Finding] = []
    with registry.adapter_errors(architecture):
        sessions = architecture.reader.discover(sources) if architecture.reader else []
    for session in sessions:
        sink = parse_session(FoundSession(architecture, session), hidden=False)
        findings += sink.findings
        for line in sink.lines("all"):
            log_block(made, None, jsontext.decode(line), ts)
    return findings


def fork_agent(
    services: Services, paths: AgentPaths, *, name: str = "", login: str
) -> CreatedAgent:
    """Create an agent with the history and settings of another one, which is only read.

    During a turn it is forked as it was before that turn.

    Args:
        name: of the new agent; a forked subagent without one gets a free name.
        login: the user of the new agent.

    Raises `Invalid` when a stored transcript is damaged, `ProviderError` when there is no such
    provider, and what `making_agent` raises.
    """
    reading = _before_open_turn(paths)
    state, record = reading.state, recorded_creation(paths) or reading.rebuilt
    if record is None:
        raise Invalid(f"{paths.log} does not say how the agent was made")
    created = {key: value for key, value in record.data.items() if key not in _ORIGINS}
    architecture, provider = find_provider(state)
    options = created.get("options", {})
    check_imported(state, provider, options if isinstance(options, dict) else {})
    own = transcripts.of_session(state.transcripts, state.native["id"])
    saved = transcripts.load_recorded(paths, own)
    findings = list(reading.findings)
    layout = services.layout
    with hold_root(services) as index:
        agent_id, session_id = services.ids.agent(), services.ids.session()
        native = {**state.native, "id": ids.dashed(session_id), "cwd": state.cwd}
        data: dict[str, Any] = {
            **copied_identity(layout, created, agent_id, name, login),
            "model": state.session.model,
            "cwd": state.cwd,
            "native": native,
            "forked_from": {
                "agent_id": paths.id,
                "session_id": state.session.id,
                "native_id": state.native["id"],
                "seq": state.position.last_seq,
            },
        }
        _take_settings(data, state)
        if state.title:
            data["title"] = state.title
        with making_agent(layout, agent_id, session_id, services.disk) as made:
            made.append("session.created", data, services.now())
            if state.budget:  # what the other agent has spent does not count for this one
                made.append("agent.set", {"values": {"budget": state.budget}}, services.now())
            files = forked_files(provider, saved, state.native["id"], native["id"], findings.append)
            findings += import_transcripts(made, architecture, files, services.now())
        index.add(agent_id)
    session_created(services, layout.agent(agent_id), "forked")
    return CreatedAgent(agent_id, findings)


def _take_settings(data: dict[str, Any], state: AgentState) -> None:
    """Put what an agent was given since it was made into the creation of its fork."""
    for name, key in SET_TEXTS.items():
        if key in state.settings:
            data[name] = state.settings[key]
    if state.fallbacks:
        data["fallbacks"] = state.fallbacks
    else:
        data.pop("fallbacks", None)


def _before_open_turn(paths: AgentPaths) -> Reading:
    """Return an agent as it was before its open turn, if there is one."""
    reading = read_agent(paths)
    if reading.state.open_turn is None:
        return reading
    started = reading.state.open_turn["turnId"]
    before = 0
    with open_agent(paths) as stream:
        for line in read_log(stream, str(paths.log)):
            record = line.record
            if record is not None:
                if record.event == "turn.start" and record.data.get("turn_id") == started:
                    break
                before = record.seq
    return read_agent(paths, whole=True, until=Cursor(seq=before))


def adopt(
    services: Services,
    wanted: NewAgent,
    origin: Path | str,
    stores: Iterable[ClientStore],
    *,
    home: Path,
    variables: Mapping[str, str],
    here: str,
    get: bool = False,
) -> CreatedAgent:
    """Create an agent that continues a native session; the client's files are only read.

    Args:
        wanted: fields that override those of the session. Its provider is ignored.
        origin: a main transcript, a folder with one session, a session's id in `stores`, or an
            agent.
        home: the user's home folder, with the stores of the clients.
        variables: environment variables of the clients.
        here: the current folder. It becomes the working directory if the transcript is outside
            `stores`: such a file must not choose a folder.
        get: return the live agent that has the session, if there is one.

    Raises `NoSuchAgent`, `NotATranscript`, `Invalid` and `UsageError` for an origin that is no such
    session, and what `create_agent` raises.
    """
    stores = list(stores)
    architecture, reader, main = _find_origin(services, origin, stores, home, variables)
    try:
        session = reader.adoptable(main)
    except OSError as error:
        raise AgentsdirError(f"cannot read {main}: {error.strerror}") from error
    layout = services.layout
    if get and layout.root.is_dir():
        taken = agent_of_native(layout, session.id)
        if taken is not None:
            return CreatedAgent(taken.id, [])
    provider = architecture.provider
    is_own = any(main.resolve().is_relative_to(store.folder.resolve()) for store in stores)
    is_moved = not (wanted.cwd or is_own) and session.cwd != here
    wanted = wanted._replace(
        provider=architecture.name,
        model=wanted.model or session.model or (provider.default_model if provider else ""),
        cwd=wanted.cwd or (session.cwd if is_own else here),
    )
    if not wanted.cwd:
        raise UsageError(f"{main} does not say its working directory", hint="give --cwd DIR")
    check_options(layout, architecture, wanted)
    with hold_root(services) as index:
        check_native(layout, session.id)
        native = {"architecture": architecture.architecture, "id": session.id, "cwd": wanted.cwd}
        agent_id = new_agent_id(services, wanted)
        data = identity_of(services, wanted, agent_id, native)
        data["adopted_from"] = str(main)
        if session.title:
            data["title"] = session.title
        session_id = _session_id(services, layout, session.id)
        with making_agent(layout, agent_id, session_id, services.disk) as made:
            made.append("session.created", data, services.now())
            findings = import_transcripts(made, architecture, session.files, services.now())
        index.add(agent_id)
    if is_moved:
        named = f", not in {session.cwd} as its transcript says" if session.cwd else ""
        services.notify_user(f"the agent works in {here}{named}; --cwd DIR chooses another folder")
    session_created(services, layout.agent(agent_id), "adopted")
    return CreatedAgent(agent_id, findings)


def _session_id(services: Services, layout: Layout, native_id: str) -> str:
    """Return the native id as the session id, if it has the form and no agent has it."""
    same = ids.undashed(native_id)
    if not ids.is_session_id(same):
        return services.ids.session()
    agents = (*each_agent(layout), *each_agent(layout, archived=True))
    taken = any(one.document and one.document["sessionId"] == same for one in agents)
    return services.ids.session() if taken else same


def _find_origin(
    services: Services,
    origin: Path | str,
    stores: list[ClientStore],
    home: Path,
    variables: Mapping[str, str],
) -> tuple[Architecture, StoreReader, Path]:
    if isinstance(origin, str):
        try:
            located = find_native(stores, origin)
        except NoSuchAgent as error:
            if not ids.may_be_name(origin):
                raise
            try:
                return session_of_agent(
                    origin,
                    layout=services.layout,
                    stores=stores,
                    home=home,
                    variables=variables,
                    check_trust=services.check_trust,
                )
            except NoSuchAgent as other:
                raise (error if other.kind == NoSuchAgent.kind else other) from None
        return located.store.architecture, located.store.reader, located.main
    refused: list[NotATranscript] = []
    if origin.is_dir():
        sources = walk(origin, str(origin), refused.append)
    else:
        sources = iter((Source(str(origin), path=origin),))
    found = [one for one in find_sessions(sources, "auto", refused.append) if _main_transcript(one)]
    if not found:
        raise refused[0] if refused else NotATranscript(f"{origin} holds no session")
    if len(found) > 1 and (best := _best_of_one_session(found, origin)) is not None:
        return best
    if len(found) > 1:
        names = ", ".join(str(_main_transcript(one)) for one in found[:_SHOWN])
        raise UsageError(
            f"{origin} holds {len(found)} sessions: {names}", hint="name one", kind="ambiguous"
        )
    architecture, main = found[0].architecture, _main_transcript(found[0])
    if main is None or not isinstance(architecture.reader, StoreReader):
        raise UsageError(
            f"a session of {architecture.name} cannot be gone on with here", kind="no-provider"
        )
    return architecture, architecture.reader, main


def _best_of_one_session(
    found: list[FoundSession], origin: Path
) -> tuple[Architecture, StoreReader, Path] | None:
    """Return the best of several files of one session; None where they are of several.

    Files that say no id hold no session that could be gone on with.
    """
    architecture = found[0].architecture
    reader, mains = architecture.reader, [main for one in found if (main := _main_transcript(one))]
    if any(one.architecture is not architecture for one in found) or not isinstance(
        reader, StoreReader
    ):
        return None
    named = {reader.native_id(main) for main in mains} - {""}
    located = reader.locate(origin, named.pop()) if len(named) == 1 else []
    return (architecture, reader, located[0]) if located else None


def _main_transcript(found: FoundSession) -> Path | None:
    first: dict[str, Any] = {one.role: one.source.path for one in found.files.transcripts[:1]}
    return first.get("main")


class Target(NamedTuple):
    """An agent that was found by its key, and whether it was created for that."""

    paths: AgentPaths
    made: bool


def find_or_create(services: Services, wanted: NewAgent) -> Target:
    """Return the live agent with the key or the name of `wanted`, or create one from `wanted`.

    An existing agent is not changed. The search is repeated under the create lock, so that two
    processes get the same agent. Raises `UsageError` if `wanted` has neither key nor name, and what
    `create_agent` raises.
    """
    check_fields(wanted)
    layout = services.layout
    layout.check_version(writing=True)
    key = _key(layout, wanted)
    if (found := lookup.find_by_route(layout, key)) is not None:
        return Target(found, made=False)
    # Checked before the root is created. For an agent that may be there no provider is chosen.
    if wanted.provider or services.settings.provider or not layout.root.exists():
        wanted = _checked(services, wanted)
    with hold_root(services) as index:
        found = lookup.find_by_route(layout, key)
        if found is None and (there := lookup.find_by_key(layout, [key])) is not None:
            found = there[0].paths
        made = found is None
        if found is None:
            agent_id = make_agent(services, _checked(services, wanted), index)
        else:
            agent_id = found.id
        lookup.write_route(layout, key, agent_id, services.disk)
    target = Target(layout.agent(agent_id), made)
    if made:
        session_created(services, target.paths, "new")
    return target


def _key(layout: Layout, wanted: NewAgent) -> Key:
    if wanted.kind == "cron":
        return {"type": "cron", "id": wanted.cron}
    if wanted.kind == "heartbeat":
        return {"type": "heartbeat"}
    if wanted.kind == "subagent":
        return lookup.name_key(find_agent(layout, wanted.parent).id, wanted.name)
    if wanted.connector:
        names = {"connector": wanted.connector, "userId": wanted.user}
        return {"type": "user", **names, "channelId": wanted.channel}
    if not wanted.name:
        raise UsageError("there is nothing to find it by: a name, a conversation, a task")
    return lookup.name_key(None, wanted.name)


def default_target(services: Services, sender: AgentPaths) -> AgentPaths:
    """Return the target of an agent's message that names none.

    For a subagent its parent, for any other agent the most recent other foreground agent.

    Raises `NoSuchAgent` if there is none, and `Invalid` (kind ``parent-cycle``).
    """
    state = read_agent(sender).state
    if state.parent is not None:
        return ancestors(services.layout, state)[0]
    resolved = resolve(services.layout, FOREGROUND, but=sender.id)
    for listed in resolved.unreadable:
        services.notify_user(f"passed over {listed.paths.id}, which cannot be read")
    return resolved.paths
