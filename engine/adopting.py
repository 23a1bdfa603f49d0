"""An agent that goes on with a session of the real client.

See docs/moving.md, "Adopting a session".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.sides import StoreReader
from agentsdir.engine.agents import each_agent
from agentsdir.engine.creation import (
    Made,
    check_options,
    fresh_id,
    identity_of,
    open_root,
)
from agentsdir.engine.following import session_of_agent
from agentsdir.engine.histories import take_over
from agentsdir.engine.identities import agent_of_native, check_native
from agentsdir.engine.native import find_native
from agentsdir.engine.parsing import find_sessions, walk
from agentsdir.formats.directory import documents, ids, locks
from agentsdir.formats.directory.publishing import making_agent
from agentsdir.formats.errors import AgentsdirError, NoSuchAgent, NotATranscript, UsageError
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from agentsdir.adapters.contract import Architecture
    from agentsdir.engine.creation import (
        NewAgent,
    )
    from agentsdir.engine.native import Store
    from agentsdir.engine.parsing import Found
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import Layout

_SHOWN = 5


def adopt(
    world: World,
    wanted: NewAgent,
    origin: Path | str,
    stores: Iterable[Store],
    *,
    home: Path,
    variables: Mapping[str, str],
    here: str,
    get: bool = False,
) -> Made:
    """Make an agent of a native session; what the client has is only read.

    Args:
        wanted: what the session does not say, or is to be otherwise. Its provider is not asked.
        origin: a main transcript, a folder with one session, a session's id in `stores`, or an
            agent.
        home: whose clients' stores an agent's session may stand in.
        variables: of the clients.
        here: the folder in which the command runs. The agent works there if the transcript stands
            outside `stores`: what a stranger's file says chooses no folder.
        get: return the live agent that has the session, if one has.

    Raises `NoSuchAgent`, `NotATranscript`, `Invalid` and `UsageError` for an origin that is no such
    session, and what `create_agent` raises.
    """
    stores = list(stores)
    architecture, reader, main = _find(world, origin, stores, home, variables)
    try:
        session = reader.adoptable(main)
    except OSError as error:
        raise AgentsdirError(f"cannot read {main}: {error.strerror}") from error
    layout = world.layout
    if get and layout.root.is_dir():
        taken = agent_of_native(layout, session.id)
        if taken is not None:
            return Made(taken.id, [])
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
    documents.make_folder(layout.root, world.disk)
    layout.check_version(writing=True)
    with locks.hold(layout.create_lock, brief=True, what="the agents directory"):
        open_root(world)
        check_native(layout, session.id)
        native = {"architecture": architecture.architecture, "id": session.id, "cwd": wanted.cwd}
        agent_id = fresh_id(world, wanted)
        data = identity_of(world, wanted, agent_id, native)
        data["adopted_from"] = str(main)
        if session.title:
            data["title"] = session.title
        session_id = _session_id(world, layout, session.id)
        with making_agent(layout, agent_id, session_id, world.disk) as made:
            made.append("session.created", data, world.now())
            findings = take_over(made, architecture, session.files, world.now())
    if is_moved:
        named = f", not in {session.cwd} as its transcript says" if session.cwd else ""
        world.tell(f"the agent works in {here}{named}; --cwd DIR chooses another folder")
    return Made(agent_id, findings)


def _session_id(world: World, layout: Layout, native_id: str) -> str:
    """Return the native id as the session's own, if it can be and no agent of the past has it."""
    same = ids.undashed(native_id)
    if not ids.is_session_id(same):
        return world.ids.session()
    agents = (*each_agent(layout), *each_agent(layout, archived=True))
    taken = any(reading and reading.state.session.id == same for _, reading, _ in agents)
    return world.ids.session() if taken else same


def _find(
    world: World,
    origin: Path | str,
    stores: list[Store],
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
                    layout=world.layout,
                    stores=stores,
                    home=home,
                    variables=variables,
                    check_trust=world.check_trust,
                )
            except NoSuchAgent as other:
                raise (error if other.kind == NoSuchAgent.kind else other) from None
        return located.store.architecture, located.store.reader, located.main
    refused: list[NotATranscript] = []
    if origin.is_dir():
        sources = walk(origin, str(origin), refused.append)
    else:
        sources = iter((Source(str(origin), path=origin),))
    found = [one for one in find_sessions(sources, "auto", refused.append) if _main(one)]
    if not found:
        raise refused[0] if refused else NotATranscript(f"{origin} holds no session")
    if len(found) > 1 and (best := _best(found, origin)) is not None:
        return best
    if len(found) > 1:
        names = ", ".join(str(_main(one)) for one in found[:_SHOWN])
        raise UsageError(
            f"{origin} holds {len(found)} sessions: {names}", hint="name one", kind="ambiguous"
        )
    architecture, main = found[0].architecture, _main(found[0])
    if main is None or not isinstance(architecture.reader, StoreReader):
        raise UsageError(
            f"a session of {architecture.name} cannot be gone on with here", kind="no-provider"
        )
    return architecture, architecture.reader, main


def _best(found: list[Found], origin: Path) -> tuple[Architecture, StoreReader, Path] | None:
    """Return the best of several files of one session; None where they are of several.

    Files that say no id hold no session that could be gone on with.
    """
    architecture = found[0].architecture
    reader, mains = architecture.reader, [main for one in found if (main := _main(one))]
    if any(one.architecture is not architecture for one in found) or not isinstance(
        reader, StoreReader
    ):
        return None
    named = {reader.native_id(main) for main in mains} - {""}
    located = reader.locate(origin, named.pop()) if len(named) == 1 else []
    return (architecture, reader, located[0]) if located else None


def _main(found: Found) -> Path | None:
    first: dict[str, Any] = {one.role: one.source.path for one in found.files.transcripts[:1]}
    return first.get("main")
