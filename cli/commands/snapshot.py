"""`agentsdir snapshot`."""

from __future__ import annotations

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import note, print_document
from agentsdir.engine.snapshots import snapshot_of
from agentsdir.engine.timeline import Timeline
from agentsdir.formats.store.agent import without_live_tail
from agentsdir.formats.times import to_text


def run(ctx: typer.Context, agent: options.Agent, as_json: options.JsonErrors = False) -> int:
    """Print an agent's session as one JSON document, as a program keeps it in a store of its own.

    \b
    Examples:
      agentsdir snapshot $id > session.json
      agentsdir snapshot $id | jq -r '.timeline[].content // empty'
      agentsdir snapshot $id | jq '{tick, comState}'

    It has what a model is given of the conversation (timeline), the data that a program keeps with
    the agent (comState, dataCache), ticks and tokens. `export --bundle` writes all of an agent.
    """
    del as_json
    env: Environment = ctx.obj
    paths = find_agent(env, agent)
    look = Timeline(paths).look()
    print_document(env, snapshot_of(look, to_text(env.now())))
    damage = [one for one in without_live_tail(paths, look.findings) if one.is_damage]
    for finding in damage:
        note(env, str(finding))
    return Exit.PARTIAL if damage else Exit.OK
