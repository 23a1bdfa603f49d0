"""`agentsdir replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.conversation import render_event
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import note, print_document, print_json, print_text, wants_json
from agentsdir.engine.replay import replay, settled, state_at
from agentsdir.engine.validate.derived import compare_derived
from agentsdir.formats.errors import UsageError
from agentsdir.formats.store.log import END, parse_cursor

if TYPE_CHECKING:
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Cursor


def run(
    ctx: typer.Context,
    agent: options.Agent,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="SEQ|TIME",
            help="Read the log only up to this record number, or up to this time",
            show_default="the end",
        ),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Print stream events as JSON Lines, not text")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Print state.json as it was at that point")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare the derived files with the log, print nothing else"),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON (alone: as --events), and errors as JSON")
    ] = False,
) -> int:
    """Show a recorded session as a conversation, or play it back as stream events.

    \b
    Examples:
      agentsdir replay $id
      agentsdir replay $id --events | jq -r .type | sort | uniq -c
      agentsdir replay $id --events > talk.jsonl    # a script for --provider script
      agentsdir replay $id --at 2026-01-02T03:04:05Z --state | jq .state
      agentsdir replay $id --check

    --check prints for each derived file whether it is what the log says (same) or was so at an
    earlier point of the log (stale). It exits 1 if a file is neither.
    """
    env: Environment = ctx.obj
    if check and (at is not None or events or state):
        raise UsageError("--check is about the whole log and goes with no other option but --json")
    if events and state:
        raise UsageError("--events and --state exclude each other")
    until = END if at is None else parse_cursor(at)
    paths = find_agent(env, agent)
    if check:
        return _check(env, paths, as_json=as_json)
    if state:
        return _state(env, paths, until)
    return _play(env, paths, until, events=events or as_json)


def _play(env: Environment, paths: AgentPaths, until: Cursor, *, events: bool) -> int:
    found: list[Finding] = []
    played = replay(paths, found.append, until, streams=events)
    if events:
        for event in played:
            print_json(env, event)
    else:
        for text in settled(played, render_event):
            print_text(env, text)
    return Exit.PARTIAL if _damaged(env, found) else Exit.OK


def _state(env: Environment, paths: AgentPaths, until: Cursor) -> int:
    document, found = state_at(paths, until)
    print_document(env, document)
    return Exit.PARTIAL if _damaged(env, found) else Exit.OK


def _check(env: Environment, paths: AgentPaths, *, as_json: bool) -> int:
    compared, found = compare_derived(paths)
    as_json = wants_json(env, as_json)
    for one in compared:
        if as_json:
            print_json(env, one.as_json())
        else:
            print_text(env, f"{one}\n")
    if _damaged(env, found):
        return Exit.PARTIAL
    return Exit.FAILED if any(one.fails for one in compared) else Exit.OK


def _damaged(env: Environment, found: list[Finding]) -> bool:
    for finding in found:
        note(env, str(finding))
    return any(finding.is_damage for finding in found)
