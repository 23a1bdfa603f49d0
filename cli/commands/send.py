"""`agentsdir send`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from agentsdir.adapters.protocol import RECORDABLE_MODES
from agentsdir.cli import options
from agentsdir.cli.naming import find_agent
from agentsdir.cli.options import MESSAGE, OUTPUT, TURN, WAITING, GroupedCommand
from agentsdir.cli.output import note
from agentsdir.cli.prompts import read_messages, read_prompt
from agentsdir.cli.services import services_of
from agentsdir.cli.targets import TargetOptions, find_target
from agentsdir.cli.turn_printer import RunOptions, TurnPrinter, print_message
from agentsdir.engine.dispatcher import run_inbox, run_until, send_message
from agentsdir.engine.in_turn import queue, send_from_turn
from agentsdir.engine.inbox import Message, retry_message
from agentsdir.formats.errors import Busy, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.cli.environment import Environment
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths

Command = GroupedCommand


def run(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[AGENT] [PROMPT]",
            help="The agent (an id, a session id, a name, the first 4 characters or more of one of"
            " them, @last), and the prompt; - or no prompt reads it from stdin",
        ),
    ] = None,
    last: options.Continue = False,
    to: options.To = "",
    connector: options.Connector = "",
    user: options.User = "",
    channel: options.Channel = "",
    cron: options.Cron = "",
    heartbeat: options.Heartbeat = False,
    create: options.Create = False,
    ephemeral: options.Ephemeral = False,
    provider: options.Provider = "",
    model: options.Model = "",
    system: options.System = "",
    option: options.Option = None,
    messages: options.Messages = None,
    no_stdin: options.NoStdin = False,
    message_id: options.MessageId = "",
    retry: Annotated[
        str,
        typer.Option(
            metavar="ID",
            rich_help_panel=MESSAGE,
            help="Send again the text of a message that failed or was aborted; `last`: of the last"
            " message",
        ),
    ] = "",
    no_message: Annotated[
        bool,
        typer.Option(
            "--no-message",
            rich_help_panel=MESSAGE,
            help="Send no message: run those that wait, or, if there are none, a turn without one",
        ),
    ] = False,
    sender: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="AGENT",
            rich_help_panel=MESSAGE,
            help="Send in the name of this agent; without a target, to its parent, or else to the"
            " most recent foreground agent",
            show_default="in a turn, the turn's agent",
        ),
    ] = "",
    sync: Annotated[
        bool,
        typer.Option(
            "--sync",
            rich_help_panel=MESSAGE,
            help="Put the answer into the inbox of the agent that --from names",
        ),
    ] = False,
    permission_mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            rich_help_panel=TURN,
            help="The client's permission mode for this turn",
            show_default="the agent's",
        ),
    ] = "",
    timeout: options.Timeout = 0,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            rich_help_panel=TURN,
            help="Store the stream events of the turn, for `replay --events`",
        ),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            rich_help_panel=WAITING,
            help="How long to wait for other turns of the agent and for a slot; -1: no limit",
            show_default="no limit",
        ),
    ] = None,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            rich_help_panel=WAITING,
            help="Print the message's id at once, and let another process run the turn",
        ),
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            rich_help_panel=WAITING,
            help="Do not run the turns of other agents that get this answer; it waits in their"
            " inboxes",
        ),
    ] = False,
    events: options.Events = False,
    children: Annotated[
        bool,
        typer.Option(
            "--children",
            rich_help_panel=OUTPUT,
            help="With --events: print also the blocks of the agents that it spawns, each in a"
            " conversation with the agent's id",
        ),
    ] = False,
    quiet: options.Quiet = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            rich_help_panel=OUTPUT,
            help="Print the turn's result as a JSON object, and errors as JSON, too",
        ),
    ] = False,
) -> None:
    """Give an agent a prompt and print its answer as it comes.

    \b
    Examples:
      agentsdir send $id 'fix the tests'
      git diff | agentsdir send -c 'explain this'
      agentsdir send --cron nightly-report 'write the report'
      agentsdir send --connector telegram --user 42 --channel 42 -- "$text"
      agentsdir send $id --events 'go on' | jq -r 'select(.type=="text_delta").delta'

    What is piped in is added to the prompt, after a blank line. It is not added with --connector,
    --cron or --heartbeat, and not in a loop that reads a file.

    When it exits 0, the turn is on disk. Within a turn of an agent, it sends in the name of that
    agent: it prints the message's id, and the message is run when the turn is over.
    """
    target = TargetOptions(
        words=tuple(words or ()), last=last, to=to, sender=sender, connector=connector, user=user,
        channel=channel, cron=cron, heartbeat=heartbeat, create=create, ephemeral=ephemeral,
        provider=provider, model=model, system=system, option=tuple(option or ()),
        promptless=no_message or bool(retry) or messages is not None, file=str(messages or ""),
    )  # fmt: skip
    if children and not events:
        raise UsageError("--children goes with --events")
    how = RunOptions(
        events, record, permission_mode, timeout, wait, alone, as_json, quiet, children
    )
    given = SendOptions(
        target, messages, no_wait, no_message, message_id, retry, sync, no_stdin, how
    )
    _send(ctx.obj, given)


class SendOptions(NamedTuple):
    """The options of `send`; `messages` is the file of a prompt, `retry` the id of a message."""

    target: TargetOptions
    messages: Path | None = None
    no_wait: bool = False
    no_message: bool = False
    message_id: str = ""
    retry: str = ""
    sync: bool = False
    no_stdin: bool = False
    how: RunOptions = RunOptions()


def _send(env: Environment, given: SendOptions) -> None:
    """Send the message, or run those that wait, as the options say.

    Raises `UsageError` for options that do not go together, and what `find_target` and the engine's
    functions raise.
    """
    target, retry, turn = given.target, given.retry, env.turn
    if given.no_message and turn is not None:
        raise UsageError("--no-message runs turns, and a command within a turn cannot do so")
    prompt = target.agent_and_prompt(env)[1]
    if (given.messages is not None or given.no_message or retry) and prompt != "-":
        raise UsageError("give one of: a prompt, --messages, --retry, --no-message")
    if given.no_message and (given.sync or given.no_wait or given.messages is not None or retry):
        raise UsageError(
            "--no-message sends no message, so no other option of a message goes with it"
        )
    if given.no_wait or turn is not None:
        _check_unwatched(given.how)
    # Bad input is refused before an agent is made.
    content = None if given.no_message or retry else _content(env, prompt, given)
    if given.sync and not (target.sender or retry or turn):
        raise UsageError("--sync needs --from AGENT, the agent that gets the answer")
    from_agent = find_agent(env, target.sender).id if target.sender else ""
    if turn is not None and from_agent not in ("", turn.agent_id):
        raise UsageError(
            f"a command in a turn of agent {turn.agent_id} sends in the name of that agent"
        )
    services = services_of(env)
    env.count_waits(given.how.wait)
    paths = find_target(env, services, target)
    services.layout.check_version(writing=True)
    if turn is None and not given.no_wait and paths.id in env.hook_of:
        raise Busy(
            f"agent {paths.id} waits for the hook that runs this, so its turn cannot be waited for",
            hint="`agentsdir queue` leaves it a message",
        )
    if given.no_message:
        _run_waiting(env, services, paths, given.message_id, given.how)
        return
    message = retry_message(paths, retry) if content is None else Message(content)
    message = message._replace(sync=given.sync or message.sync, id=given.message_id)
    if given.how.permission_mode in RECORDABLE_MODES:
        # Any other mode holds for the turn that this command runs, and is not recorded.
        message = message._replace(permission_mode=given.how.permission_mode)
    if from_agent:
        message = message._replace(sender=from_agent)
    if given.sync and message.sender == "cli" and turn is None:
        raise UsageError("--sync needs --from AGENT, the agent that gets the answer")
    if turn is None and not given.no_wait:
        _send_and_wait(env, services, paths, message, given.how)
        return
    give = _send_in_turn if turn is not None else _send_in_background
    message_id = give(env, services, paths, message)
    print_message(env, services, paths, message_id, as_json=given.how.as_json)


def _content(env: Environment, prompt: str, given: SendOptions) -> list[dict[str, Any]]:
    if given.messages is not None:
        return read_messages(env, given.messages)
    alone = given.target.words if not given.no_stdin and env.stdin.isatty() else ()
    if prompt == "-" and len(alone) == 1 and alone[0] != "-":
        raise UsageError(
            f"no prompt: {alone[0]!r} is taken as the agent",
            hint="a prompt comes after it; `send -c PROMPT` is for the agent of this folder",
        )
    by_program = given.target.from_connector or given.target.cron or given.target.heartbeat
    return read_prompt(env, prompt, no_stdin=given.no_stdin, add_stdin=not by_program)


def _check_unwatched(how: RunOptions) -> None:
    """Raise `UsageError` for options that have no effect on a turn that another process runs."""
    watched = {
        "--timeout": how.timeout,
        "--events": how.events,
        "--record": how.record,
        "--wait": how.wait is not None,
        "--permission-mode": how.permission_mode not in ("", *RECORDABLE_MODES),
    }
    for name in (name for name, is_given in watched.items() if is_given):
        raise UsageError(
            f"{name} is for a turn that this command runs; another process runs this one",
            hint="leave out --no-wait; within a turn, leave out the option",
        )


def _send_in_turn(env: Environment, services: Services, paths: AgentPaths, message: Message) -> str:
    """Send from the turn that this command runs in; return the message's id."""
    assert env.turn is not None
    sender = services.layout.agent(env.turn.agent_id)
    return send_from_turn(
        services, sender, env.turn.turn_id, paths, message._replace(sender=sender.id)
    )


def _send_in_background(
    env: Environment, services: Services, paths: AgentPaths, message: Message
) -> str:
    """Queue a message, start a process that runs it, and return the message's id."""
    services.check_trust()
    with services.disk.synced_at_end():
        message_id = queue(services, paths, message)
    assert services.start_turn is not None
    services.start_turn(paths, message_id, alone=False)
    return message_id


def _send_and_wait(
    env: Environment, services: Services, paths: AgentPaths, message: Message, how: RunOptions
) -> None:
    """Run a message's turn and print its answer, and those of the agent's turns that follow."""
    with TurnPrinter(env, how) as answer:
        answer.watch(paths)
        result = send_message(
            services, paths, message, answer.turn_options, how.wait_limits(env), alone=how.alone
        )
        answer.finish([result], services)
    if how.record and not result.recorded:
        note(env, "another process ran the turn, and kept no stream of it")


def _run_waiting(
    env: Environment, services: Services, paths: AgentPaths, message_id: str, how: RunOptions
) -> None:
    """Run what waits in an inbox, up to a message if one is named, and print the answers."""
    with TurnPrinter(env, how) as answer:
        answer.watch(paths)
        if message_id:
            one = run_until(
                services,
                paths,
                message_id,
                answer.turn_options,
                how.wait_limits(env),
                alone=how.alone,
            )
            done = [one]
        else:
            done = run_inbox(
                services, paths, answer.turn_options, how.wait_limits(env), alone=how.alone
            )
        answer.finish(done, services)
