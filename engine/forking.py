"""A new agent that goes on from where another one is (docs/moving.md, "Forks")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.engine.creation import Made, open_root
from agentsdir.engine.histories import take_over
from agentsdir.engine.identities import own_identity
from agentsdir.engine.provider_sessions import check_imported, find_provider, forked_files
from agentsdir.formats.directory import ids, locks, transcripts
from agentsdir.formats.directory.agent import open_agent, read_agent
from agentsdir.formats.directory.creation import recorded_creation
from agentsdir.formats.directory.log import read_log
from agentsdir.formats.directory.points import Point
from agentsdir.formats.directory.publishing import making_agent
from agentsdir.formats.errors import Invalid

if TYPE_CHECKING:
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.agent import Reading
    from agentsdir.formats.directory.layout import AgentPaths

# Of what the first agent was made, which is no origin of its fork.
_ORIGINS = ("adopted_from", "imported_from")


def fork_agent(world: World, paths: AgentPaths, *, name: str = "", login: str) -> Made:
    """Make an agent with the history and settings of another; that one is only read.

    An agent at work is forked as it was when its last turn ended.

    Args:
        name: the new agent's; a forked subagent needs one, and gets one.
        login: whose agent it is.

    Raises `Invalid` when a stored transcript is damaged, `ProviderError` when there is no such
    provider, and what `making_agent` raises.
    """
    reading = _settled(paths)
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
    layout = world.layout
    layout.check_version(writing=True)
    with locks.hold(layout.create_lock, brief=True, what="the agents directory"):
        open_root(world)
        agent_id, session_id = world.ids.agent(), world.ids.session()
        native = {**state.native, "id": ids.dashed(session_id), "cwd": state.cwd}
        data: dict[str, Any] = {
            **own_identity(layout, created, agent_id, name, login),
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
        if state.title:
            data["title"] = state.title
        with making_agent(layout, agent_id, session_id, world.disk) as made:
            made.append("session.created", data, world.now())
            files = forked_files(provider, saved, state.native["id"], native["id"], findings.append)
            findings += take_over(made, architecture, files, world.now())
    return Made(agent_id, findings)


def _settled(paths: AgentPaths) -> Reading:
    """Return an agent as it was before the turn that is open, if one is."""
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
    return read_agent(paths, whole=True, until=Point(seq=before))
