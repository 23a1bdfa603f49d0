"""The sessions in the real clients' own stores, for `list --native` (docs/commands.md, "Lists")."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agentsdir.cli.agent_table import age, folder_text
from agentsdir.cli.colour import style_of
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json, screen_width, wants_json
from agentsdir.cli.table import Column, Table, plain
from agentsdir.engine.inbox import unframed
from agentsdir.engine.listing import SHORT, native_owners, short_length
from agentsdir.engine.lookup import each_agent
from agentsdir.engine.parse import list_native, native_row, stores_at, stores_of
from agentsdir.formats.errors import AgentsdirError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.cli.environment import Environment
    from agentsdir.engine.listing import Wanted
    from agentsdir.engine.lookup import ListedAgent
    from agentsdir.engine.parse import ClientStore

OPEN = "open"
COLUMNS = (
    Column("session", style="tool"),
    Column("agent", least=8, most=24, style="strong"),
    Column("state", styles={OPEN: "success"}),
    Column("age", style="faint"),
    Column("provider", least=6, most=16),
    Column("branch", least=6, most=20),
    Column("folder", least=10, most=32, keep_end=True, style="faint"),
    Column("title", least=12),
)
# In a narrow terminal these go first, in this order; the id stays.
DROPPED = tuple(
    [column.title for column in COLUMNS].index(title)
    for title in ("branch", "provider", "folder", "title", "age", "agent", "state")
)


def stores_in(env: Environment, folder: str) -> list[ClientStore]:
    """Return the stores of this user's clients, or a folder as one of each client.

    Raises `UsageError` for what is no folder.
    """
    if not folder:
        return stores_of(env.home, env.cwd, env.variables)
    if not (env.cwd / folder).is_dir():
        raise UsageError(f"{folder} is no folder")
    return stores_at(env.cwd / folder)


def print_native(
    env: Environment,
    stores: Iterable[ClientStore],
    wanted: Wanted,
    *,
    as_json: bool,
    color: str = "auto",
) -> Exit:
    """Print a row for each session in the clients' stores; return the exit code.

    Args:
        wanted: of which folder, of which clients and since when.
    """
    refused: list[OSError] = []

    def refuse(error: OSError) -> None:
        refused.append(error)
        note(env, f"cannot read {error.filename}: {error.strerror}")

    owners = _owners(env)
    is_table = not wants_json(env, as_json)
    now, home = env.now(), str(env.home)
    ids: set[str] = set()
    rows: list[tuple[str, ...]] = []
    for listed in list_native(stores, refuse):
        owner = owners.get((listed.architecture.architecture, listed.session.id))
        row = native_row(listed, owner)
        ids.add(row["id"])
        if not _fits(row, wanted):
            continue
        if is_table:
            rows.append(
                (
                    plain(row["id"]),
                    _name_of(owner) if owner else "",
                    OPEN if row["process"] else "",
                    age(row["modifiedAt"], now),
                    plain(row["adapter"]),
                    plain(row["branch"]),
                    folder_text(row["cwd"], home),
                    plain(_title(row["title"])),
                )
            )
        else:
            print_json(env, row)
    if rows:
        short = short_length(ids, set())
        shown = [(one[0][:short], *one[1:]) for one in rows]
        table = Table(COLUMNS, DROPPED, shown, screen_width(env))
        # Cells and styles have escaped what is foreign.
        env.stdout.writelines(line + "\n" for line in table.lines(style_of(env, color)))
    elif is_table:
        note(env, "there is no such session" if ids else "there are no sessions")
    return Exit.PARTIAL if refused else Exit.OK


def _owners(env: Environment) -> dict[tuple[str, str], ListedAgent]:
    """Return whose sessions are whose, or nothing where the agents cannot be read."""
    with suppress(AgentsdirError):
        env.layout.check_version(writing=False)
        return native_owners(each_agent(env.layout))
    return {}


def _name_of(owner: ListedAgent) -> str:
    name = owner.document["name"] if owner.document else None
    return plain(name) if name else owner.paths.id[:SHORT]


def _fits(row: dict[str, Any], wanted: Wanted) -> bool:
    return not (
        (wanted.folder and row["cwd"] != wanted.folder)
        or (wanted.providers and row["adapter"] not in wanted.providers)
        or (wanted.since and row["modifiedAt"] < wanted.since)
    )


def _title(text: str) -> str:
    """Return a title without the tag of a prompt that is a message of another agent."""
    message = unframed(text)
    return f"from an agent: {message[1]}" if message else text
