"""`agentsdir rm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.agents import Refusals
from agentsdir.cli.confirm import confirm
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agents
from agentsdir.cli.output import print_json
from agentsdir.cli.services import services_of
from agentsdir.engine.close import remove_agent
from agentsdir.formats.errors import AgentsdirError, Invalid, UsageError
from agentsdir.formats.store.agent import read_agent

if TYPE_CHECKING:
    from agentsdir.formats.store.layout import AgentPaths


def run(
    ctx: typer.Context,
    agents: Annotated[
        list[str],
        typer.Argument(
            metavar="AGENT...",
            help="Ids, session ids, whole names, or the first 4 characters (or more) of ids; @last",
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking")] = False,
    as_json: options.JsonLines = False,
) -> int:
    """Remove agents for good: their folders, with their logs and transcripts.

    \b
    Examples:
      agentsdir rm $id
      agentsdir rm --yes reviewer nightly

    It asks first, unless --yes is given. An agent whose turn runs is not removed (exit 11).
    Subagents of a removed agent stay, and still name it as their parent. A damaged agent has to be
    named by its whole id.
    """
    env: Environment = ctx.obj
    if not yes and not env.stdin.isatty():
        raise UsageError("there is no terminal to ask at", hint="--yes removes without asking")
    chosen = find_agents(env, agents)
    env.layout.check_version(writing=True)
    services = services_of(env)
    if not (yes or _confirmed(env, chosen)):
        raise AgentsdirError("nothing was removed", kind="declined")
    refusals = Refusals(env, as_json=as_json)
    for paths in chosen:
        with refusals.noted():
            remove_agent(services, paths)
            if as_json:
                durability = services.disk.durability
                print_json(env, {"type": "removed", "agentId": paths.id, "durability": durability})
    return refusals.code


def _confirmed(env: Environment, chosen: list[AgentPaths]) -> bool:
    what = "this agent" if len(chosen) == 1 else f"these {len(chosen)} agents"
    lines = [_line(paths) for paths in chosen]
    prompt = f"Remove {what} for good? [y/N] "
    try:
        return confirm(env.terminal, lines, prompt, env.notify, asker="agentsdir rm")
    except OSError as error:
        raise UsageError(
            f"cannot ask at the terminal: {error.strerror}", hint="--yes removes without asking"
        ) from error


def _line(paths: AgentPaths) -> str:
    try:
        state = read_agent(paths).state
    except Invalid as error:
        return f"{paths.id}  cannot be read: {error.message}"
    turns = state.counters["turns"]
    said = (state.name, state.title, f"{turns} turn{'' if turns == 1 else 's'}")
    return "  ".join((paths.id, *(text for text in said if text)))
