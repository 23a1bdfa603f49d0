"""What commands print about agents: rows, what was made, kept or refused."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentsdir.cli.exits import Exit, code_of
from agentsdir.cli.output import note, print_error, print_json, print_text, wants_json
from agentsdir.engine.bundle import capture_workspace
from agentsdir.engine.lookup import list_row, unreadable_row
from agentsdir.engine.parse import list_native, native_row
from agentsdir.formats.errors import AgentsdirError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agentsdir.cli.environment import Environment
    from agentsdir.engine.create import CreatedAgent
    from agentsdir.engine.lookup import ListedAgent
    from agentsdir.engine.parse import ClientStore
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.workspace import PutBack


# Agents in rows: a table for people, JSON Lines for programs.

COLUMNS = ("agentId", "name", "state", "status", "provider", "lastActivity", "title")
NATIVE_COLUMNS = ("id", "adapter", "modifiedAt", "branch", "cwd", "title")
WIDE = 48


def print_agents(env: Environment, agents: Iterable[ListedAgent], *, as_json: bool) -> Exit:
    """Print a row for each agent, and say what is damaged; return the exit code for that."""
    rows: list[dict[str, Any]] = []
    failed = False
    plain = not wants_json(env, as_json)
    for listed in agents:
        if listed.reading is None:
            failed = True
            row = unreadable_row(listed)
            note(env, row["error"]["message"])
        else:
            row = list_row(listed.paths, listed.reading.state)
            for finding in listed.reading.findings:
                if finding.is_damage:
                    failed = True
                    note(env, str(finding))
        if plain:
            rows.append(row)
        else:
            print_json(env, row)
    if plain:
        print_text(env, _table(rows, COLUMNS))
    return Exit.PARTIAL if failed else Exit.OK


def print_native(env: Environment, stores: Iterable[ClientStore], *, as_json: bool) -> Exit:
    """Print a row for each session in the clients' stores; return the exit code."""
    refused: list[OSError] = []

    def refuse(error: OSError) -> None:
        refused.append(error)
        note(env, f"cannot read {error.filename}: {error.strerror}")

    rows: list[dict[str, Any]] = []
    plain = not wants_json(env, as_json)
    for architecture, session in list_native(stores, refuse):
        row = native_row(architecture, session)
        if plain:
            rows.append(row)
        else:
            print_json(env, row)
    if plain:
        print_text(env, _table(rows, NATIVE_COLUMNS))
    return Exit.PARTIAL if refused else Exit.OK


def _table(rows: list[dict[str, Any]], columns: Sequence[str]) -> str:
    cells = [list(columns), *([_cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in cells
    )


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= WIDE else text[: WIDE - 1] + "…"


# What commands say that make an agent of something that was there.


def print_made(env: Environment, services: Services, made: CreatedAgent, *, as_json: bool) -> int:
    """Print the new agent's id, name what was damaged in its source, and return the exit code."""
    damage = [finding for finding in made.findings if finding.is_damage]
    if as_json:
        durability = services.disk.durability
        print_json(env, {"type": "agent", "agentId": made.agent_id, "durability": durability})
    else:
        env.stdout.write(made.agent_id + "\n")
    for finding in damage:
        note(env, str(finding))
    return Exit.PARTIAL if damage else Exit.OK


# What commands say that keep a working directory's files, or put them back.

_NAMED = 20
"""How many files a command names one by one."""


def capture_now(
    env: Environment, services: Services, paths: AgentPaths, *, wait: float = 0
) -> None:
    """Capture an agent's working directory, and name what was passed over."""
    captured = capture_workspace(services, paths, wait=wait)
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


# Commands on several agents: what is refused to one does not stop the others.


class Refusals:
    """Says each refusal when it happens; `code` is the first one's, and 0 without any."""

    def __init__(self, env: Environment, *, as_json: bool) -> None:
        self._env = env
        self._as_json = as_json
        self.code = Exit.OK

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Take note of an error of ours instead of raising it."""
        try:
            yield
        except AgentsdirError as error:
            print_error(self._env, error, as_json=self._as_json)
            self.code = self.code or code_of(error)
