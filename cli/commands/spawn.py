"""`agentsdir spawn`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agent
from agentsdir.cli.options import WAITING, GroupedCommand, read_pairs
from agentsdir.cli.output import print_document, print_text
from agentsdir.cli.prompts import check_text, read_prompt, with_stdin
from agentsdir.cli.services import services_of
from agentsdir.cli.turn_printer import RunOptions, TurnPrinter
from agentsdir.engine.dispatcher import run_child
from agentsdir.engine.spawn import BASE_NAME, AgentFile, SpawnRequest, create_child, read_agent_file
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from agentsdir.engine.result import TurnResult
    from agentsdir.engine.services import Services
    from agentsdir.engine.spawn import SpawnedChild
    from agentsdir.formats.store.layout import AgentPaths

SUBAGENT = "Subagent"
AGENT_FILE = "Agent file"

Command = GroupedCommand


class SpawnOptions(NamedTuple):
    """The options of `spawn`."""

    prompt: str | None
    parent: str
    name: str
    provider: str
    model: str
    system: str
    profile: str
    cwd: str
    options: list[str]
    file: Path | None
    props: list[str]
    max_ticks: int | None
    no_stdin: bool
    detach: bool
    ephemeral: bool
    events: bool
    quiet: bool
    wait: float | None
    timeout: float
    as_json: bool


def spawn(env: Environment, given: SpawnOptions) -> None:
    """Make a subagent, and run it now, in the background, or after the turn that asks for it.

    Raises `UsageError` for options that do not go together, and what `create_child` and `run_child`
    raise.
    """
    turn = env.turn
    later = "in a turn" if turn else "with --detach" if given.detach else ""
    awaited = {"--events": given.events, "--wait": given.wait, "--timeout": given.timeout}
    if later and (option := next((name for name, is_given in awaited.items() if is_given), "")):
        raise UsageError(f"{option} is for a subagent that is waited for, and not {later}")
    whose = given.parent or (turn.agent_id if turn else "")
    if not whose:
        raise UsageError("--parent AGENT says whose subagent it is")
    parent = find_agent(env, whose)
    if turn is not None and parent.id != turn.agent_id:
        raise UsageError(
            f"a turn of agent {turn.agent_id} spawns subagents of its own, and none of {parent.id}"
        )
    wanted = wanted_of(env, given)
    services = services_of(env)
    services.check_trust()
    if not later:
        _run(env, services, parent, wanted, given)
        return
    with services.disk.synced_at_end():
        child = create_child(
            services, parent, wanted, turn_id=turn.turn_id if turn else None, sync=True
        )
    if turn is None:
        assert services.start_turn is not None
        services.start_turn(child.paths, child.message_id, alone=False)
    if given.as_json:
        _print(env, services, child, "pending" if turn else "running", None)
    else:
        print_text(env, child.paths.id + "\n")


def _run(
    env: Environment,
    services: Services,
    parent: AgentPaths,
    wanted: SpawnRequest,
    given: SpawnOptions,
) -> None:
    how = RunOptions(
        given.events,
        timeout=given.timeout,
        wait=given.wait,
        as_json=given.as_json,
        quiet=given.quiet,
    )
    env.count_waits(how.wait)
    with TurnPrinter(env, how) as answer, services.disk.synced_at_end():
        child = create_child(services, parent, wanted, turn_id=None, sync=False)
        answer.watch(child.paths)
        result = run_child(services, child, answer.turn_options, how.wait_limits(env))
    if given.as_json:
        _print(env, services, child, "success", result)
    else:
        answer.finish([result], services)


def _print(
    env: Environment,
    services: Services,
    child: SpawnedChild,
    status: str,
    result: TurnResult | None,
) -> None:
    document = {
        "type": "spawned",
        "agentId": child.paths.id,
        "parentAgentId": child.parent.id,
        "name": child.name,
        "messageId": child.message_id,
        "status": status,
        "turn": result.as_json() if result else None,
        "durability": services.disk.durability,
    }
    print_document(env, document)


def wanted_of(env: Environment, given: SpawnOptions) -> SpawnRequest:
    """Return the subagent that the options and the agent file describe.

    Raises `UsageError` for bad options, and what `read_agent_file` raises.
    """
    for option in ("name", "model", "system", "profile"):
        check_text(getattr(given, option), option)
    props = read_pairs("--prop", given.props)
    for name, value in props.items():
        check_text(name + value, "prop")
    if props and given.file is None:
        raise UsageError("--prop fills in an agent file; give one by --file")
    said = AgentFile()
    if given.file is not None:
        said = read_agent_file(env.cwd / given.file, props)
    folder = env.cwd / given.cwd
    if given.cwd and not folder.is_dir():
        raise UsageError(f"--cwd {folder} is no folder")
    profile = given.profile or said.profile
    return SpawnRequest(
        content=_task(env, given, said),
        name=given.name,
        base=(given.file.stem if given.file else profile) or BASE_NAME,
        provider=given.provider or said.provider,
        model=given.model or said.model,
        system_prompt=given.system or said.system,
        profile=profile,
        cwd=str(folder.resolve()) if given.cwd else "",
        options=read_pairs("--option", given.options),
        max_ticks=given.max_ticks or said.max_ticks,
        ephemeral=given.ephemeral,
    )


def _task(env: Environment, given: SpawnOptions, said: AgentFile) -> list[dict[str, Any]]:
    if given.prompt is None and said.prompt.strip():
        text = said.prompt if given.no_stdin else with_stdin(env, said.prompt)
        return [{"type": "text", "text": text}]
    prompt = "-" if given.prompt is None else given.prompt
    return read_prompt(env, prompt, no_stdin=given.no_stdin, add_stdin=True)


def run(
    ctx: typer.Context,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROMPT]",
            help="The subagent's task; - is stdin",
            show_default="the agent file's, or else stdin",
        ),
    ] = None,
    parent: Annotated[
        str,
        typer.Option(
            metavar="AGENT",
            rich_help_panel=SUBAGENT,
            help="The agent whose subagent it becomes; needed outside a turn",
            show_default="in a turn, the turn's agent",
        ),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=SUBAGENT,
            help="Its name, unique among live siblings",
            show_default="from the agent file or the profile, and its id",
        ),
    ] = "",
    provider: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=SUBAGENT,
            help="The provider that answers",
            show_default="the parent's",
        ),
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=SUBAGENT,
            help="The provider's model",
            show_default="the parent's",
        ),
    ] = "",
    system: Annotated[
        str,
        typer.Option(metavar="TEXT", rich_help_panel=SUBAGENT, help="The system prompt"),
    ] = "",
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=SUBAGENT,
            help="The profile in profiles/ of the agents directory",
            show_default="the parent's",
        ),
    ] = "",
    cwd: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            rich_help_panel=SUBAGENT,
            help="Its working directory",
            show_default="the parent's",
        ),
    ] = "",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            rich_help_panel=SUBAGENT,
            help="A setting of the provider; may be repeated",
            show_default="the parent's, if the provider is",
        ),
    ] = None,
    max_ticks: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=SUBAGENT,
            help="How many model calls a turn may take",
            show_default="the parent's",
        ),
    ] = None,
    ephemeral: Annotated[
        bool,
        typer.Option(
            "--ephemeral", rich_help_panel=SUBAGENT, help="Remove it when its work is done"
        ),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=AGENT_FILE,
            help="Read the options above and the task from a TOML file; an option that is given"
            " replaces what the file says",
        ),
    ] = None,
    prop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            rich_help_panel=AGENT_FILE,
            help="The text that replaces {{NAME}} in the file; may be repeated",
            show_default="the file's props",
        ),
    ] = None,
    no_stdin: options.NoStdin = False,
    timeout: options.Timeout = 0,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            rich_help_panel=WAITING,
            help="Print the subagent's id at once, and let another process run it; its answer comes"
            " into the parent's inbox",
        ),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            rich_help_panel=WAITING,
            help="How long to wait for a slot; -1: no limit",
            show_default="no limit",
        ),
    ] = None,
    events: options.Events = False,
    quiet: options.Quiet = False,
    as_json: options.JsonObject = False,
) -> None:
    """Give a task to a new subagent and print its answer as it comes.

    \b
    Examples:
      git diff | agentsdir spawn 'review this' --parent $id --name reviewer
      agentsdir spawn --parent $id --file researcher.toml --prop topic=foxes
      child=$(agentsdir spawn 'count the tests' --parent $id --detach)

    The subagent sees nothing of its parent's conversation.

    Within a turn of an agent (a tool that calls this), the subagent is that agent's. Its id is
    printed at once, it runs when the turn is over, and its answer is the agent's next message.

    An agent file is TOML: provider, model, system, prompt, profile, max_ticks, and a table props
    with the texts that replace {{NAME}} in the others.
    """
    env: Environment = ctx.obj
    given = SpawnOptions(
        prompt=prompt,
        parent=parent,
        name=name,
        provider=provider,
        model=model,
        system=system,
        profile=profile,
        cwd=cwd,
        options=option or [],
        file=file,
        props=prop or [],
        max_ticks=max_ticks,
        no_stdin=no_stdin,
        detach=detach,
        ephemeral=ephemeral,
        events=events,
        quiet=quiet,
        wait=wait,
        timeout=timeout,
        as_json=as_json,
    )
    spawn(env, given)
