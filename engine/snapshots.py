"""Snapshots of a session: what a program keeps of it elsewhere (docs/commands.md, "Snapshots").

The log is the truth; a snapshot is a copy for a program that holds sessions in a store of its own.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats import jsontext
from agentsdir.formats.errors import Invalid
from agentsdir.schemas.rfc3339 import is_rfc3339

if TYPE_CHECKING:
    from agentsdir.engine.progress import Progress
    from agentsdir.engine.timeline import SessionNow, Timeline
    from agentsdir.formats.blocks import Block, Usage
    from agentsdir.formats.store.state import AgentState

VERSION = 1
"""The version of the snapshots that this program writes, and of those that it reads."""
_SHAPE: dict[str, type] = {
    "sessionId": str,
    "tick": int,
    "timeline": list,
    "comState": dict,
    "dataCache": dict,
    "usage": dict,
    "timestamp": str,
}
_NAMES = {str: "text", int: "integer", list: "list", dict: "object"}


def snapshot(timeline: Timeline, now: str) -> dict[str, Any]:
    """Return a session as it is now, at one point of its log (schema session-snapshot).

    Args:
        timeline: of its agent.
        now: the time, RFC 3339.

    Raises what `read_agent` raises.
    """
    return snapshot_of(timeline.look(), now)


def snapshot_of(look: SessionNow, now: str) -> dict[str, Any]:
    """Return the snapshot of a session that was looked at."""
    state, entries, progress, _ = look
    return {
        "version": VERSION,
        "sessionId": state.session.id,
        "tick": progress.tick_count,
        "timeline": entries,
        "comState": deepcopy(state.com_state),
        "dataCache": deepcopy(state.data_cache),
        "usage": {**state.usage},
        "timestamp": now,
    }


class Inspection(NamedTuple):
    """How far a session has come, as `inspect` shows it (fields of `Progress`).

    `total_usage` are the tokens of all turns.
    """

    current_tick: int
    tick_count: int
    last_output: str | None
    last_tool_calls: list[Block]
    last_tool_results: list[Block]
    total_usage: Usage
    recording: str | None

    @classmethod
    def of(cls, progress: Progress, state: AgentState) -> Inspection:
        """Return what is to be shown of an agent."""
        return cls(**progress._asdict(), total_usage={**state.usage})

    def as_json(self) -> dict[str, Any]:
        """Return the fields as `inspect` prints them."""
        return {
            "currentTick": self.current_tick,
            "tickCount": self.tick_count,
            "lastOutput": self.last_output,
            "lastToolCalls": self.last_tool_calls,
            "lastToolResults": self.last_tool_results,
            "totalUsage": self.total_usage,
            "recording": self.recording,
        }


def inspection(timeline: Timeline) -> Inspection:
    """Return how far a session has come. Raises what `read_agent` raises.

    Args:
        timeline: of its agent.
    """
    look = timeline.look()
    return Inspection.of(look.progress, look.state)


def check_snapshot(value: Any) -> dict[str, Any]:
    """Return a snapshot that came from outside; it may have further keys, which stay.

    Raises `Invalid` (kind ``bad-snapshot``) for one of another version, and for what is none.
    """
    if not isinstance(value, dict) or type(version := value.get("version")) is not int:
        raise _bad("it is no object with a version")
    if version != VERSION:
        raise Invalid(
            f"the snapshot has version {version}, and this program reads version {VERSION}",
            hint="a callback for `on_before_restore` can bring it up to date",
            kind=BAD_SNAPSHOT,
        )
    for key, kind in _SHAPE.items():
        if type(value.get(key)) is not kind:
            raise _bad(f"{key} is {'missing' if key not in value else f'no {_NAMES[kind]}'}")
    if value["tick"] < 0:
        raise _bad("tick is below 0")
    for block in value["timeline"]:
        if not isinstance(block, dict) or not all(
            isinstance(block.get(name), str) for name in ("type", "id", "conversationId")
        ):
            raise _bad("its timeline has an entry that is no block")
    if not is_rfc3339(value["timestamp"]):
        raise _bad(f"timestamp is no time: {value['timestamp']!r:.40}")
    try:
        jsontext.encode(value)
    except Invalid as error:
        raise _bad(error.message) from None
    return value


BAD_SNAPSHOT = "bad-snapshot"


def _bad(why: str) -> Invalid:
    return Invalid(f"this is no snapshot of a session: {why}", kind=BAD_SNAPSHOT)
