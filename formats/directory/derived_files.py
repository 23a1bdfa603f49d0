"""Comparing an agent's derived files with what its whole log says (SPEC.md, "Derived files")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.formats.directory import derived
from agentsdir.formats.directory.agent import history_bytes, place_of
from agentsdir.formats.directory.layout import read_bytes
from agentsdir.formats.errors import Invalid

if TYPE_CHECKING:
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


def wanted_files(paths: AgentPaths, state: AgentState) -> dict[str, bytes]:
    """Return each derived file, by its path in the folder, as the whole log says it must be."""
    return {**derived.derived_documents(state), paths.history.name: history_bytes(paths)}


def wrong_files(paths: AgentPaths, state: AgentState) -> list[str]:
    """Return the derived files that are missing, unreadable, or not what the whole log says."""
    wrong = []
    for name, data in wanted_files(paths, state).items():
        try:
            current = read_bytes(place_of(paths, name), len(data) + 1)
        except FileNotFoundError:
            current = None
        except Invalid as error:
            if error.kind != "unreadable":
                raise
            current = None
        if current != data:
            wrong.append(name)
    return wrong
