"""`agentsdir inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsdir.cli import options
from agentsdir.cli.agents import budget_lines
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.grants import granted_mode
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import note, print_document, print_text, wants_json
from agentsdir.engine.budget import budget_report
from agentsdir.engine.bundle import saved_files
from agentsdir.engine.lookup import inspection
from agentsdir.engine.progress import ProgressFold
from agentsdir.engine.session_data import runtime_session, saved_session
from agentsdir.engine.snapshots import Inspection
from agentsdir.formats.errors import UsageError
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.saved_files import file_entries

if TYPE_CHECKING:
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState

_WIDE = 48


def run(
    ctx: typer.Context,
    agent: options.Agent,
    saved: Annotated[
        bool,
        typer.Option(
            "--saved", help="Print it as SavedSessionData: all its files; `import` takes it back"
        ),
    ] = False,
    runtime: Annotated[
        bool,
        typer.Option("--runtime", help="Print it as RuntimeSessionData: parsed into blocks, too"),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON on a terminal, too, and errors as JSON")
    ] = False,
) -> int:
    """Show everything about one agent: a page on a terminal, JSON in a pipe.

    \b
    Examples:
      agentsdir inspect $id
      agentsdir inspect $id --json | jq .state
      agentsdir inspect $id --runtime | jq '.blocks[].type'
      agentsdir inspect $id --saved | ssh there agentsdir import -
    """
    env: Environment = ctx.obj
    if saved and runtime:
        raise UsageError("--saved and --runtime exclude each other")
    paths = find_agent(env, agent)
    if saved:
        return _print_saved(env, paths)
    if runtime:
        print_document(env, runtime_session(env.layout, paths, read_agent(paths).state))
        return Exit.OK
    # The whole log, so that damage in its middle is found.
    progress = ProgressFold()
    reading = read_agent(paths, whole=True, follow=progress.follow)
    seen = inspection(paths, reading, _budget(env, paths, reading.state))
    seen.update(Inspection.of(progress.progress(), reading.state).as_json())
    seen["permissionMode"] = granted_mode(env, paths, reading.state) or seen["permissionMode"]
    if wants_json(env, as_json):
        print_document(env, seen)
    else:
        print_text(env, _page(seen))
    for finding in seen["findings"]:
        if finding["severity"] == "info":
            continue  # a stub that was set apart needs no action
        note(env, f"{finding['file']}:{finding['line']}: {finding['id']}: {finding['message']}")
    return Exit.PARTIAL if any(f["severity"] != "info" for f in seen["findings"]) else Exit.OK


def _print_saved(env: Environment, paths: AgentPaths) -> Exit:
    reading = read_agent(paths, whole=True)
    carried = saved_files(env.layout, paths, reading)
    data = saved_session(paths, reading.state)
    print_document(env, {**data, "files": file_entries(carried.files)})
    for damage in carried.damage:
        note(env, damage)
    return Exit.PARTIAL if carried.damage else Exit.OK


def _budget(env: Environment, paths: AgentPaths, state: AgentState) -> dict[str, Any] | None:
    if not state.budget:
        return None
    from agentsdir.cli.services import services_of  # a command that reads has no other use for it

    services = services_of(env)
    return budget_report(paths, state, services.now(), services.local_day)


def _open_turn(seen: dict[str, Any]) -> str | None:
    turn = seen["openTurn"]
    if turn is None:
        return None
    died = "" if seen["status"] == "running" else "; its process died, and `restore` ends it"
    return f"{turn['turnId']} since {turn['startedAt']}{died}"


def _page(seen: dict[str, Any]) -> str:
    counters, usage = seen["counters"], seen["usage"]
    native = seen["native"]
    kind = " ".join(str(value) for value in seen["descriptor"].values())
    lines = [
        ("agent", seen["agentId"]),
        ("name", seen["name"]),
        ("title", seen["title"]),
        ("state", f"{seen['state']} ({seen['status']})"),
        ("kind", kind),
        ("provider", f"{seen['provider']} {seen['model']}"),
        ("session", seen["sessionId"]),
        ("native", f"{native['architecture']} {native['id']}"),
        ("mode", seen["permissionMode"]),
        ("system", _short(seen["systemPrompt"])),
        ("fallback", " ".join(seen["fallbacks"])),
        ("process", seen["process"] and seen["process"]["pid"]),
        ("turn", _open_turn(seen)),
        ("cwd", seen["cwd"]),
        ("created", seen["createdAt"]),
        ("last turn", seen["lastActivity"]),
        ("turns", f"{counters['turns']} ({counters['failedTurns']} failed)"),
        ("blocks", counters["blocks"]),
        ("tokens", f"{'' if usage['exact'] else 'at least '}{usage['totalTokens']}"),
        ("cost", None if seen["costUsd"] is None else f"${seen['costUsd']:.4f}"),
        *(budget_lines(seen["budget"]) if seen["budget"] else ()),
        ("tags", " ".join(seen["tags"])),
        ("parent", seen["parent"] and f"{seen['parent']} (depth {seen['depth']})"),
        *(("child", f"{c['agentId']} {c['name']} ({c['status']})") for c in seen["children"]),
        ("aborted", "its turn was asked to end" if seen["isAborted"] else None),
        *(("queued", _queued(message)) for message in seen["pending"]),
        ("outgoing", len(seen["undelivered"]) or None),
        ("log", f"{seen['log']['path']} ({seen['log']['lastSeq']} records)"),
    ]
    return "".join(f"{label:<10} {value}\n" for label, value in lines if value not in (None, ""))


def _queued(message: dict[str, Any]) -> str:
    """Return a message in the inbox on one line: its id, what it is and from whom, its text."""
    texts = [part["text"] for part in message["content"] if isinstance(part.get("text"), str)]
    return (
        f"{message['messageId']} {message['kind']} {message['sender']}: {_short(' '.join(texts))}"
    )


def _short(text: str) -> str:
    said = " ".join(text.split())
    return said if len(said) <= _WIDE else said[: _WIDE - 1] + "…"
