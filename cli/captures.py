"""What commands say that keep a working directory's files."""

from __future__ import annotations

from agentsdir.cli.output import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths


def capture_now(env: Environment, world: World, paths: AgentPaths, *, wait: float = 0) -> None:
    """Capture an agent's working directory, and name what was passed over."""
    from agentsdir.engine.capturing import capture_workspace

    captured = capture_workspace(world, paths, wait=wait)
    for reason in captured.skipped:
        note(env, f"not captured: {reason}")
