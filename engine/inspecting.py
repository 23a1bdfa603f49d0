"""Everything about one agent: its row, its inbox, its open turn, its kin, its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.engine.agents import list_row
from agentsdir.engine.routing.lineage import depth_of
from agentsdir.formats.directory import derived, locks
from agentsdir.formats.directory.agent import without_live_tail
from agentsdir.formats.directory.creation import recorded_creation
from agentsdir.formats.directory.layout import Layout
from agentsdir.formats.directory.turn_notes import read_note
from agentsdir.formats.errors import AgentsdirError

if TYPE_CHECKING:
    from agentsdir.formats.directory.agent import Reading
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


def inspection(paths: AgentPaths, reading: Reading) -> dict[str, Any]:
    """Return everything `inspect` shows: the row, the inbox, the open turn, the log."""
    state = reading.state
    document = derived.state_document(state)
    findings = without_live_tail(paths, reading.findings)
    created = recorded_creation(paths)
    mode = created.data.get("permission_mode") if created else None
    note = read_note(paths) if locks.is_held(paths.turn) else None
    return {
        **list_row(paths, state),
        "limits": state.limits,
        "fallbacks": state.fallbacks,
        "ephemeral": state.ephemeral,
        "cwd": state.cwd,
        "native": state.native,
        "permissionMode": mode if isinstance(mode, str) else None,
        "process": note.process._asdict() if note else None,
        "parent": state.parent,
        "depth": _depth(paths, state),
        "children": [{"agentId": child, **said} for child, said in state.children.items()],
        "isAborted": bool(state.open_turn and state.open_turn["aborted"]),
        "pending": state.pending,
        "undelivered": state.undelivered,
        "openTurn": state.open_turn,
        "transcripts": document["transcripts"],
        "log": {
            "path": str(paths.log),
            "size": state.position.size,
            "lastSeq": state.position.last_seq,
        },
        "findings": [finding.as_json() for finding in findings],
    }


def _depth(paths: AgentPaths, state: AgentState) -> int | None:
    """Return how many levels an agent stands below its root; None where nobody can tell."""
    try:
        return depth_of(Layout(paths.folder.parent.parent), state)
    except AgentsdirError:
        return None
