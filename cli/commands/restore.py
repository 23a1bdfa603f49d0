"""`agentsdir restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json, print_text
from agentsdir.formats.errors import NotRecorded, Uncertain


def run(
    ctx: typer.Context,
    agents: Annotated[
        list[str] | None, typer.Argument(metavar="[AGENT]...", help="Which; all without any")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON Lines")] = False,
) -> int:
    """Bring agents to a sound state: what is run at boot, or after a crash.

    \b
    Examples:
      agentsdir restore
      agentsdir restore $id --json | jq .actions

    Ends turns that a crash left open, suspends sessions that nobody holds, rebuilds derived files.
    The log is only ever appended to. One line for each agent; exits 3 where something was lost.
    """
    from agentsdir.engine.agents import find_agent
    from agentsdir.engine.restoring import restore_all

    env: Environment = ctx.obj
    layout = env.layout
    layout.check_version(writing=True)
    if agents:
        chosen = [find_agent(layout, reference) for reference in agents]
    else:
        chosen = [layout.agent(agent_id) for agent_id in layout.agent_ids()]
    lossy = refused = False
    for restored in restore_all(env.world, chosen):
        lossy = lossy or restored.lossy
        refused = refused or isinstance(restored.error, (NotRecorded, Uncertain))
        if as_json:
            print_json(env, restored.as_json())
            continue
        for finding in restored.findings:
            note(env, str(finding))
        if restored.error:
            note(env, restored.error.message)
        said = restored.error.kind if restored.error else ", ".join(restored.actions)
        print_text(env, f"{restored.agent_id}  {restored.state or 'unreadable'}  {said or 'ok'}\n")
    if refused:
        return Exit.NOT_RECORDED
    return Exit.PARTIAL if lossy else Exit.OK
