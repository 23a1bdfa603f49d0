"""`agentsdir list`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.agent_table import print_agents
from agentsdir.cli.environment import Environment
from agentsdir.engine.listing import STATES, Wanted
from agentsdir.engine.lookup import each_agent
from agentsdir.formats import times
from agentsdir.formats.errors import UsageError

WHICH = "Which agents"


def run(
    ctx: typer.Context,
    folder: Annotated[
        str,
        typer.Argument(
            metavar="[DIR]",
            help="With --native: the client's storage folder",
            show_default="those in your home folder",
        ),
    ] = "",
    here: Annotated[
        bool,
        typer.Option("--here", rich_help_panel=WHICH, help="Those that work in this folder"),
    ] = False,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            rich_help_panel=WHICH,
            help=f"Those in this state: {', '.join(STATES)}; may be repeated",
        ),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TAG", rich_help_panel=WHICH, help="Those that have this tag; repeated: all"
        ),
    ] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=WHICH,
            help="Those of this provider, such as claude; may be repeated",
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            rich_help_panel=WHICH,
            help="Those used since then: 30m, 3h, 2d, 1w, a day (2026-11-28) or a time",
        ),
    ] = "",
    everyone: Annotated[
        bool,
        typer.Option(
            "--all",
            rich_help_panel=WHICH,
            help="Closed agents, too, and those that are removed when they are done",
        ),
    ] = False,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree", help="Show below each agent the subagents that it made, closed ones, too"
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Show them until q is typed, those that wait or work first; a bell when one begins"
            " to wait or finishes",
        ),
    ] = False,
    native: Annotated[
        bool,
        typer.Option("--native", help="List the sessions in the clients' own stores, not agents"),
    ] = False,
    as_json: options.TerminalJsonLines = False,
    color: options.Color = "auto",
) -> int:
    """List the agents, the one used last first: a table, or JSON Lines in a pipe.

    \b
    Examples:
      agentsdir list
      agentsdir list --here --since 2d
      agentsdir list --state suspended --json | jq -r .agentId
      agentsdir list --watch
      agentsdir list --native

    A narrow terminal shows fewer columns. Closed agents are left out, unless --all, --tree or
    --state asks for them; `agentsdir archive --list` shows those that were put away.

    --native lists the sessions that Claude Code keeps below ~/.claude (or $CLAUDE_CONFIG_DIR) and
    Gemini CLI below ~/.gemini (or $GEMINI_CLI_HOME/.gemini), the one written last first.
    """
    env: Environment = ctx.obj
    wanted = Wanted(
        everyone=everyone,
        folder=str(env.cwd.resolve()) if here else "",
        states=frozenset(map(_known_state, state or ())),
        providers=frozenset(provider or ()),
        tags=frozenset(tag or ()),
        since=_time_of(since, env.now()) if since else "",
    )
    if native:
        if watch or tree or state or tag or everyone:
            raise UsageError("--native goes with --here, --provider and --since only")
        # It loads the readers of both clients.
        from agentsdir.cli.native_table import print_native, stores_in

        stores = stores_in(env, folder)
        return print_native(env, stores, wanted, as_json=as_json, color=color)
    if folder:
        raise UsageError("a DIR goes with --native", hint="--root DIR names an agents directory")
    if watch:
        if tree or as_json:
            raise UsageError("--watch goes with neither --tree nor --json")
        # It loads what drives a terminal.
        from agentsdir.cli.watch import watch_agents

        return watch_agents(env, wanted, color=color)
    env.layout.check_version(writing=False)
    return print_agents(
        env, each_agent(env.layout), wanted, as_json=as_json, tree=tree, color=color
    )


def _known_state(given: str) -> str:
    if given not in STATES:
        raise UsageError(f"there is no state {given!r}", hint=f"one of {', '.join(STATES)}")
    return given


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _time_of(given: str, now: datetime) -> str:
    """Return the time that `--since` names: so long ago, or a day or a time, local by default."""
    ago = re.fullmatch(r"([0-9]{1,6})([smhdw])", given)
    try:
        if ago:
            moment = now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        else:
            moment = datetime.fromisoformat(given).astimezone(UTC)
        return times.to_text(moment)
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since {given!r} is no time", hint="such as 30m, 3h, 2d, 1w or 2026-11-28"
        ) from None
