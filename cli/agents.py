"""What commands print about agents: the id of a new one, and what was refused."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentsdir.cli.exits import Exit, code_of
from agentsdir.cli.output import note, print_error, print_json
from agentsdir.engine.budget import budget_text
from agentsdir.formats.errors import AgentsdirError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.cli.environment import Environment
    from agentsdir.engine.create import CreatedAgent
    from agentsdir.engine.services import Services


def budget_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what an agent may spend and has spent, as labels and texts for people."""
    limits, spent = report["limits"], report["spent"]
    took = [f"{spent[name]:,.0f} {name}" for name in limits if name != "cost"]
    took += [f"${spent['cost']:.2f} today"] if "cost" in limits else []
    return [("budget", budget_text(limits)), ("spent", ", ".join(took))]


def print_made(env: Environment, services: Services, made: CreatedAgent, *, as_json: bool) -> int:
    """Print a new agent's id, and name damage of its source on stderr; return the exit code."""
    damage = [finding for finding in made.findings if finding.is_damage]
    if as_json:
        durability = services.disk.durability
        print_json(env, {"type": "agent", "agentId": made.agent_id, "durability": durability})
    else:
        env.stdout.write(made.agent_id + "\n")
    for finding in damage:
        note(env, str(finding))
    return Exit.PARTIAL if damage else Exit.OK


class Refusals:
    """Collects the errors of a command that acts on several agents, so that one stops no other.

    `code` is the exit code of the first error, or 0.
    """

    def __init__(self, env: Environment, *, as_json: bool) -> None:
        self._env = env
        self._as_json = as_json
        self.code = Exit.OK

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Print an `AgentsdirError` that is raised within, instead of raising it."""
        try:
            yield
        except AgentsdirError as error:
            print_error(self._env, error, as_json=self._as_json)
            self.code = self.code or code_of(error)
