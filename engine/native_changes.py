"""Which session of a provider's own program an agent's turns run in (decisions D22 and D24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.formats.directory.creation import recorded_creation
from agentsdir.formats.directory.fold import FALLBACK
from agentsdir.formats.directory.log import read_records
from agentsdir.formats.directory.states import SessionState

if TYPE_CHECKING:
    from agentsdir.formats.directory.agent import AgentWriter
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


def change_native(
    writer: AgentWriter, native_id: str, reason: str, ts: str, *, cwd: str | None = None
) -> None:
    """Go on under another id of the provider's own program.

    Transcripts that are synced after this belong to the new native session; the old one's stay
    stored, and are handed to no provider.

    Args:
        reason: reset, or named by the client.
        cwd: the working directory of the new one; None for the old one's.
    """
    native = {**writer.state.native, "id": native_id}
    if cwd is not None:
        native["cwd"] = cwd
    writer.append("native.changed", {"native": native, "reason": reason}, ts)


def own_native(paths: AgentPaths, state: AgentState) -> dict[str, Any]:
    """Return the native session of the agent's own architecture, which is mostly that in force."""
    created = recorded_creation(paths)
    own: dict[str, Any] = created.data["native"] if created else state.native
    if own["architecture"] == state.native["architecture"]:
        return state.native
    for record in read_records(paths.log):
        native = record.data.get("native") if record.event == "native.changed" else None
        if isinstance(native, dict) and native.get("architecture") == own["architecture"]:
            own = native
    # The folder is the agent's, whatever an earlier record says of the session.
    return {**own, "cwd": state.cwd}


def way_back(paths: AgentPaths, state: AgentState) -> dict[str, Any] | None:
    """Return the data of the `native.changed` that ends a fallback; None where there is nothing to.

    A session that was terminated meanwhile stays where it is (decision D15).
    """
    if state.session.state is SessionState.TERMINATED:
        return None
    own = own_native(paths, state)
    return None if own == state.native else stand_in_change(own)


def stand_in_change(native: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a change to the native session of a stand-in, or back from it."""
    return {"native": native, "reason": FALLBACK}
