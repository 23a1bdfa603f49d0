"""What a boot does: bring every agent that nobody holds to a legal state (decisions D3, D11).

Idempotent, and it appends nothing to a healthy agent. One bad agent never stops the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agentsdir.engine.world import World
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import AgentWriter, write_agent
from agentsdir.formats.directory.layout import AgentPaths, read_json
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import AgentsdirError, Busy, Invalid
from agentsdir.formats.reading.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Restored(NamedTuple):
    """What `restore` did to one agent. `state` is None when it could not be read."""

    agent_id: str
    state: str | None
    actions: tuple[str, ...]
    findings: tuple[Finding, ...]
    error: AgentsdirError | None

    @property
    def lossy(self) -> bool:
        """Whether something that was acknowledged cannot be read any more."""
        # A torn tail was never acknowledged, and nobody is writing it: we held the lock.
        lost = (finding for finding in self.findings if finding.id != "torn-tail")
        return self.error is not None or any(finding.is_damage for finding in lost)

    def as_json(self) -> dict[str, Any]:
        """Return one line of `restore --json`."""
        error = self.error
        return {
            "type": "restored",
            "agentId": self.agent_id,
            "state": self.state,
            "actions": list(self.actions),
            "findings": [finding.as_json() for finding in self.findings],
            "error": {"kind": error.kind, "message": error.message} if error else None,
        }


def restore_all(world: World, agents: list[AgentPaths]) -> Iterator[Restored]:
    """Restore each agent in turn and say what was done."""
    for paths in agents:
        yield restore_agent(world, paths)


def restore_agent(world: World, paths: AgentPaths) -> Restored:
    """End what a crash left open, suspend what nobody holds, rebuild what is derived."""
    try:
        with (
            locks.hold(paths.turn, wait=0, what=f"agent {paths.id}"),
            write_agent(paths, whole=True) as writer,
        ):
            findings = (*writer.findings, *_compare_descriptor(writer))
            actions = [*_record_losses(writer, world.now), *end_open_turn(writer, world.now)]
            actions += _suspend(writer, world.now)
            actions += [f"rebuilt {name}" for name in writer.rebuild()]
            state = writer.state.session.state.value
            return Restored(paths.id, state, tuple(actions), findings, None)
    except Busy:
        return Restored(paths.id, "active", ("held by a living process",), (), None)
    except AgentsdirError as error:
        return Restored(paths.id, None, (), (), error)


def end_open_turn(writer: AgentWriter, now: Callable[[], str]) -> list[str]:
    """End a turn whose holder died, and settle its messages; the caller holds `.turn`."""
    turn = writer.state.open_turn
    if turn is None:
        return []
    actions = []
    if not turn["ended"]:
        aborted = {"turn_id": turn["turnId"], "reason": "crash"}
        writer.append("turn.aborted", aborted, now())
        actions.append(f"ended turn {turn['turnId']}")
    outcome = turn["ended"]
    for message_id in list(turn["messageIds"]):
        delivered = {"message_id": message_id, "outcome": outcome}
        writer.append("message.delivered", delivered, now())
        actions.append(f"settled message {message_id}: {outcome}")
    return actions


def _record_losses(writer: AgentWriter, now: Callable[[], str]) -> list[str]:
    """Put into the log what only state.json still knew: that the log was longer."""
    lost = [finding for finding in writer.findings if finding.id == "log-shorter"]
    for finding in lost:
        writer.append("restore", {"notice": finding.message}, now())
    return ["recorded the loss"] if lost else []


def _compare_descriptor(writer: AgentWriter) -> list[Finding]:
    """Say so when descriptor.json is another than the log's; the log is right (D4)."""
    path = writer.paths.descriptor
    try:
        differs = read_json(path) != writer.state.descriptor
    except FileNotFoundError:
        return []
    except Invalid:
        differs = True
    message = "descriptor.json is not what the first event says; the event stands"
    return [Finding("descriptor-differs", str(path), None, None, None, message)] if differs else []


def _suspend(writer: AgentWriter, now: Callable[[], str]) -> list[str]:
    if writer.state.session.state is not SessionState.ACTIVE:
        return []
    change = {"from": "active", "to": "suspended", "reason": "restore"}
    writer.append("session.state", change, now())
    return ["suspended"]
