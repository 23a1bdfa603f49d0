"""An agent's working directory, kept and put back (docs/moving.md, "Workspace capture")."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentsdir.engine.holding import hold_turn
from agentsdir.formats.directory import workspace
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.errors import AgentsdirError

if TYPE_CHECKING:
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths


def capture_workspace(world: World, paths: AgentPaths, *, wait: float = 0) -> workspace.Captured:
    """Keep the files of an agent's working directory, and record that; no turn runs meanwhile.

    Raises `AgentsdirError` (kind ``no-workspace``) when the folder is gone, `Busy` when a turn runs
    longer than `wait` seconds, and what `check_trust` and `workspace.capture` raise.
    """
    world.check_trust()  # the log names the folder that is read
    with hold_turn(paths, wait=wait), world.disk.settled():
        with write_agent(paths, disk=world.disk) as writer:
            state = writer.state
        folder = Path(state.cwd)
        if not folder.is_dir():
            raise AgentsdirError(
                f"the working directory {folder} of agent {paths.id} is no folder",
                kind="no-workspace",
            )
        captured = workspace.capture(paths, folder, world.disk)
        with write_agent(paths, disk=world.disk, known=state) as writer:
            data = {"cwd": str(folder), **captured._asdict()}
            writer.append("workspace.captured", data, world.now())
    return captured


def put_back_workspace(world: World, paths: AgentPaths, folder: Path) -> workspace.PutBack:
    """Write captured files that are missing into a folder that the user named or stands in.

    Raises what `check_trust` and `workspace.put_back` raise.
    """
    world.check_trust()
    return workspace.put_back(paths, folder, world.is_private)
