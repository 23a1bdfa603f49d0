"""`agentsdir restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json, print_text
from agentsdir.cli.services import services_of
from agentsdir.engine.lookup import find_agent
from agentsdir.engine.restore import restore_all, sweep_root
from agentsdir.formats.errors import NotRecorded, Uncertain

if TYPE_CHECKING:
    from agentsdir.engine.restore import Restored


def run(
    ctx: typer.Context,
    agents: Annotated[
        list[str] | None, typer.Argument(metavar="[AGENT]...", help="Which; all without any")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Only say what would be done")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON Lines")] = False,
) -> int:
    """Bring agents to a sound state: what is run at boot, or after a crash.

    \b
    Examples:
      agentsdir restore
      agentsdir restore --dry-run
      agentsdir restore $id --json | jq .actions

    Ends turns that a crash left open and tells who waits for them, suspends sessions that nobody
    holds, rebuilds derived files, removes leftovers. The log is only ever appended to. One line for
    each agent; exits 3 where something was lost.
    """
    env: Environment = ctx.obj
    layout = env.layout
    layout.check_version(writing=not dry_run)
    services = services_of(env)
    if agents:
        chosen = [find_agent(layout, reference) for reference in agents]
    else:
        chosen = [layout.agent(agent_id) for agent_id in layout.agent_ids()]
        for path in sweep_root(services, dry_run=dry_run):
            note(env, f"{'would have ' if dry_run else ''}removed {path}, which a dead writer left")
    lossy = refused = False
    for restored in restore_all(services, chosen, dry_run=dry_run):
        lossy = lossy or restored.lossy
        refused = refused or isinstance(restored.error, (NotRecorded, Uncertain))
        if as_json:
            durability = services.disk.durability
            print_json(env, {**restored.as_json(), "dryRun": dry_run, "durability": durability})
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
