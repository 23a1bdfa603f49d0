"""What commands say that keep a working directory's files, or put them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.cli.output import note
from agentsdir.engine.bundle import capture_workspace

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment
    from agentsdir.engine.services import World
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.workspace import PutBack

_NAMED = 20
"""How many files a command names one by one."""


def capture_now(env: Environment, world: World, paths: AgentPaths, *, wait: float = 0) -> None:
    """Capture an agent's working directory, and name what was passed over."""
    captured = capture_workspace(world, paths, wait=wait)
    for reason in captured.skipped:
        note(env, f"not captured: {reason}")


def note_put_back(env: Environment, done: PutBack) -> None:
    """Say which files were written into a working directory, and which were not."""
    for name in done.written[:_NAMED]:
        note(env, f"written: {done.folder / name}")
    if (more := len(done.written) - _NAMED) > 0:
        note(env, f"written: {more} more files in {done.folder}")
    for reason in done.skipped:
        note(env, f"not written: {reason}")
