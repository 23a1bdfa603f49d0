"""Capturing an agent's working directory and writing it back, and what is printed of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.cli.output import note
from agentsdir.engine.bundle import capture_workspace

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.workspace import PutBack

_MOST_NAMED = 20
"""How many files are named one by one."""


def capture_and_note(
    env: Environment, services: Services, paths: AgentPaths, *, wait: float = 0
) -> None:
    """Capture an agent's working directory, and name on stderr what was left out."""
    captured = capture_workspace(services, paths, wait=wait)
    for reason in captured.skipped:
        note(env, f"not captured: {reason}")


def note_written_files(env: Environment, done: PutBack) -> None:
    """Name on stderr which files were written to a working directory, and which were not."""
    for name in done.written[:_MOST_NAMED]:
        note(env, f"written: {done.folder / name}")
    if (more := len(done.written) - _MOST_NAMED) > 0:
        note(env, f"written: {more} more files in {done.folder}")
    for reason in done.skipped:
        note(env, f"not written: {reason}")
