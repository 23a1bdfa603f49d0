"""`agentsdir outbox`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import note, print_json, print_text, wants_json
from agentsdir.cli.services import services_of
from agentsdir.engine.lookup import each_agent, listed_agent
from agentsdir.engine.outbox import deliver, mark_all_delivered, mark_delivered, undelivered
from agentsdir.formats.errors import (
    AgentsdirError,
    Busy,
    Invalid,
    NotRecorded,
    Uncertain,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.engine.lookup import ListedAgent
    from agentsdir.engine.outbox import Undelivered


def run(
    ctx: typer.Context,
    agent: Annotated[
        str,
        typer.Argument(
            metavar="[AGENT]", help="The agent whose texts are meant", show_default="every agent"
        ),
    ] = "",
    deliver: Annotated[
        bool, typer.Option("--deliver", help="Hand the texts that wait to the outgoing hook")
    ] = False,
    done: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MSG",
            help="Record that a connector took AGENT's text MSG, or every text that waits (`all`);"
            " may be repeated",
        ),
    ] = None,
    as_json: options.TerminalJsonLines = False,
) -> int:
    """Show the texts that wait for connectors, or hand them to the outgoing hook.

    \b
    Examples:
      agentsdir outbox --json | jq -r .text
      agentsdir outbox --deliver
      agentsdir outbox $id --done vsr0ow0jz9pn2w8ca864ficd
      agentsdir outbox --done all

    The answer to a person behind a connector is handed to the hook when the turn ends. A text that
    the hook did not take waits here. Each text is handed out at least once, and in order: one that
    is refused holds up the later ones of its agent.

    --deliver shows what waits still. It exits 1 if a hook failed, 11 if an agent's turn runs (its
    own process hands the texts out), 3 if an agent cannot be written to, and else 0.
    """
    env: Environment = ctx.obj
    if done:
        if deliver:
            raise UsageError("--done records what was taken, and --deliver hands out; give one")
        return _settle(env, agent, done)
    code = Exit.OK
    if deliver:
        env.layout.check_version(writing=True)
        code = _deliver(env, agent)
    shown, damaged = _show(env, agent, as_json=as_json)
    if deliver and not shown:
        note(env, "nothing waits")
    return code or (Exit.PARTIAL if damaged else Exit.OK)


def _chosen(env: Environment, agent: str) -> Iterator[ListedAgent]:
    if agent:
        listed = listed_agent(find_agent(env, agent))
        if listed.error is not None:
            raise listed.error
        yield listed
    else:
        env.layout.check_version(writing=False)
        yield from each_agent(env.layout)


def _settle(env: Environment, agent: str, message_ids: list[str]) -> Exit:
    if "all" not in message_ids:
        if not agent:
            raise UsageError("--done MSG goes with an AGENT; --done all needs none")
        paths = find_agent(env, agent)
        env.layout.check_version(writing=True)
        mark_delivered(services_of(env), paths, *message_ids)
        return Exit.OK
    if len(message_ids) > 1:
        raise UsageError("--done all is for all that wait, and no other --done goes with it")
    env.layout.check_version(writing=True)
    services, code, count = services_of(env), Exit.OK, 0
    for listed in _chosen(env, agent):
        try:
            if listed.document is None:
                raise listed.error or Invalid(f"cannot read {listed.paths.id}")
            if listed.document["undelivered"]:
                count += mark_all_delivered(services, listed.paths)
        except (NotRecorded, Uncertain):
            raise
        except AgentsdirError as error:  # the other agents go on
            note(env, error.message)
            code = Exit.PARTIAL
    note(env, f"recorded as taken: {count}" if count else "nothing waits")
    return code


def _deliver(env: Environment, agent: str) -> Exit:
    services, code, has_no_hook = services_of(env), Exit.OK, False
    services.check_trust()  # an untrusted root must not use the user's connectors
    for listed in _chosen(env, agent):
        if listed.document is None or not listed.document["undelivered"]:
            continue
        try:
            handed = deliver(services, listed.paths)
        except Busy:
            note(env, f"a turn of agent {listed.paths.id} runs, and hands them out at its end")
            code = code or Exit.LOCKED
            continue
        except (NotRecorded, Uncertain):
            raise
        except AgentsdirError as error:  # the other agents go on
            note(env, error.message)
            code = code or Exit.PARTIAL
            continue
        has_no_hook = has_no_hook or handed.no_hook
        if handed.failed is not None:
            code = Exit.FAILED
    if has_no_hook:
        note(env, "there is no outgoing hook to take them")
    return code


def _show(env: Environment, agent: str, *, as_json: bool) -> tuple[int, bool]:
    shown, damaged = 0, False
    plain = not wants_json(env, as_json)
    for listed in _chosen(env, agent):
        if listed.document is None:
            damaged = True
            note(env, listed.error.message if listed.error else f"cannot read {listed.paths.id}")
            continue
        for one in undelivered(listed.paths, listed.document["undelivered"]):
            shown += 1
            if plain:
                print_text(env, _line(one))
            else:
                print_json(env, one.as_json())
    return shown, damaged


def _line(one: Undelivered) -> str:
    where = " ".join(str(one.data.get(name)) for name in ("connector", "userId", "channelId"))
    text = " ".join(str(one.data.get("text")).split())
    return f"{one.data.get('message_id')}  {one.agent_id}  {where}  {text}\n"
