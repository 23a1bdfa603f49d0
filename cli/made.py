"""What commands say that make an agent of something that was there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment
    from agentsdir.engine.create import Made
    from agentsdir.engine.services import World


def print_made(env: Environment, world: World, made: Made, *, as_json: bool) -> int:
    """Print the new agent's id, name what was damaged in its source, and return the exit code."""
    damage = [finding for finding in made.findings if finding.is_damage]
    if as_json:
        durability = world.disk.durability
        print_json(env, {"type": "agent", "agentId": made.agent_id, "durability": durability})
    else:
        env.stdout.write(made.agent_id + "\n")
    for finding in damage:
        note(env, str(finding))
    return Exit.PARTIAL if damage else Exit.OK
