"""Whether spawned agents and outgoing texts come and go as they must (SPEC.md, "Events")."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentsdir.formats.directory.records import Record

_SPAWNING = ("spawn.requested", "agent.spawned", "spawn.dropped")


class LooseEnds:
    """Follows one log: what began there, and whether it has ended."""

    def __init__(self) -> None:
        self._children: dict[str, str] = {}
        self._handed_out: dict[str, bool] = {}

    def breach(self, record: Record) -> tuple[str, str, str] | None:
        """Return what is wrong with a record after those before it: problem, reason, pointer."""
        if record.event in _SPAWNING:
            child = str(record.data.get("child"))
            status = str(record.data.get("status", record.event))
            reason = self._spawn(child, status)
            return None if reason is None else ("spawn-order", reason, "/data/child")
        if record.event.startswith("outgoing"):
            message = str(record.data.get("message_id"))
            reason = self._outgoing(message, handed_out=record.event == "outgoing.delivered")
            return None if reason is None else ("outgoing-order", reason, "/data/message_id")
        return None

    def _spawn(self, child: str, status: str) -> str | None:
        before, self._children[child] = self._children.get(child), status
        if before in ("success", "error", "spawn.dropped"):
            return f"subagent {child} has ended before"
        if status == "spawn.requested" and before is not None:
            return f"subagent {child} was asked for before"
        if status == "running" and before == "running":
            return f"subagent {child} runs already"
        if status == "spawn.dropped" and before != "spawn.requested":
            return f"subagent {child} does not wait for a turn's end"
        return None

    def _outgoing(self, message: str, *, handed_out: bool) -> str | None:
        before = self._handed_out.get(message)
        self._handed_out[message] = handed_out
        if handed_out:
            return None if before is False else f"text {message} is not there to be delivered"
        return None if before is None else f"text {message} is there already"
