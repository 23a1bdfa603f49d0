"""`agentsdir restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import note, print_json, print_text
from agentsdir.cli.progress import working
from agentsdir.cli.services import services_of
from agentsdir.engine.restore import restore_all, sweep_root
from agentsdir.engine.workers import available_processors
from agentsdir.formats.errors import NotRecorded, Uncertain

if TYPE_CHECKING:
    from agentsdir.engine.restore import Restored


def run(
    ctx: typer.Context,
    agents: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[AGENT]...",
            help="Ids, session ids, names, or the first 4 characters (or more) of one; @last",
            show_default="all agents",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", "-n", help="Print what would be done, and change nothing"),
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Read all logs, also those of agents that were left in order"),
    ] = False,
    jobs: options.Jobs = 0,
    as_json: options.JsonLines = False,
) -> int:
    """Bring agents to a sound state, at boot or after a crash.

    \b
    Examples:
      agentsdir restore
      agentsdir restore --dry-run
      agentsdir restore $id --json | jq .actions

    It ends turns that a crash left open and notifies the agents that wait for them, suspends
    sessions that no process holds, rebuilds derived files, and removes leftovers. The log is only
    appended to. It prints one line for each agent, and exits 3 if something was lost.
    """
    env: Environment = ctx.obj
    layout = env.layout
    layout.check_version(writing=not dry_run)
    services = services_of(env)
    if agents:
        chosen = [find_agent(env, reference) for reference in agents]
    else:
        chosen = layout.every_agent()
        for path in sweep_root(services, dry_run=dry_run):
            note(env, f"{'would have ' if dry_run else ''}removed {path}, left by a dead process")
    lossy = refused = False
    jobs = jobs or available_processors()
    # An agent that is named is read.
    full = full or bool(agents)
    found = restore_all(services, chosen, dry_run=dry_run, full=full, jobs=jobs)
    with working(env, lambda: f"looking at {len(chosen):,} agents"):
        for restored in found:
            lossy = lossy or restored.lossy
            refused = refused or isinstance(restored.error, (NotRecorded, Uncertain))
            with env.without_status():
                if as_json:
                    durability = services.disk.durability
                    row = {**restored.as_json(), "dryRun": dry_run, "durability": durability}
                    print_json(env, row)
                else:
                    _say(env, restored, dry_run=dry_run)
    if refused:
        return Exit.NOT_RECORDED
    return Exit.PARTIAL if lossy else Exit.OK


def _say(env: Environment, restored: Restored, *, dry_run: bool) -> None:
    for finding in restored.findings:
        note(env, str(finding))
    said = ", ".join(restored.actions) or "ok"
    if dry_run and restored.actions:
        said = f"would have {said}"
    if restored.error:
        note(env, restored.error.message)
        done = f"; before that {said}" if restored.actions else ""
        said = restored.error.kind + done
    print_text(env, f"{restored.agent_id}  {restored.state or 'unreadable'}  {said}\n")
