"""`agentsdir replay`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json, print_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentsdir.formats.reading.findings import Finding


def run(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(help="Id, session id, name, or a unique prefix")],
    events: Annotated[bool, typer.Option("--events", help="Print stream events")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --events")] = False,
) -> int:
    """Show a recorded session as a conversation, or play it back as stream events.

    \b
    Examples:
      agentsdir replay $id
      agentsdir replay $id --events | jq -r .type | sort | uniq -c
      agentsdir replay $id --events > talk.jsonl    # a script for --provider script
    """
    from agentsdir.cli.conversation import render_event
    from agentsdir.engine.agents import find_agent
    from agentsdir.engine.replaying import replay

    env: Environment = ctx.obj
    found: list[Finding] = []
    recorded = replay(find_agent(env.layout, agent), found.append)
    for event in recorded:
        if events or as_json:
            print_json(env, event)
        else:
            print_text(env, render_event(event))
    for finding in found:
        note(env, str(finding))
    return Exit.PARTIAL if any(finding.is_damage for finding in found) else Exit.OK
