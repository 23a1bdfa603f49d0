"""What commands print about agents: a row for each, the id of a new one, what was refused."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentsdir.cli.exits import Exit, code_of
from agentsdir.cli.output import note, print_error, print_json, print_table, wants_json
from agentsdir.engine.lookup import document_row, unreadable_row
from agentsdir.formats.errors import AgentsdirError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentsdir.cli.environment import Environment
    from agentsdir.engine.create import CreatedAgent
    from agentsdir.engine.lookup import ListedAgent
    from agentsdir.engine.services import Services

COLUMNS = ("agentId", "name", "state", "status", "provider", "lastActivity", "title")


def print_agents(env: Environment, agents: Iterable[ListedAgent], *, as_json: bool) -> Exit:
    """Print a row for each agent, and name damage on stderr; return the exit code."""
    rows: list[dict[str, Any]] = []
    failed = False
    plain = not wants_json(env, as_json)
    for listed in agents:
        if listed.document is None:
            failed = True
            row = unreadable_row(listed)
            note(env, row["error"]["message"])
        else:
            row = document_row(listed.paths, listed.document)
            for finding in listed.findings:
                if finding.is_damage:
                    failed = True
                    note(env, str(finding))
        if plain:
            rows.append(row)
        else:
            print_json(env, row)
    if plain:
        print_table(env, rows, COLUMNS)
    return Exit.PARTIAL if failed else Exit.OK


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
